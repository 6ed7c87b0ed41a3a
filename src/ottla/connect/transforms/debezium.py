"""Debezium's transformation ExtractNewRecordState: rows in place of change events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple

from ottla.connect import data
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, one_of
from ottla.connect.data import NO_DEFAULT, Field, Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.records import Header
from ottla.connect.transforms.api import R, Transformation
from ottla.connect.transforms.base import SchemaCache
from ottla.connect.transforms.fields import values_of

DEBEZIUM_VERSION: Final = "3.6.3.Final"
"""The version whose transformations these are equal to."""
_DELETED: Final = "__deleted"
_STRUCTS: Final = ("source", "transaction")
_MODES: Final = ("tombstone", "drop", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")


class _Added(NamedTuple):
    """A field of the event that is added to the row or to its headers."""

    name: str
    struct: str | None
    field: str


def _added(texts: list[str], prefix: str) -> list[_Added]:
    """Return `field`, `struct.field` and `field:name` in parts."""
    found = []
    for text in texts:
        path, colon, name = text.partition(":")
        struct, dot, field = path.strip().partition(".")
        given = name.strip() if colon else path.strip().replace(".", "_")
        found.append(_Added(prefix + given, struct if dot else None, field if dot else struct))
    return found


def is_envelope(schema: Schema) -> bool:
    """Whether a schema is a change event's."""
    return schema.name is not None and schema.name.endswith("Envelope")


class ExtractNewRecordState(Transformation):
    """Replace change events by their rows. Records that are no change events go on unchanged."""

    version: ClassVar = DEBEZIUM_VERSION
    config_def: ClassVar = ConfigDef(
        [
            Setting("delete.tombstone.handling.mode", SettingType.STRING,
                    "Deletes as tombstones (tombstone), not at all (drop), as rows with __deleted (rewrite), as such "
                    "rows and tombstones (rewrite-with-tombstone), or as tombstones without schema "
                    "(delete-to-tombstone).", "tombstone", Importance.MEDIUM, one_of(*_MODES)),
            Setting("add.fields", SettingType.LIST, "Fields of the event for the row: op, table, source.lsn:position.",
                    []),
            Setting("add.fields.prefix", SettingType.STRING, "The beginning of their names.", "__"),
            Setting("add.headers", SettingType.LIST, "Fields of the event for headers.", []),
            Setting("add.headers.prefix", SettingType.STRING, "The beginning of their names.", "__"),
            Setting("route.by.field", SettingType.STRING, "The field whose value is the topic.", ""),
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        """Read the settings."""
        settings = self.config_def.parse(config)
        self._mode: str = settings["delete.tombstone.handling.mode"]
        self._rewrites = self._mode.startswith("rewrite")
        self._fields = _added(settings["add.fields"], settings["add.fields.prefix"])
        self._headers = _added(settings["add.headers"], settings["add.headers.prefix"])
        self._route: str = settings["route.by.field"]
        self._schema = SchemaCache(self._built)

    def apply(self, record: R) -> R | None:
        """Return the row of an event."""
        if record.value is None:
            if self._mode != "rewrite-with-tombstone":
                return None
            known = [Header(each.name, "d", data.STRING) for each in self._headers if each.field == "op"]
            return replace(record, headers=[*record.headers, *known])
        schema, event = record.value_schema, record.value
        if schema is None or not is_envelope(schema):
            return record
        row, is_delete = event.get("after"), False
        if row is None:
            row, is_delete = event.get("before"), True
            if row is None or self._mode == "drop":
                return None
        row_schema = schema.fields_by_name["after"].schema
        topic = record.topic
        if self._route:
            if self._route not in row_schema.fields_by_name:
                raise DataError(f"Unable to find field {self._route} for the topic (route.by.field)")
            topic = row.get(self._route) or topic
        headers = [*record.headers, *self._added_headers(schema, event)]
        record = replace(record, topic=topic, headers=headers)
        if is_delete and not self._rewrites:
            kept = None if self._mode == "delete-to-tombstone" else row_schema
            return replace(record, value_schema=kept, value=None)
        changed = values_of(row_schema, row, with_default=True)
        if self._rewrites:
            changed[_DELETED] = "true" if is_delete else "false"
        for each in self._fields:
            place = _place(schema, each)
            if place is not None:
                changed[each.name] = _value(event, place)
        return replace(record, value_schema=self._schema(schema), value=changed)

    def _built(self, schema: Schema) -> Schema:
        row = schema.fields_by_name["after"].schema
        fields = list(row.fields)
        if self._rewrites:
            fields.append(Field(_DELETED, data.OPTIONAL_STRING))
        for each in self._fields:
            place = _place(schema, each)
            if place is not None:
                fields.append(Field(each.name, place[1].as_optional()))
        return replace(row, optional=False, default=NO_DEFAULT, fields=tuple(fields))

    def _added_headers(self, schema: Schema, event: Mapping[str, Any]) -> list[Header]:
        found = []
        for each in self._headers:
            place = _place(schema, each)
            if place is not None:
                found.append(Header(each.name, _value(event, place), place[1].as_optional()))
        return found


_Place = tuple[tuple[str, ...], Schema]


def _place(schema: Schema, added: _Added) -> _Place | None:
    """Return the path and the schema of a field: of the event, or of its source or transaction."""
    if added.struct is None and added.field in schema.fields_by_name:
        return (added.field,), schema.fields_by_name[added.field].schema
    for struct in _STRUCTS if added.struct is None else (added.struct,):
        outer = schema.fields_by_name.get(struct)
        if outer is not None and outer.schema.type is Type.STRUCT and added.field in outer.schema.fields_by_name:
            return (struct, added.field), outer.schema.fields_by_name[added.field].schema
    return None


def _value(event: Any, place: _Place) -> Any:
    for name in place[0]:
        event = None if event is None else event.get(name)
    return event
