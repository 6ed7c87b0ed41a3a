"""Converts columns to one Arrow batch: key, value, topic, partition, offset, timestamp (ms, UTC), headers.

The batch takes over the memory that the records were decoded into, without a copy. pyarrow is imported on first use.
Nothing here converts a Python value to Arrow: for that, pyarrow would import pandas, which takes 0.25 s.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.clients.consumer.collectors import ColumnCollector
from ottla.common.ids import TopicPartition
from ottla.records.column_kernels import repeat_texts
from ottla.records.columns import BinaryColumn, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa


@cache
def schema() -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("headers", pa.list_(header), nullable=False),
        ]
    )


def arrow_collector(max_records: int) -> ColumnCollector:
    """Return a collector for `to_arrow`. Raises ImportError, before a poll waits for records, if pyarrow is missing."""
    try:
        schema()
    except ImportError as error:
        raise ImportError("poll_arrow needs pyarrow: `pip install pyarrow` installs it", name="pyarrow") from error
    return ColumnCollector(max_records)


def to_arrow(collector: ColumnCollector) -> pa.RecordBatch:
    """Close the collector and return a batch of `schema()` with a row for each record, in order."""
    import pyarrow as pa

    columns = collector.close()
    if columns is None:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema()], schema=schema())
    return pa.RecordBatch.from_arrays(_arrays(columns, collector.runs), schema=schema())


class Place(NamedTuple):
    """Where a row of a batch is in its log."""

    topic_partition: TopicPartition
    offset: int


def places(runs: list[tuple[TopicPartition, int]], batch: pa.RecordBatch, first: int) -> list[Place]:
    """Return the first row of each partition, from the row `first` of the batch on."""
    found, start = [], 0
    for tp, count in runs:
        if first < start + count:
            found.append(Place(tp, batch.column("offset")[max(first, start)].as_py()))
        start += count
    return found


def without_rows(batch: pa.RecordBatch, rows: set[int]) -> pa.RecordBatch:
    """Return the batch without these rows."""
    import pyarrow as pa

    return batch.filter(pa.array([row not in rows for row in range(len(batch))], pa.bool_()))


def _arrays(columns: RecordColumns, runs: list[tuple[TopicPartition, int]]) -> list[Any]:
    import pyarrow as pa

    kinds = schema()
    rows = columns.rows
    timestamp, headers = kinds.field("timestamp").type, kinds.field("headers").type
    return [
        binary_array(pa.binary(), rows, columns.keys),
        binary_array(pa.binary(), rows, columns.values),
        binary_array(pa.string(), rows, repeat_texts([(tp.topic.encode(), count) for tp, count in runs])),
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(_partitions(runs))], 0),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)], 0),
        pa.Array.from_buffers(timestamp, rows, [None, pa.py_buffer(columns.timestamps)], 0),
        headers_array(headers, columns),
    ]


def binary_array(kind: Any, rows: int, column: BinaryColumn) -> Any:
    import pyarrow as pa

    validity = pa.py_buffer(column.validity) if column.nulls else None
    buffers = [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, column.nulls)


def headers_array(kind: Any, columns: RecordColumns) -> Any:
    import pyarrow as pa

    pair = kind.value_type
    count = len(columns.header_names.ends) // 4 - 1
    children = [
        binary_array(pair.field(0).type, count, columns.header_names),
        binary_array(pair.field(1).type, count, columns.header_values),
    ]
    pairs = pa.Array.from_buffers(pair, count, [None], 0, children=children)
    return pa.Array.from_buffers(kind, columns.rows, [None, pa.py_buffer(columns.header_ends)], 0, children=[pairs])


def _partitions(runs: list[tuple[TopicPartition, int]]) -> array[int]:
    column = array("i")
    for tp, count in runs:
        column += array("i", [tp.partition]) * count
    return column
