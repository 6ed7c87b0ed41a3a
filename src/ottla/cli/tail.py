"""Show the last records of topics, then new ones, until Ctrl-C. The offsets of groups do not change.

The last 10 records of all partitions together come first, ordered by timestamp; -n 0 shows only new ones.
"""

import click

from ottla.cli.commands import Command, Option, Options
from ottla.cli.consume import read, reading_options, topic_parameters

EXAMPLES = r"""
ottla tail orders                        the last 10 records, then what comes
ottla tail orders -n 0                   what comes from now on
ottla tail orders -n 100 -e              the last 100, then end
ottla tail 'ord*' --grep ERROR           of several topics, what matches
ottla tail orders --json | jq .value     for programs
"""


_PARAMETERS = [
    *topic_parameters(),
    Option(
        "-n",
        "--last",
        type=click.IntRange(min=0),
        default=10,
        metavar="N",
        show_default=True,
        help="number of records to start with",
    ),
    Option("--count", type=click.IntRange(min=0), metavar="N", help="end after N records"),
    *reading_options(),
]


def run(options: Options) -> int:
    """Read the records and print them."""
    return read(options, offset="end", last=options.last, count=options.count)


COMMAND = Command(run, _PARAMETERS, description=__doc__, examples=EXAMPLES)
