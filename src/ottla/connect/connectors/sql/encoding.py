"""Records of topics as rows of tables: which fields are columns, and their values for drivers.

Debezium's types are dates and times again; its events are their rows, and an event of a delete is a delete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from ottla.connect import data
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.records import SinkRecord

EPOCH: Final = datetime.fromtimestamp(0, UTC)
KAFKA: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_KAFKA_SCHEMAS: Final = (data.STRING, data.INT32, data.INT64)
Encode = Callable[[Any], Any]


def _clock(microseconds: int) -> time:
    if not 0 <= microseconds < 86_400_000_000:
        raise ValueError("not a time of a day")
    return (EPOCH + timedelta(microseconds=microseconds)).time()


def _variable_decimal(value: Mapping[str, Any]) -> Decimal:
    return Decimal(int.from_bytes(value["value"], "big", signed=True)).scaleb(-value["scale"])


_DATE, _TIME, _STAMP = data.date(), data.time_of_day(), data.timestamp()
_DEBEZIUM: Final[dict[str, tuple[Encode, Schema]]] = {
    "io.debezium.time.Date": (lambda value: date(1970, 1, 1) + timedelta(days=value), _DATE),
    "io.debezium.time.Time": (lambda value: _clock(value * 1000), _TIME),
    "io.debezium.time.MicroTime": (_clock, _TIME),
    "io.debezium.time.NanoTime": (lambda value: _clock(value // 1000), _TIME),
    "io.debezium.time.Timestamp": (lambda value: EPOCH + timedelta(milliseconds=value), _STAMP),
    "io.debezium.time.MicroTimestamp": (lambda value: EPOCH + timedelta(microseconds=value), _STAMP),
    "io.debezium.time.NanoTimestamp": (lambda value: EPOCH + timedelta(microseconds=value // 1000), _STAMP),
    "io.debezium.time.ZonedTimestamp": (datetime.fromisoformat, _STAMP),
    "io.debezium.data.VariableScaleDecimal": (_variable_decimal, data.decimal(10)),
}


def column_schema(schema: Schema) -> Schema:
    """Return the schema that decides about the type of a new column."""
    found = _DEBEZIUM.get(schema.name or "")
    return schema if found is None else found[1]


def _encoder(schema: Schema | None) -> Encode | None:
    """Return the conversion of a type; None: values stay as they are."""
    if schema is None:
        return None
    found = _DEBEZIUM.get(schema.name or "")
    if found is not None:
        return found[0]
    if schema.type in (Type.STRUCT, Type.MAP, Type.ARRAY):
        raise DataError(f"it has the type {schema.type}, which is not a column: use the transform Flatten before")
    return None


def _plain(value: Any) -> Any:
    """Return a value without a schema; nested values are JSON."""
    return json.dumps(value) if isinstance(value, (dict, list)) else value


@dataclass(frozen=True)
class Part:
    """A column and its schema."""

    name: str
    schema: Schema | None
    key: bool
    encode: Encode | None


class Shape:
    """The columns of records with one pair of schemas."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self.names = tuple(each.name for each in parts)
        self.keys = tuple(each.name for each in parts if each.key)


@dataclass(frozen=True)
class Row:
    """A row to write, or the keys of a row to delete."""

    record: SinkRecord
    shape: Shape
    values: tuple[Any, ...]
    delete: bool = False


