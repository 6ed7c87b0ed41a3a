"""Transformations of fields: ExtractField, HoistField, InsertField, MaskField, ReplaceField, ValueToKey."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final, NamedTuple

from ottla.connect import data
from ottla.connect.config.definition import (
    ConfigDef,
    Importance,
    Setting,
    SettingError,
    SettingType,
    invalid,
    non_empty,
    one_of,
)
from ottla.connect.data import Field, Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.records import ConnectRecord, SinkRecord
from ottla.connect.transforms.api import R, Transformation
from ottla.connect.transforms.base import (
    REPLACE_NULL,
    Part,
    PartTransformation,
    SchemaCache,
    field_value,
    java_type,
    required_map,
    required_struct,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def non_empty_list(name: str, value: Any) -> None:
    """Accept no empty list."""
    if not value:
        raise invalid(name, value, "Empty list")


def renames_of(name: str, pairs: Sequence[str]) -> dict[str, str]:
    """Return pairs of the form `old:new`. Raises SettingError."""
    found = {}
    for pair in pairs:
        old, colon, new = pair.partition(":")
        if not colon or not old or not new or ":" in new:
            raise invalid(name, pairs, f"Invalid rename mapping: {pair}")
        found[old] = new
    return found


def _valid_renames(name: str, value: Any) -> None:
    renames_of(name, value)


_PATH: Final = re.compile(r"`((?:[^`\\]|\\`|`(?!\.|$))*)`(?=\.|$)|([^.]*)")


def path_of(field: str, version: str) -> tuple[str, ...]:
    """Return the steps to a field: in syntax V2 dots separate steps, and backticks quote a step (KIP-821)."""
    if version.upper() == "V1":
        return (field,)
    steps: list[str] = []
    at = 0
    while True:
        match = _PATH.match(field, at)
        if match is None or (field.startswith("`", at) and match[1] is None):
            raise invalid("field", field, f"Incomplete backtick pair in path: [{field}]")
        steps.append(match[1].replace("\\`", "`") if match[1] is not None else match[2])
        at = match.end()
        if at == len(field):
            return tuple(steps)
        at += 1


class ExtractField(PartTransformation):
    """Replace the key or the value by one of its fields."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("field", SettingType.STRING, "The field to extract.", importance=Importance.MEDIUM),
            Setting(
                "field.syntax.version",
                SettingType.STRING,
                "V1: a field of the root; V2: a path with dots, with backticks around names that contain dots.",
                "V1",
                Importance.HIGH,
                one_of("V1", "V2", ignore_case=True),
            ),
            REPLACE_NULL,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._field: str = settings["field"]
        self._path = path_of(self._field, settings["field.syntax.version"])
        self._with_default: bool = settings["replace.null.with.default"]

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if schema is None:
            if value is not None:
                required_map(value, "field extraction")
            for step in self._path:
                value = value.get(step) if isinstance(value, dict) else None
            return self.part.replaced(record, None, value)
        if value is not None:
            required_struct(schema, value, "field extraction")
        for step in self._path:
            if schema.type is not Type.STRUCT or step not in schema.fields_by_name:
                raise DataError(f"Unknown field: {self._field}")
            if value is not None:
                value = field_value(schema, value, step, with_default=self._with_default)
            schema = schema.fields_by_name[step].schema
        return self.part.replaced(record, schema, value)


class HoistField(PartTransformation):
    """Put the key or the value into a field of a new struct or map."""

    config_def: ClassVar = ConfigDef(
        [Setting("field", SettingType.STRING, "The name of the only field of the result.")]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._field: str = self.config_def.parse(config)["field"]
        self._schema = SchemaCache(lambda schema: data.struct({self._field: schema}))

    def apply(self, record: R) -> R | None:
        schema = self.part.schema_of(record)
        hoisted = None if schema is None else self._schema(schema)
        return self.part.replaced(record, hoisted, {self._field: self.part.value_of(record)})


class _Inserted(NamedTuple):
    name: str
    schema: Schema
    value: Callable[[ConnectRecord], Any]
    in_struct: Callable[[Any], Any] = lambda value: value


def _offset(record: ConnectRecord) -> int:
    if not isinstance(record, SinkRecord):
        raise DataError("Only SinkRecord supported for [field insertion], found: SourceRecord")
    return record.offset


def _moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, UTC).replace(microsecond=milliseconds % 1000 * 1000)


