"""Transformations of the topic, of the schema's name, and Filter: RegexRouter, TimestampRouter, SetSchemaMetadata."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from ottla.connect.config.definition import (
    ConfigDef,
    Importance,
    Setting,
    SettingError,
    SettingType,
    invalid,
)
from ottla.connect.converters.date_format import DateFormat
from ottla.connect.data import Schema, Type
from ottla.connect.errors import DataError
from ottla.connect.transforms.api import R, Transformation
from ottla.connect.transforms.base import REPLACE_NULL, PartTransformation, SchemaCache
from ottla.connect.transforms.fields import values_of


def java_pattern(name: str, text: str) -> re.Pattern[str]:
    """Compile a regular expression of Java. Raises SettingError."""
    try:
        return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", text))
    except re.error as error:
        raise invalid(name, text, f"Invalid regular expression: {error}") from error


def valid_pattern(name: str, value: Any) -> None:
    """Accept regular expressions."""
    java_pattern(name, value)


_REFERENCE: Final = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d)")


def replacement_of(text: str) -> str:
    """Return the replacement `$1` or `${name}` of Java in Python's syntax."""
    out, at = [], 0
    for match in _REFERENCE.finditer(text):
        out.append(text[at : match.start()].replace("\\", "\\\\"))
        escaped, named, number = match.groups()
        out.append(escaped.replace("\\", "\\\\") if escaped is not None else rf"\g<{named or number}>")
        at = match.end()
    return "".join(out) + text[at:].replace("\\", "\\\\")


class Rewriting:
    """Rewrites texts that match a regular expression of Java. `setting` is its name for errors."""

    def __init__(self, setting: str, regex: str, replacement: str) -> None:
        self._regex = java_pattern(setting, regex)
        self._replacement = replacement_of(replacement)

    def __call__(self, text: str) -> str | None:
        """Return the new text; None if the text does not match."""
        return self._regex.sub(self._replacement, text, count=1) if self._regex.fullmatch(text) else None


class RegexRouter(Transformation):
    """Change the topic by a regular expression."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("regex", SettingType.STRING, "The expression that the whole topic must match.",
                    importance=Importance.HIGH, validator=valid_pattern),
            Setting("replacement", SettingType.STRING, "The new topic; $1 is the first group.",
                    importance=Importance.HIGH),
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._topic = Rewriting("regex", settings["regex"], settings["replacement"])

    def apply(self, record: R) -> R | None:
        topic = self._topic(record.topic)
        return record if topic is None else replace(record, topic=topic)


def _valid_format(name: str, value: Any) -> None:
    try:
        DateFormat(value)
    except ValueError as error:
        raise invalid(name, value, str(error)) from error


class TimestampRouter(Transformation):
    """Change the topic by the time of the record."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("topic.format", SettingType.STRING, "The new topic, with ${topic} and ${timestamp}.",
                    "${topic}-${timestamp}", Importance.HIGH),
            Setting("timestamp.format", SettingType.STRING, "The SimpleDateFormat pattern of ${timestamp}, in UTC.",
                    "yyyyMMdd", Importance.HIGH, _valid_format),
        ]
    )  # fmt: skip

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._topic: str = settings["topic.format"]
        self._format = DateFormat(settings["timestamp.format"])

    def apply(self, record: R) -> R | None:
        if record.timestamp is None:
            raise DataError(f"Timestamp missing on record of topic {record.topic}")
        moment = datetime.fromtimestamp(record.timestamp // 1000, UTC)
        moment = moment.replace(microsecond=record.timestamp % 1000 * 1000)
        topic = self._topic.replace("${topic}", record.topic).replace("${timestamp}", self._format.format(moment))
        return replace(record, topic=topic)


class SetSchemaMetadata(PartTransformation):
    """Set the name or the version of the schema."""

    config_def: ClassVar = ConfigDef(
        [
            Setting("schema.name", SettingType.STRING, "The name to set.", None, Importance.HIGH),
            Setting("schema.version", SettingType.INT, "The version to set.", None, Importance.HIGH),
            REPLACE_NULL,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.config_def.parse(config)
        self._name: str | None = settings["schema.name"]
        self._version: int | None = settings["schema.version"]
        self._with_default: bool = settings["replace.null.with.default"]
        if self._name is None and self._version is None:
            raise SettingError("Neither schema name nor version configured")
        self._schema = SchemaCache(self._built)

    def _built(self, schema: Schema) -> Schema:
        name = schema.name if self._name is None else self._name
        return replace(schema, name=name, version=schema.version if self._version is None else self._version)

    def apply(self, record: R) -> R | None:
        schema, value = self.part.schema_of(record), self.part.value_of(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        if schema.type is Type.STRUCT and value is not None:
            value = values_of(schema, value, with_default=self._with_default)
        return self.part.replaced(record, self._schema(schema), value)


class Filter(Transformation):
    """Drop each record; use it with a predicate."""

    config_def: ClassVar = ConfigDef()

    def apply(self, record: R) -> R | None:
        del record
        return None
