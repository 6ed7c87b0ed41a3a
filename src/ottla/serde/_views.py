# ruff: noqa: F821 - names that only compiled code uses are declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Columns to read, given by the buffers of Arrow arrays.

Cython compiles this file with the types in `_views.pxd`; it also runs as plain Python. Pointers are memoryviews in
plain Python, and both are indexed in the same way. A view holds its buffers as long as it lives.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython


class Held:
    """A held buffer with a pointer for each value width; None stands for an empty buffer."""

    bytes: memoryview
    int16s: memoryview
    int32s: memoryview
    int64s: memoryview
    floats: memoryview[float]
    doubles: memoryview[float]

    def __init__(self, buffer: Any) -> None:
        self.size = 0
        if cython.compiled:
            PyObject_GetBuffer(b"" if buffer is None else buffer, cython.address(self._view), PyBUF_SIMPLE)
            self.size = self._view.len
            self.bytes = cython.cast(Bytes, self._view.buf)
            self.int16s = cython.cast(Int16s, self._view.buf)
            self.int32s = cython.cast(Int32s, self._view.buf)
            self.int64s = cython.cast(Int64s, self._view.buf)
            self.floats = cython.cast(Floats, self._view.buf)
            self.doubles = cython.cast(Doubles, self._view.buf)
        else:
            self.bytes = memoryview(b"" if buffer is None else buffer).cast("B").toreadonly()
            self.size = len(self.bytes)
            self.int16s = self.bytes[: self.size // 2 * 2].cast("h")
            self.int32s = self.bytes[: self.size // 4 * 4].cast("i")
            self.int64s = self.bytes[: self.size // 8 * 8].cast("q")
            self.floats = self.bytes[: self.size // 4 * 4].cast("f")
            self.doubles = self.bytes[: self.size // 8 * 8].cast("d")

    def __dealloc__(self) -> None:
        if cython.compiled:
            PyBuffer_Release(cython.address(self._view))


class ColumnView:
    """A column to read, given by the buffers of an Arrow array; `is_wide` says that its offsets have 64 bits.

    `buffers` are the validity, and then the values, or the offsets and the data. Row 0 is at the array's offset. The
    rows of a child are at the child's own offset, so a list's `start` and `end` are rows of its child. The contents
    are not checked: the caller must pass valid buffers.
    """

    validity: memoryview
    bytes: memoryview
    data: memoryview
    int16s: memoryview
    int32s: memoryview
    int64s: memoryview
    floats: memoryview[float]
    doubles: memoryview[float]

    def __init__(
        self, length: int, offset: int, buffers: list[Any], children: list[ColumnView], is_wide: bool = False
    ) -> None:
        held = [Held(buffer) for buffer in buffers]
        self._held = held
        self.length = length
        self.first = offset
        self.children = children
        self.is_wide = is_wide
        self.has_nulls = buffers[0] is not None
        _hold_view(self, held[0], held[1] if len(held) > 1 else held[0], held[2] if len(held) > 2 else held[0])

    def is_null(self, row: int) -> bool:
        if not self.has_nulls:
            return False
        at = self.first + row
        return not self.validity[at >> 3] >> (at & 7) & 1

    def bit(self, row: int) -> int:
        """Return a row of a column of bits."""
        at = self.first + row
        return self.bytes[at >> 3] >> (at & 7) & 1

    def start(self, row: int) -> int:
        """Return where a row begins; only for columns with offsets."""
        return self.int64s[self.first + row] if self.is_wide else self.int32s[self.first + row]

    def end(self, row: int) -> int:
        """Return where a row ends; only for columns with offsets."""
        return self.int64s[self.first + row + 1] if self.is_wide else self.int32s[self.first + row + 1]


def _hold_view(view: ColumnView, validity: Held, values: Held, data: Held) -> None:
    view.validity = validity.bytes
    view.bytes = values.bytes
    view.int16s = values.int16s
    view.int32s = values.int32s
    view.int64s = values.int64s
    view.floats = values.floats
    view.doubles = values.doubles
    view.data = data.bytes


class ByteRows(ColumnView):
    """The rows of a binary column, given by the buffers of an Arrow array of binary, string or their large variants.

    Raises ValueError unless every row, null or not, lies within the data.
    """

    def __init__(self, length: int, offset: int, validity: Any, offsets: Any, data: Any, is_wide: bool) -> None:
        ColumnView.__init__(self, length, offset, [validity, offsets, data], [], is_wide)
        _check_rows(self, self._held[0], self._held[1], self._held[2])


def _check_rows(rows: ByteRows, validity: Held, offsets: Held, data: Held) -> None:
    """Raise ValueError unless the buffers contain all rows."""
    if rows.length < 0 or rows.first < 0:
        raise ValueError("The length and the offset of a column cannot be negative")
    last = rows.first + rows.length
    if rows.has_nulls and validity.size < (last + 7) >> 3:
        raise ValueError("The validity of a column is shorter than its rows")
    if not rows.length:
        return
    if offsets.size < (last + 1) * (8 if rows.is_wide else 4):
        raise ValueError("The offsets of a column are fewer than its rows")
    before = rows.start(0)
    if before < 0:
        raise ValueError("A row of a column lies outside of its data")
    for row in range(rows.length):
        after = rows.end(row)
        if after < before or after > data.size:
            raise ValueError("A row of a column lies outside of its data")
        before = after


def is_utf8(data: memoryview, start: int, size: int) -> bool:
    """Return whether bytes are UTF-8: no overlong forms, no surrogates, no code point above U+10FFFF."""
    i = start
    end = start + size
    while i < end:
        if cython.compiled:
            while end - i >= 8 and is_ascii(data + i):
                i += 8
            if i >= end:
                break
        first = data[i]
        i += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF  # bounds of the second byte
        if first < 0xC2 or first > 0xF4:
            return False
        if first < 0xE0:
            more = 1
        elif first < 0xF0:
            more = 2
            low = 0xA0 if first == 0xE0 else 0x80
            high = 0x9F if first == 0xED else 0xBF
        else:
            more = 3
            low = 0x90 if first == 0xF0 else 0x80
            high = 0x8F if first == 0xF4 else 0xBF
        if end - i < more or data[i] < low or data[i] > high:
            return False
        for second in range(1, more):
            if data[i + second] & 0xC0 != 0x80:
                return False
        i += more
    return True


def check_utf8(value: Any) -> Any:
    """Return whether a bytes object is UTF-8."""
    held = Held(value)
    return is_utf8(held.bytes, 0, held.size)
