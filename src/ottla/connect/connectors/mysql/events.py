"""Rows as Debezium's events. Schema objects are made once for each definition of a table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla import __version__
from ottla.connect import data
from ottla.connect.connectors.capture.envelopes import SNAPSHOT, envelope, heartbeat
from ottla.connect.connectors.capture.filters import Filters
from ottla.connect.connectors.capture.naming import Names
from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.mysql.catalog import SYSTEM, Table
from ottla.connect.connectors.mysql.columns import Codec, Convert, codec
from ottla.connect.data import Field, Schema, Type, struct
from ottla.connect.errors import DataError
from ottla.connect.records import Header, Position, SourceRecord

Row = dict[str, Any]
EMPTY_SET: Final = "empty set"


def _source(connector: str) -> Schema:
    return Schema(
        Type.STRUCT,
        name=f"io.debezium.connector.{connector}.Source",
        version=1,
        fields=(
            Field("version", data.STRING),
            Field("connector", data.STRING),
            Field("name", data.STRING),
            Field("ts_ms", data.INT64),
            Field("snapshot", SNAPSHOT),
            Field("db", data.STRING),
            Field("sequence", data.OPTIONAL_STRING),
            Field("ts_us", data.OPTIONAL_INT64),
            Field("ts_ns", data.OPTIONAL_INT64),
            Field("table", data.OPTIONAL_STRING),
            Field("server_id", data.INT64),
            Field("gtid", data.OPTIONAL_STRING),
            Field("file", data.STRING),
            Field("pos", data.INT64),
            Field("row", data.INT32),
            Field("thread", data.OPTIONAL_INT64),
            Field("query", data.OPTIONAL_STRING),
        ),
    )


@dataclass
class Context:
    """The common part of events of one moment."""

    file: str = ""
    pos: int = 0
    row: int = 0
    seconds: int = 0
    server_id: int = 0
    gtid: str | None = None
    thread: int | None = None
    snapshot: str = "false"
    offset: Position = field(default_factory=dict)


class TableEvents:
    """Makes the records of one definition of a table."""

    def __init__(self, maker: EventMaker, table: Table) -> None:
        self.table, self._maker = table, maker
        names, filters = maker.names, maker.filters
        self.topic = names.topic(table.schema, table.name)
        self.members = [each for each in table.columns if filters.has_column(table.full_name, each.name)]
        codecs = [codec(each, maker.options) for each in self.members]
        fields = [Field(names.field(c.name), k.schema) for c, k in zip(self.members, codecs, strict=True)]
        self._parts = [
            (column.name, item.name, self._hiding(column.name, kind), kind.zero)
            for column, item, kind in zip(self.members, fields, codecs, strict=True)
        ]
        wanted = filters.key(table.full_name, [each.name for each in self.members])
        known = {each.name for each in self.members}
        self._key = [names.field(each) for each in (table.key if wanted is None else wanted) if each in known]
        self.value_schema = struct(fields, names.schema(f"{self.topic}.Value"), optional=True)
        by_name = {each.name: each for each in fields}
        self.key_schema = None
        if self._key:
            keys = [by_name[each] for each in self._key]
            self.key_schema = struct(keys, names.schema(f"{self.topic}.Key"))
        self.envelope = envelope(self.value_schema, maker.source_schema, names.schema(f"{self.topic}.Envelope"))

    def _hiding(self, column: str, kind: Codec) -> Convert:
        """Return the conversion of a column, with its mask, hash or limit if it is a text."""
        change, convert = self._maker.filters.change(self.table.full_name, column), kind.convert
        if change is None or kind.schema.type is not Type.STRING:
            return convert
        return lambda value: change(convert(value))

    def row(self, values: Mapping[str, Any], reasons: Mapping[str, str] | None = None) -> Row:
        """Convert the values of a row. `reasons`: why values are None that are not null in the table."""
        found: Row = {}
        for source, name, convert, zero in self._parts:
            value = values[source]
            if value is None or (isinstance(value, str) and value.startswith("0000-00-00")):
                reason = (reasons or {}).get(source, "")
                found[name] = "" if reason == EMPTY_SET else zero
                continue
            try:
                found[name] = convert(value)
            except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
                raise DataError(
                    f"The value {value!r} of column {source} of table {self.table.full_name} cannot be emitted: {error}"
                ) from error
        return found

    def key(self, row: Row) -> Row | None:
        """Return the key of a row."""
        return {each: row[each] for each in self._key} if self._key else None

    def read(self, row: Row, context: Context) -> SourceRecord:
        """Return the record of a row of a snapshot."""
        return self._record("r", None, row, context)

    def insert(self, row: Row, context: Context) -> list[SourceRecord]:
        """Return the record of a new row."""
        return [self._record("c", None, row, context)]

    def update(self, before: Row, after: Row, context: Context) -> list[SourceRecord]:
        """Return the records of a changed row; with another key, of a deleted row and a new one."""
        if self._maker.skip_unchanged and before == after:
            return []
        old, new = self.key(before), self.key(after)
        if old == new:
            return [self._record("u", before, after, context)]
        deleted = self.delete(before, context)
        deleted[0].headers.append(Header("__debezium.newkey", new, self.key_schema))
        created = self._record("c", None, after, context)
        created.headers.append(Header("__debezium.oldkey", old, self.key_schema))
        return [*deleted, created]

    def delete(self, row: Row, context: Context) -> list[SourceRecord]:
        """Return the records of a deleted row: the event, and a tombstone for its key."""
        record = self._record("d", row, None, context)
        if not self._key or not self._maker.tombstones:
            return [record]
        partition = record.source_partition
        return [
            record,
            SourceRecord(
                self.topic, None, self.key_schema, record.key, None, None, None, [], partition, context.offset
            ),
        ]

    def _record(self, op: str, before: Row | None, after: Row | None, context: Context) -> SourceRecord:
        now, maker = time.time_ns(), self._maker
        row = before if after is None else after
        assert row is not None
        value = {
            "before": before,
            "after": after,
            "source": maker.source(self.table, context),
            "transaction": None,
            "op": op,
            "ts_ms": now // 1_000_000,
            "ts_us": now // 1000,
            "ts_ns": now,
        }
        key, partition = self.key(row), maker.partition
        return SourceRecord(
            self.topic, None, self.key_schema, key, self.envelope, value, None, [], partition, context.offset
        )


class EventMaker:
    """Makes events of all tables of a configuration."""

    def __init__(self, options: Options, connector: str) -> None:
        self.options, self.names, self.filters = options, Names(options), Filters(options)
        self.tombstones = options.flag("tombstones.on.delete")
        self.skip_unchanged = options.flag("skip.messages.without.change")
        self.partition: Position = {"server": options.prefix}
        self._connector, self.source_schema = connector, _source(connector)
        self._tables: dict[Table, TableEvents] = {}

    def captures(self, schema: str, table: str) -> bool:
        """Whether the events of a table are emitted."""
        return schema not in SYSTEM and self.filters.captures(schema, table)

    def table(self, table: Table) -> TableEvents:
        """Return the maker of a table's events, the same for equal definitions."""
        found = self._tables.get(table)
        if found is None:
            found = self._tables[table] = TableEvents(self, table)
        return found

    def source(self, table: Table, context: Context) -> Row:
        """Return the source block of an event."""
        return {
            "version": __version__,
            "connector": self._connector,
            "name": self.options.prefix,
            "ts_ms": context.seconds * 1000,
            "snapshot": context.snapshot,
            "db": table.schema,
            "sequence": None,
            "ts_us": context.seconds * 1_000_000,
            "ts_ns": context.seconds * 1_000_000_000,
            "table": table.name,
            "server_id": context.server_id,
            "gtid": context.gtid,
            "file": context.file,
            "pos": context.pos,
            "row": context.row,
            "thread": context.thread,
            "query": None,
        }

    def heartbeat(self, offset: Position) -> SourceRecord:
        """Return a heartbeat, which has the current position as its offset."""
        return heartbeat(self.names, self.options.prefix, self.partition, offset)

    def only_offset(self, offset: Position) -> SourceRecord:
        """Return a record that has just an offset."""
        return SourceRecord("", None, None, None, None, None, None, [], self.partition, offset)
