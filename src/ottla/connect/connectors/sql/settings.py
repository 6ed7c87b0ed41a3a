"""Settings of the table source and sink: names, defaults and meanings are Confluent's JDBC connectors'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.config.definition import (
    ConfigDef,
    Importance,
    Setting,
    SettingType,
    Validator,
    between,
    non_empty,
    one_of,
)
from ottla.connect.connectors.sql.urls import Address, parse_url

MODES: Final = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")


def _row(name: str, kind: SettingType, default: Any, doc: str, check: Validator | None = None) -> Setting:
    return Setting(name, kind, doc, default, Importance.MEDIUM, check)


def _url(name: str, value: Any) -> None:
    non_empty(name, value)
    if value:
        parse_url(value)


STRING, INT, LONG = SettingType.STRING, SettingType.INT, SettingType.LONG
LIST, BOOLEAN = SettingType.LIST, SettingType.BOOLEAN
_CONNECTION: Final = (
    Setting(
        "connection.url",
        STRING,
        "jdbc:sqlite:FILE, jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mariadb://... or jdbc:mysql://...",
        importance=Importance.HIGH,
        validator=_url,
    ),
    _row("connection.user", STRING, None, "User of the database."),
    _row("connection.password", SettingType.PASSWORD, None, "Password of the user."),
)
SOURCE: Final = ConfigDef(
    [
        *_CONNECTION,
        Setting("mode", STRING, "How new rows are found.", importance=Importance.HIGH, validator=one_of(*MODES)),
        _row("incrementing.column.name", STRING, "", "Column whose values grow; default: the integer key."),
        _row("timestamp.column.name", LIST, [], "Columns with the time of the last change; the first not null counts."),
        _row("timestamp.initial", LONG, None, "First timestamp in ms since 1970; -1: the time of the start."),
        _row("timestamp.delay.interval.ms", LONG, 0, "How long rows wait for earlier transactions.", between(0)),
        _row("validate.non.null", BOOLEAN, True, "Refuse tables whose columns of the mode may be null."),
        _row("table.whitelist", LIST, [], "Names of the tables, as TABLE or SCHEMA.TABLE."),
        _row("table.blacklist", LIST, [], "Names of tables that are not read."),
        _row("table.include.list", LIST, [], "Regular expressions of the tables."),
        _row("table.exclude.list", LIST, [], "Regular expressions of tables that are not read."),
        _row("table.poll.interval.ms", LONG, 60_000, "How often new tables are looked for.", between(0)),
        _row("query", STRING, "", "A SELECT to read instead of tables; the mode adds its conditions around it."),
        Setting("topic.prefix", STRING, "First part of each topic; the topic of a query.", importance=Importance.HIGH),
        _row("poll.interval.ms", INT, 5000, "How often each table is asked for new rows.", between(0)),
        _row("batch.max.rows", INT, 100, "Most rows of one batch.", between(1, 1_000_000)),
    ]
)
SINK: Final = ConfigDef(
    [
        *_CONNECTION,
        _row("insert.mode", STRING, "insert", "insert, upsert or update.", one_of("insert", "upsert", "update")),
        _row(
            "pk.mode",
            STRING,
            "none",
            "Where primary keys come from: none, kafka (topic, partition, offset), record_key or record_value.",
            one_of("none", "kafka", "record_key", "record_value"),
        ),
        _row("pk.fields", LIST, [], "Names of the key's columns; default: all fields of the key, or Kafka's names."),
        _row("delete.enabled", BOOLEAN, False, "Whether a record without a value deletes its row."),
        _row("auto.create", BOOLEAN, False, "Create tables that do not exist."),
        _row("auto.evolve", BOOLEAN, False, "Add columns that do not exist."),
        _row("table.name.format", STRING, "${topic}", "Name of the table, with ${topic}.", non_empty),
        _row("fields.whitelist", LIST, [], "Fields that are written; default: all."),
        _row("batch.size", INT, 3000, "Most rows of one statement.", between(1)),
        _row("exactly.once", BOOLEAN, False, "Keep offsets in the database, in the transaction of the rows."),
        _row("offsets.table", STRING, "ottla_connect_offsets", "Table of the offsets.", non_empty),
    ]
)


def address_of(values: Mapping[str, Any]) -> Address:
    """Return the database of parsed settings."""
    password = values["connection.password"]
    secret = "" if password is None else password.secret
    return parse_url(values["connection.url"], values["connection.user"] or "", secret)
