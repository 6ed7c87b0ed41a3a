"""Columns into batches, in plain Python: the reference for `_encode_columns`, and what serves without a compiler.

The columns come as the buffers that Arrow lays out, but nothing here knows Arrow. `Rows` checks them; `RowEncoder`
chooses each row's partition and writes the row at once into that partition's batch. Rows keep their order within a
partition.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ottla.records._kernels_fallback import append_record, murmur2

COMPILED = False

HEADER_SIZE = 61
RECORD_OVERHEAD = 21  # a record's own fields at their longest
PAIR_OVERHEAD = 10  # a header's

Buffer = Any  # bytes, or what gives its bytes: a pyarrow.Buffer does
# In each, `first` says where in the buffers the first row is; a validity bitmap (bit set: not null) may be None.
Strings = tuple[Buffer | None, Buffer, Buffer | None, int, bool]  # validity, offsets, data, first, int64 offsets?
Numbers = tuple[Buffer | None, Buffer, int]  # validity, numbers, first
# Validity, offsets, first, int64 offsets?, names, values, how many of these there are.
HeaderLists = tuple[Buffer | None, Buffer, int, bool, Strings | None, Strings | None, int]
# What the encoders make of records: 61 bytes of room and the records, count, base and max timestamp, last delta.
Encoded = tuple[bytearray, int, int, int, int]
Pair = tuple[bytes | None, bytes | None]


class Rows:
    """Columns of `count` rows: partitions are int32, timestamps int64 in ms; names of headers are UTF-8.

    The buffers are kept and must not change. Raises ValueError for offsets that lead out of the buffers, for buffers
    that are too short, and for a header without a name. `largest` is the most bytes that a row may take as a record,
    `earliest` the least timestamp if that is negative, otherwise 0.
    """

    def __init__(
        self,
        count: int,
        key: Strings | None,
        value: Strings | None,
        partition: Numbers | None,
        timestamp: Numbers | None,
        headers: HeaderLists | None,
    ) -> None:
        if count < 0:
            raise ValueError("Rows are made once, of 0 rows or more")
        self.count = count
        self.key = _strings(key, range(count))
        self.value = _strings(value, range(count))
        self.partition = _numbers(partition, count, "i")
        self.timestamp = _numbers(timestamp, count, "q")
        self.headers = _headers(headers, count)
        self.size = self.largest = 0
        for key_bytes, value_bytes, pairs in zip(self.key, self.value, self.headers, strict=True):
            size = RECORD_OVERHEAD + len(key_bytes or b"") + len(value_bytes or b"")
            for name, content in pairs:
                if name is None:
                    raise ValueError("The column headers has a header without a name")
                size += PAIR_OVERHEAD + len(name) + len(content or b"")
            self.largest = max(self.largest, size)
        self.earliest = min((number for number in self.timestamp if number is not None and number < 0), default=0)


class RowEncoder:
    """Rows into batches for the partitions of one topic.

    A row goes to the partition that it names, otherwise by murmur2 of its key; rows with neither go to one partition,
    from `sticky`, until a batch of that is full, then to the next, or to `after[partition]`. A batch takes at most
    `batch_size` bytes of records, or one record. When more than `room` bytes are in batches that are not full, all of
    these are given out. A row without a timestamp has `now_ms`; no timestamp may be negative.
    """

    def __init__(
        self, partitions: int, batch_size: int, room: int, now_ms: int, sticky: int, after: list[int] | None = None
    ) -> None:
        if not 0 <= sticky < partitions:
            raise ValueError(f"Partition {sticky} of {partitions}")
        self._partitions = partitions
        self._batch_size = batch_size
        self._room = room
        self._now_ms = now_ms
        self._sticky = sticky
        if after is None:
            after = [(partition + 1) % partitions for partition in range(partitions)]
        if len(after) != partitions or not 0 <= min(after) <= max(after) < partitions:
            raise ValueError(f"What comes after each of {partitions} partitions: {after}")
        self._after = list(after)
        self._open: dict[int, _Open] = {}
        self._waiting = 0
        self._rows: Rows | None = None
        self._row = 0

    def take(self, rows: Rows) -> None:
        """Go on with these rows; ValueError if there are some that are not encoded yet."""
        if self._rows is not None and self._row < self._rows.count:
            raise ValueError("There are rows that are not encoded")
        self._rows = rows
        self._row = 0

    def encode(self) -> list[tuple[int, Encoded]]:
        """The next batches that are full, in order, each with its partition; none when the rows are all taken.

        Raises ValueError for a partition that is none.
        """
        rows = self._rows
        if rows is None:
            return []
        for row in range(self._row, rows.count):
            key = rows.key[row]
            partition = rows.partition[row]
            if partition is None:
                partition = self._sticky if key is None else (murmur2(key) & 0x7FFFFFFF) % self._partitions
            elif not 0 <= partition < self._partitions:
                raise ValueError(f"There is no partition {partition}, only 0 to {self._partitions - 1}")
            given = rows.timestamp[row]
            timestamp = self._now_ms if given is None else given
            batch = self._open.get(partition)
            record = bytearray()
            delta, index = (timestamp - batch.base_timestamp, batch.count) if batch else (0, 0)
            pairs = [((name or b"").decode(), content) for name, content in rows.headers[row]]
            append_record(record, delta, index, key, rows.value[row], pairs)
            if batch and len(batch.out) + len(record) > self._batch_size + HEADER_SIZE:
                self._row = row
                if partition == self._sticky:
                    self._sticky = self._after[partition]
                return [self._close(partition)]
            if batch is None:
                batch = self._open[partition] = _Open(timestamp)
            batch.out += record
            batch.count += 1
            batch.max_timestamp = max(batch.max_timestamp, timestamp)
            self._waiting += len(record)
            if self._waiting > self._room:
                self._row = row + 1
                return self.finish()
        self._rows = None
        return []

    def finish(self) -> list[tuple[int, Encoded]]:
        """The batches that are not full, by partition."""
        return [self._close(partition) for partition in sorted(self._open)]

    def _close(self, partition: int) -> tuple[int, Encoded]:
        batch = self._open.pop(partition)
        self._waiting -= len(batch.out) - HEADER_SIZE
        return partition, (batch.out, batch.count, batch.base_timestamp, batch.max_timestamp, batch.count - 1)


class _Open:
    """A batch that rows are added to."""

    __slots__ = ("base_timestamp", "count", "max_timestamp", "out")

    def __init__(self, timestamp: int) -> None:
        self.out = bytearray(HEADER_SIZE)
        self.count = 0
        self.base_timestamp = self.max_timestamp = timestamp


def _is_valid(validity: memoryview | None, index: int) -> bool:
    return validity is None or bool(validity[index >> 3] >> (index & 7) & 1)


def _bits(buffer: Buffer | None, last: int) -> memoryview | None:
    if buffer is None:
        return None
    view = memoryview(buffer).cast("B")
    if len(view) < (last + 7) >> 3:
        raise ValueError("The columns are harmed: a bitmap that is too short")
    return view


def _values(buffer: Buffer, last: int, form: str) -> Any:
    """At least `last` numbers of a form that `struct` knows."""
    view = memoryview(buffer).cast("B")
    width = 4 if form == "i" else 8
    if len(view) // width < last:
        raise ValueError("The columns are harmed: a buffer of numbers that is too short")
    return view[: len(view) // width * width].cast(form)  # type: ignore[call-overload]


def _numbers(column: Numbers | None, count: int, form: str) -> list[int | None]:
    if column is None or count == 0:
        return [None] * count
    validity, buffer, first = column
    bits = _bits(validity, first + count)
    numbers = _values(buffer, first + count, form)
    return [numbers[i] if _is_valid(bits, i) else None for i in range(first, first + count)]


def _spans(
    validity: Buffer | None, offsets: Buffer, first: int, wide: bool, rows: range, limit: int
) -> Iterator[tuple[int, int] | None]:
    """Start and end of each row, None for one that is null."""
    if first < 0:
        raise ValueError("The columns are harmed: a negative offset")
    bits = _bits(validity, first + rows.stop)
    numbers = _values(offsets, first + rows.stop + 1, "q" if wide else "i")[first + rows.start :].tolist()
    numbers = numbers[: len(rows) + 1]
    if numbers[0] < 0 or numbers[-1] > limit or numbers != sorted(numbers):
        raise ValueError("The columns are harmed: offsets that do not ascend within the data")
    for row, span in zip(rows, pairwise(numbers), strict=True):
        yield span if _is_valid(bits, first + row) else None


def _strings(column: Strings | None, rows: range) -> list[bytes | None]:
    if column is None or rows.stop == 0:
        return [None] * len(rows)
    validity, offsets, buffer, first, wide = column
    data = memoryview(b"" if buffer is None else buffer).cast("B")
    spans = _spans(validity, offsets, first, wide, rows, len(data))
    return [None if span is None else bytes(data[span[0] : span[1]]) for span in spans]


def _headers(column: HeaderLists | None, count: int) -> list[list[Pair]]:
    if column is None or count == 0:
        return [[]] * count
    validity, offsets, first, wide, names, values, length = column
    spans = list(_spans(validity, offsets, first, wide, range(count), length))
    bounds = _values(offsets, first + count + 1, "q" if wide else "i")
    start, end = bounds[first], bounds[first + count]
    pairs = list(zip(_strings(names, range(start, end)), _strings(values, range(start, end)), strict=True))
    return [[] if span is None else pairs[span[0] - start : span[1] - start] for span in spans]
