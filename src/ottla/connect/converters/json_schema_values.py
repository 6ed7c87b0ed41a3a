"""Connect's values as the JSON of Confluent's JsonSchemaData and back. One function is made for each schema.

Primitive and logical types are JsonConverter's. Others differ: a null of a required field is absent, a map whose keys
are not strings is an array of objects, and a union is the value of its only field.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

from ottla.connect.converters import json_decoder, json_encoder
from ottla.connect.converters.json_encoder import JsonOptions
from ottla.connect.converters.json_schema_options import JsonSchemaOptions, is_union
from ottla.connect.converters.json_structs import BITS
from ottla.connect.data import DECIMAL, NO_DEFAULT, Schema, Type
from ottla.connect.errors import DataError

Convert: TypeAlias = Callable[[Any], Any]
ABSENT: Final = object()
"""The JSON of a null that is not written."""


def has_names(schema: Schema) -> bool:
    """Whether a MAP is a JSON object."""
    assert schema.key_schema is not None
    return schema.key_schema.type is Type.STRING and not schema.key_schema.optional


def encoder(schema: Schema, options: JsonSchemaOptions, path: str = "") -> Convert:
    """Return the function to values for `json_encoder.dumps`; a null may be ABSENT. It raises DataError."""
    encode = _encoder(schema, options, path)
    has_default = schema.default not in (NO_DEFAULT, None) and not options.ignore_default_for_nullables

    def encode_or_null(value: Any) -> Any:
        if value is not None:
            return encode(value)
        if has_default:
            return encode(schema.default)
        return None if schema.optional else ABSENT

    return encode_or_null


def _encoder(schema: Schema, options: JsonSchemaOptions, path: str) -> Convert:
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        item = encoder(schema.value_schema, options, f"{path}[]")
        return lambda value: [_null(item(each)) for each in _checked(value, (list, tuple), schema, path)]
    if schema.type is Type.MAP:
        return _map_encoder(schema, options, path)
    if schema.type is Type.STRUCT:
        return _union_encoder(schema, options, path) if is_union(schema) else _struct_encoder(schema, options, path)
    return json_encoder.compiled(schema, JsonOptions(options.decimal_format == "NUMERIC"), path)


def _null(encoded: Any) -> Any:
    return None if encoded is ABSENT else encoded


def _checked(value: Any, kind: Any, schema: Schema, path: str) -> Any:
    if not isinstance(value, kind):
        raise DataError(f"Invalid type for {schema.type}: {type(value).__name__}{f' (field {path})' if path else ''}")
    return value


def _map_encoder(schema: Schema, options: JsonSchemaOptions, path: str) -> Convert:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    key, item = (encoder(each, options, f"{path}{{}}") for each in (schema.key_schema, schema.value_schema))
    if has_names(schema):
        return lambda value: {
            key(each): _null(item(found)) for each, found in _checked(value, dict, schema, path).items()
        }
    return lambda value: [
        {"key": _null(key(each)), "value": _null(item(found))}
        for each, found in _checked(value, dict, schema, path).items()
    ]


def _struct_encoder(schema: Schema, options: JsonSchemaOptions, path: str) -> Convert:
    fields = [(each.name, encoder(each.schema, options, _path(path, each.name))) for each in schema.fields]

    def encode(value: Any) -> dict[str, Any]:
        _checked(value, dict, schema, path)
        found = ((name, convert(value.get(name))) for name, convert in fields)
        return {name: each for name, each in found if each is not ABSENT}

    return encode


def _union_encoder(schema: Schema, options: JsonSchemaOptions, path: str) -> Convert:
    members = [(each.name, encoder(each.schema, options, _path(path, each.name))) for each in schema.fields]

    def encode(value: Any) -> Any:
        _checked(value, dict, schema, path)
        for name, convert in members:
            if value.get(name) is not None:
                return convert(value[name])
        return None

    return encode


def _path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def decoder(schema: Schema, path: str = "") -> Convert:
    """Return the function from parsed JSON; an absent value is ABSENT. It raises DataError."""
    decode = _decoder(schema, path)
    has_default = schema.default not in (NO_DEFAULT, None)

    def decode_or_null(value: Any) -> Any:
        if value is not None and value is not ABSENT:
            try:
                return decode(value)
            except ArithmeticError as error:  # a number of too many digits
                raise DataError(f"A number does not fit {schema.type}{f' (field {path})' if path else ''}") from error
        if has_default:
            return schema.default
        if value is ABSENT or schema.optional:
            return None
        raise DataError(f"Invalid null value for required {schema.type} field{f' ({path})' if path else ''}")

    return decode_or_null


def _decoder(schema: Schema, path: str) -> Convert:
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        item = decoder(schema.value_schema, f"{path}[]")
        return lambda value: [item(each) for each in _checked(value, list, schema, path)]
    if schema.type is Type.MAP:
        return _map_decoder(schema, path)
    if schema.type is Type.STRUCT:
        return _union_decoder(schema, path) if is_union(schema) else _struct_decoder(schema, path)
    convert = json_decoder.compiled(schema, JsonOptions(), path)
    if schema.type not in BITS:
        return convert
    return lambda value: convert(_integral(value))


def _integral(value: Any) -> Any:
    """Return 1 for 1.0, which is an integer for JSON Schema."""
    return int(value) if isinstance(value, (float, Decimal)) and value % 1 == 0 else value


def _map_decoder(schema: Schema, path: str) -> Convert:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    key, item = (decoder(each, f"{path}{{}}") for each in (schema.key_schema, schema.value_schema))
    if has_names(schema):
        return lambda value: {each: item(found) for each, found in _checked(value, dict, schema, path).items()}

    def decode(value: Any) -> dict[Any, Any]:
        for each in _checked(value, list, schema, path):
            if not isinstance(each, dict) or each.keys() != {"key", "value"}:
                raise DataError(f"An entry of the map {path} is not an object with key and value")
        try:
            return {key(each["key"]): item(each["value"]) for each in value}
        except TypeError as error:
            raise DataError(f"An array or an object cannot be the key of map {path}") from error

    return decode


def _struct_decoder(schema: Schema, path: str) -> Convert:
    fields = [(each.name, decoder(each.schema, _path(path, each.name))) for each in schema.fields]

    def decode(value: Any) -> dict[str, Any]:
        _checked(value, dict, schema, path)
        return {name: convert(value.get(name, ABSENT)) for name, convert in fields}

    return decode


def _union_decoder(schema: Schema, path: str) -> Convert:
    members = [(each.name, each.schema, decoder(each.schema, _path(path, each.name))) for each in schema.fields]

    def decode(value: Any) -> Any:
        best: tuple[int, str, Convert] | None = None
        for name, member, convert in members:
            if _is_simple(member, value):
                return {name: convert(value)}
            matching = _matching(member, value)
            # The first object is chosen if no member has a name of the value, as by Confluent's.
            if matching > (-1 if best is None else best[0]):
                best = matching, name, convert
        if best is None:
            raise DataError(f"Did not find matching oneof field for data{f' ({path})' if path else ''}")
        return {best[1]: best[2](value)}

    return decode


def _is_simple(schema: Schema, value: Any) -> bool:
    """Whether a value has the type of a schema that is not a STRUCT."""
    if isinstance(value, bool):
        return schema.type is Type.BOOLEAN
    if isinstance(value, int):
        return schema.type in BITS or schema.type in {Type.FLOAT32, Type.FLOAT64}
    if isinstance(value, (float, Decimal)):
        return schema.type in {Type.FLOAT32, Type.FLOAT64}
    if isinstance(value, str):
        return schema.type is Type.STRING
    return schema.type is Type.MAP or (schema.type is Type.ARRAY and isinstance(value, list))


def _matching(schema: Schema, value: Any) -> int:
    """How many names a STRUCT and an object have in common, at all levels; -1 for values of another type.

    With decimal.format=NUMERIC a decimal is a number. Members that are numbers come before it.
    """
    if schema.name == DECIMAL and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return 0
    if schema.type is not Type.STRUCT or not isinstance(value, dict):
        return -1
    common = [each for each in schema.fields if each.name in value]
    return len(common) + sum(max(_matching(each.schema, value[each.name]), 0) for each in common)
