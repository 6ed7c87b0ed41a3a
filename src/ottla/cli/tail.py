"""Show the last records of topics, then what comes, until Ctrl-C. No group's positions are touched.

The last 10 of all partitions together are shown first, in the order of their timestamps; -n 0 shows new ones only.
"""

import argparse

from ottla.cli.consume import add_reading_arguments, add_topic_arguments, read, whole

EXAMPLES = r"""
ottla tail orders                        the last 10 records, then what comes
ottla tail orders -n 0                   what comes from now on
ottla tail orders -n 100 -e              the last 100, then end
ottla tail 'ord*' --grep ERROR           of several topics, what matches
ottla tail orders --json | jq .value     for programs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ottla tail`."""
    add_topic_arguments(parser)
    parser.add_argument(
        "-n", "--last", type=whole, default=10, metavar="N", help="how many to show first; default: %(default)s"
    )
    parser.add_argument("--count", type=whole, metavar="N", help="end after so many records")
    add_reading_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Read and print."""
    return read(options, offset="end", last=options.last, count=options.count)
