"""The options of `ottla up` and `ottla format` for the settings of a broker."""

import click

from ottla.cli.commands import Option
from ottla.config import BROKER_SETTINGS

BROKER_OPTIONS: list[click.Parameter] = [
    Option(
        "--data DIR", "the data directory; default: $OTTLA_DATA, or ~/.local/share/ottla. For several: -X log.dirs=a,b"
    ),
    Option("--config FILE", "a server.properties file of Kafka"),
    # The settings reject other text than UTF-8 themselves, because `ottla up` may start without click.
    Option(
        "-X NAME=VALUE",
        "a setting, by Kafka's name; may be repeated",
        name="overrides",
        multiple=True,
        takes_bytes=True,
        settings=lambda: BROKER_SETTINGS,
    ),
    Option("--node-id N", "the id of this node (node.id); default: 1"),
]
