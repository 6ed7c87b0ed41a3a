"""Reads a range of offsets as Arrow batches with the columns of Spark's Kafka source. Works without Spark, too."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.consumer.arrow import binary_array, headers_array
from ottla.records.column_kernels import repeat_texts
from ottla.spark.range_columns import BATCH_BYTES, read_columns

if TYPE_CHECKING:
    from ottla.records.columns import RecordColumns
    from ottla.spark.offsets import OffsetRange

_MAX_MILLIS: Final = (2**63 - 1) // 1000


@cache
def arrow_schema(include_headers: bool = False) -> pa.Schema:
    """Return the Arrow schema of `read_range`; Spark's Kafka source has the same."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)


def read_ranges(
    client: Mapping[str, object],
    ranges: Sequence[OffsetRange],
    *,
    include_headers: bool = False,
    isolation_level: str = "read_uncommitted",
    fail_on_data_loss: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges, one range after another. Small batches of different ranges are concatenated."""
    small: list[Any] = []
    size = 0
    for rng in ranges:
        for batch in read_range(
            client,
            rng,
            include_headers=include_headers,
            isolation_level=isolation_level,
            fail_on_data_loss=fail_on_data_loss,
        ):
            if len(ranges) == 1:
                yield batch
                continue
            if small and size + batch.nbytes > BATCH_BYTES:
                yield _concatenated(small)
                small, size = [], 0
            small.append(batch)
            size += batch.nbytes
    if small:
        yield _concatenated(small)


def _concatenated(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def read_range(
    client: Mapping[str, object],
    rng: OffsetRange,
    *,
    include_headers: bool = False,
    isolation_level: str = "read_uncommitted",
    fail_on_data_loss: bool = True,
    max_bytes_per_batch: int = BATCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `rng` in batches of `arrow_schema(include_headers)` that are not empty.

    Parameters and errors are the same as in `read_columns`.
    """
    schema = arrow_schema(include_headers)
    for columns in read_columns(
        client,
        rng,
        isolation_level=isolation_level,
        fail_on_data_loss=fail_on_data_loss,
        max_bytes_per_batch=max_bytes_per_batch,
    ):
        batch = _to_arrow(columns, rng, schema)
        if batch.num_rows:
            yield batch


def _to_arrow(columns: RecordColumns, rng: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    rows = columns.rows
    offsets = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)], 0)
    millis = pa.Array.from_buffers(pa.timestamp("ms", "UTC"), rows, [None, pa.py_buffer(columns.timestamps)], 0)
    arrays = [
        binary_array(pa.binary(), rows, columns.keys),
        binary_array(pa.binary(), rows, columns.values),
        binary_array(pa.string(), rows, repeat_texts([(rng.topic.encode(), rows)])),
        _repeated([(rng.partition, rows)]),
        offsets,
        _micros(millis),
        _repeated([(int(is_append_time), count) for is_append_time, count in columns.append_time_runs]),
    ]
    if len(schema) > len(arrays):
        arrays.append(_or_null(headers_array(schema.field("headers").type, columns)))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    # If the range has gaps, the last batch may contain records beyond its end.
    wanted = bisect_left(memoryview(columns.offsets).cast("q"), rng.end)
    return batch if wanted == rows else batch.slice(0, wanted)


def _micros(millis: Any) -> Any:
    try:
        return millis.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:  # an absurd timestamp must not make the record unreadable
        numbers = millis.cast(pa.int64())
        low, high = pa.scalar(-_MAX_MILLIS), pa.scalar(_MAX_MILLIS)
        clipped = pc.max_element_wise(pc.min_element_wise(numbers, high), low)
        return pc.multiply(clipped, 1000).cast(pa.timestamp("us", "UTC"))


def _or_null(headers: Any) -> Any:
    """Return the headers with null for records without headers, as Spark has them."""
    has_some = pc.greater(pc.list_value_length(headers), 0)
    ends = headers.buffers()[1]
    return pa.Array.from_buffers(headers.type, len(headers), [has_some.buffers()[1], ends], children=[headers.values])


def _repeated(runs: list[tuple[int, int]]) -> Any:
    """Return a column that repeats each number of the (number, count) pairs."""
    column = array("i")
    for number, count in runs:
        column += array("i", [number]) * count
    return pa.Array.from_buffers(pa.int32(), len(column), [None, pa.py_buffer(column)], 0)
