"""Reads the tables in one transaction whose position in the log is known: the stream goes on exactly there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import ER
from pymysql.cursors import SSCursor

from ottla.connect.connectors.mysql import catalog
from ottla.connect.connectors.mysql.catalog import Table
from ottla.connect.connectors.mysql.events import Context, EventMaker, TableEvents
from ottla.connect.connectors.mysql.positions import LogPosition
from ottla.connect.connectors.mysql.session import connect, current_position, errors, is_mariadb
from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.records import SourceRecord

FETCH = 1000


class _Item(NamedTuple):
    events: TableEvents
    values: Mapping[str, Any]


class Snapshot:
    """A snapshot that is being read. `position` is where the stream goes on."""

    def __init__(self, maker: EventMaker, first: LogPosition | None = None) -> None:
        """`first`: of an interrupted attempt; rows of it may be in the topics and deleted since.

        The stream repeats the changes from there on, so that it brings each row to its current state.
        """
        self._maker, self._options = maker, maker.options
        self._is_marked = first is not None
        """Whether an offset says that a snapshot has begun, and where."""
        self.rows = 0
        self._previous: TableEvents | None = None
        self._connection = connect(self._options)
        try:
            with errors(self._options, "begin a snapshot"):
                own = self._begin()
        except BaseException:
            self.close()
            raise
        self._items = self._all_rows()
        self._next = self._advance()
        self.position = first or own
        self._context = Context(own.file, own.pos, 0, int(time.time()))
        self.finished = False

    def _begin(self) -> LogPosition:
        locks = self._options.text("snapshot.locking.mode") == "minimal"
        with self._connection.cursor() as cursor:
            if not locks and not is_mariadb(self._connection):
                raise ConnectError("snapshot.locking.mode=none needs MariaDB: use minimal")
            cursor.execute("set session transaction isolation level repeatable read")
            if locks:
                cursor.execute("flush tables with read lock")
            cursor.execute("start transaction with consistent snapshot")
            if locks:
                position = current_position(cursor)
                tables = catalog.tables(cursor)
                cursor.execute("unlock tables")
            else:
                position = _snapshot_position(cursor)
                tables = catalog.tables(cursor)
        maker = self._maker
        self._tables = [
            maker.table(each)
            for each in tables
            if maker.captures(each.schema, each.name) and maker.filters.reads(each.schema, each.name)
        ]
        return position

    def _all_rows(self) -> Iterator[_Item]:
        for events in self._tables:
            for values in rows_of(self._connection, events.table):
                yield _Item(events, values)

    def _advance(self) -> _Item | None:
        with errors(self._options, "read the tables"):
            try:
                return next(self._items, None)
            except pymysql.ProgrammingError as error:
                if error.args[0] == ER.NO_SUCH_TABLE:
                    raise RetriableError(f"A table was dropped while the tables were read: {error}") from error
                raise

    def poll(self, most: int) -> list[SourceRecord]:
        """Return the next records. The last record of the snapshot has the position of the stream as its offset.

        The first call returns an offset without rows: the worker commits it before it asks for rows. If it dies after
        some of them, the next snapshot has this position as its first one.
        """
        found: list[SourceRecord] = []
        running = self.position.offset(snapshot="INITIAL", snapshot_completed=False)
        if not self._is_marked:
            self._is_marked = True
            return [self._maker.only_offset(running)]
        context = self._context
        while self._next is not None and len(found) < most:
            item, self._next = self._next, self._advance()
            context.snapshot = self._mark(item)
            self._previous = item.events
            context.offset = running if self._next is not None else self.position.offset()
            found.append(item.events.read(item.events.row(item.values), context))
            self.rows += 1
        if self._next is None:
            self.finished = True
            if not found:
                found.append(self._maker.only_offset(self.position.offset()))
            self.close()
        return found

    def _mark(self, item: _Item) -> str:
        if self._next is None:
            return "last"
        if self.rows == 0:
            return "first"
        if self._next.events is not item.events:
            return "last_in_data_collection"
        return "true" if item.events is self._previous else "first_in_data_collection"

    def close(self) -> None:
        """Close the connection, also in the middle of a result."""
        self._connection._force_close()  # noqa: SLF001 - close() would read the rest of the result


def rows_of(connection: Any, table: Table) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a table, as they arrive. Unless all of them are read, the connection is closed."""
    names = [each.name for each in table.columns]
    cursor = connection.cursor(SSCursor)
    try:
        cursor.execute(_select(table))
        while rows := cursor.fetchmany(FETCH):
            for row in rows:
                yield dict(zip(names, row, strict=True))
    except BaseException:
        _abandon(connection, cursor)
        raise
    cursor.close()


def _abandon(connection: Any, cursor: Any) -> None:
    """Close a connection without the rest of its result, which close() and the destructors of the driver would read."""
    connection._force_close()  # noqa: SLF001 - not public
    if cursor._result is not None:  # noqa: SLF001 - not public
        cursor._result.unbuffered_active = False  # noqa: SLF001 - not public


def _select(table: Table) -> str:
    """Return the query of a table. FLOAT is widened, since its text has just six digits."""
    parts = []
    for each in table.columns:
        name = f"`{each.name.replace('`', '``')}`"
        parts.append(f"{name} + 0e0" if each.kind == "float" else name)
    schema, name = (each.replace("`", "``") for each in (table.schema, table.name))
    return f"select {', '.join(parts)} from `{schema}`.`{name}`"


def _snapshot_position(cursor: Any) -> LogPosition:
    cursor.execute("show status like 'binlog_snapshot_%'")
    found = {name.lower(): value for name, value in cursor.fetchall()}
    file, pos = found.get("binlog_snapshot_file"), found.get("binlog_snapshot_position")
    if not file:
        raise ConnectError("The server has no position of the snapshot: set snapshot.locking.mode=minimal")
    return LogPosition(file, int(pos or 0))
