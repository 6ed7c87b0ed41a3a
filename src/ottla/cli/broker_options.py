"""The options of `ottla up` and `ottla format` for the settings of a broker."""

import click

from ottla.cli.commands import Option

BROKER_OPTIONS: list[click.Parameter] = [
    Option(
        "--data",
        metavar="DIR",
        help="the data directory; default: $OTTLA_DATA, or ~/.local/share/ottla. For several: -X log.dirs=a,b",
    ),
    Option("--config", metavar="FILE", help="a server.properties file of Kafka"),
    Option("-X", "overrides", multiple=True, metavar="NAME=VALUE", help="a setting, by Kafka's name; may be repeated"),
    Option("--node-id", metavar="N", help="the id of this node (node.id); default: 1"),
]
