"""`ottla stream get`: the value of a key in a table."""

from __future__ import annotations

from ottla.cli.commands import Argument, Option, Options
from ottla.cli.connect import connection_options, spark_settings
from ottla.cli.late import lookup
from ottla.cli.output import Output, output_options
from ottla.common.failure import Failure
from ottla.streams.declarations import Table
from ottla.tools.offsets import parse_past

PARAMETERS = [
    Argument("topic", "NAME", help="the topic of the table, e.g. an output of a pipeline"),
    Argument("key", "KEY", help="the key as text; of several columns as JSON"),
    Option("--as-of TIME", "the value at that time: 2026-01-31T12:00, now-1h"),
    Option("--all-partitions", "search all partitions, for producers with another partitioner than Kafka's"),
    *output_options(),
    *connection_options(),
]
EXAMPLES = """
ottla stream get counts to
ottla stream get customers a --as-of now-1h
"""


def get(options: Options) -> int:
    """Show the latest value of a key in a compacted topic. The exit code is 1 if there is no such key."""
    client = spark_settings(options)
    as_of = parse_past(options.as_of) + 1 if options.as_of else None
    place = Table(options.topic, "key", "text", as_of=as_of)
    try:
        found = lookup.find(place, options.key, client, all_partitions=options.all_partitions)
    except lookup.TableError as error:
        raise Failure(str(error)) from error
    output = Output(options)
    if found is None or found.value is None:
        output.warn(f"The table {options.topic!r} has no key {options.key!r}")
        return 1
    if output.json:
        output.object(
            {
                "key": options.key,
                "value": found.value,
                "partition": found.partition,
                "offset": found.offset,
                "timestamp": found.timestamp_ms,
            }
        )
    output.line(found.value)
    return 0
