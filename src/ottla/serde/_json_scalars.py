# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Readers of JSON scalars into columns. Compiled with `_json_scalars.pxd`, or plain Python.

A string column takes any JSON as text. Numbers must fit their type; decimals are rounded half up. A time without a zone
is UTC. Bytes are base64. A reader appends one row to its builder or fails. After a failure, the caller must remove the
partial row with `truncate`.
"""

from __future__ import annotations

import decimal
import json
import re
from typing import Any

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:
    from ottla.serde._builders import (
        BinaryBuilder,
        BoolBuilder,
        Builder,
        DecimalBuilder,
        FloatBuilder,
        IntBuilder,
        Store,
    )
    from ottla.serde._json_text import APOSTROPHE, MINUS, MISFIT, NINE, QUOTE, ZERO, Text
    from ottla.serde._texts import POWERS
    from ottla.serde._times import Moment

_LARGEST = 0x7FFFFFFFFFFFFFFF
_LARGEST_FLOAT = 3.4028235677973366e38  # a smaller number is rounded to a float
_DAY_US = 86_400_000_000
_MOST_SECONDS = _LARGEST // 1_000_000
_ALL_ONES = 0xFFFFFFFFFFFFFFFF
_SPECIAL = {
    b"NaN": float("nan"), b"Infinity": float("inf"), b"+Infinity": float("inf"), b"-Infinity": float("-inf"),
    b"+INF": float("inf"), b"-INF": float("-inf"),
}  # fmt: skip
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Reader:
    """Reads values of one type into a column; `words` names the type in messages."""

    def __init__(self, column: Builder, words: Any) -> None:
        self.column = column
        self.words = words

    def read(self, text: Text, at: int) -> int:
        """Append the value at `at` to the column; return the position after it, or a failure."""
        raise NotImplementedError

    def other(self, text: Text, at: int) -> int:
        """Append null, or fail for any other value."""
        after = text.word(at, b"null", 4)
        if after >= 0:
            self.column.append_null()
            return after
        after = text.value(at, None)
        return after if after < 0 else self.misfit(text, at)

    def misfit(self, text: Text, at: int) -> int:
        """Describe in `text.misfit` why the value at `at` does not fit, and return MISFIT."""
        out = Store()
        text.value(at, out)
        shown = bytes(out.bytes[: out.used]).decode()
        if shown[0] == '"':
            shown = repr(json.loads(shown))
        text.misfit = f"is {shown if len(shown) <= 60 else shown[:57] + '...'}; it must be {self.words}"
        return MISFIT


class BoolReader(Reader):
    def __init__(self, column: BoolBuilder, words: Any) -> None:
        Reader.__init__(self, column, words)
        self.into = column

    def read(self, text: Text, at: int) -> int:
        after = text.word(at, b"true", 4)
        if after >= 0:
            self.into.append_bool(True)
            return after
        after = text.word(at, b"false", 5)
        if after >= 0:
            self.into.append_bool(False)
            return after
        return self.other(text, at)


class IntReader(Reader):
    """Reads integers that are written without a fraction or an exponent."""

    def __init__(self, column: IntBuilder, words: Any) -> None:
        Reader.__init__(self, column, words)
        self.into = column

    def read(self, text: Text, at: int) -> int:
        byte = text.data[at]
        if byte != MINUS and (byte < ZERO or byte > NINE):
            return self.other(text, at)
        after = text.number(at)
        if after < 0:
            return self.other(text, at)
        value = 0
        if not text.whole or text.cut or text.digits > _LARGEST:
            if not (text.whole and text.negative and not text.cut and text.digits == _LARGEST + 1):
                return self.misfit(text, at)
            value = -_LARGEST - 1
        else:
            value = text.digits
            if text.negative:
                value = -value
        return after if self.into.append_int(value) else self.misfit(text, at)


class FloatReader(Reader):
    """Reads numbers, and NaN and the infinities, with or without quotes."""

    def __init__(self, column: FloatBuilder, words: Any) -> None:
        Reader.__init__(self, column, words)
        self.into = column
        self.largest = _LARGEST_FLOAT if column.width == 4 else float("inf")

    def read(self, text: Text, at: int) -> int:
        byte = text.data[at]
        if byte == MINUS or ZERO <= byte <= NINE:
            after = text.number(at)
            if after >= 0:
                value = text.double(at, after)
                if not -self.largest < value < self.largest:
                    return self.misfit(text, at)
                self.into.append_float(value)
                return after
        if byte in (QUOTE, APOSTROPHE):
            after = text.string(at)
            if after < 0:
                return after
            special = _SPECIAL.get(bytes(text.data[text.first : text.last]))
            if special is None:
                return self.misfit(text, at)
            self.into.append_float(special)
            return after
        after = text.special(at)
        if after < 0:
            return self.other(text, at)
        self.into.append_float(text.real)
        return after


class DecimalReader(Reader):
    """Reads numbers, with or without quotes, and rounds them half up."""

    def __init__(self, column: DecimalBuilder, words: Any) -> None:
        Reader.__init__(self, column, words)
        self.into = column
        self.scale = column.scale
        self.limit = 10**column.precision if column.precision < 19 else _LARGEST

    def read(self, text: Text, at: int) -> int:
        byte = text.data[at]
        begin = at
        is_quoted = byte in (QUOTE, APOSTROPHE)
        if is_quoted:
            after = text.string(at)
            if after < 0:
                return after
            begin = text.first
            end = text.end
            text.end = text.last
            is_plain = begin < text.last and text.number(begin) == text.last
            text.end = end
            stop = text.last
        elif byte == MINUS or ZERO <= byte <= NINE:
            after = text.number(at)
            if after < 0:
                return self.other(text, at)
            is_plain = True
            stop = after
        else:
            return self.other(text, at)
        if is_plain and not text.cut and self.rounded(text):
            return after
        unscaled = _unscaled(bytes(text.data[begin:stop]), self.scale)
        if unscaled is None or not self.into.append_unscaled(unscaled):
            return self.misfit(text, at)
        return after

    def rounded(self, text: Text) -> bool:
        """Append the last number and return True; return False if it needs more than 64 bits or may not fit."""
        shift = text.exponent + self.scale
        value = text.digits
        if not value:
            self.into.append_words(0, 0)
            return True
        if shift > 18 or shift < -18 or value > _LARGEST:
            return False
        if shift >= 0:
            power = POWERS.int64s[shift]
            if value > _LARGEST // power:
                return False
            value *= power
        else:
            power = POWERS.int64s[-shift]
            rest = value % power
            value = value // power + (1 if rest >= power - rest else 0)
        if value >= self.limit:
            return False
        if text.negative and value:
            self.into.append_words(-1, _ALL_ONES - value + 1)
        else:
            self.into.append_words(0, value)
        return True


def _unscaled(text: Any, scale: Any) -> Any:
    """Return a decimal text as an integer at that scale, or None if it is not a decimal or is far too large."""
    if not _DECIMAL.fullmatch(text.decode("utf-8")):
        return None
    with decimal.localcontext(prec=76, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN):
        try:
            number = decimal.Decimal(text.decode()).quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)
            return int(number.scaleb(scale))
        except (decimal.InvalidOperation, ValueError):
            return None


class StringReader(Reader):
    """Reads the contents of strings, and the JSON text of any other value."""

    def __init__(self, column: BinaryBuilder, words: Any) -> None:
        Reader.__init__(self, column, words)
        self.into = column

    def read(self, text: Text, at: int) -> int:
        byte = text.data[at]
        if byte in (QUOTE, APOSTROPHE):
            after = text.string(at)
            if after < 0:
                return after
            if not text.escaped:
                self.into.append_bytes(text.data, text.first, text.last - text.first)
                return after
            text.put_string(self.into.data)
        else:
            after = text.word(at, b"null", 4)
            if after >= 0:
                self.column.append_null()
                return after
            after = text.value(at, self.into.data)
            if after < 0:
                return after
        self.into.append_rest()
        return after


class BinaryReader(Reader):
    """Reads bytes in padded base64; blanks may separate groups of four characters."""

    def __init__(self, column: BinaryBuilder, words: Any) -> None:
        Reader.__init__(self, column, words)
        self.into = column

    def read(self, text: Text, at: int) -> int:
        byte = text.data[at]
        if byte != QUOTE and byte != APOSTROPHE:
            return self.other(text, at)
        after = text.string(at)
        if after < 0:
            return after
        text.unescape()
        if not _put_bytes(self.into.data, text.scratch):
            return self.misfit(text, at)
        self.into.append_rest()
        return after


def _put_bytes(out: Store, source: Store) -> bool:
    """Append the bytes that `source` encodes in base64; return whether it is valid."""
    at = 0
    end = source.used
    while True:
        while at < end and source.bytes[at] <= 32:
            at += 1
        if at == end:
            return True
        if end - at < 4:
            return False
        bits = 0
        count = 0
        for i in range(4):
            sextet = _sextet(source.bytes[at + i])
            if sextet < 64 and count == i:
                count += 1
                bits |= sextet << (18 - 6 * i)
            elif sextet != 64 or i < 2:
                return False
        at += 4
        out.put_byte(bits >> 16)
        if count > 2:
            out.put_byte(bits >> 8 & 255)
        if count > 3:
            out.put_byte(bits & 255)
        else:
            while at < end and source.bytes[at] <= 32:
                at += 1
            return at == end


def _sextet(byte: int) -> int:
    """Return the value of a base64 character; 64 for the padding, 65 for an invalid character."""
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if ZERO <= byte <= NINE:
        return byte + 4
    return 62 if byte == 43 else 63 if byte == 47 else 64 if byte == 61 else 65


class DateReader(Reader):
    def __init__(self, column: IntBuilder, words: Any) -> None:
        Reader.__init__(self, column, words)
        self.into = column
        self.moment = Moment()

    def read(self, text: Text, at: int) -> int:
        byte = text.data[at]
        if byte != QUOTE and byte != APOSTROPHE:
            return self.other(text, at)
        after = text.string(at)
        if after < 0:
            return after
        if text.escaped or not self.moment.date(text.data, text.first, text.last):
            return self.misfit(text, at)
        self.into.append_int(self.moment.days)
        return after


class TimestampReader(Reader):
    """Reads times as strings, and, for timestamps that are not local (`is_moment`), as whole seconds since 1970."""

    def __init__(self, column: IntBuilder, words: Any, is_moment: bool) -> None:
        Reader.__init__(self, column, words if is_moment else "timestamp_ntz")
        self.into = column
        self.moment = Moment()
        self.is_moment = is_moment

    def read(self, text: Text, at: int) -> int:
        byte = text.data[at]
        if byte in (QUOTE, APOSTROPHE):
            after = text.string(at)
            if after < 0:
                return after
            if text.escaped or not self.moment.time(text.data, text.first, text.last):
                return self.misfit(text, at)
            if self.moment.has_zone and not self.is_moment:
                return self.misfit(text, at)
            self.into.append_int(self.moment.days * _DAY_US + self.moment.micros)
            return after
        if self.is_moment and (byte == MINUS or ZERO <= byte <= NINE):
            after = text.number(at)
            if after >= 0 and text.whole and not text.cut and text.digits <= _MOST_SECONDS:
                seconds = text.digits
                self.into.append_int((-seconds if text.negative else seconds) * 1_000_000)
                return after
        return self.other(text, at)
