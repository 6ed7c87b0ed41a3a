"""Debezium's events: schemas of keys, rows and envelopes for each table, and the records of each operation.

Schema objects are made once for each definition of a table, since converters cache their encoders by identity.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla import __version__
from ottla.connect import data
from ottla.connect.connectors.capture.envelopes import SNAPSHOT, envelope
from ottla.connect.connectors.capture.filters import Filters
from ottla.connect.connectors.capture.naming import Names
from ottla.connect.connectors.postgres.catalog import PgType, Table, TableColumn
from ottla.connect.connectors.postgres.context import Context
from ottla.connect.connectors.postgres.fast_json import NOT_FAST, JsonRows, RecordForm, json_converters
from ottla.connect.connectors.postgres.pgoutput import Delete, Insert, Update
from ottla.connect.connectors.postgres.rows import ColumnMapping, Row, RowEncoder
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.types import Modes
from ottla.connect.data import Field, Schema, Type, struct
from ottla.connect.errors import DataError
from ottla.connect.records import Header, Position, SourceRecord

SOURCE: Final = Schema(
    Type.STRUCT,
    name="io.debezium.connector.postgresql.Source",
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
        Field("schema", data.STRING),
        Field("table", data.STRING),
        Field("txId", data.OPTIONAL_INT64),
        Field("lsn", data.OPTIONAL_INT64),
        Field("xmin", data.OPTIONAL_INT64),
        Field("origin", data.OPTIONAL_STRING),
        Field("origin_lsn", data.OPTIONAL_INT64),
    ),
)


class TableEvents:
    """Makes the records of one definition of a table."""

    def __init__(
        self, maker: EventMaker, table: Table, columns: Sequence[TableColumn], types: Mapping[int, PgType]
    ) -> None:
        self.table, self._maker = table, maker
        names = maker.names
        self.topic = names.topic(table.schema, table.name)
        members = maker.mapping.members(table, columns, types)
        key = maker.filters.key(table.full_name, [each.column for each in members])
        self.encoder = RowEncoder(table, members, len(columns), table.key if key is None else key)
        fields = {each.name: each.schema for each in members}
        self.value_schema = struct(fields, names.schema(f"{self.topic}.Value"), optional=True)
        self.key_schema = None
        if self.encoder.key_names:
            keys = {name: fields[name] for name in self.encoder.key_names}
            self.key_schema = struct(keys, names.schema(f"{self.topic}.Key"))
        self.envelope = envelope(self.value_schema, SOURCE, names.schema(f"{self.topic}.Envelope"))
        self._flat_schema = replace(self.value_schema, optional=False)
        self.fast = None if maker.converters is None or maker.flatten else JsonRows(self._form(), maker.converters)

    def _form(self) -> RecordForm:
        table, source = self.table, self._maker.source
        return RecordForm(
            self.topic,
            self.key_schema,
            self.envelope,
            self.encoder,
            self._maker.partition,
            lambda context: source(table.schema, table.name, context),
        )

    def insert(self, message: Insert, context: Context) -> list[SourceRecord]:
        """Return the records of a new row."""
        if self.fast is not None and context.block is None:
            try:
                return [self.fast.change("c", message.new, context)]
            except NOT_FAST:
                pass  # the row goes through the converter
        return [self._record("c", None, self._new(message.new, None), context)]

    def reads(self, rows: Sequence[Row], context: Context) -> list[SourceRecord]:
        """Return the records of rows of a snapshot; they share one source block and one time."""
        maker, topic, key_schema, key_of = self._maker, self.topic, self.key_schema, self.encoder.key
        partition, offset = maker.partition, context.offset
        if maker.flatten:
            flat = self._flat_schema
            return [
                SourceRecord(topic, None, key_schema, key_of and key_of(row), flat, row, None, [], partition, offset)
                for row in rows
            ]
        envelope, source, now = self.envelope, maker.source(self.table.schema, self.table.name, context), time.time_ns()
        ms, us = now // 1_000_000, now // 1000
        return [
            SourceRecord(
                topic,
                None,
                key_schema,
                key_of and key_of(row),
                envelope,
                {
                    "before": None,
                    "after": row,
                    "source": source,
                    "transaction": None,
                    "op": "r",
                    "ts_ms": ms,
                    "ts_us": us,
                    "ts_ns": now,
                },
                None,
                [],
                partition,
                offset,
            )
            for row in rows
        ]

    def update(self, message: Update, context: Context) -> list[SourceRecord]:
        """Return the records of a changed row; with another key, of a deleted row and a new one."""
        if self.fast is not None and message.old is None and context.block is None:
            try:
                return [self.fast.change("u", message.new, context)]
            except NOT_FAST:
                pass  # the row goes through the converter
        old = message.old if message.full else None
        after = self._new(message.new, old)
        before = None if message.old is None else self.encoder.slow(message.old, partial=not message.full)
        if before is not None:
            if self._maker.skip_unchanged and before == after:
                return []
            key = self.encoder.key
            if key is not None and key(before) != key(after) and self._key_known(message):
                return self._moved(before, after, context)
        return [self._record("u", before, after, context)]

    def _key_known(self, message: Update) -> bool:
        # The old row has just the columns of the replica identity, which may be another index than the key.
        return message.full or set(self.table.key) <= set(self.table.identity_columns)

    def _moved(self, before: Row, after: Row, context: Context) -> list[SourceRecord]:
        assert self.encoder.key is not None
        old, new = self.encoder.key(before), self.encoder.key(after)
        deleted = self._deleted(before, context)
        deleted[0].headers.append(Header("__debezium.newkey", new, self.key_schema))
        if context.next_block is not None:
            context.block = context.next_block()
        created = self._record("c", None, after, context)
        created.headers.append(Header("__debezium.oldkey", old, self.key_schema))
        return [*deleted, created]

    def delete(self, message: Delete, context: Context) -> list[SourceRecord]:
        """Return the records of a deleted row: the event, and a tombstone for its key."""
        return self._deleted(self.encoder.slow(message.old, partial=not message.full), context)

    def _deleted(self, before: Row, context: Context) -> list[SourceRecord]:
        record = self._record("d", before, None, context)
        key = self.encoder.key
        if self._maker.flatten:  # the record without a value is the tombstone
            return [] if key is None else [record]
        if key is None or not self._maker.tombstones:
            return [record]
        tombstone = SourceRecord(
            self.topic, None, self.key_schema, record.key, None, None, None, [], record.source_partition, context.offset
        )
        return [record, tombstone]

    def truncate(self, context: Context) -> list[SourceRecord]:
        """Return the record of an emptied table."""
        if self._maker.flatten:
            return []
        record = self._record("t", None, None, context)
        record.key_schema = record.key = None
        return [record]

    def _new(self, values: Sequence[Any], old: Sequence[Any] | None) -> Row:
        try:
            return self.encoder.from_bytes(values)
        except (AttributeError, TypeError, ValueError, ArithmeticError, IndexError, DataError):
            # Unchanged large values are not bytes; a value that cannot be converted is named by the slow path.
            return self.encoder.slow(values, old)

    def _record(self, op: str, before: Row | None, after: Row | None, context: Context) -> SourceRecord:
        maker = self._maker
        key_of, row = self.encoder.key, before if after is None else after
        key = key_of(row) if key_of is not None and row is not None else None
        if maker.flatten:
            schema = self._flat_schema if after is not None else None
            return SourceRecord(
                self.topic, None, self.key_schema, key, schema, after, None, [], maker.partition, context.offset
            )
        now = time.time_ns()
        value = {
            "before": before,
            "after": after,
            "source": maker.source(self.table.schema, self.table.name, context),
            "transaction": context.block,
            "op": op,
            "ts_ms": now // 1_000_000,
            "ts_us": now // 1000,
            "ts_ns": now,
        }
        return SourceRecord(
            self.topic, None, self.key_schema, key, self.envelope, value, None, [], maker.partition, context.offset
        )


class EventMaker:
    """Makes events of all tables of a configuration."""

    def __init__(self, options: Options, converters: tuple[object, object] | None = None) -> None:
        """`converters` are the task's, if it may return bytes."""
        self.converters = json_converters(converters)
        self.names, self.filters = Names(options), Filters(options)
        self.mapping = ColumnMapping(Modes.of(options), self.filters, self.names)
        self.flatten, self.tombstones = options.flag("flatten"), options.flag("tombstones.on.delete")
        self.skip_unchanged = options.flag("skip.messages.without.change")
        self.partition: Position = {"server": options.prefix}
        self._prefix, self._database = options.prefix, options.text("database.dbname")

    def table(
        self, table: Table, types: Mapping[int, PgType], columns: Sequence[TableColumn] | None = None
    ) -> TableEvents:
        """Return the maker of a table's events; columns: from the stream, if they differ from the catalog's."""
        if columns is None:
            columns = [each for each in table.columns if not each.generated]
        return TableEvents(self, table, columns, types)

    def source(self, schema: str, table: str, context: Context) -> Row:
        """Return the source block of an event."""
        us, last = context.commit_us, context.last_commit
        commit = "null" if last is None else f'"{last}"'
        return {
            "version": __version__,
            "connector": "postgresql",
            "name": self._prefix,
            "ts_ms": us // 1000,
            "snapshot": context.snapshot,
            "db": self._database,
            "sequence": f'[{commit},"{context.lsn}"]',
            "ts_us": us,
            "ts_ns": us * 1000,
            "schema": schema,
            "table": table,
            "txId": context.xid,
            "lsn": context.lsn,
            "xmin": None,
            "origin": context.origin,
            "origin_lsn": context.origin_lsn,
        }
