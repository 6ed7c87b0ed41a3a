"""Values of settings: their types, how text becomes a value, and back.

Text is read as Kafka's `ConfigDef.parseType` reads it, that is by Java's parsers: blanks around it are dropped, a whole
number may have a sign and the decimal digits of any script, a double may be hexadecimal or end in `d` or `f`. Python's
own `nan`, `inf` and `1_000` are not numbers. One rule is stricter: the double `NaN` is refused, since no setting means
anything by it and every comparison with it is false. One is weaker: a class needs a name that Java allows, but nothing
here knows whether such a class exists.
"""

import re
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

# The numbers of DescribeConfigs (`ConfigType`).
TYPE_CODES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
_BITS = {"short": 15, "int": 31, "long": 63}
# Java's `String.trim` drops every character up to the blank, and no other.
_BLANKS = "".join(map(chr, range(0x21)))
# Python converts no more digits than this, and no number of 64 bits needs them.
_MAX_DIGITS = 4300
# Compiled by its first use, of which a start with default settings has none.
# No digit may fit two parts of it, or a long value would take the square of its length.
_DOUBLE = (
    r"[+-]?(Infinity|((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
# What `\s` means to Java.
_SPACES = " \t\n\x0b\f\r"
_CLASS = r"(?!\d)[\w$]+(\.[\w$]+)*"


def trim(text: str) -> str:
    """`text` without the characters that Java's `String.trim` removes at both ends."""
    return text.strip(_BLANKS)


def convert(kind: str, text: str) -> Value:
    """The value of `text`; raises ValueError in Kafka's words if it is not of the type."""
    trimmed = trim(text)
    if kind in _BITS:
        return _integer(kind, trimmed)
    if kind == "boolean":
        if trimmed.lower() not in {"true", "false"}:
            raise ValueError("Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind == "double":
        return _double(trimmed)
    if kind == "list":
        return tuple(item.strip(_SPACES) for item in trimmed.split(",")) if trimmed else ()
    if kind == "class" and not re.fullmatch(_CLASS, trimmed):
        raise ValueError(f"Class {text[:1000]} could not be found.")
    return trimmed


def format_value(kind: str, value: Value) -> str | None:
    """Kafka's text form of a value of this type; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if kind == "double":
        return _java_double(float(value))
    return str(value)


def _integer(kind: str, text: str) -> int:
    digits = text[1:] if text[:1] in {"+", "-"} else text
    # Java looks at UTF-16 units, so that digits beyond the Basic Multilingual Plane are none.
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
    """As Java's `Double.toString` writes it: `0.5`, `1.7976931348623157E308`, `Infinity`."""
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
