"""Encodes Arrow columns as batches by partition. The only file of the producer that needs pyarrow.

The row encoder reads the buffers of the columns directly, chunk by chunk. No row becomes a Python object, and nothing
is sorted or copied before it is written into its batch. Arrow first casts the types that the row encoder does not read
(dictionaries, views, other units of time).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]

from ottla.clients.errors import MessageTooLarge
from ottla.clients.producer.settings import ProducerSettings
from ottla.records.batch import HEADER_SIZE
from ottla.records.column_kernels import RowEncoder, Rows

if TYPE_CHECKING:
    from ottla.clients.producer._encoder import Encoded
    from ottla.clients.producer.batch import Batch

COLUMNS = ("key", "value", "partition", "timestamp", "headers")
GROUP = 1 << 20  # bytes of batches that are worth waking the sender
SMALL_CHUNK = 512  # rows; chunks that are smaller on average are combined first
STICKY_ROWS = 4096  # rows with a key but without a choice of the partitioner go to one partition, then to the next
Choose = Callable[[bytes | None, bytes | None], int]


def as_arrow(rows: Any) -> pa.Table | pa.RecordBatch:
    """The rows as a Table or RecordBatch, from anything with `__arrow_c_stream__` or `__arrow_c_array__`.

    These are DataFrames of pandas, polars and DuckDB, among others. The index of pandas is not a column. Raises
    TypeError for other objects, ValueError for columns that a record does not have.
    """
    if not isinstance(rows, (pa.Table, pa.RecordBatch)):
        if hasattr(rows, "__arrow_c_stream__"):
            rows = pa.table(rows)
        elif hasattr(rows, "__arrow_c_array__"):
            rows = pa.record_batch(rows)
        else:
            raise TypeError(
                "send_batch() takes a pyarrow Table or RecordBatch, a DataFrame of pandas or polars, or anything else "
                f"with __arrow_c_stream__, not {type(rows).__name__}; send() takes a single record"
            )
        index = [name for name in rows.schema.names if name.startswith("__index_level_")]
        if index:
            rows = rows.drop_columns(index)
    _check_names(rows.schema.names)
    return rows


def encode_rows(
    rows: pa.Table | pa.RecordBatch,
    partition_count: int,
    settings: ProducerSettings,
    now_ms: int,
    available: Sequence[int] = (),
    choose: Choose | None = None,
) -> Iterator[list[tuple[int, Encoded]]]:
    """Yield batches of at most batch.size with their partitions, in groups that are worth a request.

    A row without a partition goes to `choose(key, value)`, or is placed by murmur2 of its key. A row without key and
    partition goes to one of the `available` partitions (in ascending order), or to any if there are none.

    Raises ValueError, MessageTooLarge: all rows are checked before the first batch is returned. Batches that are
    encoded and not returned yet take at most half of buffer.memory.
    """
    rows = as_arrow(rows)
    if choose is not None:
        rows = _with_partitions(rows, choose, available or range(partition_count))
    if isinstance(rows, pa.Table):
        chunks = rows.to_batches()
        if len(chunks) > 1 and rows.num_rows < SMALL_CHUNK * len(chunks):
            chunks = rows.combine_chunks().to_batches()
    else:
        chunks = [rows]
    checked = [
        _checked(chunk, partition_count, min(settings.max_request_size, settings.buffer_memory)) for chunk in chunks
    ]
    batch_size = min(settings.batch_size, settings.max_request_size - HEADER_SIZE)
    memory = max(batch_size, settings.buffer_memory // 4)
    places = available or range(partition_count)
    after = [places[bisect_right(places, partition) % len(places)] for partition in range(partition_count)]
    encoder = RowEncoder(partition_count, batch_size, memory, now_ms, places[now_ms % len(places)], after)
    group_size = min(GROUP, settings.buffer_memory // 4)
    return _encode(checked, encoder, group_size)


def _with_partitions(rows: pa.Table | pa.RecordBatch, choose: Choose, places: Sequence[int]) -> pa.Table:
    """Add the chosen partitions, row by row in Python: slower than the murmur2 of the row encoder."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    names = table.schema.names
    nothing = [None] * table.num_rows
    keys, values = (_as_bytes(table.column(name)) if name in names else nothing for name in ("key", "value"))
    given = table.column("partition").to_pylist() if "partition" in names else nothing
    chosen: list[int | None] = []
    for row, (partition, key, value) in enumerate(zip(given, keys, values, strict=True)):
        if partition is None:
            partition = choose(key, value)
            if partition < 0:  # sticky: the row encoder handles only rows without a key
                partition = None if key is None else places[row // STICKY_ROWS % len(places)]
        chosen.append(partition)
    column = pa.array(chosen, pa.int64())
    if "partition" in names:
        return table.set_column(names.index("partition"), "partition", column)
    return table.append_column("partition", column)


def _as_bytes(column: pa.ChunkedArray) -> list[bytes | None]:
    if pa.types.is_null(column.type):
        return [None] * len(column)
    found: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return found


def _encode(chunks: list[Rows], encoder: RowEncoder, group_size: int) -> Iterator[list[tuple[int, Encoded]]]:
    group: list[tuple[int, Encoded]] = []
    size = 0
    for chunk in chunks:
        encoder.take(chunk)
        while full := encoder.encode():
            group += full
            size += sum(len(body[0]) for _, body in full)
            if size >= group_size:
                yield group
                group, size = [], 0
    yield group + encoder.finish()


class Window:
    """Limits how far `send_batch` runs ahead of the brokers: batches that wait long leave the processor's caches."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._groups: deque[tuple[Batch, int]] = deque()  # the last batch of each group, and the group's bytes
        self._ahead = 0

    def add(self, group: list[Batch]) -> Batch | None:
        """Count a group that was appended; returns the batch to wait for before the next one, or None."""
        if not group:
            return None
        size = sum(batch.size for batch in group)
        self._groups.append((group[-1], size))
        self._ahead += size
        awaited = None
        if self._ahead > self._size:
            while self._ahead > self._size // 2:
                awaited, size = self._groups.popleft()
                self._ahead -= size
        return awaited


def _check_names(names: list[str]) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not {"key", "value"} & set(names):
        raise ValueError(
            f"The columns are {', '.join(names) or '(none)'}; a record has {', '.join(COLUMNS)}, and needs a key or a "
            "value. Select and rename columns, or write each row into value, as JSON for example"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"The columns are {', '.join(names)}; each may occur once")


def _checked(chunk: pa.RecordBatch, partition_count: int, limit: int) -> Rows:
    columns = dict(zip(chunk.schema.names, chunk.columns, strict=True))
    given = {name: None if column is None else _READERS[name](column) for name, column in columns.items()}
    if "partition" in columns:
        _check_partitions(columns["partition"], partition_count)
    rows = Rows(
        chunk.num_rows, given.get("key"), given.get("value"), given.get("partition"), given.get("timestamp"),
        given.get("headers"),
    )  # fmt: skip
    if rows.largest + HEADER_SIZE > limit:
        raise MessageTooLarge(f"A row of {rows.largest} bytes exceeds max.request.size or buffer.memory ({limit})")
    if rows.earliest < 0:
        raise ValueError("The column timestamp has a value before 1970")
    return rows


def _check_partitions(column: pa.Array, partition_count: int) -> None:
    low, high = pc.min_max(column).as_py().values()
    if low is not None and not 0 <= low <= high < partition_count:
        raise ValueError(f"The column partition has {low} to {high}; the topic has 0 to {partition_count - 1}")


def _strings(column: pa.Array) -> tuple[Any, ...] | None:
    """Validity, offsets, data, index of the first row, whether offsets are int64; None if all rows are null."""
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.large_binary())
        kind = column.type
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (wide or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise ValueError(f"A column of {kind} is neither binary nor string: cast it, or write it as JSON or Avro")
    validity, offsets, data = column.buffers()
    return validity, offsets, data, column.offset, wide


def _partitions(column: pa.Array) -> tuple[Any, ...] | None:
    if pa.types.is_null(column.type):
        return None
    if not pa.types.is_integer(column.type):
        raise ValueError(f"The column partition is of {column.type}; it must be integers")
    return _numbers(column.cast(pa.int32(), safe=False))  # `_check_partitions` rejects values that do not fit


def _timestamps(column: pa.Array) -> tuple[Any, ...] | None:
    if pa.types.is_null(column.type):
        return None
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"The column timestamp is of {column.type}; it must be integers (ms) or timestamps")
    return _numbers(column.cast(pa.int64()))


def _numbers(column: pa.Array) -> tuple[Any, ...]:
    validity, numbers = column.buffers()
    return validity, numbers, column.offset


def _headers(column: pa.Array) -> tuple[Any, ...] | None:
    """Validity, offsets, index of the first row, whether offsets are int64, names, values, number of headers."""
    kind = column.type
    if pa.types.is_null(kind):
        return None
    wide = pa.types.is_large_list(kind)
    if not (wide or pa.types.is_list(kind) or pa.types.is_map(kind)):
        raise ValueError(f"The column headers is of {kind}; it must be lists of structs of name and value, or maps")
    pairs = column.values
    if not pa.types.is_struct(pairs.type) or pairs.type.num_fields != 2:
        raise ValueError(f"The column headers has lists of {pairs.type}; they must be structs of name and value")
    if pairs.null_count:
        raise ValueError("The column headers has a header that is null")
    names = pairs.field(0)
    if pa.types.is_dictionary(names.type):
        names = names.dictionary_decode()
    if not (pa.types.is_string(names.type) or pa.types.is_large_string(names.type)):
        names = names.cast(pa.large_string())  # checks that binary names are UTF-8
    validity, offsets = column.buffers()[:2]
    return (
        validity, offsets, column.offset, wide, _strings(names), _strings(pairs.field(1)), len(pairs),
    )  # fmt: skip


_READERS = {
    "key": _strings, "value": _strings, "partition": _partitions, "timestamp": _timestamps, "headers": _headers
}  # fmt: skip
