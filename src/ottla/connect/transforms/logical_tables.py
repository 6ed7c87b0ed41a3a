"""Debezium's transformation ByLogicalTableRouter: change events of several tables in one topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from ottla.connect import data
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingError, SettingType, non_empty, one_of
from ottla.connect.data import NO_DEFAULT, Field, Schema
from ottla.connect.transforms.api import R, Transformation
from ottla.connect.transforms.base import SchemaCache, required_struct
from ottla.connect.transforms.debezium import DEBEZIUM_VERSION, is_envelope
from ottla.connect.transforms.fields import values_of
from ottla.connect.transforms.routing import Rewriting, valid_pattern
from ottla.connect.transforms.schema_names import MODES, adjuster

_LOW: Final = Importance.LOW
_PURPOSE: Final = "Updating schema"


class ByLogicalTableRouter(Transformation):
    """Change the topic by a regular expression, and give keys a field with the name of the table that they are from."""

    version: ClassVar = DEBEZIUM_VERSION
    config_def: ClassVar = ConfigDef(
        [
            Setting("topic.regex", SettingType.STRING, "The expression that the whole topic must match.",
                    importance=_LOW, validator=valid_pattern),
            Setting("topic.replacement", SettingType.STRING, "The new topic; $1 is the first group.",
                    importance=_LOW, validator=non_empty),
            Setting("key.enforce.uniqueness", SettingType.BOOLEAN, "Whether keys get a field with their table.", True,
                    _LOW),
            Setting("key.field.name", SettingType.STRING, "The name of that field.", "__dbz__physicalTableIdentifier",
                    _LOW),
            Setting("key.field.regex", SettingType.STRING, "The expression that the topic must match for a field of "
                    "another value than the topic.", None, _LOW),
            Setting("key.field.replacement", SettingType.STRING, "That value; $1 is the first group.", None, _LOW),
            Setting("schema.name.adjustment.mode", SettingType.STRING, "How the names of schemas are changed for Avro.",
                    "none", _LOW, one_of(*MODES)),
            Setting("logical.table.cache.size", SettingType.INT, "Accepted as Debezium accepts it, without effect.", 16,
                    _LOW),
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        """Read the settings. Raises SettingError."""
        settings = self.config_def.parse(config)
        self._topic = Rewriting("topic.regex", settings["topic.regex"], settings["topic.replacement"])
        expression, replacement = settings["key.field.regex"], settings["key.field.replacement"]
        self._table: Rewriting | None = None
        if expression is not None and expression.strip():
            if replacement is None or not replacement.strip():
                raise SettingError("key.field.replacement must be non-empty if key.field.regex is set.")
            self._table = Rewriting("key.field.regex", expression, replacement)
        self._key_field: str | None = settings["key.field.name"] if settings["key.enforce.uniqueness"] else None
        self._adjust = adjuster(settings["schema.name.adjustment.mode"])
        self._by_topic: dict[str, tuple[SchemaCache[Schema], SchemaCache[Schema]]] = {}

    def apply(self, record: R) -> R | None:
        """Return the record with its new topic, key and names of schemas."""
        topic = self._topic(record.topic)
        if not topic:
            return record
        keys, envelopes = self._schemas(topic)
        key_schema, key = None, None
        if record.key is not None:
            given = required_struct(record.key_schema or data.STRING, record.key, _PURPOSE)
            assert record.key_schema is not None
            key_schema, key = keys(record.key_schema), values_of(record.key_schema, given, with_default=True)
            if self._key_field is not None:
                key[self._key_field] = (self._table and self._table(record.topic)) or record.topic
        record = replace(record, topic=topic, key_schema=key_schema, key=key)
        schema = record.value_schema
        if record.value is None or schema is None or not is_envelope(schema):
            return record
        value = values_of(schema, required_struct(schema, record.value, _PURPOSE), with_default=True)
        for name in ("before", "after"):
            if value.get(name) is not None:
                value[name] = values_of(schema.fields_by_name[name].schema, value[name], with_default=True)
        return replace(record, value_schema=envelopes(schema), value=value)

    def _schemas(self, topic: str) -> tuple[SchemaCache[Schema], SchemaCache[Schema]]:
        found = self._by_topic.get(topic)
        if found is None:
            found = SchemaCache(lambda key: self._key(key, topic)), SchemaCache(lambda each: self._value(each, topic))
            self._by_topic[topic] = found
        return found

    def _key(self, schema: Schema, topic: str) -> Schema:
        added = () if self._key_field is None else (Field(self._key_field, data.STRING),)
        return self._renamed(schema, f"{topic}.Key", schema.fields + added)

    def _value(self, schema: Schema, topic: str) -> Schema:
        before = schema.fields_by_name["before"].schema
        row = self._renamed(before, f"{topic}.Value", before.fields)
        fields = [Field(each.name, row) if each.name in ("before", "after") else each for each in schema.fields]
        return self._renamed(schema, f"{topic}.Envelope", tuple(fields))

    def _renamed(self, schema: Schema, name: str, fields: tuple[Any, ...]) -> Schema:
        return replace(schema, name=self._adjust(name), fields=fields, default=NO_DEFAULT)
