"""Format data directories: store the cluster and the node that they belong to, so that a broker can open them.

`ottla up` formats the directory of a single node itself. Each node of a cluster needs --cluster-id, the same for all.
If the settings have controller.quorum.bootstrap.servers, each controller also needs one of --standalone (the first
controller; others join it), --initial-controllers (the same list on each) and --no-initial-controllers (it joins a
quorum). A directory that is formatted already is an error, or skipped with --ignore-formatted; it is not changed.
"""

import secrets
import sys

from ottla.cli.broker_options import BROKER_OPTIONS
from ottla.cli.commands import Command, Option, Options, section
from ottla.cluster.first_credentials import first_credentials
from ottla.cluster.formatting import NodeFormat, feature_levels, format_node, parse_controllers, voter
from ottla.common.clock import SystemClock
from ottla.common.failure import Failure, failing_on
from ottla.common.ids import uuid_to_text
from ottla.common.style import Style
from ottla.common.system_random import random_uuid
from ottla.config import BrokerConfig
from ottla.launch import settings as broker_settings
from ottla.launch.storage import check_cluster_id, unusable
from ottla.log.files import Files
from ottla.log.storage import StorageError, read_meta
from ottla.raft import Endpoint, VoterSet

EXAMPLES = """
ottla format --data ./data
ottla format --data ./second --node-id 2 --cluster-id MkU3OEVBNTcwNTJENDM2Qk
ottla format --config c.properties -t MkU3OEVBNTcwNTJENDM2Qk --standalone
ottla format --config c.properties -t MkU3O... -I 1@a:9093:JEXY6...
ottla format --data ./third -S 'SCRAM-SHA-256=[name=ann,password=secret]'
"""

_SHOWN = (
    "--add-scram: the list of processes shows the password to other users; change it on the running cluster: "
    "`ottla security user password USER`"
)

_PARAMETERS = [
    *BROKER_OPTIONS,
    Option("-t, --cluster-id ID", "22 characters of base64; default: a random one, which is printed"),
    Option("-g, --ignore-formatted", "skip directories of this cluster and node"),
    *section(
        "The first metadata of a cluster",
        Option("-s, --standalone", "this controller is the only voter of a new quorum, to which others can be added"),
        Option(
            "-I, --initial-controllers LIST",
            "the voters of a new quorum, as ID@HOST:PORT:DIRECTORY-ID,...; use the same list on each of them",
        ),
        Option("-N, --no-initial-controllers", "this node joins a quorum that has its voters elsewhere"),
        Option("-r, --release-version VERSION", "the metadata.version, such as 4.1 or 4.1-IV0; default: the latest"),
        Option("-f, --feature NAME=LEVEL", "the level of a feature; may be repeated", name="features", multiple=True),
        Option(
            "-S, --add-scram CREDENTIAL",
            "a user, as 'SCRAM-SHA-256=[name=alice,password=...]', also with iterations=, salt= and saltedpassword= in"
            " place of the password; may be repeated",
            multiple=True,
        ),
    ),
]


def run(options: Options) -> int:
    """Format every directory in the settings."""
    config = broker_settings.broker_config(options)
    for warning in [*config.warnings, *([_SHOWN] if options.add_scram else [])]:
        print(Style.of(sys.stderr).yellow(f"ottla: {warning}"), file=sys.stderr)
    try:
        node = _node_format(config, options)
        now_ms = SystemClock().wall_ms()
        written = format_node(Files(), node, random_uuid, now_ms, ignore_formatted=options.ignore_formatted)
        known = {directory: read_meta(Files(), directory) for directory in node.directories}
    except StorageError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise unusable(str(error.filename or config.log_dirs[0]), error) from error
    for directory, meta in known.items():
        assert meta is not None
        line = f"cluster {meta.cluster_id}, node {meta.node_id}, directory {uuid_to_text(meta.directory_id)}"
        print(f"{directory}: {line}{'' if directory in written else ' (formatted before)'}")
    return 0


def _node_format(config: BrokerConfig, options: Options) -> NodeFormat:
    if options.cluster_id:
        cluster_id = check_cluster_id(options.cluster_id)
    elif config.formats_itself or options.standalone:
        cluster_id = uuid_to_text(random_uuid())
    else:
        advice = f"For a new cluster, use this one on each node: --cluster-id {uuid_to_text(random_uuid())}"
        raise Failure("--cluster-id is missing: all nodes of a cluster need the same", advice, exit_code=2)
    levels = feature_levels(options.release_version, options.features)
    return NodeFormat(
        config.node_id,
        cluster_id,
        config.directories,
        config.metadata_log_dir,
        levels,
        _first_voters(config, options),
        first_credentials(options.add_scram, levels, secrets.token_bytes),
    )


def _first_voters(config: BrokerConfig, options: Options) -> VoterSet | None:
    chosen = [bool(each) for each in (options.standalone, options.initial_controllers, options.no_initial_controllers)]
    if sum(chosen) > 1:
        problem = "--standalone, --initial-controllers and --no-initial-controllers exclude each other"
        raise Failure(problem, exit_code=2)
    roles = config.roles
    if roles.voters and (options.standalone or options.initial_controllers):
        raise Failure(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or"
            " --standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify"
            " controller.quorum.bootstrap.servers instead."
        )
    if roles.is_controller and roles.bootstrap_servers and not roles.voters and not any(chosen):
        raise Failure(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following:"
            " --standalone, --initial-controllers, or --no-initial-controllers."
        )
    _check_kraft_version(options, is_dynamic=any(chosen) and not roles.voters)
    if options.standalone:
        return _only_voter(config)
    if options.initial_controllers:
        with failing_on(ValueError, about="--initial-controllers"):
            return parse_controllers(options.initial_controllers, config.items("controller.listener.names")[0].upper())
    return None


def _check_kraft_version(options: Options, *, is_dynamic: bool) -> None:
    """The level follows from where the voters are: a level that is named must be that one. Raises Failure."""
    named = {each.replace(" ", "") for each in options.features}
    if is_dynamic and "kraft.version=0" in named:
        raise Failure(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone,"
            " --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing"
            " the --feature flag for kraft.version."
        )
    if not is_dynamic and "kraft.version=1" in named:
        raise Failure(
            "Cannot set kraft.version to 1 unless controller.quorum.voters is empty and one of the flags --standalone,"
            " --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try using"
            " one of --standalone, --initial-controllers, or --no-initial-controllers and removing"
            " controller.quorum.voters."
        )


def _only_voter(config: BrokerConfig) -> VoterSet:
    if not config.roles.is_controller:
        raise Failure("You can only use --standalone on a controller.")
    if not config.advertised_controllers:
        problem = "--standalone needs a listener of the controller, to which other nodes connect"
        raise Failure(problem, "Add one to listeners, with a name in controller.listener.names.")
    listener = config.advertised_controllers[0]
    endpoint = Endpoint(listener.name, listener.host, listener.port)
    return VoterSet.of([voter(config.node_id, random_uuid(), endpoint)])


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
