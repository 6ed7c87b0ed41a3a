# ruff: noqa: F821 - names that only compiled code uses are declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Columns that grow row by row, in Arrow's layout.

Cython compiles this file with the types in `_builders.pxd`; it also runs as plain Python. A value is appended to the
leaves first, and then the `append` of each enclosing builder closes its row: a struct's row after each child got a
row, a list's row after its items. `truncate` removes all rows beyond a length, so a value that fails halfway leaves
no trace.

Bytes are passed as `data, start, size`. `data` is a pointer in C and a memoryview in plain Python; both are indexed in
the same way. Nothing is checked: the caller must keep start and size within the data, and children at equal lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:
    from ottla.serde._views import Held, is_utf8

LARGEST_DATA = 0x7FFFFFFF
"""The largest offset of a column; a larger one raises OverflowError."""

Plan = tuple[Any, ...]
"""A type as nested tuples, in Arrow's layout: ("struct", (("id", ("int64",)), ("tags", ("list", ("string",)))))."""


class Column(NamedTuple):
    """A finished column, ready for `pyarrow.Array.from_buffers`."""

    length: int
    null_count: int
    buffers: list[Any]
    children: list[Column]


class Store:
    """A growing byte buffer with a pointer for each value width. The bytes move when the buffer grows."""

    def __init__(self, capacity: int = 64) -> None:
        self.content: bytearray | None = None
        self.used = 0
        self.capacity = 0
        self.reserve(max(capacity, 64))

    def reserve(self, more: int) -> int:
        """Ensure that `more` bytes are free after the used ones."""
        if self.capacity - self.used >= more:
            return 0
        # A multiple of 16, so that a view of any width covers all of it.
        self.capacity = (max(self.used + more, 2 * self.capacity) + 15) // 16 * 16
        if cython.compiled:
            if self.content is None:
                self.content = bytearray()
            PyByteArray_Resize(self.content, self.capacity)
        else:
            content = bytearray(self.capacity)
            content[: self.used] = self.content[: self.used] if self.content is not None else b""
            self.content = content
        self._locate()
        return 0

    def _locate(self) -> int:
        if cython.compiled:
            self.bytes = cython.cast(Room, PyByteArray_AS_STRING(self.content))
            self.int16s = cython.cast(Int16s, self.bytes)
            self.int32s = cython.cast(Int32s, self.bytes)
            self.int64s = cython.cast(Int64s, self.bytes)
            self.uint64s = cython.cast(UInt64s, self.bytes)
            self.floats = cython.cast(Floats, self.bytes)
            self.doubles = cython.cast(Doubles, self.bytes)
        else:
            self.bytes = memoryview(self.content or b"")
            self.int16s = self.bytes.cast("h")
            self.int32s = self.bytes.cast("i")
            self.int64s = self.bytes.cast("q")
            self.uint64s = self.bytes.cast("Q")
            self.floats = self.bytes.cast("f")
            self.doubles = self.bytes.cast("d")
        return 0

    def put_byte(self, value: int) -> int:
        if self.used == self.capacity:
            self.reserve(1)
        self.bytes[self.used] = value
        self.used += 1
        return 0

    def put(self, data: bytes | memoryview, start: int, size: int) -> int:
        """Append `size` bytes of `data`, beginning at `start`."""
        if self.capacity - self.used < size:
            self.reserve(size)
        if cython.compiled:
            memcpy(self.bytes + self.used, data + start, size)
        else:
            self.bytes[self.used : self.used + size] = data[start : start + size]
        self.used += size
        return 0

    def put_value(self, value: Any) -> int:
        """Append a bytes object; slow, for tests and rare cases."""
        held = Held(value)
        return self.put(held.bytes, 0, held.size)

    def close(self, size: int) -> Any:
        """Return the first `size` bytes; the store is unusable afterwards."""
        content = self.content or bytearray()
        self.content = None
        if cython.compiled:
            PyByteArray_Resize(content, size)
            return content
        return bytes(content[:size])


# -- builders ----------------------------------------------------------------------------------------------------


