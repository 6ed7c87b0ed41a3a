"""Debezium's transformation EventRouter: events of an outbox table in topics of their own."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple

from ottla.connect import data
from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, invalid, one_of
from ottla.connect.data import NO_DEFAULT, Field, Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.records import Header
from ottla.connect.transforms.api import R, Transformation
from ottla.connect.transforms.base import field_value, required_struct
from ottla.connect.transforms.debezium import DEBEZIUM_VERSION, is_envelope
from ottla.connect.transforms.json_payloads import JsonSchemas, struct_value
from ottla.connect.transforms.routing import Rewriting, valid_pattern
from ottla.connect.transforms.schema_names import MODES, adjuster

_log = logging.getLogger(__name__)

_LOW, _MEDIUM, _HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH
_PLACEMENTS: Final = ("header", "envelope", "partition")
_MILLISECONDS: Final = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}
"""Units in a millisecond, by the name of a logical type."""
_MOST_SCHEMAS: Final = 1_000


class _Added(NamedTuple):
    """A column that becomes a header, a field of the value, or the partition."""

    field: str
    placement: str
    alias: str


def _added(name: str, texts: list[str]) -> list[_Added]:
    found = []
    for text in texts:
        field, *rest = text.split(":")
        if len(rest) not in (1, 2):
            raise invalid(name, texts, "A comma-separated list of valid String pairs or trios is expected")
        placement = rest[0].strip().lower()
        if placement not in _PLACEMENTS:
            raise invalid(name, texts, f"The placement of {field} must be one of {', '.join(_PLACEMENTS)}")
        found.append(_Added(field, placement, rest[1] if len(rest) == 2 else field))
    return found


def _valid_placements(name: str, value: Any) -> None:
    _added(name, value)


class EventRouter(Transformation):
    """Route rows of an outbox table: payloads become values, and a column decides the topic."""

    version: ClassVar = DEBEZIUM_VERSION
    config_def: ClassVar = ConfigDef(
        [
            Setting("table.op.invalid.behavior", SettingType.STRING, "Updates are skipped with a warning (warn) or an "
                    "error (error) in the log, or fail (fatal).", "warn", _MEDIUM, one_of("warn", "error", "fatal")),
            Setting("table.field.event.id", SettingType.STRING, "The column with the id, for the header id.", "id",
                    _LOW),
            Setting("table.field.event.key", SettingType.STRING, "The column with the key.", "aggregateid", _LOW),
            Setting("table.field.event.type", SettingType.STRING, "The column with the type.", "type", _LOW),
            Setting("table.field.event.timestamp", SettingType.STRING, "The column with the timestamp; by default the "
                    "event's ts_ms.", None, _MEDIUM),
            Setting("table.field.event.payload", SettingType.STRING, "The column with the payload.", "payload", _LOW),
            Setting("table.field.event.schema.version", SettingType.STRING, "The column with the schema's version.",
                    None, _LOW),
            Setting("table.fields.additional.placement", SettingType.LIST, "More columns: COLUMN:PLACEMENT or "
                    "COLUMN:PLACEMENT:NAME. A placement is header, envelope or partition.", [], _HIGH,
                    _valid_placements),
            Setting("table.field.additional.missing", SettingType.STRING, "Whether an additional column that the table "
                    "does not have is an error.", "error", _MEDIUM, one_of("error", "ignore")),
            Setting("table.expand.json.payload", SettingType.BOOLEAN, "Whether a payload that is JSON gets a schema.",
                    False, _MEDIUM),
            Setting("table.json.payload.null.behavior", SettingType.STRING, "Whether null fields of JSON are skipped.",
                    "ignore", _MEDIUM, one_of("ignore", "optional_bytes")),
            Setting("field.name.adjustment.mode", SettingType.STRING, "How names of JSON fields are changed for Avro.",
                    "none", _LOW, one_of(*MODES)),
            Setting("route.by.field", SettingType.STRING, "The column that decides the topic.", "aggregatetype", _HIGH),
            Setting("route.topic.regex", SettingType.STRING, "The expression that the column must match.",
                    "(?<routedByValue>.*)", _LOW, valid_pattern),
            Setting("route.topic.replacement", SettingType.STRING, "The topic.", "outbox.event.${routedByValue}",
                    _HIGH),
            Setting("route.tombstone.on.empty.payload", SettingType.BOOLEAN, "Whether an empty payload becomes a "
                    "tombstone.", False, _HIGH),
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        """Read the settings."""
        settings = self.config_def.parse(config)
        self._on_update: str = settings["table.op.invalid.behavior"]
        self._id: str = settings["table.field.event.id"]
        self._key: str = settings["table.field.event.key"]
        self._timestamp: str | None = settings["table.field.event.timestamp"]
        self._payload: str = settings["table.field.event.payload"]
        self._version: str | None = settings["table.field.event.schema.version"]
        self._added = _added("table.fields.additional.placement", settings["table.fields.additional.placement"])
        self._ignores_missing: bool = settings["table.field.additional.missing"] == "ignore"
        keeps_null = settings["table.json.payload.null.behavior"] == "optional_bytes"
        self._json: JsonSchemas | None = None
        if settings["table.expand.json.payload"]:
            adjust = adjuster(settings["field.name.adjustment.mode"])
            self._json = JsonSchemas(adjust, data.OPTIONAL_BYTES if keeps_null else None)
        self._route_by: str = settings["route.by.field"]
        self._topic = Rewriting("route.topic.regex", settings["route.topic.regex"], settings["route.topic.replacement"])
        self._has_tombstones: bool = settings["route.tombstone.on.empty.payload"]
        self._has_envelope = any(each.placement == "envelope" for each in self._added)
        self._envelopes: dict[tuple[object, ...], Schema] = {}

    def apply(self, record: R) -> R | None:
        """Return the event of a row. Deletes, tombstones and updates are dropped."""
        if record.value is None:
            return None
        schema = record.value_schema
        if schema is None or not is_envelope(schema):
            return record
        event = required_struct(schema, record.value, "Detect Debezium Operation")
        operation = event.get("op")
        if operation == "d":
            return None
        if operation == "u":
            self._skip_update(record.topic)
            return None
        row_schema = schema.fields_by_name["after"].schema
        row = required_struct(row_schema, event.get("after"), "Read Outbox Event")
        return self._routed(record, _Row(row_schema, row), event)

    def _skip_update(self, topic: str) -> None:
        if self._on_update == "fatal":
            raise DataError("Unexpected update message received, fail.")
        level = logging.ERROR if self._on_update == "error" else logging.WARNING
        _log.log(level, "Unexpected update message of topic %s ignored", topic)

    def _routed(self, record: R, row: _Row, event: Mapping[str, Any]) -> R:
        if self._payload not in row.schema.fields_by_name:
            raise DataError(f"Unable to find payload field {self._payload} in event")
        timestamp = self._time_of(row, event)
        payload_schema, payload = self._expanded(row.schema_of(self._payload), row.value_of(self._payload))
        headers = [*record.headers, Header("id", row.value_of(self._id), row.schema_of(self._id))]
        route = row.text_of(self._route_by)
        value_schema: Schema | None = payload_schema
        value: Any = payload
        if self._has_envelope:
            value_schema, value = self._envelope(row, payload_schema, route), {"payload": payload}
        partition = None
        for each in self._added:
            if self._ignores_missing and each.field not in row.schema.fields_by_name:
                continue
            if each.placement == "header":
                headers.append(Header(each.alias, row.value_of(each.field), row.schema_of(each.field)))
            elif each.placement == "envelope":
                value[each.alias] = row.value_of(each.field)
            else:
                partition = row.number_of(each.field)
        is_empty = payload is None or (isinstance(payload, str) and not payload.strip())
        if is_empty and self._has_tombstones:
            value_schema, value = None, None
        if route is None:
            raise DataError(f"The field {self._route_by} of the event, which decides its topic, is null")
        topic = self._topic(route)
        return replace(
            record, topic=route if topic is None else topic, partition=partition, key_schema=row.schema_of(self._key),
            key=row.value_of(self._key), value_schema=value_schema, value=value, timestamp=timestamp, headers=headers,
        )  # fmt: skip

    def _time_of(self, row: _Row, event: Mapping[str, Any]) -> int | None:
        if self._timestamp is None:
            return event.get("ts_ms")
        if self._timestamp not in row.schema.fields_by_name:
            raise DataError(f"Unable to find timestamp field {self._timestamp} in event")
        found, schema = row.typed(self._timestamp, Type.INT64), row.schema_of(self._timestamp)
        if found is None:
            return event.get("ts_ms")
        units = _MILLISECONDS.get(schema.name or "")
        if units is None:
            raise DataError(f"Unsupported field type {schema.name or schema.type} for event timestamp")
        # Java's division rounds towards zero.
        return int(found) // units if found >= 0 else -(-int(found) // units)

    def _expanded(self, schema: Schema, payload: Any) -> tuple[Schema, Any]:
        """Return a payload that is a JSON object with a schema of its own, others as they are."""
        if self._json is None or payload is None:
            return schema, payload
        if not isinstance(payload, str):
            _log.warning("Expand JSON payload is turned on but payload is not a string")
            return schema, payload
        try:
            parsed = json.loads(payload, parse_constant=_no_constant)
            if not payload.startswith("{"):
                raise DataError("the payload is not an object")
            inferred = self._json.schema(self._payload, parsed)
        except (DataError, ValueError, RecursionError) as error:
            _log.warning("JSON expansion failed: %s", error)
            return schema, payload
        assert inferred is not None
        return inferred, struct_value(inferred, parsed)

    def _envelope(self, row: _Row, payload: Schema, route: str | None) -> Schema:
        version = None if self._version is None else row.number_of(self._version)
        key = (row.schema, payload, route, version)
        found = self._envelopes.get(key)
        if found is None:
            if len(self._envelopes) >= _MOST_SCHEMAS:
                self._envelopes.clear()
            found = self._envelopes[key] = self._built_envelope(row, payload, route, version)
        return found

    def _built_envelope(self, row: _Row, payload: Schema, route: str | None, version: int | None) -> Schema:
        fields = [Field("payload", payload)]
        for each in self._added:
            is_missing = each.field not in row.schema.fields_by_name
            if each.placement == "envelope" and not (is_missing and self._ignores_missing):
                fields.append(Field(each.alias, row.schema_of(each.field)))
        namespace, dot, name = (row.schema.name or "").rpartition(".")
        full = ".".join(filter(None, (namespace if dot else "", str(route), name)))
        return Schema(Type.STRUCT, name=full, version=version, fields=tuple(fields), default=NO_DEFAULT)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


class _Row(NamedTuple):
    """A row of the outbox table."""

    schema: Schema
    values: Mapping[str, Any]

    def schema_of(self, field: str) -> Schema:
        """Return the type of a field. Raises DataError."""
        found = self.schema.fields_by_name.get(field)
        if found is None:
            raise DataError(f"Unable to find field {field} in event")
        return found.schema

    def value_of(self, field: str) -> Any:
        """Return a field, or its default if it is null. Raises DataError."""
        self.schema_of(field)
        return field_value(self.schema, self.values, field, with_default=True)

    def typed(self, field: str, kind: Type) -> Any:
        """Return a field of a type, without default. Raises DataError."""
        if self.schema_of(field).type is not kind:
            raise DataError(f"Field '{field}' is not of type {kind}")
        return self.values.get(field)

    def text_of(self, field: str) -> str | None:
        """Return a STRING."""
        found: str | None = self.typed(field, Type.STRING)
        return found

    def number_of(self, field: str) -> int | None:
        """Return an INT32."""
        found: int | None = self.typed(field, Type.INT32)
        return found
