"""Connect's values as fastavro's values and back. One function is made for each schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla.connect import data
from ottla.connect.converters.avro_schemas import UNION, is_string_map, raw, typed
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError

Convert: TypeAlias = Callable[[Any], Any]
_LOGICAL: Final = frozenset({data.DECIMAL, data.DATE, data.TIME, data.TIMESTAMP})


def encoder(schema: Schema) -> Convert | None:
    """Return a function to fastavro's values; None if they are the same. It raises DataError."""
    return _with_default(schema, _encoder(schema))


def decoder(schema: Schema) -> Convert | None:
    """Return a function from fastavro's values; None if they are the same. It raises DataError."""
    return _or_none(_decoder(schema))


def _with_default(schema: Schema, convert: Convert | None) -> Convert | None:
    default = schema.default if schema.has_default else None
    if default is None:
        return _or_none(convert)
    if convert is None:
        return lambda value: default if value is None else value
    return lambda value: convert(default if value is None else value)


def _or_none(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _encoder(schema: Schema) -> Convert | None:
    if schema.name in _LOGICAL:
        return lambda value: raw(schema, value)
    if schema.type is Type.STRUCT:
        return _union_encoder(schema) if schema.name == UNION else _struct(schema, encoder)
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return _array(encoder(schema.value_schema))
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        values = encoder(schema.value_schema)
        if is_string_map(schema):
            return _map(values)
        keys = encoder(schema.key_schema)
        return lambda value: [{"key": _of(keys, key), "value": _of(values, each)} for key, each in value.items()]
    return None


def _decoder(schema: Schema) -> Convert | None:
    if schema.name in _LOGICAL:
        return lambda value: typed(schema, value)
    if schema.type is Type.STRUCT:
        return _union_decoder(schema) if schema.name == UNION else _struct(schema, decoder)
    if schema.type is Type.ARRAY:
        assert schema.value_schema is not None
        return _array(decoder(schema.value_schema))
    if schema.type is Type.MAP:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        values = decoder(schema.value_schema)
        if is_string_map(schema):
            return _map(values)
        keys = decoder(schema.key_schema)
        return lambda value: {_of(keys, each["key"]): _of(values, each["value"]) for each in value}
    return None


def _of(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _struct(schema: Schema, made: Callable[[Schema], Convert | None]) -> Convert | None:
    converted = [(each.name, convert) for each in schema.fields if (convert := made(each.schema)) is not None]
    if not converted:
        return None

    def convert_fields(value: Any) -> Any:
        changed = dict(value)
        for name, convert in converted:
            changed[name] = convert(value.get(name))
        return changed

    return convert_fields


def _array(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: [convert(each) for each in value]


def _map(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: {key: convert(each) for key, each in value.items()}


def _union_encoder(schema: Schema) -> Convert:
    members = [(each.name, each.schema, encoder(each.schema)) for each in schema.fields]

    def convert(value: Any) -> Any:
        for name, member, encode in members:
            if value.get(name) is not None:
                found = _of(encode, value[name])
                return (member.name, found) if member.type is Type.STRUCT else found
        raise DataError("A union has no value")

    return convert


def _union_decoder(schema: Schema) -> Convert:
    """Return the function for what fastavro reads with the names of records: (name, value) for named types."""
    members = [(each.name, each.schema, decoder(each.schema)) for each in schema.fields]

    def convert(value: Any) -> Any:
        named = value[0] if isinstance(value, tuple) else None
        found = value[1] if named is not None else value
        for name, member, decode in members:
            if member.name == named if named is not None else _fits(member, found):
                return {name: _of(decode, found)}
        raise DataError(f"No member of the union has the type of {type(found).__name__}")

    return convert


_PYTHON: Final = {
    Type.INT32: int, Type.INT64: int, Type.INT8: int, Type.INT16: int, Type.FLOAT32: float, Type.FLOAT64: float,
    Type.BOOLEAN: bool, Type.STRING: str, Type.BYTES: bytes, Type.ARRAY: list, Type.MAP: dict, Type.STRUCT: dict,
}  # fmt: skip


def _fits(schema: Schema, value: Any) -> bool:
    return type(value) is _PYTHON[schema.type]
