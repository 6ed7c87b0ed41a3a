# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Decodes batches into columns in Arrow's layout, without Arrow.

One source for C and Python: Cython compiles this file with the types of `_decode_columns.pxd`. `column_kernels` exports
it. Every call holds the GIL, and its cost is bounded by its input. Buffers grow with the decoded data, not with the
sizes that a batch claims. A malformed batch leaves the columns unchanged.
"""

from __future__ import annotations

from typing import TypeAlias

try:
    import cython
except ImportError:
    from ottla.common import cython_stub as cython

from ottla.common.errors import ErrorCode, KafkaError
from ottla.records.checksum import crc32c
from ottla.records.columns import BinaryColumn, RecordColumns

if not cython.compiled:
    from ottla.records._record_reader import int32_of, read_int64, read_number, read_record, read_uint32, view_of
    from ottla.records.batch import EncodedRecords, wrap64
    from ottla.records.record_fields import BatchSpan, RecordFields

    Bytes: TypeAlias = memoryview
    Memory: TypeAlias = memoryview
    Buffer: TypeAlias = bytes | bytearray | memoryview


_HEADER_SIZE = 61
_LOG_OVERHEAD = 12
_MIN_BATCH_LENGTH = 49
_MIN_RECORD_SIZE = 7
_CRC_START = 21
# Attributes of compressed batches and of control batches.
_NOT_PLAIN = 0x27
_LOG_APPEND_TIME = 0x08
_LARGEST_DATA = 0x7FFFFFFF
# What `Columns._add` returns.
_MALFORMED = 0
_ALL = 1
_CUT = 2


class Store:
    """A growing byte buffer with a view for each value width. The views are valid until the buffer grows."""

    content: bytearray
    bytes: Memory
    int32s: Memory
    int64s: Memory
    used: int
    capacity: int

    def __init__(self, capacity: int) -> None:
        self.content = bytearray()
        self.used = 0
        self.capacity = 0
        self.reserve(max(capacity, 8))

    def reserve(self, more: int) -> None:
        """Ensure that `more` bytes are free after the used ones."""
        if self.capacity - self.used < more:
            self._grow(more)

    def _grow(self, more: int) -> None:
        # A multiple of eight, so that a view of any width covers all of it.
        self.capacity = (max(self.used + more, 2 * self.capacity) + 7) // 8 * 8
        if cython.compiled:
            PyByteArray_Resize(self.content, self.capacity)
            self.bytes = cython.cast(Memory, PyByteArray_AS_STRING(self.content))
            self.int32s = cython.cast(Int32s, self.bytes)
            self.int64s = cython.cast(Int64s, self.bytes)
        else:
            grown = bytearray(self.capacity)
            grown[: len(self.content)] = self.content
            self.content = grown
            self.bytes = memoryview(grown)
            self.int32s = self.bytes.cast("i")
            self.int64s = self.bytes.cast("q")

    def append(self, data: Bytes, start: int, size: int) -> None:
        if self.capacity - self.used < size:
            self.reserve(size)
        if cython.compiled:
            memcpy(self.bytes + self.used, data + start, size)
        else:
            self.bytes[self.used : self.used + size] = data[start : start + size]
        self.used += size

    def close(self, size: int) -> bytearray:
        """Return the first `size` bytes; the store is unusable afterwards."""
        if cython.compiled:
            PyByteArray_Resize(self.content, size)
        else:
            self.content = self.content[:size]
        return self.content


class BinaryStore:
    """A column of bytes or null, with memory for as many fields as `reserve` was called for."""

    data: Store
    ends: Store
    validity: Store
    nulls: int

    def __init__(self, expected: int) -> None:
        self.data = Store(expected)
        self.ends = Store(64)
        self.validity = Store(8)
        self.nulls = 0
        self.ends.int32s[0] = 0

    def reserve(self, fields: int) -> None:
        """Allocate memory for `fields` fields in total, without their data."""
        if self.ends.capacity < 4 * (fields + 1):
            self.ends.reserve(4 * (fields + 1))
        if self.validity.capacity < fields // 8 + 1:
            self.validity.reserve(fields // 8 + 1)

    def put(self, index: int, data: Bytes, start: int, size: int) -> None:
        """Set the last field, `index`; a negative size is null.

        Validity bits that a malformed batch left from `index` on are cleared.
        """
        byte = self.validity.bytes[index >> 3] & ((1 << (index & 7)) - 1)
        if size < 0:
            self.nulls += 1
        else:
            byte |= 1 << (index & 7)
            if size > 0:
                self.data.append(data, start, size)
        self.validity.bytes[index >> 3] = byte
        self.ends.int32s[index + 1] = self.data.used

    def close(self, fields: int) -> BinaryColumn:
        # A malformed batch may have left bits after the last field.
        if fields & 7:
            self.validity.bytes[fields >> 3] &= (1 << (fields & 7)) - 1
        return BinaryColumn(
            self.validity.close((fields + 7) // 8),
            self.ends.close(4 * (fields + 1)),
            self.data.close(self.data.used),
            self.nulls,
        )


class HeaderStore:
    """The headers of all rows: `count` names and values, and where the headers of each row end."""

    count: int
    ends: Store
    names: BinaryStore
    values: BinaryStore

    def __init__(self) -> None:
        self.count = 0
        self.ends = Store(4)
        self.ends.int32s[0] = 0
        self.names = BinaryStore(0)
        self.values = BinaryStore(0)

    def add(self, data: Bytes, record: RecordFields) -> bool:
        """Add the headers of a checked record; return false if their names exceed the size of a column."""
        position = record.headers
        # Rounded up, so that not every record reserves memory.
        fields = (self.count + record.header_count) | 63
        self.names.reserve(fields)
        self.values.reserve(fields)
        for _ in range(record.header_count):
            position = read_number(data, position, record.end, 32, record)
            size = record.number
            if not self._add_name(data, position, size):
                return False
            position = read_number(data, position + size, record.end, 32, record)
            self.values.put(self.count, data, position, record.number)
            position += max(0, record.number)
            self.count += 1
        return True

    def _add_name(self, data: Bytes, start: int, size: int) -> bool:
        """Add the name of a header; bytes that are not UTF-8 are replaced."""
        high = 0
        for index in range(start, start + size):
            high |= data[index]
        if high < 0x80:
            self.names.put(self.count, data, start, size)
            return True
        if cython.compiled:
            text = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, data + start), size, b"replace").encode()
        else:
            text = str(data[start : start + size], "utf-8", "replace").encode()
        name = view_of(text)
        if name.size > _LARGEST_DATA - self.names.data.used:
            return False
        self.names.put(self.count, name.data, 0, name.size)
        return True


class TimeRuns:
    """Runs of records with the broker's or the producer's time: (is the broker's, records). The last one is open."""

    ended: list[tuple[bool, int]]
    start: int
    is_append_time: bool

    def __init__(self) -> None:
        self.ended = []
        self.start = 0
        self.is_append_time = False

    def end(self, rows: int) -> None:
        """End the open run, unless it is empty, at `rows` rows in total."""
        if rows > self.start:
            self.ended.append((bool(self.is_append_time), rows - self.start))
            self.start = rows


class Mark:
    """The state of columns before a batch, restored if the batch is malformed."""

    rows: int
    size: int
    headers: int
    keys: int
    values: int
    names: int
    header_values: int
    null_keys: int
    null_values: int
    null_header_values: int


class Columns:
    """Records as columns: at most `most_rows` rows, and at most `most_bytes` bytes unless the first record is larger.

    `rows` is the number of records, `size` their total size as records. `full` is true once a record did not fit, or
    when a limit is reached. Memory for `expected_bytes` of values is allocated at once.
    """

    rows: int
    size: int
    full: bool
    _most_rows: int
    _most_bytes: int
    _capacity: int
    _offsets: Store
    _timestamps: Store
    _keys: BinaryStore
    _values: BinaryStore
    _headers: HeaderStore
    _runs: TimeRuns
    _is_closed: bool
    _mark: Mark
    # The next offset to read; records below it are skipped.
    _wanted: int

    def __init__(self, most_rows: int, most_bytes: int, expected_bytes: int = 0) -> None:
        if most_rows < 1 or most_bytes < 1:
            raise ValueError(f"Columns need room for at least 1 row and 1 byte, not {most_rows} and {most_bytes}")
        self.rows = 0
        self.size = 0
        self.full = False
        self._most_rows = most_rows
        # A third of the limit, because a byte that is not UTF-8 is replaced by three bytes.
        self._most_bytes = min(most_bytes, _LARGEST_DATA // 3)
        self._capacity = 0
        self._offsets = Store(0)
        self._timestamps = Store(0)
        self._keys = BinaryStore(0)
        self._values = BinaryStore(min(max(0, expected_bytes), self._most_bytes))
        self._headers = HeaderStore()
        self._runs = TimeRuns()
        self._is_closed = False
        self._mark = Mark()

    def add_records(self, records: EncodedRecords, wanted: int) -> int | None:
        """Add the records of one batch from offset `wanted` on; return the next offset if not all fit, otherwise None.

        Raises KafkaError(INVALID_RECORD) for a malformed batch, which leaves the columns unchanged.
        """
        self._check_open()
        if cython.compiled:
            batch = cython.address(span)
        else:
            batch = BatchSpan()
        buffer, batch.start, batch.end, batch.count, batch.base_offset, batch.base_timestamp, append_time = records
        view = view_of(buffer)
        if batch.start < 0 or batch.end > view.size or batch.start > batch.end:
            raise IndexError(f"{batch.start}:{batch.end} is not within {view.size} bytes")
        batch.has_append_time = append_time is not None
        batch.append_time = 0 if append_time is None else append_time
        self._wanted = wanted
        outcome = self._add(view.data, batch)
        if outcome == _MALFORMED:
            size = batch.end - batch.start
            raise KafkaError(ErrorCode.INVALID_RECORD, f"The {batch.count} records in {size} bytes are malformed")
        return None if outcome == _ALL else self._wanted

    def add_batches(self, buffer: Buffer, position: int, wanted: int, check_crcs: bool) -> tuple[int, int, int]:
        """Add adjacent plain batches; return (position after them, next offset, leader epoch or -1).

        A plain batch is complete, well-formed, of format v2, not compressed, and without control records; its CRC is
        valid if `check_crcs` is set. Batches before offset `wanted` are skipped. If the last batch does not fit, the
        result has its position and the offset to continue from. The epoch is the last added batch's.
        """
        self._check_open()
        if position < 0:
            raise IndexError(position)
        if cython.compiled:
            batch = cython.address(span)
        else:
            batch = BatchSpan()
        view = view_of(buffer)
        data = view.data
        epoch = -1
        self._wanted = wanted
        while not self.full and view.size - position >= _HEADER_SIZE:
            length = int32_of(read_uint32(data, position + 8))
            attributes = data[position + 22]
            if (
                length < _MIN_BATCH_LENGTH
                or length > view.size - position - _LOG_OVERHEAD
                or data[position + 16] != 2
                or attributes & _NOT_PLAIN
            ):
                break
            end = position + length + _LOG_OVERHEAD
            last_delta = int32_of(read_uint32(data, position + 23))
            batch.base_offset = read_int64(data, position)
            after = wrap64(batch.base_offset + last_delta + 1)
            # A batch that ends before it begins is corrupt.
            if last_delta < 0:
                break
            if after > self._wanted:
                if check_crcs and not _is_crc_right(data, position, end):
                    break
                batch.start = position + _HEADER_SIZE
                batch.end = end
                batch.count = int32_of(read_uint32(data, position + 57))
                batch.base_timestamp = read_int64(data, position + 27)
                batch.has_append_time = attributes & _LOG_APPEND_TIME != 0
                batch.append_time = read_int64(data, position + 35)
                outcome = self._add(data, batch)
                if outcome == _MALFORMED:
                    break
                epoch = int32_of(read_uint32(data, position + 12))
                if outcome == _CUT:
                    break
                self._wanted = after
            position = end
        return position, self._wanted, epoch

    def close(self) -> RecordColumns:
        """Return the columns; nothing can be added afterwards."""
        self._check_open()
        self._is_closed = True
        self._runs.end(self.rows)
        headers = self._headers
        return RecordColumns(
            self.rows,
            self._offsets.close(8 * self.rows),
            self._timestamps.close(8 * self.rows),
            self._keys.close(self.rows),
            self._values.close(self.rows),
            headers.ends.close(4 * (self.rows + 1)),
            headers.names.close(headers.count),
            headers.values.close(headers.count),
            self._runs.ended,
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("The columns are closed")

    def _add(self, data: Bytes, batch: BatchSpan) -> int:
        """Add a batch; return `_CUT` if not all records fit. A malformed batch changes nothing."""
        wanted = self._wanted
        outcome = _MALFORMED
        if batch.count < 0 or batch.count > (batch.end - batch.start) // _MIN_RECORD_SIZE:
            return _MALFORMED
        self._save_mark()
        try:
            self._reserve(self.rows + min(batch.count, self._most_rows - self.rows))
            outcome = self._add_rows(data, batch)
        finally:
            if outcome == _MALFORMED:
                self._return_to_mark()
                self._wanted = wanted
        if self.rows > self._mark.rows and batch.has_append_time != self._runs.is_append_time:
            self._runs.end(self._mark.rows)
            self._runs.is_append_time = batch.has_append_time
        return outcome

    def _add_rows(self, data: Bytes, batch: BatchSpan) -> int:
        """As `_add`, but records before a malformed record remain in the columns."""
        if cython.compiled:
            record = cython.address(fields)
        else:
            record = RecordFields()
        # As locals they can stay in registers while the loop writes to memory.
        position = batch.start
        end = batch.end
        base_offset = batch.base_offset
        base_timestamp = batch.base_timestamp
        has_append_time = batch.has_append_time
        append_time = batch.append_time
        wanted = self._wanted
        is_cut = False
        offsets = self._offsets.int64s
        timestamps = self._timestamps.int64s
        headers = self._headers
        header_ends = headers.ends.int32s
        for _ in range(batch.count):
            if not read_record(data, position, end, record):
                return _MALFORMED
            position = record.end
            offset = wrap64(base_offset + record.offset_delta)
            if is_cut or offset < wanted:
                continue
            row = self.rows
            if row >= self._most_rows or (row > 0 and record.end - record.begin > self._most_bytes - self.size):
                is_cut = True
                continue
            offsets[row] = offset
            timestamps[row] = append_time if has_append_time else wrap64(base_timestamp + record.timestamp_delta)
            self._keys.put(row, data, record.key, record.key_size)
            self._values.put(row, data, record.value, record.value_size)
            if record.header_count and not headers.add(data, record):
                return _MALFORMED
            header_ends[row + 1] = headers.count
            self.size += record.end - record.begin
            self.rows = row + 1
            self._wanted = wrap64(offset + 1)
        if position != end:
            return _MALFORMED
        self.full = is_cut or self.rows >= self._most_rows or self.size >= self._most_bytes
        return _CUT if is_cut else _ALL

    def _reserve(self, rows: int) -> None:
        """Allocate memory for `rows` rows in total."""
        if rows > self._capacity:
            rows = max(rows, min(2 * self._capacity, self._most_rows))
            self._offsets.reserve(8 * rows)
            self._timestamps.reserve(8 * rows)
            self._headers.ends.reserve(4 * (rows + 1))
            self._keys.reserve(rows)
            self._values.reserve(rows)
            self._capacity = rows

    def _save_mark(self) -> None:
        mark = self._mark
        mark.rows = self.rows
        mark.size = self.size
        mark.headers = self._headers.count
        mark.keys = self._keys.data.used
        mark.values = self._values.data.used
        mark.names = self._headers.names.data.used
        mark.header_values = self._headers.values.data.used
        mark.null_keys = self._keys.nulls
        mark.null_values = self._values.nulls
        mark.null_header_values = self._headers.values.nulls

    def _return_to_mark(self) -> None:
        mark = self._mark
        self.rows = mark.rows
        self.size = mark.size
        self._headers.count = mark.headers
        self._keys.data.used = mark.keys
        self._values.data.used = mark.values
        self._headers.names.data.used = mark.names
        self._headers.values.data.used = mark.header_values
        self._keys.nulls = mark.null_keys
        self._values.nulls = mark.null_values
        self._headers.values.nulls = mark.null_header_values


def _is_crc_right(data: Bytes, position: int, end: int) -> bool:
    start = position + _CRC_START
    if cython.compiled:
        covered = PyMemoryView_FromMemory(cython.cast(cython.p_char, data + start), end - start, PyBUF_READ)
    else:
        covered = data[start:end]
    return crc32c(covered) == read_uint32(data, position + 17)


def repeat_texts(runs: list[tuple[bytes, int]]) -> BinaryColumn:
    """Return one column without nulls that repeats each (text, count). Raises ValueError beyond 2 GiB."""
    size = 0
    rows = 0
    for text, count in runs:
        if count < 0:
            raise ValueError(f"The count {count} is negative")
        size += len(text) * count
        rows += count
    if size > _LARGEST_DATA:
        raise ValueError(f"The texts have {size} bytes, which exceeds the size of a column")
    ends = Store(4 * (rows + 1))
    data = Store(size)
    ends.int32s[0] = 0
    index = 0
    for text, count in runs:
        repeated = view_of(text)
        for _ in range(count):
            index += 1
            data.append(repeated.data, 0, repeated.size)
            ends.int32s[index] = data.used
    return BinaryColumn(bytearray(), ends.close(4 * (rows + 1)), data.close(size), 0)


def whole_batches(buffer: Buffer) -> tuple[int, int]:
    """Return (offset after the last complete batch, position after it), or (-1, 0) without a complete batch.

    Only lengths are checked; batches are validated when they are added to columns.
    """
    view = view_of(buffer)
    data = view.data
    position = 0
    last = -1
    while view.size - position >= _HEADER_SIZE:
        length = int32_of(read_uint32(data, position + 8))
        if length < _MIN_BATCH_LENGTH or length > view.size - position - _LOG_OVERHEAD:
            break
        last = position
        position += _LOG_OVERHEAD + length
    if last < 0:
        return -1, 0
    return wrap64(read_int64(data, last) + int32_of(read_uint32(data, last + 23)) + 1), position
