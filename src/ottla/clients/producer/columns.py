"""Arrow columns into encoded batches, by partition. The only file of the producer that needs pyarrow.

Rows without a partition of their own go by murmur2 of their key, those without a key go to one partition after the
other, a batch each. Rows keep their order within a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.errors import MessageTooLarge
from ottla.clients.producer.batch import RECORD_OVERHEAD, Encoded, Headers, NewRecord
from ottla.clients.producer.settings import ProducerSettings
from ottla.records import kernels
from ottla.records.murmur2 import partition_for_key

COLUMNS = ("key", "value", "partition", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """A batch for one partition."""

    partition: int
    body: Encoded


def encode_rows(
    rows: pa.Table | pa.RecordBatch, partition_count: int, settings: ProducerSettings, now_ms: int
) -> Iterator[EncodedRows]:
    """Batches of at most batch.size in the order of their first rows. Raises ValueError, MessageTooLarge."""
    columns = _checked(rows, partition_count)
    values = _bytes_of(columns.get("value"), rows.num_rows)
    keys = _bytes_of(columns.get("key"), rows.num_rows)
    timestamps = _timestamps(columns.get("timestamp"), rows.num_rows, now_ms)
    headers = _headers(columns.get("headers"), rows.num_rows)
    partitions = columns["partition"].to_pylist() if "partition" in columns else [None] * rows.num_rows
    collecting: dict[int, list[NewRecord]] = {}
    sizes: dict[int, int] = {}
    sticky = now_ms % partition_count
    for partition, key, record in zip(
        partitions, keys, zip(timestamps, keys, values, headers, strict=True), strict=True
    ):
        size = RECORD_OVERHEAD + len(key or b"") + len(record[2] or b"")
        if size > settings.max_request_size:
            raise MessageTooLarge(f"A row of {size} bytes exceeds max.request.size ({settings.max_request_size})")
        chosen = partition
        if chosen is None:
            chosen = sticky if key is None else partition_for_key(key, partition_count)
        if sizes.get(chosen, 0) + size > settings.batch_size and chosen in collecting:
            yield EncodedRows(chosen, kernels.encode_records(collecting.pop(chosen), None))
            sizes[chosen] = 0
            if partition is None and key is None:
                chosen = sticky = (sticky + 1) % partition_count
        collecting.setdefault(chosen, []).append(record)
        sizes[chosen] = sizes.get(chosen, 0) + size
    for chosen, records in collecting.items():
        yield EncodedRows(chosen, kernels.encode_records(records, None))


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


def _bytes_of(column: Any, count: int) -> Sequence[bytes | None]:
    if column is None:
        return [None] * count
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.large_binary())
    elif not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        raise ValueError(f"A column of {kind} is neither binary nor string")
    made: list[bytes | None] = column.to_pylist()
    return made


def _timestamps(column: Any, count: int, now_ms: int) -> Sequence[int]:
    if column is None:
        return [now_ms] * count
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"The column timestamp is of {column.type}; it must be integers (ms) or timestamps")
    made: list[int] = pc.fill_null(column.cast(pa.int64()), now_ms).to_pylist()
    if made and min(made) < 0:
        raise ValueError("The column timestamp has one before 1970")
    return made


def _headers(column: Any, count: int) -> Sequence[Headers]:
    if column is None:
        return [()] * count
    return [_pairs(row) if row else () for row in column.to_pylist()]


def _pairs(row: Any) -> Headers:
    pairs = []
    for pair in row:
        name, value = tuple(pair.values()) if isinstance(pair, dict) else pair
        name = name.decode() if isinstance(name, bytes) else name
        pairs.append((name, value.encode() if isinstance(value, str) else value))
    return pairs
