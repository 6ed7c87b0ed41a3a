"""Arrow columns into encoded batches, by partition. The only file of the producer that needs pyarrow.

Rows without a partition of their own go by murmur2 of their key, those without a key go to one partition after the
other, a batch each. Rows keep their order within a partition. Work on whole columns is Arrow's; only the bytes of a
batch become Python objects, one batch at a time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.errors import MessageTooLarge
from ottla.clients.producer.batch import RECORD_OVERHEAD, Encoded, Headers
from ottla.clients.producer.settings import ProducerSettings
from ottla.records import kernels

COLUMNS = ("key", "value", "partition", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """A batch for one partition."""

    partition: int
    body: Encoded


def encode_rows(
    rows: pa.Table | pa.RecordBatch, partition_count: int, settings: ProducerSettings, now_ms: int
) -> Iterator[EncodedRows]:
    """Batches of at most batch.size, partition by partition. Raises ValueError, MessageTooLarge.

    All rows are checked before the first batch comes out.
    """
    columns = _checked(rows, partition_count)
    count = rows.num_rows
    names = ("timestamp", "key", "value", "headers")
    given: dict[str, Any] = {name: columns.get(name) for name in names}
    given["key"], given["value"] = _binary(given["key"]), _binary(given["value"])
    given["timestamp"] = _milliseconds(given["timestamp"], now_ms)
    sizes = _cumulative_sizes(given, count, settings)
    rows_per_batch = max(1, count * settings.batch_size // (sizes[-1] if count else 1))
    chosen = _partitions(columns.get("partition"), given["key"], partition_count, rows_per_batch, now_ms)
    if chosen is None:
        yield from _encode_run(given, count, settings, now_ms, itertools.count(now_ms), partition_count)
        return
    # Stable: rows keep their order within a partition.
    order = pc.sort_indices(chosen)
    chosen = chosen.take(order)
    given = {name: column if column is None else column.take(order) for name, column in given.items()}
    start = 0
    for end in pc.run_end_encode(chosen).run_ends.to_pylist():
        partition = chosen[start].as_py()
        part = {name: column if column is None else column.slice(start, end - start) for name, column in given.items()}
        yield from _encode_run(part, end - start, settings, now_ms, itertools.repeat(partition), partition_count)
        start = end


def _encode_run(
    columns: dict[str, Any], count: int, settings: ProducerSettings, now_ms: int, turns: Iterator[int], modulus: int
) -> Iterator[EncodedRows]:
    """Rows that follow each other, cut into batches; each batch goes to the next of `turns` modulo `modulus`."""
    ends = _cumulative_sizes(columns, count, settings)
    start = 0
    while start < count:
        before = ends[start - 1] if start else 0
        stop = max(start + 1, bisect_right(ends, before + settings.batch_size, start, count))
        values, keys, headers, timestamps = (
            None if column is None else column.slice(start, stop - start).to_pylist()
            for column in (columns["value"], columns["key"], columns["headers"], columns["timestamp"])
        )
        records = zip(
            timestamps or itertools.repeat(now_ms, stop - start),
            keys or itertools.repeat(None, stop - start),
            values or itertools.repeat(None, stop - start),
            itertools.repeat((), stop - start) if headers is None else [_pairs(row) if row else () for row in headers],
            strict=True,
        )
        yield EncodedRows(next(turns) % modulus, kernels.encode_records(records, None))
        start = stop


def _cumulative_sizes(columns: dict[str, Any], count: int, settings: ProducerSettings) -> Sequence[int]:
    """Bytes of the rows up to and with each; headers are left out, they are small. Raises MessageTooLarge."""
    sizes: Any = pa.scalar(RECORD_OVERHEAD, pa.int64())
    for name in ("key", "value"):
        if columns[name] is not None:
            sizes = pc.add(sizes, pc.fill_null(pc.binary_length(columns[name]), 0).cast(pa.int64()))
    largest = pc.max(sizes).as_py() if count else 0
    if largest > settings.max_request_size:
        raise MessageTooLarge(f"A row of {largest} bytes exceeds max.request.size ({settings.max_request_size})")
    total = pc.cumulative_sum(sizes)
    if isinstance(total, pa.ChunkedArray):
        total = total.combine_chunks()
    return memoryview(total.buffers()[1]).cast("q")[total.offset : total.offset + count] if count else []


def _partitions(given: Any, keys: Any, partition_count: int, rows_per_batch: int, now_ms: int) -> Any:
    """The partition of each row; None if any will do for all.

    Among rows that have one, those for which any will do are given theirs by place, a batch's worth at a time.
    """
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if given is not None and not given.null_count:
        return given
    if keys is None or keys.null_count == len(keys):
        if given is None or given.null_count == len(given):
            return None
        keys = pa.nulls(len(given))
    murmur2 = kernels.murmur2
    hashed = pa.array(
        [
            ((now_ms + row // rows_per_batch) if key is None else (murmur2(key) & 0x7FFFFFFF)) % partition_count
            for row, key in enumerate(keys.to_pylist())
        ],
        pa.int32(),
    )
    return hashed if given is None else pc.coalesce(given.cast(pa.int32()), hashed)


def _checked(rows: pa.Table | pa.RecordBatch, partition_count: int) -> dict[str, Any]:
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or not {"key", "value"} & set(columns):
        raise ValueError(f"Columns {', '.join(columns) or '(none)'}: there may be {', '.join(COLUMNS)}, at least value")
    if "partition" in columns and rows.num_rows:
        partitions = columns["partition"]
        if not pa.types.is_integer(partitions.type):
            raise ValueError(f"The column partition is of {partitions.type}; it must be integers")
        low, high = pc.min_max(partitions).as_py().values()
        if low is not None and not 0 <= low <= high < partition_count:
            raise ValueError(f"The column partition has {low} to {high}; the topic has 0 to {partition_count - 1}")
    return columns


def _binary(column: Any) -> Any:
    """The column as large binary, None if there is none."""
    if column is None:
        return None
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column if pa.types.is_large_binary(kind) else column.cast(pa.large_binary())
    raise ValueError(f"A column of {kind} is neither binary nor string")


def _milliseconds(column: Any, now_ms: int) -> Any:
    """The column as int64 milliseconds without nulls, None if there is none."""
    if column is None:
        return None
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"The column timestamp is of {column.type}; it must be integers (ms) or timestamps")
    made = pc.fill_null(column.cast(pa.int64()), now_ms)
    if len(made) and pc.min(made).as_py() < 0:
        raise ValueError("The column timestamp has one before 1970")
    return made


def _pairs(row: Any) -> Headers:
    pairs = []
    for pair in row:
        name, value = tuple(pair.values()) if isinstance(pair, dict) else pair
        name = name.decode() if isinstance(name, bytes) else name
        pairs.append((name, value.encode() if isinstance(value, str) else value))
    return pairs
