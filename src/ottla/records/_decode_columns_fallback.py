"""Batches into columns in plain Python: the same promises as the compiled kernel, for places without a compiler.

Nothing is allocated on the word of a length field before the bytes are known to be there. One conformance suite runs
over both modules.
"""

from array import array
from struct import Struct
from typing import Final, NamedTuple

from ottla.common.errors import KafkaError
from ottla.records._kernels_fallback import _check_count, _check_end, _headers, _shape
from ottla.records.batch import CODEC_MASK, CONTROL, HEADER_SIZE, LOG_OVERHEAD, Buffer, check_crc, read_header, wrap64
from ottla.records.columns import BinaryColumn, RecordColumns

COMPILED = False

_LARGEST_DATA: Final = 0x7FFFFFFF
_START: Final = Struct(">qi")
_DELTA: Final = Struct(">i")
_DELTA_POSITION: Final = 23


class _Row(NamedTuple):
    offset: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None
    headers: list[tuple[str, bytes | None]]
    size: int


class _Binary:
    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("i", [0])
        self.present = bytearray()

    def put(self, field: Buffer | None) -> None:
        self.present.append(field is not None)
        if field is not None:
            self.data += field
        self.ends.append(len(self.data))

    def closed(self) -> BinaryColumn:
        present = self.present
        nulls = present.count(0)
        validity = bytearray((len(present) + 7) // 8)
        if nulls < len(present):
            for index, bit in enumerate(present):
                validity[index >> 3] |= bit << (index & 7)
        return BinaryColumn(validity, bytearray(self.ends.tobytes()), self.data, nulls)


class Columns:
    """Records as columns, at most `most_rows`; beyond `most_bytes` of records only if the first one is larger.

    `rows` is how many there are, `size` how many bytes they took, `full` whether there was one that did not fit or none
    could any more. `expected_bytes` of values get their memory at once.
    """

    def __init__(self, most_rows: int, most_bytes: int, expected_bytes: int = 0) -> None:  # noqa: ARG002 - a hint
        if most_rows < 1 or most_bytes < 1:
            raise ValueError(f"Columns of {most_rows} rows and {most_bytes} bytes at most hold nothing")
        self.rows = self.size = 0
        self.full = False
        self._most_rows = most_rows
        # A third, since the replacement for a byte that is no UTF-8 is three.
        self._most_bytes = min(most_bytes, _LARGEST_DATA // 3)
        self._offsets, self._timestamps, self._header_ends = array("q"), array("q"), array("i", [0])
        self._keys, self._values, self._names, self._header_values = _Binary(), _Binary(), _Binary(), _Binary()
        self._runs: list[tuple[bool, int]] = []
        self._closed = False

    def add_records(
        self,
        data: Buffer,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        wanted: int,
    ) -> int | None:
        """The records of one batch from offset `wanted` on: None, or the next offset where they did not all fit.

        `append_time` replaces the records' own timestamps. Raises KafkaError(INVALID_RECORD) for a structure that
        cannot be; the columns are then as they were.
        """
        self._check_open()
        if start < 0 or end > len(data) or start > end:
            raise IndexError(f"{start}:{end} is not within {len(data)} bytes")
        taken: list[_Row] = []
        rows, size = self.rows, self.size
        is_cut = False
        for row in self._rows(memoryview(data), start, end, count, base_offset, base_timestamp, append_time):
            if is_cut or row.offset < wanted:
                continue
            if rows >= self._most_rows or (rows and row.size > self._most_bytes - size):
                is_cut = True
                continue
            taken.append(row)
            rows += 1
            size += row.size
        for row in taken:
            self._put(row)
        if taken:
            kind = append_time is not None
            before = self._runs.pop()[1] if self._runs and self._runs[-1][0] is kind else 0
            self._runs.append((kind, before + len(taken)))
        self.rows, self.size = rows, size
        self.full = is_cut or rows >= self._most_rows or size >= self._most_bytes
        if not is_cut:
            return None
        return wrap64(taken[-1].offset + 1) if taken else wanted

    @staticmethod
    def _rows(
        data: memoryview,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
    ) -> list[_Row]:
        _check_count(count, start, end)
        rows = []
        position = start
        for index in range(count):
            begin = position
            _, delta, offset_delta, key, key_end, value, value_end, headers, at, position = _shape(
                data, position, end, index
            )
            rows.append(
                _Row(
                    wrap64(base_offset + offset_delta),
                    wrap64(base_timestamp + delta) if append_time is None else append_time,
                    None if key < 0 else data[key:key_end],
                    None if value < 0 else data[value:value_end],
                    _headers(data, at, position, headers, index),
                    position - begin,
                )
            )
        _check_end(position, end, count)
        return rows

    def _put(self, row: _Row) -> None:
        self._offsets.append(row.offset)
        self._timestamps.append(row.timestamp)
        self._keys.put(row.key)
        self._values.put(row.value)
        for name, value in row.headers:
            self._names.put(name.encode())
            self._header_values.put(value)
        self._header_ends.append(len(self._names.present))

    def add_batches(self, buffer: Buffer, position: int, wanted: int, check_crcs: bool) -> tuple[int, int, int]:
        """The plain batches that follow without a gap: (position after them, next offset, leader epoch or -1).

        Plain is a whole batch v2 without compression, not of control records, sound, and with a right checksum if
        `check_crcs`. Batches before offset `wanted` are passed over. It ends in a batch that does not all fit, with its
        position and the offset to go on from; the epoch is that of the batch that was taken from last.
        """
        self._check_open()
        if position < 0:
            raise IndexError(position)
        epoch = -1
        while not self.full and len(buffer) - position >= HEADER_SIZE:
            try:
                header = read_header(buffer, position)
            except KafkaError:
                break
            end = position + header.size
            if end > len(buffer) or header.attributes & (CODEC_MASK | CONTROL):
                break
            after = wrap64(header.next_offset)
            if header.last_offset_delta < 0:
                break
            if after > wanted:
                if check_crcs and not check_crc(buffer, position, header.size):
                    break
                append_time = header.max_timestamp if header.is_log_append_time else None
                try:
                    left = self.add_records(
                        buffer, position + HEADER_SIZE, end, header.record_count,
                        header.base_offset, header.base_timestamp, append_time, wanted,
                    )  # fmt: skip
                except KafkaError:
                    break
                epoch = header.partition_leader_epoch
                if left is not None:
                    return position, left, epoch
                wanted = after
            position = end
        return position, wanted, epoch

    def close(self) -> RecordColumns:
        """The columns; nothing can be added afterwards."""
        self._check_open()
        self._closed = True
        return RecordColumns(
            self.rows,
            bytearray(self._offsets.tobytes()),
            bytearray(self._timestamps.tobytes()),
            self._keys.closed(),
            self._values.closed(),
            bytearray(self._header_ends.tobytes()),
            self._names.closed(),
            self._header_values.closed(),
            self._runs,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("These columns were handed out")


def repeat_texts(runs: list[tuple[bytes, int]]) -> BinaryColumn:
    """Each of the (bytes, how often) so often, as one column without nulls. Raises ValueError beyond 2 GiB."""
    if any(count < 0 for _, count in runs):
        raise ValueError(f"{min(count for _, count in runs)} times is not possible")
    if sum(len(text) * count for text, count in runs) > _LARGEST_DATA:
        raise ValueError("So many texts are larger than a column holds")
    ends, end = array("i", [0]), 0
    for text, count in runs:
        ends.extend(end + len(text) * number for number in range(1, count + 1))
        end += len(text) * count
    return BinaryColumn(
        bytearray(), bytearray(ends.tobytes()), bytearray().join([text * count for text, count in runs]), 0
    )


def whole_batches(buffer: Buffer) -> tuple[int, int]:
    """(offset after the last whole batch, position after it); (-1, 0) if there is no whole batch.

    Only lengths are looked at: whether these are batches is seen when they are taken.
    """
    position, next_offset, size = 0, -1, len(buffer)
    while size - position >= HEADER_SIZE:
        base, length = _START.unpack_from(buffer, position)
        end = position + LOG_OVERHEAD + length
        if end > size or length < HEADER_SIZE - LOG_OVERHEAD:
            break
        next_offset = wrap64(base + _DELTA.unpack_from(buffer, position + _DELTA_POSITION)[0] + 1)
        position = end
    return next_offset, position