_SUFFIX: Final = "A trailing ! makes it required, ? optional (the default)."


class InsertField(PartTransformation):
    """Add fields with the topic, partition, offset or timestamp of the record, or with a constant."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("topic.field", SettingType.STRING, f"A field for the topic. {_SUFFIX}", None),
            Setting("partition.field", SettingType.STRING, f"A field for the partition. {_SUFFIX}", None),
            Setting("offset.field", SettingType.STRING, f"A field for the offset; only in sinks. {_SUFFIX}", None),
            Setting("timestamp.field", SettingType.STRING, f"A field for the timestamp. {_SUFFIX}", None),
            Setting("static.field", SettingType.STRING, f"A field for a constant. {_SUFFIX}", None),
            Setting("static.value", SettingType.STRING, "The constant.", None),
            REPLACE_NULL,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._with_default: bool = settings["replace.null.with.default"]
        constant = settings["static.value"]
        rows: list[tuple[str, Schema, Callable[[ConnectRecord], Any], Callable[[Any], Any]]] = [
            ("topic.field", data.STRING, lambda record: record.topic, _same),
            ("partition.field", data.INT32, lambda record: record.partition, _same),
            ("offset.field", data.INT64, _offset, _same),
            ("timestamp.field", data.timestamp(), lambda record: record.timestamp, _moment),
            ("static.field", data.STRING, lambda _: constant, _same),
        ]
        self._inserted = []
        for setting, schema, value, in_struct in rows:
            name: str | None = settings[setting]
            if name is None:
                continue
            if setting == "static.field" and constant is None:
                raise invalid("static.value", "null", f"No value specified for static field: {name}")
            schema = schema if name.endswith("!") else schema.as_optional()
            self._inserted.append(_Inserted(name.removesuffix("!").removesuffix("?"), schema, value, in_struct))
        if not any(settings[row[0]] is not None for row in rows):
            raise SettingError("No field insertion configured")
        self._schema = SchemaCache(self._built)

    def _built(self, schema: Schema) -> Schema:
        return replace(schema, fields=schema.fields + tuple(Field(each.name, each.schema) for each in self._inserted))

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if value is None:
            return record
        if schema is None:
            updated = dict(required_map(value, "field insertion"))
            for each in self._inserted:
                found = each.value(record)
                if found is not None:
                    updated[each.name] = found
            return self.part.replaced(record, None, updated)
        given = required_struct(schema, value, "field insertion")
        updated = values_of(schema, given, with_default=self._with_default)
        for each in self._inserted:
            updated[each.name] = each.in_struct(each.value(record))
        return self.part.replaced(record, self._schema(schema), updated)


def _same(value: Any) -> Any:
    return value


def values_of(schema: Schema, value: Mapping[str, Any], *, with_default: bool) -> dict[str, Any]:
    """Return the fields of a struct, with defaults in place of nulls if asked for."""
    return {each.name: field_value(schema, value, each.name, with_default=with_default) for each in schema.fields}


_MASKED: Final[Mapping[type, Any]] = {
    bool: False,
    int: 0,
    float: 0.0,
    str: "",
    Decimal: Decimal(0),
    datetime: _EPOCH,
    date: _EPOCH.date(),
    time: time(0),
    list: [],
    dict: {},
}
_INTEGER_BITS: Final = {Type.INT8: 7, Type.INT16: 15, Type.INT32: 31, Type.INT64: 63}


def _narrowed(number: int, schema: Schema | None) -> int:
    """Return a number as Java narrows it to the type of a field. Raises ValueError beyond 32 or 64 bits."""
    bits = _INTEGER_BITS.get(schema.type, 63) if schema is not None else 63
    most = 1 << max(bits, 31)
    if not -most <= number < most:
        raise ValueError(number)
    return (number + (1 << bits)) % (2 << bits) - (1 << bits)


class MaskField(PartTransformation):
    """Replace fields by a null value of their type, or by a constant."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("fields", SettingType.LIST, "The fields to mask.", importance=Importance.HIGH,
                    validator=non_empty_list),
            Setting("replacement", SettingType.STRING, "The constant for numbers and strings.", None, Importance.LOW,
                    non_empty),
            REPLACE_NULL,
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._fields = frozenset(settings["fields"])
        self._replacement: str | None = settings["replacement"]
        self._with_default: bool = settings["replace.null.with.default"]

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if schema is None:
            updated = dict(required_map(value, "mask fields"))
            for name in self._fields:
                updated[name] = self._masked(None, updated.get(name))
        else:
            given = required_struct(schema, value, "mask fields")
            updated = values_of(schema, given, with_default=self._with_default)
            for name in self._fields & updated.keys():
                updated[name] = self._masked(schema.fields_by_name[name].schema, updated[name])
        return self.part.replaced(record, schema, updated)

    def _masked(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        kind = type(value)
        if self._replacement is None:
            if kind not in _MASKED or (schema is not None and schema.type is Type.STRUCT):
                raise DataError(f"Cannot mask value of type: {java_type(value)}")
            return type(value)() if kind in (list, dict) else _MASKED[kind]
        if kind is str:
            return self._replacement
        try:
            if kind is int:
                return _narrowed(int(self._replacement), schema)
            if kind in (float, Decimal):
                return kind(self._replacement)
        except (ValueError, ArithmeticError) as error:
            raise DataError(f"Unable to convert {self._replacement} to number") from error
        raise DataError(f"Cannot mask value of type {java_type(value)} with custom replacement.")


class ReplaceField(PartTransformation):
    """Keep, drop or rename fields."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("exclude", SettingType.LIST, "Fields to drop; it wins over include.", []),
            Setting("include", SettingType.LIST, "Fields to keep; all others are dropped.", []),
            Setting("renames", SettingType.LIST, "Pairs old:new.", [],
                    validator=_valid_renames),
            REPLACE_NULL,
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._excluded, self._included = frozenset(settings["exclude"]), frozenset(settings["include"])
        self._renames = renames_of("renames", settings["renames"])
        self._with_default: bool = settings["replace.null.with.default"]
        self._schema = SchemaCache(self._built)

    def _keeps(self, name: str) -> bool:
        return name not in self._excluded and (not self._included or name in self._included)

    def _built(self, schema: Schema) -> Schema:
        kept = [each for each in schema.fields if self._keeps(each.name)]
        return replace(
            schema, fields=tuple(Field(self._renames.get(each.name, each.name), each.schema) for each in kept)
        )

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if value is None:
            return record
        if schema is None:
            values = required_map(value, "field replacement")
        else:
            given = required_struct(schema, value, "field replacement")
            values = values_of(schema, given, with_default=self._with_default)
        updated = {self._renames.get(name, name): each for name, each in values.items() if self._keeps(name)}
        return self.part.replaced(record, None if schema is None else self._schema(schema), updated)


class ValueToKey(Transformation):
    """Replace the key by fields of the value."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("fields", SettingType.LIST, "Fields of the value for the key.", importance=Importance.HIGH,
                    validator=non_empty_list),
            REPLACE_NULL,
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._fields: list[str] = settings["fields"]
        self._with_default: bool = settings["replace.null.with.default"]
        self._schema = SchemaCache(self._built)

    def _built(self, schema: Schema) -> Schema:
        for name in self._fields:
            if name not in schema.fields_by_name:
                raise DataError(f"Field does not exist: {name}")
        return data.struct([schema.fields_by_name[name] for name in self._fields])

    def apply(self, record: R) -> R | None:
        purpose = "copying fields from value to key"
        schema = record.value_schema
        if schema is None:
            value = required_map(record.value, purpose)
            return Part.KEY.replaced(record, None, {name: value.get(name) for name in self._fields})
        value = required_struct(schema, record.value, purpose)
        key_schema = self._schema(schema)
        key = {name: field_value(schema, value, name, with_default=self._with_default) for name in self._fields}
        return Part.KEY.replaced(record, key_schema, key)
