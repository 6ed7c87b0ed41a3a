# ruff: noqa: F821 - names that only compiled code uses are declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""A JSON scanner over bytes: finds where values end, and parses strings and numbers. Compiled, or plain Python.

It accepts the same texts as Spark's from_json: RFC 8259, plus strings in single quotes, and the numbers NaN, Infinity,
-Infinity, +Infinity, +INF and -INF. Values nest at most 1000 deep.

Every method takes the position where a token or value begins and returns the position after it, or a negative failure:
`BROKEN` if the text is not JSON, `MISFIT` if it is JSON of an unexpected type. -1 is not used, because Cython reports
exceptions with it. No byte at or beyond `end` is read.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:  # compiled code takes these names from the .pxd
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
    """The bytes to scan, and the properties of the string or number that was scanned last."""

    def __init__(self) -> None:
        self.scratch = Store()
        self.nest = Store(DEEPEST)
        self.path: list[Any] = []
        self.misfit = ""

    def look_at(self, data: memoryview, end: int) -> int:
        """Set the bytes to scan: `data` up to `end`."""
        self.data = data
        self.end = end
        return 0

    def blank(self, at: int) -> int:
        """Skip blanks, if there are any."""
        while at < self.end and self.data[at] <= BLANK and self.data[at] in (32, 10, 13, 9):
            at += 1
        return at

    # -- strings -------------------------------------------------------------------------------------------------

    def string(self, at: int) -> int:
        """Scan a string that begins with the quote at `at`.

        Sets `first` and `last` to the bounds of its contents, and `escaped` if it contains a backslash.
        """
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
            while end - at >= 8 and is_plain(data + at, quote):  # eight bytes at a time
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

    def _escape(self, at: int) -> int:
        """Scan the rest of an escape sequence after its backslash."""
        if at >= self.end:
            return BROKEN
        byte = self.data[at]
        if byte == 117:  # u
            return BROKEN if self._unit(at + 1) < 0 else at + 5
        for known in _SHORTENED:
            if byte == known:
                return at + 1
        return BROKEN

    def _unit(self, at: int) -> int:
        """Return four hexadecimal digits as a number, or BROKEN."""
        if self.end - at < 4:
            return BROKEN
        unit = 0
        for i in range(4):
            byte = self.data[at + i]
            if ZERO <= byte <= NINE:
                unit = unit << 4 | byte - ZERO
            elif 97 <= byte | 32 <= 102:  # a to f or A to F
                unit = unit << 4 | (byte | 32) - 87
            else:
                return BROKEN
        return unit

    def put_string(self, out: Store) -> int:
        """Append the last string unescaped, as UTF-8. A lone surrogate becomes a question mark, as in from_json."""
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

    def _put_unit(self, out: Store, at: int) -> int:
        """Append the character of a \\u escape and, for a surrogate pair, of the escape that follows."""
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

    def unescape(self) -> int:
        """Replace the contents of `scratch` by the last string, unescaped."""
        self.scratch.used = 0
        return self.put_string(self.scratch)

    # -- numbers -------------------------------------------------------------------------------------------------

    def number(self, at: int) -> int:
        """Scan a number into `digits` * 10**`exponent` and the flags `negative`, `whole` and `cut`.

        `whole` means that it has neither a fraction nor an exponent. `digits` has the first 19 significant digits;
        `cut` means that there were more.
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

    def _exponent(self, at: int) -> int:
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

    def double(self, begin: int, after: int) -> float:
        """Return the double nearest to the last number, whose text extends from `begin` to `after`.

        If the digits and the power of ten are exact as doubles, one multiplication or division rounds once and is
        correct. Compiled code also divides numbers of up to 19 digits with a remainder, unless the rounding is
        uncertain. All others take the slow, exact conversion of Python.
        """
        if self.whole and not self.digits:
            return 0.0  # also for -0, which is an integer
        if not self.cut and -22 <= self.exponent <= 22:
            value: float = self.digits
            if self.digits <= _EXACT:
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

    def _slow_double(self, begin: int, after: int) -> float:
        if cython.compiled:
            self.scratch.used = 0
            self.scratch.put(self.data, begin, after - begin)
            self.scratch.put_byte(0)
            return PyOS_string_to_double(cython.cast(CharPointer, self.scratch.bytes), cython.NULL, cython.NULL)
        return float(bytes(self.data[begin:after]))

    def special(self, at: int) -> int:
        """Scan NaN or an infinity into `real`."""
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

    def word(self, at: int, word: bytes | memoryview, size: int) -> int:
        """Scan exactly the bytes of `word`."""
        if self.end - at < size:
            return BROKEN
        for i in range(size):
            if self.data[at + i] != word[i]:
                return BROKEN
        return at + size

    # -- any value -----------------------------------------------------------------------------------------------

    def value(self, at: int, out: Store | None) -> int:  # noqa: C901 - nesting is a stack here, so that depth costs none of C's
        """Scan any value, and append it to `out` unless `out` is None.

        It is appended in the form that from_json gives a value in a string column: without blanks, fractions as
        doubles, NaN and the infinities as strings. `nest` is the stack of closing brackets, so that nested values need
        no recursion.
        """
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
                nest[depth] = byte + 2  # the closing bracket
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
            while True:  # a value ended, or an empty object or array ends here
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

    def _key(self, at: int, out: Store | None) -> int:
        """Scan a member's name, its colon and the blanks up to its value."""
        at = self._scalar(at, out) if at < self.end and self.data[at] in (QUOTE, APOSTROPHE) else BROKEN
        return at if at < 0 else self.colon(at, out)

    def colon(self, at: int, out: Store | None) -> int:
        """Scan a colon and the blanks up to the value."""
        at = self.blank(at)
        if at >= self.end or self.data[at] != COLON:
            return BROKEN
        if out is not None:
            out.put_byte(COLON)
        return self.blank(at + 1)

    def _scalar(self, at: int, out: Store | None) -> int:
        """Scan a value that is neither an object nor an array."""
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

    def _put_again(self, out: Store, quote: int) -> int:
        """Append the last string as JSON."""
        if not self.escaped and quote == QUOTE:
            return out.put(self.data, self.first - 1, self.last - self.first + 2)
        self.unescape()
        return put_quoted(out, self.scratch.bytes, 0, self.scratch.used)
