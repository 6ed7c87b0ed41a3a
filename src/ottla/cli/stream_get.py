"""`ottla stream get`: the value of a key in a table."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ottla.cli import late
from ottla.cli.commands import Argument, Choice, Option, Options
from ottla.cli.connect import connection_options, spark_settings
from ottla.cli.output import Output, output_options
from ottla.common.failure import Failure
from ottla.streams.declarations import Table, table
from ottla.tools.offsets import parse_past

PARAMETERS = [
    Argument("topic", "NAME", help="the topic of the table, e.g. an output of a pipeline"),
    Argument("key", "KEY", help="the key as text; of several columns as JSON"),
    Option("--schema SCHEMA", "show the fields of the value: DDL, a schema of Avro, @FILE with one, or FILE#MESSAGE"),
    Option(
        "--value FORMAT", "the format of the value with this schema (json)", type=Choice(["json", "avro", "protobuf"])
    ),
    Option("--as-of TIME", "the value at that time: 2026-01-31T12:00, now-1h"),
    Option("--all-partitions", "search all partitions, for producers with another partitioner than Kafka's"),
    *output_options(),
    *connection_options(),
]
EXAMPLES = """
ottla stream get counts to
ottla stream get customers a --as-of now-1h
ottla stream get customers a --schema "name STRING, since TIMESTAMP"
ottla stream get orders 17 --value avro --schema @order.avsc
ottla stream get orders 17 --value protobuf --schema shop.desc#shop.Order
"""


def get(options: Options) -> int:
    """Show the latest value of a key in a compacted topic. The exit code is 1 if there is no such key."""
    client = spark_settings(options)
    as_of = parse_past(options.as_of) + 1 if options.as_of else None
    place = replace(_table(options), as_of=as_of)
    try:
        found = late.lookup.find(place, options.key, client, all_partitions=options.all_partitions)
    except (late.lookup.TableError, late.lookup.OptionError, late.lookup.FormatError, ImportError) as error:
        raise Failure(str(error)) from error
    output = Output(options)
    if found is None or found.value is None:
        output.warn(f"The table {options.topic!r} has no key {options.key!r}")
        return 1
    if output.json:
        output.object(
            {
                "key": options.key,
                "value": _plain(found.value),
                "partition": found.partition,
                "offset": found.offset,
                "timestamp": found.timestamp_ms,
            }
        )
    text = found.value if place.value == "text" else json.dumps(_plain(found.value), ensure_ascii=False)
    output.line(text)
    return 0


def _table(options: Options) -> Table:
    """Return the table with the given schema. Raises StreamsError, Failure."""
    if options.schema is None:
        if options.value is not None:
            raise Failure(f"--value {options.value} needs --schema, the fields of the values", exit_code=2)
        return Table(options.topic, "key", "text")
    schema = options.schema
    if schema.startswith("@"):
        try:
            schema = Path(schema[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"--schema {schema}: {error}") from error
    found: Table = table(options.topic, key="key", value=options.value or "json", schema=schema)
    return found


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: times in ISO format, bytes in base64, decimals and special numbers as text."""
    if isinstance(value, dict):
        return {str(_plain(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dt.date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if isinstance(value, Decimal) else value
