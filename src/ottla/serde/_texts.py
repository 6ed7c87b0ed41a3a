# ruff: noqa: F821 - names that only compiled code uses are declared in the .pxd
# cython: language_level=3, annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True
"""Append numbers, strings and bytes to a `Store` as JSON. Compiled with `_texts.pxd`, or plain Python.

A double or float becomes the shortest text that parses to the same number, in the form of Java and of Spark's to_json:
ten million is 1.0E7. NaN and the infinities are strings.
"""

from __future__ import annotations

import math
import struct
from typing import Any

try:
    import cython
except ImportError:
    from ottla.serde import plain as cython

if not cython.compiled:
    from ottla.serde._builders import Store

POWERS = Store(8 * 19)  # the powers of ten that fit 64 bits
for _power in range(19):
    POWERS.int64s[_power] = 10**_power

_SHORTENED = b'"\\bfnrt'
_MEANT = b'"\\\b\f\n\r\t'
_HEX = b"0123456789ABCDEF"
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def put_int(out: Store, value: int) -> int:
    """Append an integer of 64 bits."""
    if value >= 0:
        return put_digits(out, value, 1)
    out.put_byte(45)
    rest = -(value + 1)  # the smallest integer has no positive counterpart
    return put_digits(out, rest + 1, 1)


def put_digits(out: Store, value: int, least: int) -> int:
    """Append a number without a sign, padded with leading zeros to `least` digits."""
    count = 1
    rest = value // 10
    while rest:
        count += 1
        rest //= 10
    if count < least:
        count = least
    out.reserve(count)
    at = out.used + count
    out.used = at
    rest = value
    for _ in range(count):
        at -= 1
        out.bytes[at] = 48 + rest % 10
        rest //= 10
    return 0


def put_double(out: Store, value: float) -> int:
    """Append a double.

    Numbers of at most 15 significant digits are distinct as doubles. So if rounding to six decimal places gives back
    the same double, those digits are its shortest text. All other numbers take the slower path of Python's `repr`.
    """
    size = -value if value < 0 else value
    if 1e-3 <= size < 1e7:
        scaled = _nearest(size * 1e6)
        if scaled / 1e6 == size:
            if value < 0:
                out.put_byte(45)
            return _put_scaled(out, scaled, 6)
        return _put_repr(out, value)
    return out.put_value(_shortest_double(value))


def _put_repr(out: Store, value: float) -> int:
    """Append a double as Python writes it; Java writes the same if the text has no exponent."""
    if cython.compiled:
        text = PyOS_double_to_string(value, 114, 0, 0, cython.NULL)  # r
        try:
            return out.put(cython.cast(Bytes, text), 0, strlen(text))
        finally:
            PyMem_Free(text)
    return out.put_value(repr(value).encode())


def put_float(out: Store, value: float) -> int:
    """Append a float, which is passed as a double."""
    size = -value if value < 0 else value
    if 1e-3 <= size < 1e6:
        power = 1
        for places in range(1, 7):
            power *= 10
            scaled = _nearest(size * power)
            if scaled >= 1_000_000:  # with more than six digits, other decimals may be the same float
                break
            if _as_float(scaled / power) == size:
                if value < 0:
                    out.put_byte(45)
                return _put_scaled(out, scaled, places)
    return out.put_value(_shortest_float(value))


def _put_scaled(out: Store, scaled: int, places: int) -> int:
    """Append `scaled` / 10**`places` without trailing zeros, but with at least one decimal place."""
    while places > 1 and scaled % 10 == 0:
        scaled //= 10
        places -= 1
    power = POWERS.int64s[places]
    put_digits(out, scaled // power, 1)
    out.put_byte(46)
    return put_digits(out, scaled % power, places)


def _shortest_double(value: float) -> Any:
    return _java(value, repr(abs(value)))


def _shortest_float(value: float) -> Any:
    text = ""
    for digits in range(6, 10):
        text = f"{abs(value):.{digits}g}"
        if not math.isfinite(value) or struct.unpack("<f", struct.pack("<f", float(text)))[0] == abs(value):
            break
    return _java(value, text)


def _java(value: float, text: str) -> Any:
    """Convert `text`, the absolute value of `value` in Python's notation, to Java's notation with its sign."""
    if not math.isfinite(value):
        return b'"NaN"' if math.isnan(value) else b'"Infinity"' if value > 0 else b'"-Infinity"'
    sign = "-" if math.copysign(1, value) < 0 else ""
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The position of the decimal point within `digits`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0.0".encode()
    if not -2 <= point <= 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}".encode()
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}".encode()
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}".encode()


def put_quoted(out: Store, data: memoryview, start: int, size: int) -> int:
    """Append UTF-8 bytes as a JSON string with its quotes."""
    at = start
    begin = start
    end = start + size
    out.reserve(size + 2)
    out.put_byte(34)
    while at < end:
        if cython.compiled:
            while end - at >= 8 and is_plain(data + at, 34):  # eight bytes at a time
                at += 8
            if at >= end:
                break
        byte = data[at]
        if byte < 32 or byte == 34 or byte == 92:
            out.put(data, begin, at - begin)
            _put_escape(out, byte)
            begin = at + 1
        at += 1
    out.put(data, begin, end - begin)
    return out.put_byte(34)


def _put_escape(out: Store, byte: int) -> int:
    out.put_byte(92)
    for i in range(7):
        if byte == _MEANT[i]:
            return out.put_byte(_SHORTENED[i])
    out.put_value(b"u00")
    out.put_byte(_HEX[byte >> 4])
    return out.put_byte(_HEX[byte & 15])


def put_base64(out: Store, data: memoryview, start: int, size: int) -> int:
    """Append bytes as a JSON string in base64."""
    alphabet = _BASE64
    at = start
    end = start + size
    out.reserve(size // 3 * 4 + 6)
    out.put_byte(34)
    while at < end:
        left = end - at
        bits = data[at] << 16
        if left > 1:
            bits |= data[at + 1] << 8
        if left > 2:
            bits |= data[at + 2]
        out.put_byte(alphabet[bits >> 18])
        out.put_byte(alphabet[bits >> 12 & 63])
        out.put_byte(alphabet[bits >> 6 & 63] if left > 1 else 61)
        out.put_byte(alphabet[bits & 63] if left > 2 else 61)
        at += 3
    return out.put_byte(34)


def _nearest(value: float) -> int:
    if cython.compiled:
        return whole(value + 0.5)
    return int(value + 0.5)


def _as_float(value: float) -> float:
    if cython.compiled:
        return narrowed(value)
    narrow: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return narrow
