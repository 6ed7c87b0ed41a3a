"""Values and their types as texts, by the rules of Kafka Connect (org.apache.kafka.connect.data.Values).

`12` is the smallest integer type that has it, `1.5` a float, `true` a boolean, `[1,2]` an array, `{"a":1}` a map,
`2024-05-06`, `07:08:09.123Z` and `2024-05-06T07:08:09.123Z` are a date, a time and a timestamp. All else is a string;
only inside of arrays and maps strings have quotes.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.connect import data
from ottla.connect.converters.date_format import DateFormat
from ottla.connect.converters.java_text import single
from ottla.connect.data import Schema

_TOKEN: Final = re.compile(
    r'\s*(?:([\[\]{},:])|"((?:[^"\\]|\\.)*)"|([^\[\]{},:"\s][^\[\]{},"]*?)(?=\s*(?:[\[\]{},"]|$)))'
)
_KEY: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\[\]{},:"\s]+))\s*:')
_NUMBER: Final = re.compile(r"[+-]?\d+\.?\d*(?:[eE][+-]?\d{1,4})?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"\d\d:\d\d:\d\d\.\d{3}Z")
_INTEGERS: Final = ((7, data.INT8), (15, data.INT16), (31, data.INT32), (63, data.INT64))
_DATES: Final = DateFormat("yyyy-MM-dd")
_TIMES: Final = DateFormat("HH:mm:ss.SSS'Z'")
_TIMESTAMPS: Final = DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_DEEPEST: Final = 50

Typed = tuple[Schema | None, Any]


class _NotALiteral(ValueError):
    """The text is a string."""


def parsed(text: str | None) -> Typed:
    """Return the schema and the value of a text."""
    if text is None:
        return None, None
    stripped = text.strip()
    if stripped == "null":
        return None, None
    found = _scalar(stripped)
    if found is not None:
        return found
    if stripped[:1] in ("[", "{"):
        try:
            schema, value, end = _nested(stripped, 0, 0)
            if end == len(stripped):
                return schema, value
        except _NotALiteral:
            pass
    return data.STRING, text


def _scalar(text: str) -> Typed | None:
    if text in ("true", "false"):
        return data.BOOLEAN, text == "true"
    if _NUMBER.fullmatch(text):
        return _number(text)
    try:
        if _DATE.fullmatch(text):
            return data.date(), _DATES.parse(text).date()
        if _TIME.fullmatch(text):
            return data.time_of_day(), _TIMES.parse(text).time()
        if _DATE.match(text) and text[10:11] == "T" and _TIME.fullmatch(text, 11):
            return data.timestamp(), _TIMESTAMPS.parse(text)
    except (ValueError, OverflowError):
        return None
    return None


def _number(text: str) -> Typed | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if number == number.to_integral_value():
        whole = int(number)
        for bits, schema in _INTEGERS:
            if -(1 << bits) <= whole < 1 << bits:
                return schema, whole
        if "." not in text and "e" not in text.lower():
            return data.decimal(0), Decimal(whole)
    value = float(number)
    rounded = single(value)
    return (data.FLOAT64, value) if math.isinf(rounded) else (data.FLOAT32, rounded)


def _nested(text: str, at: int, depth: int) -> tuple[Schema, Any, int]:
    """Read the array or the map that begins at a place; return the place behind it."""
    if depth > _DEEPEST:
        raise _NotALiteral
    is_array = text[at] == "["
    end = "]" if is_array else "}"
    at += 1
    keys: list[Typed] = []
    values: list[Typed] = []
    while True:
        token = _token(text, at)
        if token[1] == end and not values:
            at = token.end()
            break
        if not is_array:
            key = _KEY.match(text, at)
            if key is None:
                raise _NotALiteral
            keys.append((data.STRING, _unquoted(key[1])) if key[1] is not None else _scalar(key[2]) or _reject())
            at = key.end()
        value, at = _element(text, at, depth, allows_null=not is_array)
        values.append(value)
        token = _token(text, at)
        at = token.end()
        if token[1] == end:
            break
        if token[1] != ",":
            raise _NotALiteral
    if is_array:
        items, found = _common(values)
        return Schema(data.Type.ARRAY, value_schema=items), found, at
    key_schema, found_keys = _common(keys)
    value_schema, found = _common(values)
    schema = Schema(data.Type.MAP, key_schema=key_schema, value_schema=value_schema)
    return schema, dict(zip(found_keys, found, strict=True)), at


def _reject() -> Typed:
    raise _NotALiteral


def _token(text: str, at: int) -> re.Match[str]:
    token = _TOKEN.match(text, at)
    if token is None:
        raise _NotALiteral
    return token


def _element(text: str, at: int, depth: int, *, allows_null: bool) -> tuple[Typed, int]:
    token = _token(text, at)
    if token[1] in ("[", "{"):
        schema, value, at = _nested(text, token.start(1), depth + 1)
        return (schema, value), at
    if token[2] is not None:
        return (data.STRING, _unquoted(token[2])), token.end()
    if token[3] is None:
        raise _NotALiteral
    if token[3] == "null" and allows_null:
        return (None, None), token.end()
    found = _scalar(token[3])
    if found is None:
        raise _NotALiteral
    return found, token.end()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _common(elements: list[Typed]) -> tuple[Schema | None, list[Any]]:
    """Return the one type of all elements, None if there is none, and the elements in it."""
    schemas = [schema for schema, _ in elements if schema is not None]
    values = [value for _, value in elements]
    if not schemas:
        return None, values
    if all(each == schemas[0] for each in schemas):
        return schemas[0], values
    order = [data.INT8, data.INT16, data.INT32, data.INT64, data.FLOAT32, data.FLOAT64]
    if all(each in order for each in schemas):
        widest = max(schemas, key=order.index)
        if order.index(widest) >= order.index(data.FLOAT32):
            return widest, [None if value is None else float(value) for value in values]
        return widest, values
    return None, values
