"""Numbers of options in normalized form: what Java's DecimalFormat makes of the number that the text means.

The form has no exponent and at most three digits behind the point. Confluent's normalization has this form, so ids
depend on it, although it changes values: `1.23456` becomes `1.235`.
"""

from __future__ import annotations

import re
import struct
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

_HEXADECIMAL: Final = re.compile(r"(-?)0[xX]([0-9a-fA-F]+)\Z")
_INTEGER: Final = re.compile(r"-?[0-9]+\Z")
_DECIMAL: Final = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
# Texts that are longer keep their form, so that an exponent cannot ask for any amount of digits.
_MAX_LENGTH: Final = 400
_CONTEXT: Final = Context(prec=2 * _MAX_LENGTH, Emax=_MAX_LENGTH, Emin=-_MAX_LENGTH, traps=[])


def normalized_number(text: str) -> str:
    """The normalized form of a number; a text that is not a number, such as `nan`, stays as it is."""
    if len(text) > _MAX_LENGTH:
        return text
    if found := _HEXADECIMAL.match(text):
        return str(int(found[1] + found[2], 16))
    if _INTEGER.match(text):
        return _integer(text)
    return _decimal(text) if _DECIMAL.match(text) else text


def _integer(text: str) -> str:
    """Java reads an integer with a leading zero as octal."""
    digits = text.removeprefix("-")
    if len(digits) == 1 or not digits.startswith("0"):
        return str(int(text))
    if any(digit in "89" for digit in digits):
        return text
    return str(int(text, 8))


def _decimal(text: str) -> str:
    written = Decimal(text, _CONTEXT) if abs(_exponent(text)) <= _MAX_LENGTH else None
    if written is None or not written.is_finite():
        return text
    rounded = _as_java_reads(text, written).quantize(Decimal("0.001"), ROUND_HALF_EVEN, _CONTEXT)
    digits = f"{rounded:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _exponent(text: str) -> int:
    _, _, exponent = text.lower().partition("e")
    return int(exponent) if exponent and len(exponent) < 10 else 0 if not exponent else _MAX_LENGTH + 1


def _as_java_reads(text: str, written: Decimal) -> Decimal:
    """A float if it is as exact as a double, a double if that is exact, else the written decimal."""
    double = float(text)
    shortest = Decimal(repr(double))
    if not shortest.is_finite() or (double == 0 and written != 0):
        return written
    single = _single(double)
    # Beyond ten million, Java's choice depends on its version; Java 17 mostly takes a double.
    if single and abs(single) < 10**7 and _shortest_single(single) == shortest:
        return _digits(single)
    return _digits(double) if shortest == written else written


def _digits(value: float) -> Decimal:
    """The shortest digits of a number, or all of them if they decide how the last digit is rounded."""
    shortest = Decimal(repr(value))
    is_tie = abs(shortest) < 10**12 and abs(shortest) * 1000 % 1 == Decimal("0.5")
    return Decimal(value) if is_tie else shortest


def _single(value: float) -> float | None:
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return None
    return found


def _shortest_single(single: float) -> Decimal | None:
    for digits in range(1, 10):
        text = f"{single:.{digits - 1}e}"
        if _single(float(text)) == single:
            return Decimal(text)
    return None
