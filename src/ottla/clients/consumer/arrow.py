"""Records as one Arrow batch: key, value, topic, partition, offset, timestamp (ms, UTC), headers.

pyarrow is imported on first use.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.decoding import without_collection
from ottla.clients.consumer.record import Record

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


def schema() -> pa.Schema:
    """The columns of `poll_arrow`."""
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


def to_arrow(records: list[Record]) -> pa.RecordBatch:
    """One batch of `schema()` with a row for each record, in order; the list is empty then."""
    import pyarrow as pa

    columns = schema()
    if not records:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in columns], schema=columns)
    with without_collection():
        arrays = _arrays(records, columns)
        records.clear()
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _arrays(records: list[Record], columns: Any) -> list[Any]:
    import pyarrow as pa

    # Not zip(*records): that makes an object per record for the garbage collector to look at, ten times the work.
    offsets, timestamps, keys, values, headers = _columns(records)
    topics: list[Any] = []
    partitions: list[Any] = []
    kind: type[Record]
    for kind, run in groupby(records, type):
        count = len(list(run))
        topics.append(pa.repeat(kind.topic, count))
        partitions.append(pa.repeat(pa.scalar(kind.partition, pa.int32()), count))
    return [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.concat_arrays(topics),
        pa.concat_arrays(partitions),
        pa.array(offsets, pa.int64()),
        pa.array(timestamps, pa.int64()).cast(columns.field("timestamp").type),
        _headers(headers, columns.field("headers").type),
    ]


def _columns(records: list[Record]) -> list[list[Any]]:
    return [[row[column] for row in records] for column in range(5)]


def _headers(rows: list[list[tuple[str, bytes | None]]], kind: Any) -> Any:
    import pyarrow as pa

    ends = [0]
    flat: list[tuple[str, bytes | None]] = []
    if any(rows):
        for row in rows:
            flat += row
            ends.append(len(flat))
    else:
        ends *= len(rows) + 1
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    fields = [kind.value_type.field(0), kind.value_type.field(1)]
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), pa.StructArray.from_arrays([names, values], fields=fields), type=kind
    )
