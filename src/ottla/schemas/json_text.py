"""JSON as Jackson reads and writes it, because canonical strings are the text that Jackson writes.

`load` accepts what Jackson accepts: no NaN or Infinity, the last of duplicate keys wins, and comments if asked. It
limits the nesting, so that recursive functions over its result are safe. `dump` writes compact JSON in the order of
the keys; its numbers are Java's (`1.0E10`), non-ASCII characters are not escaped.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

from ottla.schemas.model import InvalidSchema

DEEPEST: Final = 200
"""The deepest nesting of a schema's JSON. Recursive functions use at most two frames of the stack for each level."""
_LARGEST: Final = 20_000_000
_STRING_OR_COMMENT: Final = re.compile(r'"|/\*|//')
_END: Final = {
    '"': re.compile(r'(?:[^"\\]|\\.)*+"', re.DOTALL),
    "/*": re.compile(r"\*/"),
    "//": re.compile(r"[\n\r]|$"),
}
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_CONTROL: Final = re.compile(r"\\u00[01][a-f]")


def load(text: str, *, comments: bool = False, exact: bool = False) -> Any:
    """Parse a text. Raises InvalidSchema, also for JSON that is nested deeper than DEEPEST.

    With `exact`, numbers with a point or an exponent are Decimal, so that they are written as they were read.
    """
    if len(text) > _LARGEST:
        raise InvalidSchema(f"the schema has {len(text)} characters; at most {_LARGEST} are allowed")
    if comments and "/" in text and ("/*" in text or "//" in text):
        text = _without_comments(text)
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_decimal if exact else None)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    if text.count("[") + text.count("{") > DEEPEST and _depth(found) > DEEPEST:
        raise _too_deep()
    if _SURROGATE_ESCAPE.search(text) and _SURROGATE.search(dump(found)):
        raise InvalidSchema("the schema has half of a surrogate pair, which is not a character")
    return found


def _without_comments(text: str) -> str:
    """Replace comments by spaces, in linear time also if one of them does not end."""
    parts, position = [], 0
    while found := _STRING_OR_COMMENT.search(text, position):
        mark = found.group()
        is_string = mark == '"'
        end = _END[mark].match(text, found.end()) if is_string else _END[mark].search(text, found.end())
        if end is None:
            raise InvalidSchema(f"the schema is not JSON: {'a string' if is_string else 'a comment'} does not end")
        parts += [text[position : end.end()]] if is_string else [text[position : found.start()], " "]
        position = end.end()
    return "".join([*parts, text[position:]])


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON value")


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:50]} is too large") from None


def _too_deep() -> InvalidSchema:
    return InvalidSchema(f"the schema is nested deeper than {DEEPEST} levels")


def _depth(found: Any) -> int:
    depth, level = 0, [found]
    while level:
        depth += 1
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += [value for value in each.values() if isinstance(value, (dict, list))]
            elif isinstance(each, list):
                below += [value for value in each if isinstance(value, (dict, list))]
        level = below
    return depth


def dump(value: Any) -> str:
    """The compact JSON of a value."""
    if isinstance(value, str):
        return text_of(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return double(value)
    if isinstance(value, Decimal):
        return str(value or value.copy_abs())
    if isinstance(value, list):
        return f"[{','.join(map(dump, value))}]"
    return "{" + ",".join(f"{text_of(key)}:{dump(each)}" for key, each in value.items()) + "}"


def text_of(value: str) -> str:
    """A JSON string with Jackson's escapes, whose hexadecimal digits are in upper case."""
    text = encode_basestring(value)
    if "\\u00" in text:
        text = _CONTROL.sub(lambda found: "\\u" + found.group()[2:].upper(), text)
    return text


def double(value: float) -> str:
    """A number as Java's Double.toString writes it; numbers that are not finite are JSON strings."""
    if not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    return _java_number(repr(value))


def _java_number(text: str) -> str:
    """Move the point of Python's shortest digits to where Java has it."""
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent = text.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    point = len(whole) + int(exponent or 0)
    stripped = digits.lstrip("0")
    if not stripped:
        return f"{sign}0.0"
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if len(digits) == 1:  # Java prefers two digits where they are nearer, which happens to the smallest numbers only
        nearer = f"{float(text):.1e}".lstrip("-").partition("e")[0].replace(".", "").rstrip("0")
        digits = nearer if float(f"0.{nearer}e{point}") == abs(float(text)) else digits
    if -3 < point <= 7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
