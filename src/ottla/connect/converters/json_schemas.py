"""Schemas as JsonConverter writes them: `{"type":"struct","fields":[...],"optional":false}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.converters import json_decoder, json_encoder
from ottla.connect.converters.json_encoder import JsonOptions
from ottla.connect.data import NO_DEFAULT, Field, Schema, Type
from ottla.connect.errors import DataError

_NAMES: Final = {
    Type.INT8: "int8",
    Type.INT16: "int16",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
    Type.ARRAY: "array",
    Type.MAP: "map",
    Type.STRUCT: "struct",
}
_TYPES: Final = {name: each for each, name in _NAMES.items()}


def to_json(schema: Schema | None, options: JsonOptions) -> dict[str, Any] | None:
    """Return the JSON object of a schema, for orjson, in Java's order."""
    if schema is None:
        return None
    written: dict[str, Any] = {"type": _NAMES[schema.type]}
    if schema.type is Type.ARRAY:
        written["items"] = to_json(schema.value_schema, options)
    elif schema.type is Type.MAP:
        written |= {"keys": to_json(schema.key_schema, options), "values": to_json(schema.value_schema, options)}
    elif schema.type is Type.STRUCT:
        written["fields"] = [{**(to_json(each.schema, options) or {}), "field": each.name} for each in schema.fields]
    written["optional"] = schema.optional
    for name, value in (("name", schema.name), ("version", schema.version), ("doc", schema.doc)):
        if value is not None:
            written[name] = value
    if schema.parameters:
        written["parameters"] = dict(schema.parameters)
    if schema.default not in (NO_DEFAULT, None):
        written["default"] = json_encoder.compiled(schema, options)(schema.default)
    return written


def from_json(given: Any, options: JsonOptions) -> Schema | None:
    """Return the schema of a JSON object; None for null. Raises DataError."""
    if given is None:
        return None
    if not isinstance(given, dict) or not isinstance(given.get("type"), str):
        raise DataError("Schema must contain 'type' field")
    if given["type"] not in _TYPES:
        raise DataError(f"Unknown schema type: {given['type']}")
    kind = _TYPES[given["type"]]
    version = given.get("version")
    schema = Schema(
        kind,
        optional=given.get("optional") is True,
        name=_text(given, "name"),
        version=version if type(version) is int else None,
        doc=_text(given, "doc"),
        parameters=_parameters(given.get("parameters")),
        fields=_fields(given, options) if kind is Type.STRUCT else (),
        key_schema=_inner(given, "keys", "Map schema did not specify the key type", options)
        if kind is Type.MAP
        else None,
        value_schema=_values(given, kind, options),
    )
    return _with_default(schema, given, options)


def _with_default(schema: Schema, given: Mapping[str, Any], options: JsonOptions) -> Schema:
    if given.get("default") is None:
        return schema
    decoded = json_decoder.compiled(schema, options, "default")(given["default"])
    return Schema(
        schema.type,
        schema.optional,
        schema.name,
        schema.version,
        schema.doc,
        decoded,
        schema.parameters,
        schema.fields,
        schema.key_schema,
        schema.value_schema,
    )


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    return value if isinstance(value, str) else None


def _parameters(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        return {}
    if not all(isinstance(each, str) for each in given.values()):
        raise DataError("Schema parameters must have string values.")
    return given


def _fields(given: Mapping[str, Any], options: JsonOptions) -> tuple[Field, ...]:
    fields = given.get("fields")
    if not isinstance(fields, list):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    found = []
    for each in fields:
        schema = from_json(each, options)
        if schema is None or not isinstance(each.get("field"), str):
            raise DataError("Struct schema's field name not specified properly")
        found.append(Field(each["field"], schema))
    return tuple(found)


def _values(given: Mapping[str, Any], kind: Type, options: JsonOptions) -> Schema | None:
    if kind is Type.ARRAY:
        return _inner(given, "items", "Array schema did not specify the element type", options)
    if kind is Type.MAP:
        return _inner(given, "values", "Map schema did not specify the value type", options)
    return None


def _inner(given: Mapping[str, Any], name: str, missing: str, options: JsonOptions) -> Schema:
    schema = from_json(given.get(name), options)
    if schema is None:
        raise DataError(missing)
    return schema
