# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Encodes typed columns as a column of JSON texts, in one pass. Compiled with `_json_writer.pxd`, or plain Python.

It writes the same texts as Spark's to_json, except that the microseconds of a time are not truncated. Null fields are
omitted; in arrays and maps they are written. Times are ISO 8601 in UTC, with a Z unless they are local; bytes are
base64.

A writer belongs to a column. It appends the value of one row, which must not be null, to a `Store`.
"""

from __future__ import annotations

import json
from typing import Any

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:
    from ottla.serde._builders import BinaryBuilder, Store
    from ottla.serde._texts import POWERS, put_base64, put_digits, put_double, put_float, put_int, put_quoted
    from ottla.serde._times import put_date, put_time
    from ottla.serde._views import ColumnView

from ottla.serde._builders import Column, Plan


def encode(plan: Plan, view: ColumnView) -> Column:
    """Return a binary column with the JSON text of each row of `view`, a column of that plan; a null row stays null.

    Raises OverflowError if the texts exceed 2 GiB.
    """
    writer = _writer(plan, view)
    out = BinaryBuilder()
    for row in range(writer.view.length):
        if writer.view.is_null(row):
            out.append_null()
        else:
            writer.write(out.data, row)
            out.append_rest()
    return out.finish()


def _writer(plan: Any, view: ColumnView) -> Any:
    """Return the writer for a column of `plan`."""
    kind = plan[0]
    if kind == "struct":
        children = [_writer(child, view.children[i]) for i, (_, child) in enumerate(plan[1])]
        return StructWriter(view, [name for name, _ in plan[1]], children)
    if kind == "list":
        return ListWriter(view, _writer(plan[1], view.children[0]))
    if kind == "map":
        return MapWriter(view, _writer(plan[1], view.children[0]), _writer(plan[2], view.children[1]))
    if kind == "decimal128":
        return DecimalWriter(view, plan[2])
    if kind == "timestamp_us":
        return TimeWriter(view, len(plan) < 2 or plan[1])
    widths = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}
    if kind in widths:
        return IntWriter(view, widths[kind])
    writers = {"bool": BoolWriter, "float32": FloatWriter, "float64": DoubleWriter, "string": StringWriter,
               "binary": BytesWriter, "date32": DateWriter, "null": Writer}  # fmt: skip
    return writers[kind](view)


class Writer:
    """Writes rows of a column as JSON. The base class is the writer of a column in which every row is null."""

    def __init__(self, view: ColumnView) -> None:
        self.view = view

    def write(self, out: Store, row: int) -> int:  # noqa: ARG002 - subclasses use the row
        """Append the value of a row that is not null."""
        return out.put(b"null", 0, 4)

    def write_item(self, out: Store, row: int) -> int:
        """Append the value of a row, or null."""
        if self.view.is_null(row):
            return out.put(b"null", 0, 4)
        return self.write(out, row)


class BoolWriter(Writer):
    def write(self, out: Store, row: int) -> int:
        return out.put(b"true", 0, 4) if self.view.bit(row) else out.put(b"false", 0, 5)


class IntWriter(Writer):
    """Writes integers of 1, 2, 4 or 8 bytes."""

    def __init__(self, view: ColumnView, width: int) -> None:
        Writer.__init__(self, view)
        self.width = width

    def write(self, out: Store, row: int) -> int:
        at = self.view.first + row
        if self.width == 8:
            return put_int(out, self.view.int64s[at])
        if self.width == 4:
            return put_int(out, self.view.int32s[at])
        if self.width == 2:
            return put_int(out, self.view.int16s[at])
        small = self.view.bytes[at]
        return put_int(out, small - 256 if small > 127 else small)


class FloatWriter(Writer):
    """Writes floats of 4 bytes."""

    def write(self, out: Store, row: int) -> int:
        return put_float(out, self.view.floats[self.view.first + row])


class DoubleWriter(Writer):
    """Writes floats of 8 bytes."""

    def write(self, out: Store, row: int) -> int:
        return put_double(out, self.view.doubles[self.view.first + row])


class DecimalWriter(Writer):
    """Writes decimals with all their decimal places."""

    def __init__(self, view: ColumnView, scale: int) -> None:
        Writer.__init__(self, view)
        self.scale = scale

    def write(self, out: Store, row: int) -> int:
        at = 2 * (self.view.first + row)
        low = self.view.int64s[at]
        high = self.view.int64s[at + 1]
        if self.scale > 18 or high != (-1 if low < 0 else 0):
            return out.put_value(_long_decimal(high, low, self.scale))
        if low < 0:
            out.put_byte(45)
            size = -(low + 1)  # the smallest integer has no positive counterpart
            size += 1
        else:
            size = low
        power = POWERS.int64s[self.scale]
        put_digits(out, size // power, 1)
        if self.scale:
            out.put_byte(46)
            put_digits(out, size % power, self.scale)
        return 0


def _long_decimal(high: int, low: int, scale: int) -> Any:
    unscaled = high * (1 << 64) + low % (1 << 64)  # Python ints, because the value exceeds 64 bits
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return (sign + digits[: len(digits) - scale] + ("." + digits[len(digits) - scale :] if scale else "")).encode()


class StringWriter(Writer):
    def write(self, out: Store, row: int) -> int:
        start = self.view.start(row)
        return put_quoted(out, self.view.data, start, self.view.end(row) - start)


class BytesWriter(Writer):
    def write(self, out: Store, row: int) -> int:
        start = self.view.start(row)
        return put_base64(out, self.view.data, start, self.view.end(row) - start)


class DateWriter(Writer):
    def write(self, out: Store, row: int) -> int:
        out.put_byte(34)
        put_date(out, self.view.int32s[self.view.first + row])
        return out.put_byte(34)


class TimeWriter(Writer):
    """Writes times, with a Z unless they are local (`is_moment` is false)."""

    def __init__(self, view: ColumnView, is_moment: bool) -> None:
        Writer.__init__(self, view)
        self.is_moment = is_moment

    def write(self, out: Store, row: int) -> int:
        out.put_byte(34)
        put_time(out, self.view.int64s[self.view.first + row], self.is_moment)
        return out.put_byte(34)


class StructWriter(Writer):
    def __init__(self, view: ColumnView, names: list[str], children: list[Writer]) -> None:
        Writer.__init__(self, view)
        self.children = children
        self.count = len(children)
        self.letters = Store()
        self.ends = Store(8 * (self.count + 1))
        self.ends.int64s[0] = 0
        for i in range(self.count):
            self.letters.put_value(f",{json.dumps(names[i], ensure_ascii=False)}:".encode())
            self.ends.int64s[i + 1] = self.letters.used

    def write(self, out: Store, row: int) -> int:
        is_first = 1
        out.put_byte(123)
        for i in range(self.count):
            child = self.children[i]
            if not child.view.is_null(row):
                start = self.ends.int64s[i] + is_first  # skips the comma before the first field
                out.put(self.letters.bytes, start, self.ends.int64s[i + 1] - start)
                child.write(out, row)
                is_first = 0
        return out.put_byte(125)


class ListWriter(Writer):
    def __init__(self, view: ColumnView, items: Writer) -> None:
        Writer.__init__(self, view)
        self.items = items

    def write(self, out: Store, row: int) -> int:
        begin = self.view.start(row)
        out.put_byte(91)
        for item in range(begin, self.view.end(row)):
            if item > begin:
                out.put_byte(44)
            self.items.write_item(out, item)
        return out.put_byte(93)


class MapWriter(Writer):
    """Writes maps as objects; the keys are strings or integers."""

    def __init__(self, view: ColumnView, keys: Writer, values: Writer) -> None:
        Writer.__init__(self, view)
        self.keys = keys
        self.values = values
        self.are_texts = isinstance(keys, StringWriter)

    def write(self, out: Store, row: int) -> int:
        begin = self.view.start(row)
        out.put_byte(123)
        for item in range(begin, self.view.end(row)):
            if item > begin:
                out.put_byte(44)
            if not self.are_texts:
                out.put_byte(34)
            self.keys.write(out, item)
            if not self.are_texts:
                out.put_byte(34)
            out.put_byte(58)
            self.values.write_item(out, item)
        return out.put_byte(125)
