"""Settings that all connectors of change capture have, with Debezium's names, and `Options`, which others read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.config.definition import Importance, Setting, SettingType, Validator, between, non_empty, one_of

BOOLEAN, INT, LONG, LIST = SettingType.BOOLEAN, SettingType.INT, SettingType.LONG, SettingType.LIST
STRING = SettingType.STRING
MOST_BATCH: Final = 1_000_000


def row(
    name: str,
    kind: SettingType,
    default: Any,
    doc: str,
    check: Validator | None = None,
    importance: Importance = Importance.MEDIUM,
) -> Setting:
    """Declare a setting."""
    return Setting(name, kind, doc, default, importance, check)


def required(name: str, kind: SettingType, doc: str) -> Setting:
    """Declare a setting that must have a value."""
    return Setting(name, kind, doc, importance=Importance.HIGH, validator=non_empty)


TABLES: Final = (
    row("table.include.list", LIST, [], "Regular expressions of SCHEMA.TABLE to capture.", None, Importance.HIGH),
    row("table.exclude.list", LIST, [], "Regular expressions of SCHEMA.TABLE not to capture."),
    row("column.include.list", LIST, [], "Regular expressions of SCHEMA.TABLE.COLUMN to capture."),
    row("column.exclude.list", LIST, [], "Regular expressions of SCHEMA.TABLE.COLUMN not to capture."),
    row(
        "message.key.columns", STRING, None, "Other keys, as TABLE:COLUMN,COLUMN;TABLE:COLUMN with regular expressions."
    ),
)

EVENTS: Final = (
    row("tombstones.on.delete", BOOLEAN, True, "Whether a record without value follows each delete."),
    row(
        "skip.messages.without.change",
        BOOLEAN,
        False,
        "Skip updates that change no captured column (replica identity full).",
    ),
    row(
        "decimal.handling.mode",
        STRING,
        "precise",
        "numeric and money as Decimal (precise), float (double) or string.",
        one_of("precise", "double", "string"),
    ),
    row(
        "binary.handling.mode",
        STRING,
        "bytes",
        "bytea as bytes, or as string: base64, base64-url-safe, hex.",
        one_of("bytes", "base64", "base64-url-safe", "hex"),
    ),
    row(
        "schema.name.adjustment.mode",
        STRING,
        "none",
        "Names of schemas for Avro.",
        one_of("none", "avro", "avro_unicode"),
    ),
    row(
        "field.name.adjustment.mode",
        STRING,
        "none",
        "Names of fields for Avro.",
        one_of("none", "avro", "avro_unicode"),
    ),
    row("topic.delimiter", STRING, ".", "Between the parts of topic names.", non_empty),
    row("topic.transaction", STRING, "transaction", "Last part of the topic of transactions.", non_empty),
    row("topic.heartbeat.prefix", STRING, "__debezium-heartbeat", "First part of the topic of heartbeats.", non_empty),
    row("heartbeat.interval.ms", INT, 0, "Interval of heartbeat records; 0: none.", between(0)),
    row("heartbeat.action.query", STRING, None, "SQL to run with each heartbeat."),
)

SNAPSHOTS: Final = (
    row(
        "snapshot.include.collection.list",
        LIST,
        [],
        "Regular expressions of the tables to read; default: all captured.",
    ),
    row("snapshot.delay.ms", LONG, 0, "Wait before the snapshot.", between(0)),
)

WORK: Final = (
    row("max.batch.size", INT, 2048, "Most records of one batch.", between(1, MOST_BATCH)),
    row("poll.interval.ms", LONG, 500, "How long to wait for changes before an empty batch.", between(1)),
)


@dataclass(frozen=True)
class Options:
    """Parsed settings, with the raw texts for settings whose names have parameters."""

    values: Mapping[str, Any]
    raw: Mapping[str, str]

    def text(self, name: str) -> str:
        """A setting that always has a text."""
        value = self.values[name]
        return "" if value is None else str.__str__(value)

    def flag(self, name: str) -> bool:
        """A setting that is true or false."""
        return bool(self.values[name])

    def number(self, name: str) -> int:
        """An integer setting."""
        return int(self.values[name])

    def names(self, name: str) -> Sequence[str]:
        """A list setting."""
        return list(self.values[name] or [])

    @property
    def prefix(self) -> str:
        """The logical name of the server: `topic.prefix`."""
        return self.text("topic.prefix")

    @property
    def skipped(self) -> frozenset[str]:
        """The operations without events."""
        return frozenset(each for each in self.names("skipped.operations") if each != "none")
