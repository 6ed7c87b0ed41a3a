"""Encodes values of a schema as JSON, byte by byte as Java's JsonConverter does, but for the order of map entries.

`compiled` returns a function for one schema, which builds objects for orjson. An error names its field.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import orjson

from ottla.connect.converters.java_text import double_text, float_text
from ottla.connect.converters.json_structs import BITS, Plain, struct_function
from ottla.connect.converters.logical import date_to_days, decimal_scale, decimal_to_bytes, time_to_ms, timestamp_to_ms
from ottla.connect.data import DATE, DECIMAL, NO_DEFAULT, TIME, TIMESTAMP, Schema, Type
from ottla.connect.errors import DataError

Encode: TypeAlias = Callable[[Any], Any]
"""From a value to an object that orjson prints as Java does."""

_PLAIN: Final = Plain(
    {
        Type.FLOAT64: "type({0}) is float and (0.001 <= {0} < 1e7 or -1e7 < {0} <= -0.001)",
        Type.STRING: "type({0}) is str",
        Type.BOOLEAN: "type({0}) is bool",
    },
    keeps_dict=False,
)
"""The conditions under which orjson prints a value as Java does."""
_FLOATS: Final = frozenset({Type.FLOAT32, Type.FLOAT64})
_CONTROL: Final = re.compile(rb"(?<!\\)((?:\\\\)*\\u00)([01][0-9a-f])")
_LINE_END: Final = orjson.Fragment(b"\n")


@dataclass(frozen=True)
class JsonOptions:
    """The settings that decide how a value is encoded."""

    numeric_decimals: bool = False
    replace_null_with_default: bool = True


def dumps(encoded: Any) -> bytes:
    """Return encoded values as JSON. Raises DataError for text that is not valid Unicode."""
    try:
        text = orjson.dumps(encoded)
    except orjson.JSONEncodeError as error:
        raise DataError(
            f"Converting Kafka Connect data to byte[] failed due to serialization error: {error}"
        ) from error
    return _as_java(text)


def dumps_lines(texts: Sequence[str]) -> bytes:
    """Return texts as lines of JSON, as `dumps` returns each of them. The last line has no end.

    One call of orjson with a line end after each text: within a text it would be escaped.
    """
    items: list[Any] = [_LINE_END] * (2 * len(texts))
    items[::2] = texts
    return _as_java(orjson.dumps(items)[1:-3].replace(b",\n,", b"\n"))


def _as_java(text: bytes) -> bytes:
    """Write control characters in upper case."""
    return _CONTROL.sub(lambda found: found[1] + found[2].upper(), text) if b"\\u00" in text else text


def compiled(schema: Schema | None, options: JsonOptions, path: str = "") -> Encode:
    """Return the encoder of a schema; None for values without a schema."""
    if schema is None:
        return _without_schema
    encode = (
        _LOGICAL[schema.name](schema, options, path) if schema.name in _LOGICAL else _by_type(schema, options, path)
    )
    return _with_null(schema, encode, options, path)


def _with_null(schema: Schema, encode: Encode, options: JsonOptions, path: str) -> Encode:
    """Add the rules for None: the default, null or an error."""
    replaced = schema.default not in (NO_DEFAULT, None) and options.replace_null_with_default

    def encode_or_null(value: Any) -> Any:
        if value is not None:
            return encode(value)
        if replaced:
            return encode(schema.default)
        if schema.optional:
            return None
        raise DataError(f"Conversion error: null value for field that is required and has no default value{_at(path)}")

    return encode_or_null


def _at(path: str) -> str:
    return f" (field {path})" if path else ""


def _invalid(schema: Schema, value: Any, path: str) -> DataError:
    return DataError(f"Invalid type for {schema.type}: {type(value).__name__}{_at(path)}")


def _by_type(schema: Schema, options: JsonOptions, path: str) -> Encode:
    if schema.type is Type.STRUCT:
        return _struct(schema, options, path)
    if schema.type is Type.ARRAY:
        return _array(schema, options, path)
    if schema.type is Type.MAP:
        return _map(schema, options, path)
    return _primitive(schema, path)


def _primitive(schema: Schema, path: str) -> Encode:
    kind = schema.type
    if kind in BITS:
        limit = 1 << BITS[kind]

        def encode_int(value: Any) -> int:
            if not isinstance(value, int) or isinstance(value, bool):
                raise _invalid(schema, value, path)
            if not -limit <= value < limit:
                raise DataError(f"{value} does not fit {kind}{_at(path)}")
            return int(value)

        return encode_int
    if kind in _FLOATS:
        text = double_text if kind is Type.FLOAT64 else float_text

        def encode_float(value: Any) -> Any:
            if not isinstance(value, (float, int)) or isinstance(value, bool):
                raise _invalid(schema, value, path)
            printed = text(float(value))
            return printed if printed[-1] in "Ny" else orjson.Fragment(printed)  # NaN and Infinity are strings

        return encode_float
    expected: Any = {Type.BOOLEAN: bool, Type.STRING: str, Type.BYTES: (bytes, bytearray, memoryview)}[kind]

    def encode(value: Any) -> Any:
        if not isinstance(value, expected):
            raise _invalid(schema, value, path)
        return b64encode(value).decode("ascii") if kind is Type.BYTES else expected(value)

    return encode


def _array(schema: Schema, options: JsonOptions, path: str) -> Encode:
    item = compiled(schema.value_schema, options, f"{path}[]")

    def encode(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise _invalid(schema, value, path)
        return [item(each) for each in value]

    return encode


def _map(schema: Schema, options: JsonOptions, path: str) -> Encode:
    key, value = (compiled(each, options, f"{path}{{}}") for each in (schema.key_schema, schema.value_schema))
    has_names = schema.key_schema is not None and schema.key_schema.type is Type.STRING

    def encode(given: Any) -> Any:
        if not isinstance(given, dict):
            raise _invalid(schema, given, path)
        if has_names:
            # A null key is written as Java writes it, as the text "null".
            return {"null" if each is None else key(each): value(item) for each, item in given.items()}
        return [[key(each), value(item)] for each, item in given.items()]

    return encode


def _decimal(schema: Schema, options: JsonOptions, path: str) -> Encode:
    scale = decimal_scale(schema)

    def encode(value: Any) -> Any:
        if not isinstance(value, Decimal):
            raise DataError(f"Invalid type for Decimal, expected Decimal but was {type(value).__name__}{_at(path)}")
        if not value.is_finite():
            raise DataError(f"{value} is not a number of a Decimal schema{_at(path)}")
        if options.numeric_decimals:
            return orjson.Fragment(str(value))
        try:
            return b64encode(decimal_to_bytes(value, scale)).decode("ascii")
        except DataError as error:
            raise DataError(f"{error}{_at(path)}") from error

    return encode


def _number_of(convert: Callable[[object], int]) -> Callable[[Schema, JsonOptions, str], Encode]:
    def make(schema: Schema, options: JsonOptions, path: str) -> Encode:
        del schema, options

        def encode(value: Any) -> int:
            try:
                return convert(value)
            except DataError as error:
                raise DataError(f"{error}{_at(path)}") from error

        return encode

    return make


_LOGICAL: Final[dict[str | None, Callable[[Schema, JsonOptions, str], Encode]]] = {
    DECIMAL: _decimal,
    DATE: _number_of(date_to_days),
    TIME: _number_of(time_to_ms),
    TIMESTAMP: _number_of(timestamp_to_ms),
}


def _without_schema(value: Any) -> Any:
    """Encode what JSON has, and bytes."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return _without_schema_int(value)
    if isinstance(value, float):
        printed = double_text(value)
        return printed if printed[-1] in "Ny" else orjson.Fragment(printed)
    if isinstance(value, (list, tuple)):
        return [_without_schema(each) for each in value]
    if isinstance(value, dict):
        if all(isinstance(each, str) for each in value):
            return {each: _without_schema(item) for each, item in value.items()}
        return [[_without_schema(each), _without_schema(item)] for each, item in value.items()]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b64encode(value).decode("ascii")
    raise DataError(f"Python class {type(value).__name__} does not have corresponding schema type.")


def _without_schema_int(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise DataError(f"{value} does not fit INT64")
    return value


# -- structs -----------------------------------------------------------------------------------------------------------


def _struct(schema: Schema, options: JsonOptions, path: str) -> Encode:
    slow = [compiled(each.schema, options, f"{path}.{each.name}" if path else each.name) for each in schema.fields]
    complete, replaces_null = _completer(schema, path), options.replace_null_with_default
    return struct_function(schema, slow, complete, _PLAIN, replaces_null=replaces_null)


def _completer(schema: Schema, path: str) -> Callable[[Any], dict[str, Any]]:
    """Return a function that adds absent fields, and raises DataError for fields that the schema does not have."""
    empty = dict.fromkeys(each.name for each in schema.fields)

    def complete(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _invalid(schema, value, path)
        for unknown in value.keys() - empty.keys():
            raise DataError(f"{unknown} is not a valid field name{_at(path)}: the fields are {', '.join(empty)}")
        return {**empty, **value}

    return complete
