"""Schemas from the type hints of dataclasses, and their instances as values of STRUCTs.

| hint | schema |
|---|---|
| bool, int, float, str, bytes | BOOLEAN, INT64, FLOAT64, STRING, BYTES |
| date, time, datetime | Date, Time, Timestamp |
| Annotated[Decimal, 2] | Decimal with two digits after the point |
| Annotated[int, INT32] | the annotated Schema |
| list[X], dict[X, Y], a dataclass | ARRAY, MAP, STRUCT |
| X or None | optional |
"""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from ottla.connect import data
from ottla.connect.data import Field, Schema

_SIMPLE: Final[dict[Any, Schema]] = {
    bool: data.BOOLEAN,
    int: data.INT64,
    float: data.FLOAT64,
    str: data.STRING,
    bytes: data.BYTES,
    date: data.date(),
    time: data.time_of_day(),
    datetime: data.timestamp(),
}


_schemas: dict[type[Any], Schema] = {}


def schema_of(kind: type[Any]) -> Schema:
    """Return the schema of a dataclass; the same object each time. Raises TypeError that names the field."""
    if kind not in _schemas:
        _schemas[kind] = _struct(kind)
    return _schemas[kind]


def _struct(kind: type[Any]) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    rows = []
    for each in fields(kind):
        try:
            rows.append(Field(each.name, _schema(hints[each.name])))
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{each.name}: {error}") from error
    return data.struct(rows, kind.__name__)


def _schema(hint: Any) -> Schema:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        return schema_of(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [each for each in arguments if each is not type(None)]
        if len(inner) == 1 and len(arguments) == 2:
            return _schema(inner[0]).as_optional()
        raise TypeError(f"{hint} has several types; Connect has no unions")
    if origin is Annotated:
        return _annotated(*arguments)
    if origin is list and len(arguments) == 1:
        return data.array(_schema(arguments[0]))
    if origin is dict and len(arguments) == 2:
        return data.mapping(_schema(arguments[0]), _schema(arguments[1]))
    if hint is Decimal:
        raise TypeError("a Decimal needs the digits after its point: Annotated[Decimal, 2]")
    raise TypeError(f"{hint} has no schema")


def _annotated(hint: Any, *marks: Any) -> Schema:
    for each in marks:
        if isinstance(each, Schema):
            return each
        if hint is Decimal and isinstance(each, int):
            return data.decimal(each)
    return _schema(hint)


def value_of(row: Any) -> Any:
    """Return an instance of a dataclass as the value of a STRUCT: dataclasses in it become dicts, too."""
    return {each.name: _plain(getattr(row, each.name)) for each in fields(row)}


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, bytes)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value_of(value) if is_dataclass(value) and not isinstance(value, type) else value


def key_schema(schema: Schema, name: str) -> Schema:
    """Return the schema of a field that is the key of records. Raises TypeError."""
    found = schema.fields_by_name.get(name)
    if found is None:
        raise TypeError(f"{schema.name} has no field {name}; the fields are {', '.join(schema.fields_by_name)}")
    return found.schema
