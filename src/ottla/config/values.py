"""Values of brokers', topics' and groups' settings: how text becomes a value, and back.

Text is parsed as Kafka's `ConfigDef.parseType` parses it, with the syntax of Java's parsers. Surrounding blanks are
removed. A whole number may have a sign and the decimal digits of any script. A double may be hexadecimal or end in `d`
or `f`. Python's own `nan`, `inf` and `1_000` are not numbers.

One rule is stricter than Kafka's: the double `NaN` is rejected, because every comparison with it is false and no
setting has a meaning for it. One rule is weaker: a class needs a name that Java allows, but its existence is not
checked.
"""

import re
from typing import TypeAlias

from ottla.common.settings import Kind

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

_BITS = {"short": 15, "int": 31, "long": 63}
# Java's `String.trim` removes exactly the characters up to and including the blank.
_BLANKS = "".join(map(chr, range(0x21)))
# Python refuses to convert more digits than this. A number of 64 bits never needs them.
_MAX_DIGITS = 4300
# Compiled by the first use: a start with default settings does not need it.
# No digit may match two parts of the pattern, or the time for a long value would grow with the square of its length.
_DOUBLE = (
    r"[+-]?(Infinity|((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
# The characters that `\s` matches in Java.
_SPACES = " \t\n\x0b\f\r"
# A Java class, or `module:attribute` of Python in its place.
_CLASS = r"(?!\d)[\w$]+(\.[\w$]+)*(:[\w.]+)?"


def trim(text: str) -> str:
    """Remove the characters at both ends that Java's `String.trim` removes."""
    return text.strip(_BLANKS)


def convert(kind: Kind, text: str) -> Value:
    """Return the value of `text`; raises ValueError with Kafka's message if it is not of the kind."""
    trimmed = trim(text)
    if kind in _BITS:
        return _integer(kind, trimmed)
    if kind == "bool":
        if trimmed.lower() not in {"true", "false"}:
            raise ValueError("Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind == "float":
        return _double(trimmed)
    if kind == "list":
        return tuple(item.strip(_SPACES) for item in trimmed.split(",")) if trimmed else ()
    if kind == "class" and not re.fullmatch(_CLASS, trimmed):
        raise ValueError(f"Class {text[:1000]} could not be found.")
    return trimmed


def format_value(value: Value) -> str | None:
    """Return Kafka's text form of a value; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _integer(kind: str, text: str) -> int:
    digits = text[1:] if text[:1] in {"+", "-"} else text
    # Java looks at UTF-16 units, so it does not accept digits beyond the Basic Multilingual Plane.
    if digits.isdecimal() and len(digits) <= _MAX_DIGITS and max(digits) < "\U00010000":
        value = int(text)
        if -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
            return value
    raise ValueError(f"Not a number of type {kind.upper()}")


def _double(text: str) -> float:
    match = re.fullmatch(_DOUBLE, text)
    if not match:
        raise ValueError("Not a number of type DOUBLE")
    if "p" not in text.lower():
        return float(text.rstrip("fFdD") if match[2] else text)
    try:
        return float.fromhex(text.rstrip("fFdD"))
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")


def _java_double(value: float) -> str:
    """Format a float as Java's `Double.toString` does: `0.5`, `1.7976931348623157E308`, `Infinity`."""
    if value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    first = len(digits) - len(digits.lstrip("0"))
    digits = digits[first:].rstrip("0")
    power = int(exponent or 0) + len(whole) - 1 - first
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{power}"
