"""Reads a range of offsets as Arrow batches with the columns of Spark's Kafka source, in Spark's Python workers.

Spark reuses its workers, and the workers reuse their readers, so a small micro-batch needs no new connection. This
module works without Spark too.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.consumer.arrow import binary_array, headers_array
from ottla.clients.consumer.decoding import POLL_AGAIN
from ottla.clients.consumer.ranges import RangeCollector, RangeReader, RecordsLost
from ottla.clients.errors import CorruptRecords
from ottla.records.column_kernels import repeat_texts
from ottla.spark.client_pool import ClientPool

if TYPE_CHECKING:
    from ottla.spark.offsets import OffsetRange

logger = logging.getLogger("ottla.spark")

BATCH_BYTES: Final = 2 * 1024 * 1024
"""The maximum size of an Arrow batch, unless one record alone is larger. With 8 MiB a micro-batch of 75 MB takes 10 %
longer, because Spark starts on a batch only when it is complete, and each worker needs 20 MB more memory."""
FETCH_BYTES: Final = 2 * 1024 * 1024
"""The default of max.partition.fetch.bytes here. A task reads one partition, so this is the size of a fetch. The next
fetch is in flight while one is decoded."""
_MAX_MILLIS: Final = (2**63 - 1) // 1000

_readers = ClientPool(RangeReader)


@cache
def arrow_schema(include_headers: bool = False) -> pa.Schema:
    """Return the Arrow schema of `read_range`, which is that of Spark's Kafka source."""
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

    `client` are a consumer's settings by Kafka's names. Records that are not in the log any more raise RecordsLost, and
    a corrupt batch raises CorruptRecords; without `fail_on_data_loss` they are skipped with a warning. Blocks while
    there are no records, at most default.api.timeout.ms. Raises ClientError with topic, partition and offset.
    """
    settings: dict[str, object] = {
        "max.partition.fetch.bytes": FETCH_BYTES,
        **client,
        "isolation.level": isolation_level,
        "on.corrupt.records": "raise",  # this function decides whether to skip them
        "allow.auto.create.topics": False,
    }
    schema = arrow_schema(include_headers)
    start = rng.start
    with _readers.client(settings) as reader:
        while start < rng.end:
            try:
                yield from _batches(reader, rng._replace(start=start), schema, max_bytes_per_batch)
                break
            except RecordsLost as error:
                if fail_on_data_loss:
                    raise RecordsLost(
                        f"{error}. To skip the lost records instead, set the option failOnDataLoss=false",
                        topic=rng.topic, partition=rng.partition, offset=error.offset, until=error.until,
                    ) from error  # fmt: skip
                logger.warning("%s; continuing, since failOnDataLoss is false", error)
                start = error.until
            except CorruptRecords as error:
                start = _after_corrupt(error, rng, fail_on_data_loss)


def _batches(reader: RangeReader, rng: OffsetRange, schema: pa.Schema, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of `rng` up to the first error. Raises RecordsLost, CorruptRecords, ClientError."""
    for collector in reader.read(*rng, max_bytes):
        batch = _to_arrow(collector, rng, schema)
        if batch.num_rows:
            yield batch


def _after_corrupt(error: CorruptRecords, rng: OffsetRange, fail_on_data_loss: bool) -> int:
    """Return the offset after a corrupt batch. Raises CorruptRecords if it must not or cannot be skipped."""
    until = min(error.next_offset, rng.end)
    if fail_on_data_loss or until <= error.offset:
        hint = ". To skip this batch instead, set the option failOnDataLoss=false" if until > error.offset else ""
        raise CorruptRecords(
            f"{_reason(error)}{hint}", topic=rng.topic, partition=rng.partition, offset=error.offset
        ) from error
    logger.warning(
        "%s; offsets %d to %d are skipped, since failOnDataLoss is false", _reason(error), error.offset, until - 1
    )
    return until


def _reason(error: CorruptRecords) -> str:
    return str(error).removesuffix(POLL_AGAIN)


def _to_arrow(collector: RangeCollector, rng: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    columns = collector.close()
    assert columns is not None, "a collector without records"
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