class Builder:
    """A growing column. A null row is counted and occupies a place like any other row."""

    def __init__(self) -> None:
        self.length = 0
        self.nulls = 0
        self.validity: Store | None = None  # until the first null

    def _append_valid(self) -> int:
        """Close a row whose value has been written."""
        if self.validity is not None:
            if self.length & 7 == 0:
                self.validity.put_byte(0)
            self.validity.bytes[self.length >> 3] |= 1 << (self.length & 7)
        self.length += 1
        return 0

    def _append_invalid(self) -> int:
        """Close a null row."""
        if self.validity is None:
            self.validity = Store((self.length >> 3) + 64)
            for i in range((self.length + 7) >> 3):  # noqa: B007 - declared, as C needs it
                self.validity.put_byte(255)
            if self.length & 7:
                self.validity.bytes[self.length >> 3] = (1 << (self.length & 7)) - 1
        if self.length & 7 == 0:
            self.validity.put_byte(0)
        self.nulls += 1
        self.length += 1
        return 0

    def append_null(self) -> int:
        """Append a null row, also to the children of a struct."""
        raise NotImplementedError

    def truncate(self, length: int) -> int:
        """Remove the rows from `length` on, also of children; a column that is not longer stays unchanged."""
        if self.length <= length:
            return 0
        if self.validity is not None:
            for row in range(length, self.length):
                if not self.validity.bytes[row >> 3] >> (row & 7) & 1:
                    self.nulls -= 1
            self.validity.used = (length + 7) >> 3
            if length & 7:
                self.validity.bytes[length >> 3] &= (1 << (length & 7)) - 1
        self.length = length
        return 0

    def _close_validity(self) -> Any:
        return self.validity.close(self.validity.used) if self.validity is not None and self.nulls else None

    def finish(self) -> Column:
        """Return the column; the builder is unusable afterwards."""
        raise NotImplementedError


class BoolBuilder(Builder):
    """A column of bits."""

    def __init__(self) -> None:
        Builder.__init__(self)
        self.values = Store()

    def _place(self, value: int) -> int:
        at = self.length >> 3
        if at >= self.values.capacity:
            self.values.used = at
            self.values.reserve(1)
        if self.length & 7 == 0:
            self.values.bytes[at] = 0
        self.values.bytes[at] &= 255 - (1 << (self.length & 7))  # `truncate` leaves the bits of removed rows
        self.values.bytes[at] |= value << (self.length & 7)
        return 0

    def append_null(self) -> int:
        self._place(0)
        return self._append_invalid()

    def append_bool(self, value: bool) -> int:
        self._place(1 if value else 0)
        return self._append_valid()

    def finish(self) -> Column:
        return Column(self.length, self.nulls, [self._close_validity(), self.values.close((self.length + 7) >> 3)], [])


class FixedBuilder(Builder):
    """A column of values of `width` bytes each; `room` is how many values the store takes before it must grow."""

    def __init__(self, width: int) -> None:
        Builder.__init__(self)
        self.width = width
        self.values = Store()
        self.room = self.values.capacity // width

    def _grow(self) -> int:
        self.values.used = self.length * self.width
        self.values.reserve(self.width)
        self.room = self.values.capacity // self.width
        return 0

    def append_null(self) -> int:
        if self.length == self.room:
            self._grow()
        for i in range(self.length * self.width, (self.length + 1) * self.width):
            self.values.bytes[i] = 0
        return self._append_invalid()

    def finish(self) -> Column:
        return Column(
            self.length, self.nulls, [self._close_validity(), self.values.close(self.length * self.width)], []
        )


class IntBuilder(FixedBuilder):
    """A column of integers of 1, 2, 4 or 8 bytes, or of dates or timestamps."""

    def append_int(self, value: int) -> int:
        """Append a number and return True; return False and append nothing if it does not fit the width."""
        if self.length == self.room:
            self._grow()
        if self.width == 8:
            self.values.int64s[self.length] = value
        elif self.width == 4:
            if value < -2147483648 or value > 2147483647:
                return False
            self.values.int32s[self.length] = value
        elif self.width == 2:
            if value < -0x8000 or value > 0x7FFF:
                return False
            self.values.int16s[self.length] = value
        else:
            if value < -0x80 or value > 0x7F:
                return False
            self.values.bytes[self.length] = value & 255
        self._append_valid()
        return True


