"""Decodes JSON values of a schema.

Java reads a wrong type as zero, false or null. Here it is a DataError that names the field, but for numbers that FLOAT
fields accept and for the strings by which the encoder writes NaN and Infinity.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import orjson

from ottla.connect.converters.java_text import single
from ottla.connect.converters.json_encoder import JsonOptions
from ottla.connect.converters.json_structs import BITS, Plain, struct_function
from ottla.connect.converters.logical import (
    date_from_days,
    decimal_from_bytes,
    decimal_scale,
    time_from_ms,
    timestamp_from_ms,
)
from ottla.connect.data import DATE, DECIMAL, NO_DEFAULT, TIME, TIMESTAMP, Schema, Type
from ottla.connect.errors import DataError

Decode: TypeAlias = Callable[[Any], Any]
"""From a JSON value to a value of the schema."""
_PLAIN: Final = Plain(
    {
        Type.FLOAT64: "type({0}) is float",
        Type.STRING: "type({0}) is str",
        Type.BOOLEAN: "type({0}) is bool",
    },
    keeps_dict=True,
)
_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def loads(text: bytes | str, *, exact: bool = False) -> Any:
    """Parse JSON. `exact`: fractions are Decimals. Raises DataError."""
    try:
        if not exact:
            return orjson.loads(text)
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
        ) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def has_decimals(schema: Schema | None) -> bool:
    """Whether values of this schema may have digits that a float would lose."""
    if schema is None:
        return False
    inner = [each.schema for each in schema.fields]
    inner += [each for each in (schema.key_schema, schema.value_schema) if each is not None]
    return schema.name == DECIMAL or any(map(has_decimals, inner))


def compiled(schema: Schema | None, options: JsonOptions, path: str = "") -> Decode:
    """Return the decoder of a schema; None for values without a schema."""
    if schema is None:
        return _as_it_is
    make = _LOGICAL.get(schema.name) or _BY_TYPE[schema.type]
    decode = make(schema, options, path)
    default = schema.default
    replaced = default not in (NO_DEFAULT, None) and options.replace_null_with_default

    def decode_or_null(value: Any) -> Any:
        if value is not None:
            return decode(value)
        if replaced:
            return default
        if schema.optional:
            return None
        raise DataError(f"Invalid null value for required {schema.type} field{_at(path)}")

    return decode_or_null


def _as_it_is(value: Any) -> Any:
    return value


def _at(path: str) -> str:
    return f" ({path})" if path else ""


def _invalid(schema: Schema, value: Any, path: str) -> DataError:
    found = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer"}
    return DataError(f"Invalid value of {schema.type} field{_at(path)}: {found.get(type(value), 'a number')}")


def _integer(schema: Schema, options: JsonOptions, path: str) -> Decode:
    del options
    limit = 1 << BITS[schema.type]

    def decode(value: Any) -> int:
        if type(value) is int and -limit <= value < limit:
            return value
        if type(value) is int:
            raise DataError(f"{value} does not fit {schema.type}{_at(path)}")
        raise _invalid(schema, value, path)

    return decode


def _float(schema: Schema, options: JsonOptions, path: str) -> Decode:
    del options
    is_single = schema.type is Type.FLOAT32

    def decode(value: Any) -> float:
        if isinstance(value, (float, int, Decimal)) and not isinstance(value, bool):
            return single(float(value)) if is_single else float(value)
        if isinstance(value, str) and value in _SPECIAL:
            return _SPECIAL[value]
        raise _invalid(schema, value, path)

    return decode


def _boolean(schema: Schema, options: JsonOptions, path: str) -> Decode:
    del options

    def decode(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise _invalid(schema, value, path)

    return decode


def _string(schema: Schema, options: JsonOptions, path: str) -> Decode:
    del options

    def decode(value: Any) -> str:
        if isinstance(value, str):
            return value
        raise _invalid(schema, value, path)

    return decode


def _bytes(schema: Schema, options: JsonOptions, path: str) -> Decode:
    del options

    def decode(value: Any) -> bytes:
        if not isinstance(value, str):
            raise _invalid(schema, value, path)
        try:
            return b64decode(value, validate=True)
        except ValueError as error:
            raise DataError(f"Invalid bytes field{_at(path)}: {error}") from error

    return decode


def _array(schema: Schema, options: JsonOptions, path: str) -> Decode:
    item = compiled(schema.value_schema, options, f"{path}[]")

    def decode(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _invalid(schema, value, path)
        return [item(each) for each in value]

    return decode


def _map(schema: Schema, options: JsonOptions, path: str) -> Decode:
    key, item = (compiled(each, options, f"{path}{{}}") for each in (schema.key_schema, schema.value_schema))
    has_names = schema.key_schema is not None and schema.key_schema.type is Type.STRING

    def decode_object(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DataError(f"Maps with string fields should be encoded as JSON objects{_at(path)}")
        return {each: item(found) for each, found in value.items()}

    def decode_pairs(value: Any) -> dict[Any, Any]:
        if not isinstance(value, list) or not all(isinstance(each, list) and len(each) == 2 for each in value):
            raise DataError(f"Maps with non-string fields should be encoded as JSON array of tuples{_at(path)}")
        try:
            return {key(each): item(found) for each, found in value}
        except TypeError as error:
            raise DataError(f"A list or an object cannot be the key of a map in Python{_at(path)}") from error

    return decode_object if has_names else decode_pairs


def _struct(schema: Schema, options: JsonOptions, path: str) -> Decode:
    slow = [compiled(each.schema, options, f"{path}.{each.name}" if path else each.name) for each in schema.fields]
    complete, replaces_null = _completer([each.name for each in schema.fields], path), options.replace_null_with_default
    return struct_function(schema, slow, complete, _PLAIN, replaces_null=replaces_null)


def _completer(names: list[str], path: str) -> Callable[[Any], dict[str, Any]]:
    """Return a function that adds absent fields as None, and drops unknown fields, as Java does."""

    def complete(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise DataError(f"Structs should be encoded as JSON objects{_at(path)}")
        return {each: value.get(each) for each in names}

    return complete


def _decimal(schema: Schema, options: JsonOptions, path: str) -> Decode:
    del options
    scale = decimal_scale(schema)
    decode_bytes = _bytes(schema, JsonOptions(), path)

    def decode(value: Any) -> Decimal:
        if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            return Decimal(value)
        if isinstance(value, float):  # a default in a schema, whose JSON was parsed without Decimals
            return Decimal(repr(value))
        return decode_bytes_as_decimal(value)

    def decode_bytes_as_decimal(value: Any) -> Decimal:
        return decimal_from_bytes(decode_bytes(value), scale)

    return decode


def _number_to(convert: Callable[[int], Any]) -> Callable[[Schema, JsonOptions, str], Decode]:
    def make(schema: Schema, options: JsonOptions, path: str) -> Decode:
        number = _integer(schema, options, path)

        def decode(value: Any) -> Any:
            try:
                return convert(number(value))
            except DataError as error:
                raise DataError(f"{error}{'' if _at(path) in str(error) else _at(path)}") from error

        return decode

    return make


_BY_TYPE: Final = {
    **dict.fromkeys(BITS, _integer),
    Type.FLOAT32: _float,
    Type.FLOAT64: _float,
    Type.BOOLEAN: _boolean,
    Type.STRING: _string,
    Type.BYTES: _bytes,
    Type.ARRAY: _array,
    Type.MAP: _map,
    Type.STRUCT: _struct,
}
_LOGICAL: Final[dict[str | None, Callable[[Schema, JsonOptions, str], Decode]]] = {
    DECIMAL: _decimal,
    DATE: _number_to(date_from_days),
    TIME: _number_to(time_from_ms),
    TIMESTAMP: _number_to(timestamp_from_ms),
}
