"""Format data directories: store the cluster and the node that they belong to, so that a broker can open them.

`ottla up` formats a new directory itself. A directory that is formatted already is not changed. It is an error, unless
--ignore-formatted is given.
"""

import sys

from ottla.cli import broker_settings
from ottla.cli.broker_options import BROKER_OPTIONS
from ottla.cli.commands import Command, Option, Options
from ottla.cli.storage import check_cluster_id, directories_of, format_one, random_uuid
from ottla.cli.terminal import Style
from ottla.common.ids import uuid_to_text

EXAMPLES = """
ottla format --data ./data
ottla format --data ./second --node-id 2 --cluster-id MkU3OEVBNTcwNTJENDM2Qk
"""


_PARAMETERS = [
    *BROKER_OPTIONS,
    Option("--cluster-id ID", "22 characters of base64; default: a random one"),
    Option("--ignore-formatted", "skip directories of this cluster and node"),
]


def run(options: Options) -> int:
    """Format every directory in the settings."""
    config = broker_settings.broker_config(options)
    for warning in config.warnings:
        print(Style.of(sys.stderr).yellow(f"ottla: {warning}"), file=sys.stderr)
    cluster_id = check_cluster_id(options.cluster_id) if options.cluster_id else uuid_to_text(random_uuid())
    for directory in directories_of(config):
        meta = format_one(directory, cluster_id, config.node_id, ignore_formatted=options.ignore_formatted)
        print(
            f"{directory}: cluster {meta.cluster_id}, node {meta.node_id}, directory {uuid_to_text(meta.directory_id)}"
        )
    return 0


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
