"""Writes rows: tables are created and evolved first, then all rows of a batch in their order, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from ottla.connect.connectors.sql import statements
from ottla.connect.connectors.sql.database import Database, TableName
from ottla.connect.connectors.sql.encoding import Part, Row, Shape, column_schema
from ottla.connect.errors import ConnectError, DataError
from ottla.connect.records import SinkRecord

Reject = Callable[[SinkRecord, Exception], None]


class Writer:
    """The statements of one sink on one connection."""

    def __init__(self, database: Database, settings: Mapping[str, Any], reject: Reject) -> None:
        self._database, self._reject = database, reject
        self._mode, self._size = settings["insert.mode"], settings["batch.size"]
        self._create, self._evolve = settings["auto.create"], settings["auto.evolve"]
        self._format = settings["table.name.format"]
        self._columns: dict[TableName, set[str]] = {}
        self._checked: set[tuple[TableName, int]] = set()
        self._shapes: list[Shape] = []
        self.written = 0

    def table_of(self, topic: str) -> TableName:
        """Return the table of a topic."""
        return TableName.parse(self._format.replace("${topic}", topic))

    def prepare(self, rows: Iterable[Row]) -> None:
        """Create tables and add columns, before the transaction: in MariaDB these statements commit it."""
        changed = False
        for row in rows:
            table = self.table_of(row.record.topic)
            if row.delete or (table, id(row.shape)) in self._checked:
                continue
            changed |= self._fit(table, row.shape)
            self._shapes.append(row.shape)  # keeps its identity
            self._checked.add((table, id(row.shape)))
        if changed:
            self._database.commit()

    def _fit(self, table: TableName, shape: Shape) -> bool:
        known = self._columns.get(table)
        if known is None:
            known = self._columns[table] = {each.name for each in self._database.columns(table)}
        if not known:
            self._create_table(table, shape)
            known |= set(shape.names)
            return True
        missing = [each for each in shape.parts if each.name not in known]
        if not missing:
            return False
        if not self._evolve:
            names = ", ".join(each.name for each in missing)
            raise ConnectError(f"Table {table} has no column {names}: add it, or set auto.evolve=true")
        for each in missing:
            schema = each.schema
            if schema is not None and not (schema.optional or schema.has_default):
                raise ConnectError(
                    f"Column {each.name} of table {table} cannot be added: it is required, without default"
                )
            text = f"alter table {self._database.table(table)} add column {self._definition(each, added=True)}"
            self._database.run(text)
        known |= {each.name for each in missing}
        return True

    def _create_table(self, table: TableName, shape: Shape) -> None:
        if not self._create:
            raise ConnectError(f"Table {table} does not exist: create it, or set auto.create=true")
        columns = [self._definition(each) for each in shape.parts]
        if shape.keys:
            columns.append(f"primary key ({', '.join(map(self._database.quoted, shape.keys))})")
        self._database.run(f"create table if not exists {self._database.table(table)} ({', '.join(columns)})")

    def _definition(self, part: Part, *, added: bool = False) -> str:
        if part.schema is None:
            raise ConnectError(f"Column {part.name} cannot be created: the records have no schema")
        kind = self._database.type_of(column_schema(part.schema), key=part.key)
        null = "not null" if part.key or not (part.schema.optional or added) else "null"
        return f"{self._database.quoted(part.name)} {kind} {null}"

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows in the current transaction. Rows that do not fit are rejected, one by one."""
        for (table, _, delete), group in groupby(
            rows, key=lambda row: (self.table_of(row.record.topic), id(row.shape), row.delete)
        ):
            members = list(group)
            for start in range(0, len(members), self._size):
                self._write(table, members[start : start + self._size], delete=delete)

    def _write(self, table: TableName, rows: Sequence[Row], *, delete: bool) -> None:
        shape = rows[0].shape
        statement = self._statement(table, shape, delete=delete)
        values = [self._ordered(row) for row in rows] if self._mode == "update" and not delete else None
        values = values or [row.values for row in rows]
        database = self._database
        database.run("savepoint ottla_rows")
        try:
            database.run_many(statement, values)
        except database.driver_errors as error:
            if database.classify(error) != "data":
                raise
            database.run("rollback to savepoint ottla_rows")
        else:
            database.run("release savepoint ottla_rows")
            self.written += len(rows)
            return
        for row, each in zip(rows, values, strict=True):
            self._write_one(table, row, statement, each)

    def _write_one(self, table: TableName, row: Row, statement: str, values: Sequence[Any]) -> None:
        database = self._database
        database.run("savepoint ottla_row")
        try:
            database.run(statement, values)
        except database.driver_errors as error:
            if database.classify(error) != "data":
                raise
            database.run("rollback to savepoint ottla_row")
            self._reject(row.record, self._named(error, table, row))
        else:
            database.run("release savepoint ottla_row")
            self.written += 1

    def _named(self, error: Exception, table: TableName, row: Row) -> DataError:
        values = dict(zip(row.shape.names, row.values, strict=True))
        column = self._database.failed_column(error, table, values)
        where = f"column {column} of table {table}" if column else f"table {table}"
        found = DataError(f"The record does not fit {where}: {error}")
        found.__cause__ = error
        return found

    def _statement(self, table: TableName, shape: Shape, *, delete: bool) -> str:
        database = self._database
        if delete:
            return statements.delete(database, table, shape.keys)
        if self._mode == "insert":
            return statements.insert(database, table, shape.names)
        if self._mode == "upsert":
            return database.upsert(table, shape.names, shape.keys)
        return statements.update(database, table, shape.names, shape.keys)

    def _ordered(self, row: Row) -> Sequence[Any]:
        values = dict(zip(row.shape.names, row.values, strict=True))
        keys = row.shape.keys
        return [values[each] for each in row.shape.names if each not in keys] + [values[each] for each in keys]
