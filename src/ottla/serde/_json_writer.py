# mypy: ignore-errors
# ruff: noqa: F821 - what stands behind `compiled` is declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Typed columns into a column of JSON texts, in one pass, as Spark's to_json writes them. Plain Python and C in one.

Fields that are null are left out; in arrays and maps they are null. Times are ISO 8601 in UTC, with a Z where they mean
a moment; bytes are base64. What to_json would lose is kept: all of a time's microseconds, where there are any.

A writer has a column and puts the value of one of its rows, which is not null, at the end of a `Store`.
"""

from __future__ import annotations

import json

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:
    from ottla.serde._builders import BinaryBuilder, Store
    from ottla.serde._texts import POWERS, put_base64, put_digits, put_double, put_float, put_int, put_quoted
    from ottla.serde._times import put_date, put_time

from ottla.serde._builders import Column, Plan


def encode(plan: Plan, view: ColumnView) -> Column:
    """The texts of a column (a `ColumnView` of that plan) as a binary column; null for null.

    Raises OverflowError if they are more than 2 GiB.
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


def _writer(plan, view):
    """What writes rows of a column of a plan."""
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
    """Rows of a column as JSON; by itself, of one where all are null."""

    def __init__(self, view):
        self.view = view

    def write(self, out, row):  # noqa: ARG002 - others look at it
        """Put the value of a row, which is not null."""
        return out.put(b"null", 0, 4)

    def write_item(self, out, row):
        """Put the value of a row, or null."""
        if self.view.is_null(row):
            return out.put(b"null", 0, 4)
        return self.write(out, row)


class BoolWriter(Writer):
    """true and false."""

    def write(self, out, row):
        """Put a boolean."""
        return out.put(b"true", 0, 4) if self.view.bit(row) else out.put(b"false", 0, 5)


class IntWriter(Writer):
    """Integers of 1, 2, 4 or 8 bytes."""

    def __init__(self, view, width):
        Writer.__init__(self, view)
        self.width = width

    def write(self, out, row):
        """Put an integer."""
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
    """Numbers of 4 bytes."""

    def write(self, out, row):
        """Put a number."""
        return put_float(out, self.view.floats[self.view.first + row])


class DoubleWriter(Writer):
    """Numbers of 8 bytes."""

    def write(self, out, row):
        """Put a number."""
        return put_double(out, self.view.doubles[self.view.first + row])


class DecimalWriter(Writer):
    """Decimals, with all their places."""

    def __init__(self, view, scale):
        Writer.__init__(self, view)
        self.scale = scale

    def write(self, out, row):
        """Put a decimal."""
        at = 2 * (self.view.first + row)
        low = self.view.int64s[at]
        high = self.view.int64s[at + 1]
        if self.scale > 18 or high != (-1 if low < 0 else 0):
            return out.put_value(_long_decimal(high, low, self.scale))
        if low < 0:
            out.put_byte(45)
            size = -(low + 1)  # the smallest one has no opposite
            size += 1
        else:
            size = low
        power = POWERS.int64s[self.scale]
        put_digits(out, size // power, 1)
        if self.scale:
            out.put_byte(46)
            put_digits(out, size % power, self.scale)
        return 0


def _long_decimal(high, low, scale):
    unscaled = high * (1 << 64) + low % (1 << 64)  # objects: beyond 64 bits
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return (sign + digits[: len(digits) - scale] + ("." + digits[len(digits) - scale :] if scale else "")).encode()


class StringWriter(Writer):
    """Texts."""

    def write(self, out, row):
        """Put a text."""
        start = self.view.start(row)
        return put_quoted(out, self.view.data, start, self.view.end(row) - start)


class BytesWriter(Writer):
    """Bytes."""

    def write(self, out, row):
        """Put bytes."""
        start = self.view.start(row)
        return put_base64(out, self.view.data, start, self.view.end(row) - start)


class DateWriter(Writer):
    """Dates."""

    def write(self, out, row):
        """Put a date."""
        out.put_byte(34)
        put_date(out, self.view.int32s[self.view.first + row])
        return out.put_byte(34)


class TimeWriter(Writer):
    """Times: moments, or what clocks show."""

    def __init__(self, view, is_moment):
        Writer.__init__(self, view)
        self.is_moment = is_moment

    def write(self, out, row):
        """Put a time."""
        out.put_byte(34)
        put_time(out, self.view.int64s[self.view.first + row], self.is_moment)
        return out.put_byte(34)


class StructWriter(Writer):
    """Objects."""

    def __init__(self, view, names, children):
        Writer.__init__(self, view)
        self.children = children
        self.count = len(children)
        self.letters = Store()
        self.ends = Store(8 * (self.count + 1))
        self.ends.int64s[0] = 0
        for i in range(self.count):
            self.letters.put_value(f",{json.dumps(names[i], ensure_ascii=False)}:".encode())
            self.ends.int64s[i + 1] = self.letters.used

    def write(self, out, row):
        """Put an object."""
        is_first = 1
        out.put_byte(123)
        for i in range(self.count):
            child = self.children[i]
            if not child.view.is_null(row):
                start = self.ends.int64s[i] + is_first  # each but the first has a comma before it
                out.put(self.letters.bytes, start, self.ends.int64s[i + 1] - start)
                child.write(out, row)
                is_first = 0
        return out.put_byte(125)


class ListWriter(Writer):
    """Arrays."""

    def __init__(self, view, items):
        Writer.__init__(self, view)
        self.items = items

    def write(self, out, row):
        """Put an array."""
        begin = self.view.start(row)
        out.put_byte(91)
        for item in range(begin, self.view.end(row)):
            if item > begin:
                out.put_byte(44)
            self.items.write_item(out, item)
        return out.put_byte(93)


class MapWriter(Writer):
    """Objects whose names are keys: strings or integers."""

    def __init__(self, view, keys, values):
        Writer.__init__(self, view)
        self.keys = keys
        self.values = values
        self.are_texts = isinstance(keys, StringWriter)

    def write(self, out, row):
        """Put an object."""
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
