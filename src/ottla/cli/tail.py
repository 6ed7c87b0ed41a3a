"""Show the last records of topics, then new ones, until Ctrl-C. The offsets of groups do not change.

The last 10 records of all partitions together come first, ordered by timestamp; -n 0 shows only new ones.
"""

import click

from ottla.cli.commands import Command, Option, Options
from ottla.cli.consume import read, reading_options, topic_parameters

EXAMPLES = r"""
ottla tail orders                        the last 10 records, then new ones
ottla tail orders -n 0                   only new records
ottla tail orders -n 100 -e              only the last 100 records
ottla tail 'ord*' --grep ERROR           matching records of several topics
ottla tail orders --json | jq .value     as JSON lines
"""


_PARAMETERS = [
    *topic_parameters(),
    Option(
        "-n, --last N",
        "the number of existing records to show",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
    ),
    Option("--count N", "end after N records", type=click.IntRange(min=0)),
    *reading_options(),
]


def run(options: Options) -> int:
    """Read the records and print them."""
    return read(options, offset="end", last=options.last, count=options.count)


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
