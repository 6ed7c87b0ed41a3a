"""The options of `ottla up` and `ottla format` that decide about a broker's settings."""

import click

from ottla.cli.commands import Option

BROKER_OPTIONS: list[click.Parameter] = [
    Option(
        "--data",
        metavar="DIR",
        help="the directory for data; default: $OTTLA_DATA, or ~/.local/share/ottla. Several: -X log.dirs=a,b",
    ),
    Option("--config", metavar="FILE", help="a Kafka server.properties to start from"),
    Option(
        "-X", "overrides", multiple=True, metavar="NAME=VALUE", help="one setting, by Kafka's name; may be repeated"
    ),
    Option("--node-id", metavar="N", help="this node's number (node.id); default: 1"),
]
