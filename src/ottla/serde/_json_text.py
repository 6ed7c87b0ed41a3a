# mypy: ignore-errors
# ruff: noqa: F821 - what stands behind `compiled` is declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""JSON as bytes: where its values end, and what strings and numbers say. Plain Python and C in one.

What is JSON is what Spark's from_json takes for it: RFC 8259, and besides strings in single quotes, and NaN, Infinity,
-Infinity, +Infinity, +INF and -INF as numbers. Values nest 1000 deep at most.

Every method takes the position where something begins and gives the one after it, or a failure, which is negative:
`BROKEN` if it is no JSON, `MISFIT` if it is, but not what was asked for. -1 is none of them: it is an exception's.
Nothing is read at or beyond `end`.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:  # where it is, the .pxd has them
    from ottla.serde._builders import Store
    from ottla.serde._texts import put_double, put_quoted

    QUOTE, APOSTROPHE, BACKSLASH, COMMA, COLON, OPEN, CLOSE, BRACKET, CLOSING = b"\"'\\,:{}[]"
    PLUS, MINUS, DOT, ZERO, NINE, BLANK = b"+-.09 "
    BROKEN, MISFIT = -2, -3
    DEEPEST = 1000

_EXACT = 1 << 53
_SHORTENED = b'"\\/bfnrt'
_MEANT = b'"\\/\b\f\n\r\t'
_LARGEST_EXPONENT = 100_000

_INFINITY = float("inf")

_powers = Store(8 * 23)
for _power in range(23):
    _powers.doubles[_power] = 10.0**_power