class FloatBuilder(FixedBuilder):
    """A column of floating-point numbers of 4 or 8 bytes."""

    def append_float(self, value: float) -> int:
        """Append a number, rounded to the width."""
        if self.length == self.room:
            self._grow()
        if self.width == 8:
            self.values.doubles[self.length] = value
        else:
            self.values.floats[self.length] = value
        return self._append_valid()


class DecimalBuilder(FixedBuilder):
    """A column of decimals of 128 bits: unscaled integers in two's complement, low word first."""

    def __init__(self, precision: int, scale: int) -> None:
        FixedBuilder.__init__(self, 16)
        self.precision = precision
        self.scale = scale
        largest = 10**precision - 1
        self._largest = largest.to_bytes(16, "big")
        self._smallest = (-largest).to_bytes(16, "big", signed=True)

    def append_words(self, high: int, low: int) -> int:
        """Append a number given as two words; the high word has the sign. The number must be within the precision."""
        if self.length == self.room:
            self._grow()
        at = 2 * self.length
        self.values.uint64s[at] = low
        self.values.int64s[at + 1] = high
        return self._append_valid()

    def append_big_endian(self, data: memoryview, start: int, size: int) -> int:
        """Append a number in two's complement and return True; return False if it exceeds the precision."""
        sign = 255 if size > 0 and data[start] & 128 else 0
        while size > 16:
            if data[start] != sign:
                return False
            start += 1
            size -= 1
        if self.length == self.room:
            self._grow()
        at = 16 * self.length
        for i in range(size):
            self.values.bytes[at + i] = data[start + size - 1 - i]
        for i in range(size, 16):
            self.values.bytes[at + i] = sign
        if self.values.bytes[at + 15] >> 7 != sign >> 7:
            return False
        limit = self._smallest if sign else self._largest
        for i in range(16):
            byte = self.values.bytes[at + 15 - i]
            if byte != limit[i]:
                if (byte > limit[i]) != (sign == 255):
                    return False
                break
        self._append_valid()
        return True

    def append_unscaled(self, value: Any) -> int:
        """Append an int and return True; return False if it exceeds the precision. For tests and rare cases."""
        if abs(value) > int.from_bytes(self._largest, "big"):
            return False
        words = value & (1 << 128) - 1
        high = words >> 64
        self.append_words(high - (1 << 64) if high >> 63 else high, words & (1 << 64) - 1)
        return True


class EndsBuilder(Builder):
    """A column with offsets of 32 bits, which say where each row ends in the data or in the child."""

    def __init__(self) -> None:
        Builder.__init__(self)
        self.ends = Store()
        self.ends.int32s[0] = 0
        self.ends.used = 4

    def _end_at(self, end: int) -> int:
        """Set the end of the row that the caller closes next."""
        if end > LARGEST_DATA:
            raise OverflowError("A column of a batch has more than 2 GiB, or 2**31 items")
        if self.ends.capacity - self.ends.used < 4:
            self.ends.reserve(4)
        self.ends.int32s[self.length + 1] = end
        self.ends.used += 4
        return 0

    def truncate(self, length: int) -> int:
        """Remove rows and their offsets; subclasses remove the data or the child's rows."""
        Builder.truncate(self, length)
        self.ends.used = 4 * (self.length + 1)
        return 0

    def _close_ends(self) -> Any:
        return self.ends.close(4 * (self.length + 1))