class Encoder:
    """Turns records into rows. Shapes are cached by the identity of schemas."""

    def __init__(self, pk_mode: str, pk_fields: Sequence[str], whitelist: Sequence[str], *, deletes: bool) -> None:
        self._mode, self._pk, self._white, self._deletes = pk_mode, tuple(pk_fields), frozenset(whitelist), deletes
        self._shapes: dict[tuple[Any, ...], tuple[Shape, Schema | None, Schema | None]] = {}

    def row(self, record: SinkRecord) -> Row | None:
        """Return the row of a record, or None for one without effect. Raises DataError with the field's name."""
        schema, value = record.value_schema, record.value
        if schema is not None and (schema.name or "").endswith(".Envelope") and value is not None:
            value = value["before" if value["op"] == "t" else "after"]
            schema = schema.fields_by_name["after"].schema
        if value is None:
            return self._delete(record)
        if not isinstance(value, Mapping):
            raise DataError(f"The value is a {type(value).__name__}, not a STRUCT: a row needs named fields")
        kafka = (record.original_topic or record.topic, record.original_partition, record.original_offset)
        key, key_schema = self._key(record)
        shape = self._shape(key_schema, key, schema, value)
        found: list[Any] = []
        for part in shape.parts:
            if part.key and self._mode == "kafka":
                item: Any = kafka[shape.keys.index(part.name)]
            elif part.key and self._mode == "record_key":
                item = key[part.name]
            else:
                item = value.get(part.name)
            found.append(_encoded(part, item))
        return Row(record, shape, tuple(found))

    def _delete(self, record: SinkRecord) -> Row | None:
        if not self._deletes:
            if record.value is not None:
                return None  # the event of a delete; its tombstone is not for this sink either
            raise DataError("The record has no value: set delete.enabled=true to delete its row")
        key, schema = self._key(record)
        shape = self._shape(schema, key, None, {})
        return Row(record, shape, tuple(_encoded(part, key[part.name]) for part in shape.parts), delete=True)

    def _key(self, record: SinkRecord) -> tuple[Mapping[str, Any], Schema | None]:
        if self._mode != "record_key":
            return {}, None
        key = record.key
        if key is None:
            raise DataError("The record has no key, which pk.mode=record_key needs")
        if isinstance(key, Mapping):
            return key, record.key_schema
        if len(self._pk) != 1:
            raise DataError("The key is not a STRUCT: pk.fields must have one name")
        return {self._pk[0]: key}, record.key_schema

    def _shape(
        self, key_schema: Schema | None, key: Mapping[str, Any], schema: Schema | None, value: Mapping[str, Any]
    ) -> Shape:
        marks = (
            id(key_schema) if key_schema is not None else tuple(key),
            id(schema) if schema is not None else tuple(value),
            self._deletes and not value and schema is None,
        )
        found = self._shapes.get(marks)
        if found is None:  # the schemas are in the value, so that their identities stay theirs
            found = self._shapes[marks] = self._made(key_schema, key, schema, value), key_schema, schema
        return found[0]

    def _made(
        self, key_schema: Schema | None, key: Mapping[str, Any], schema: Schema | None, value: Mapping[str, Any]
    ) -> Shape:
        parts: list[Part] = []
        if self._mode == "kafka":
            names = self._pk or KAFKA
            parts += [_part(name, kind, key=True) for name, kind in zip(names, _KAFKA_SCHEMAS, strict=True)]
        elif self._mode == "record_key":
            for name in self._pk or tuple(key):
                if name not in key:
                    raise DataError(f"The key has no field {name}, which pk.fields names")
                kind = key_schema
                if key_schema is not None and key_schema.type is Type.STRUCT:
                    kind = key_schema.fields_by_name[name].schema
                parts.append(_part(name, kind, key=True))
        keys = {each.name for each in parts}
        value_keys = set(self._pk or (tuple(value) if self._mode == "record_value" else ()))
        value_keys = value_keys if self._mode == "record_value" else set()
        schemas = {each.name: each.schema for each in schema.fields} if schema is not None else dict.fromkeys(value)
        for missing in value_keys - set(schemas):
            raise DataError(f"The value has no field {missing}, which pk.fields names")
        for name, kind in schemas.items():
            is_key = name in value_keys
            if name not in keys and (is_key or not self._white or name in self._white):
                parts.append(_part(name, kind, key=is_key))
        return Shape(parts)


def _part(name: str, schema: Schema | None, *, key: bool) -> Part:
    try:
        return Part(name, schema, key, _encoder(schema))
    except DataError as error:
        raise DataError(f"Field {name} cannot be written: {error}") from error


def _encoded(part: Part, value: Any) -> Any:
    if value is None:
        return None
    if part.schema is None:
        return _plain(value)
    if part.encode is None:
        return value
    try:
        return part.encode(value)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise DataError(
            f"Field {part.name} cannot be written: {value!r} is not a {part.schema.name}: {error}"
        ) from error
