"""Show the last records of topics, then what comes, until Ctrl-C. No group's positions are touched.

The last 10 of all partitions together are shown first, in the order of their timestamps; -n 0 shows new ones only.
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
        help="how many to show first",
    ),
    Option("--count", type=click.IntRange(min=0), metavar="N", help="end after so many records"),
    *reading_options(),
]


def run(options: Options) -> int:
    """Read and print."""
    return read(options, offset="end", last=options.last, count=options.count)


COMMAND = Command(run, _PARAMETERS, description=__doc__, examples=EXAMPLES)