class BinaryBuilder(EndsBuilder):
    """A column of bytes or strings."""

    def __init__(self) -> None:
        EndsBuilder.__init__(self)
        self.data = Store()

    def append_null(self) -> int:
        self.data.used = self.ends.int32s[self.length]
        self._end_at(self.data.used)
        return self._append_invalid()

    def append_bytes(self, data: memoryview, start: int, size: int) -> int:
        """Append bytes. Raises OverflowError if the column gets too large."""
        self.data.put(data, start, size)
        self._end_at(self.data.used)
        return self._append_valid()

    def append_text(self, data: memoryview, start: int, size: int) -> int:
        """Append bytes and return True; return False and append nothing if they are not UTF-8."""
        if not is_utf8(data, start, size):
            return False
        self.data.put(data, start, size)
        self._end_at(self.data.used)
        self._append_valid()
        return True

    def append_rest(self) -> int:
        """Close a row whose value is all data since the previous row."""
        self._end_at(self.data.used)
        return self._append_valid()

    def append_value(self, value: Any) -> int:
        """Append a bytes object; slow, for tests and rare cases."""
        self.data.put_value(value)
        self._end_at(self.data.used)
        return self._append_valid()

    def truncate(self, length: int) -> int:
        """Remove rows, and the data of a row that was not closed."""
        EndsBuilder.truncate(self, length)
        self.data.used = self.ends.int32s[self.length]
        return 0

    def finish(self) -> Column:
        buffers = [self._close_validity(), self._close_ends(), self.data.close(self.data.used)]
        return Column(self.length, self.nulls, buffers, [])


class StructBuilder(Builder):
    """A column of structs; its children have the same length."""

    def __init__(self, children: list[Builder]) -> None:
        Builder.__init__(self)
        self.children = children

    def append(self) -> int:
        """Close a row after each child got one."""
        return self._append_valid()

    def append_null(self) -> int:
        """Append null to this column and to each child."""
        for child in self.children:
            child.append_null()
        return self._append_invalid()

    def truncate(self, length: int) -> int:
        """Remove rows of this column and of each child."""
        Builder.truncate(self, length)
        for child in self.children:
            child.truncate(length)
        return 0

    def finish(self) -> Column:
        children = [child.finish() for child in self.children]
        return Column(self.length, self.nulls, [self._close_validity()], children)


class ListBuilder(EndsBuilder):
    """A column of lists; a row consists of the items appended since the previous row."""

    def __init__(self, items: Builder) -> None:
        EndsBuilder.__init__(self)
        self.items = items

    def append(self) -> int:
        """Close a row after its items were appended."""
        self._end_at(self.items.length)
        return self._append_valid()

    def append_null(self) -> int:
        self._end_at(self.items.length)
        return self._append_invalid()

    def truncate(self, length: int) -> int:
        """Remove rows and their items, and the items of a row that was not closed."""
        EndsBuilder.truncate(self, length)
        return self.items.truncate(self.ends.int32s[self.length])

    def finish(self) -> Column:
        return Column(self.length, self.nulls, [self._close_validity(), self._close_ends()], [self.items.finish()])


class MapBuilder(ListBuilder):
    """A column of maps: lists of entries, which are structs of a key and a value. `entries.append` closes an entry."""

    def __init__(self, keys: Builder, values: Builder) -> None:
        self.entries = StructBuilder([keys, values])
        ListBuilder.__init__(self, self.entries)
        self.keys = keys
        self.values = values


_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "date32": 4, "timestamp_us": 8}


def builder(plan: Plan) -> Builder:
    """Return an empty builder for a plan."""
    kind = plan[0]
    if kind in _WIDTHS:
        return IntBuilder(_WIDTHS[kind])
    if kind == "bool":
        return BoolBuilder()
    if kind in ("float32", "float64"):
        return FloatBuilder(4 if kind == "float32" else 8)
    if kind in ("string", "binary"):
        return BinaryBuilder()
    if kind == "decimal128":
        return DecimalBuilder(plan[1], plan[2])
    if kind == "struct":
        return StructBuilder([builder(child) for _, child in plan[1]])
    if kind == "list":
        return ListBuilder(builder(plan[1]))
    if kind == "map":
        return MapBuilder(builder(plan[1]), builder(plan[2]))
    raise ValueError(f"There is no builder for {kind!r}")
