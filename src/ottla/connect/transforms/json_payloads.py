"""Debezium's schemas of JSON texts: inferred from one text (io.debezium.transforms.outbox.JsonSchemaData)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.connect import data
from ottla.connect.data import Field, Schema, Type
from ottla.connect.errors import DataError


class JsonSchemas:
    """Infers schemas of JSON values. `null_schema`: the type of fields that are null, None to skip them."""

    def __init__(self, adjust: Callable[[str], str], null_schema: Schema | None) -> None:
        self._adjust, self._null = adjust, null_schema

    def schema(self, name: str | None, value: Any) -> Schema | None:
        """Return the schema of a value; None if it has none. Raises DataError for an array of several types."""
        if value is None:
            return self._null
        if isinstance(value, list):
            return data.array(self._items(name, value), optional=True) if value else None
        return self._struct(name, value) if isinstance(value, dict) else _number_or_text(value)

    def _struct(self, name: str | None, value: dict[str, Any]) -> Schema:
        fields: dict[str, Field] = {}
        for given, each in value.items():
            field = self._adjust(given)
            schema = self.schema(f"{name}.{field}" if name and name.strip() else field, each)
            if schema is not None and field not in fields:
                fields[field] = Field(field, schema)
        return data.struct(list(fields.values()), name, optional=True)

    def _items(self, name: str | None, values: list[Any]) -> Schema:
        present = [each for each in values if each is not None]
        kinds = {_kind(each) for each in present}
        if len(kinds) > 1:
            raise DataError("Field is not a homogenous array")
        if present and isinstance(present[0], dict):
            return _merged(list(dict.fromkeys(self._struct(name, each) for each in present)))
        schema = self.schema(None, present[0] if present else None)
        if schema is None:
            raise DataError("The array has an unrecognized member schema")
        return schema


def _number_or_text(value: Any) -> Schema:
    if isinstance(value, str):
        return data.OPTIONAL_STRING
    if isinstance(value, bool):
        return data.OPTIONAL_BOOLEAN
    if isinstance(value, int) and -(1 << 31) <= value < 1 << 31:
        return data.OPTIONAL_INT32
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return data.OPTIONAL_INT64
    if isinstance(value, int):
        raise DataError("A number has more than 64 bits")
    return data.OPTIONAL_FLOAT64


def _kind(value: Any) -> object:
    return type(value) if isinstance(value, (dict, list)) else _number_or_text(value)


def _merged(schemas: list[Schema]) -> Schema:
    """Return one struct with the fields of all. As by Debezium, it is required if there are several."""
    merged = schemas[0]
    for each in schemas[1:]:
        fields = {**merged.fields_by_name, **each.fields_by_name}
        for field in merged.fields:
            if field.schema.type is not Type.BYTES or fields[field.name].schema.type is Type.BYTES:
                fields[field.name] = field
        merged = replace(merged, optional=False, fields=tuple(fields.values()))
    return merged


def struct_value(schema: Schema, value: Any) -> Any:
    """Return a JSON value as a value of its schema: of fields that the schema has."""
    if value is None or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        assert schema.value_schema is not None
        return [struct_value(schema.value_schema, each) for each in value]
    return {each.name: struct_value(each.schema, value[each.name]) for each in schema.fields if each.name in value}