class Text:
    """A value's bytes, and what was found last in them."""

    def __init__(self):
        self.scratch = Store()
        self.nest = Store(DEEPEST)
        self.path = []
        self.misfit = None

    def look_at(self, data, end):
        """Read `data` up to `end` from now on."""
        self.data = data
        self.end = end
        return 0

    def blank(self, at):
        """Past blanks, of which there may be none."""
        while at < self.end and self.data[at] <= BLANK and self.data[at] in (32, 10, 13, 9):
            at += 1
        return at

    # -- strings -------------------------------------------------------------------------------------------------

    def string(self, at):
        """A string, `at` its quote; `first` and `last` are then around what is in it, which is `escaped` or not."""
        data = self.data
        end = self.end
        if at >= end:
            return BROKEN
        quote = data[at]
        if quote not in (QUOTE, APOSTROPHE):
            return BROKEN
        at += 1
        self.first = at
        self.escaped = False
        if cython.compiled:
            while end - at >= 8 and is_plain(data + at, quote):  # in C, eight bytes at a time
                at += 8
        while at < end:
            byte = data[at]
            at += 1
            if byte == quote:
                self.last = at - 1
                return at
            if byte < BLANK:
                return BROKEN
            if byte == BACKSLASH:
                at = self._escape(at)
                if at < 0:
                    return at
                self.escaped = True
        return BROKEN

    def _escape(self, at):
        """What follows a backslash."""
        if at >= self.end:
            return BROKEN
        byte = self.data[at]
        if byte == 117:  # u
            return BROKEN if self._unit(at + 1) < 0 else at + 5
        for known in _SHORTENED:
            if byte == known:
                return at + 1
        return BROKEN

    def _unit(self, at):
        """Four hexadecimal digits as a number, or BROKEN."""
        if self.end - at < 4:
            return BROKEN
        unit = 0
        for i in range(4):
            byte = self.data[at + i]
            if ZERO <= byte <= NINE:
                unit = unit << 4 | byte - ZERO
            elif 97 <= byte | 32 <= 102:  # a to f, of either case
                unit = unit << 4 | (byte | 32) - 87
            else:
                return BROKEN
        return unit

    def put_string(self, out):
        """What the last string says, as UTF-8. Half a surrogate pair is a question mark, as for from_json."""
        at = self.first
        last = self.last
        if not self.escaped:
            return out.put(self.data, at, last - at)
        begin = at
        while at < last:
            if self.data[at] != BACKSLASH:
                at += 1
                continue
            out.put(self.data, begin, at - begin)
            byte = self.data[at + 1]
            at += 2
            if byte == 117:
                at = self._put_unit(out, at)
            else:
                for i in range(8):
                    if byte == _SHORTENED[i]:
                        out.put_byte(_MEANT[i])
            begin = at
        return out.put(self.data, begin, last - begin)

    def _put_unit(self, out, at):
        """A character by its digits, and those of its other half."""
        unit = self._unit(at)
        at += 4
        if unit < 0x80:
            out.put_byte(unit)
        elif unit < 0x800:
            out.put_byte(0xC0 | unit >> 6)
            out.put_byte(0x80 | unit & 0x3F)
        elif unit < 0xD800 or unit > 0xDFFF:
            out.put_byte(0xE0 | unit >> 12)
            out.put_byte(0x80 | unit >> 6 & 0x3F)
            out.put_byte(0x80 | unit & 0x3F)
        else:
            low = 0
            if unit < 0xDC00 and self.last - at >= 6 and self.data[at] == BACKSLASH and self.data[at + 1] == 117:
                low = self._unit(at + 2)
            if low < 0xDC00 or low > 0xDFFF:
                out.put_byte(63)
                return at
            at += 6
            unit = 0x10000 + ((unit & 0x3FF) << 10) + (low & 0x3FF)
            out.put_byte(0xF0 | unit >> 18)
            out.put_byte(0x80 | unit >> 12 & 0x3F)
            out.put_byte(0x80 | unit >> 6 & 0x3F)
            out.put_byte(0x80 | unit & 0x3F)
        return at

    def unescape(self):
        """What the last string says goes to `scratch`, alone."""
        self.scratch.used = 0
        return self.put_string(self.scratch)

    # -- numbers -------------------------------------------------------------------------------------------------

    def number(self, at):
        """A number: `digits` times ten to the `exponent`, `negative` or not, `whole` if it is written without either.

        `digits` are the first 19; if others were left away, it is `cut`.
        """
        data = self.data
        end = self.end
        digits = 0
        count = 0
        exponent = 0
        self.cut = False
        self.whole = True
        self.negative = at < end and data[at] == MINUS
        if self.negative:
            at += 1
        begin = at
        while at < end and ZERO <= data[at] <= NINE:
            if count < 19:
                digits = digits * 10 + (data[at] - ZERO)
                if digits:
                    count += 1
            else:
                exponent += 1
                self.cut = True
            at += 1
        if at == begin or (data[begin] == ZERO and at - begin > 1):
            return BROKEN
        if at < end and data[at] == DOT:
            self.whole = False
            at += 1
            begin = at
            while at < end and ZERO <= data[at] <= NINE:
                if count < 19:
                    digits = digits * 10 + (data[at] - ZERO)
                    exponent -= 1
                    if digits:
                        count += 1
                else:
                    self.cut = True
                at += 1
            if at == begin:
                return BROKEN
        self.digits = digits
        self.exponent = exponent
        if at < end and data[at] | 32 == 101:  # e
            self.whole = False
            return self._exponent(at + 1)
        return at

    def _exponent(self, at):
        exponent = 0
        is_negative = at < self.end and self.data[at] == MINUS
        if is_negative or (at < self.end and self.data[at] == PLUS):
            at += 1
        begin = at
        while at < self.end and ZERO <= self.data[at] <= NINE:
            if exponent < _LARGEST_EXPONENT:
                exponent = exponent * 10 + (self.data[at] - ZERO)
            at += 1
        self.exponent += -exponent if is_negative else exponent
        return BROKEN if at == begin else at

    def double(self, begin, after):
        """The last number, which stood there, as the double that is nearest to it."""
        if self.whole and not self.digits:
            return 0.0  # also of -0, which is an integer
        if not self.cut and -22 <= self.exponent <= 22:
            value = self.digits
            if self.digits <= _EXACT:  # both numbers are exact, so there is one rounding
                if self.exponent < 0:
                    value = value / _powers.doubles[-self.exponent]
                else:
                    value = value * _powers.doubles[self.exponent]
                return -value if self.negative else value
            if cython.compiled and self.exponent < 0:
                value = divided(self.digits, _powers.doubles[-self.exponent])
                if value >= 0:
                    return -value if self.negative else value
        return self._slow_double(begin, after)

    def _slow_double(self, begin, after):
        if cython.compiled:
            self.scratch.used = 0
            self.scratch.put(self.data, begin, after - begin)
            self.scratch.put_byte(0)
            return PyOS_string_to_double(cython.cast(CharPointer, self.scratch.bytes), cython.NULL, cython.NULL)
        return float(bytes(self.data[begin:after]))

    def special(self, at):
        """A number that is none, which is then `real`."""
        data = self.data
        after = at
        is_negative = at < self.end and data[at] == MINUS
        has_sign = is_negative or (at < self.end and data[at] == PLUS)
        if has_sign:
            at += 1
        after = self.word(at, b"Infinity", 8)
        if after < 0 and has_sign:
            after = self.word(at, b"INF", 3)
        self.real = -_INFINITY if is_negative else _INFINITY
        if after < 0 and not has_sign:
            after = self.word(at, b"NaN", 3)
            self.real = _INFINITY - _INFINITY
        return after

    def word(self, at, word, size):
        """These very bytes."""
        if self.end - at < size:
            return BROKEN
        for i in range(size):
            if self.data[at + i] != word[i]:
                return BROKEN
        return at + size

    # -- any value -----------------------------------------------------------------------------------------------

    def value(self, at, out):  # noqa: C901 - nesting is a stack here, so that depth costs none of C's
        """Any value. Unless `out` is None, it goes there as from_json makes texts of values: without blanks,
        fractions as doubles, what is no number as a string."""
        data = self.data
        nest = self.nest.bytes
        depth = 0
        while True:
            if at >= self.end:
                return BROKEN
            byte = data[at]
            if byte in (OPEN, BRACKET):
                if depth == DEEPEST:
                    return BROKEN
                nest[depth] = byte + 2  # what closes it
                depth += 1
                if out is not None:
                    out.put_byte(byte)
                at = self.blank(at + 1)
                if at >= self.end:
                    return BROKEN
                if data[at] != nest[depth - 1]:
                    if byte == OPEN:
                        at = self._key(at, out)
                        if at < 0:
                            return at
                    continue
            else:
                at = self._scalar(at, out)
                if at < 0:
                    return at
            while True:  # a value ended, or one that is empty ends here
                if depth == 0:
                    return at
                at = self.blank(at)
                if at >= self.end:
                    return BROKEN
                byte = data[at]
                at += 1
                if out is not None:
                    out.put_byte(byte)
                if byte == COMMA:
                    at = self.blank(at)
                    if nest[depth - 1] == CLOSE:
                        at = self._key(at, out)
                        if at < 0:
                            return at
                    break
                if byte != nest[depth - 1]:
                    return BROKEN
                depth -= 1

    def _key(self, at, out):
        """A member's name, and up to its value."""
        at = self._scalar(at, out) if at < self.end and self.data[at] in (QUOTE, APOSTROPHE) else BROKEN
        return at if at < 0 else self.colon(at, out)

    def colon(self, at, out):
        """A colon, and up to the value."""
        at = self.blank(at)
        if at >= self.end or self.data[at] != COLON:
            return BROKEN
        if out is not None:
            out.put_byte(COLON)
        return self.blank(at + 1)

    def _scalar(self, at, out):
        """A value that is neither an object nor an array."""
        byte = self.data[at]
        if byte in (QUOTE, APOSTROPHE):
            after = self.string(at)
            if after >= 0 and out is not None:
                self._put_again(out, byte)
            return after
        if byte == MINUS or ZERO <= byte <= NINE:
            after = self.number(at)
            if after >= 0:
                if out is None:
                    return after
                if self.whole:
                    begin = at + 1 if self.negative and not self.digits else at
                    out.put(self.data, begin, after - begin)
                else:
                    put_double(out, self.double(at, after))
                return after
        if byte == 116:
            after = self.word(at, b"true", 4)
        elif byte == 102:
            after = self.word(at, b"false", 5)
        elif byte == 110:
            after = self.word(at, b"null", 4)
        else:
            after = self.special(at)
            if after >= 0 and out is not None:
                put_double(out, self.real)
            return after
        if after >= 0 and out is not None:
            out.put(self.data, at, after - at)
        return after

    def _put_again(self, out, quote):
        """The last string as JSON."""
        if not self.escaped and quote == QUOTE:
            return out.put(self.data, self.first - 1, self.last - self.first + 2)
        self.unescape()
        return put_quoted(out, self.scratch.bytes, 0, self.scratch.used)
