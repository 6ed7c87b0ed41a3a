"""From events of the binary log to records, with exact offsets.

A transaction is emitted in its order, and a batch may end within it. After a restart the log is read from the begin of
the transaction again: events and rows that were emitted are counted, but not emitted. Records of one row stay in one
batch, and only the last of them has the row in its offset.

A log that the server closed by a crash may end within a transaction, which the server has rolled back. The rows of a
transaction in a closed log are held until its end, up to a number and a size.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

from pymysqlreplication.bitmap import BitCount
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, QueryEvent, RotateEvent, XAPrepareEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, TableMapEvent, UpdateRowsEvent, WriteRowsEvent

from ottla.connect.connectors.mysql.catalog import mapped
from ottla.connect.connectors.mysql.events import Context, EventMaker, Row, TableEvents
from ottla.connect.connectors.mysql.positions import LogPosition, is_between_transactions
from ottla.connect.errors import ConnectError, DataError
from ottla.connect.records import SourceRecord

logger = logging.getLogger(__name__)
OPERATIONS: Final = {WriteRowsEvent: "c", UpdateRowsEvent: "u", DeleteRowsEvent: "d"}
MOST_HELD: Final = 20_000
MOST_HELD_BYTES: Final = 64 << 20
"""The size of the events, without which a few rows with large values take all memory."""
_INSIDE: Final = ("BEGIN", "SAVEPOINT", "ROLLBACK TO", "XA START", "XA END", "START TRANSACTION")


class Stream:
    """Turns events into records. The caller feeds events in order, and takes the records that are ready."""

    def __init__(self, maker: EventMaker, position: LogPosition) -> None:
        self.ready = 0
        """The number of records to take."""
        self._ready: deque[list[SourceRecord]] = deque()
        """These records, by rows."""
        self.complete = 0
        """The number of the records taken last up to the end of the last complete transaction."""
        self._maker, self._skipped = maker, maker.options.skipped
        self._done = LogPosition(position.file, position.pos)
        self._resume = position
        self._events = 0
        self.in_transaction = False
        self._context = Context(position.file)
        self._tables: dict[int, TableEvents | None] = {}
        self.closed: frozenset[str] = frozenset()
        """The logs that were closed before the stream was opened."""
        self._held: list[list[SourceRecord]] = []
        self.held_bytes = 0
        """The size of the events whose records are held."""
        self._is_partial = bool(position.events or position.rows)
        """Whether rows of the current transaction were emitted."""

    @property
    def position(self) -> LogPosition:
        """The end of the last complete transaction."""
        return self._done

    def take(self, most: int) -> list[SourceRecord]:
        """Take the next records. The last row may exceed `most`: its records stay together."""
        taken: list[SourceRecord] = []
        self.complete = 0
        while self._ready and len(taken) < most:
            taken += self._ready.popleft()
            if is_between_transactions(taken[-1].source_offset):
                self.complete = len(taken)
        self.ready -= len(taken)
        if not self.ready and not self.in_transaction:
            self.complete = len(taken)
        return taken

    def feed(self, event: Any) -> None:
        """Take an event."""
        kind = type(event)
        if kind in OPERATIONS:
            self._rows(event)
        elif kind is TableMapEvent:
            self._define(event)
        elif kind in (MariadbGtidEvent, GtidEvent):
            self._context.gtid = event.gtid
            self._begin()
        elif kind is QueryEvent:
            self._query(event)
        elif kind in (XidEvent, XAPrepareEvent):
            self._finish(event)
        elif kind is RotateEvent:
            self._rotate(event)

    def _rotate(self, event: Any) -> None:
        file = event.next_binlog if isinstance(event.next_binlog, str) else event.next_binlog.decode()
        if file != self._context.file:
            self.go_on(LogPosition(file, event.position))

    @property
    def file(self) -> str:
        """The name of the current log."""
        return self._context.file

    def go_on(self, position: LogPosition) -> None:
        """Go on with another log."""
        self._drop_rolled_back()
        self._context.file = position.file
        self._done = self._resume = position
        self._tables.clear()
        self.in_transaction = False

    def _drop_rolled_back(self) -> None:
        """Drop the transaction that a crash of the server has cut at the end of a log."""
        file = self._context.file
        # After a restart the transaction may be missing as a whole: no event has begun it then.
        if self._is_partial:
            raise ConnectError(
                f"The binary log {file} ends within the transaction at {self._done}, some rows of which are in the "
                "topics, although the server has rolled it back: compare them with the tables (ottla connect verify), "
                "or read the tables again (reset the offsets)"
            )
        if self._held:
            logger.warning("The binary log %s ends within a transaction, which the server has rolled back", file)
        self._held, self.held_bytes = [], 0
        self._is_partial = False

    def _begin(self) -> None:
        self._events, self.in_transaction = 0, True

    def _query(self, event: Any) -> None:
        text = event.query if isinstance(event.query, str) else event.query.decode(errors="replace")
        self._context.thread = event.slave_proxy_id
        if not text.lstrip().upper().startswith(_INSIDE):
            self._finish(event)  # COMMIT, or a statement that commits, as definitions do
        elif not self.in_transaction:
            self._begin()

    def _finish(self, event: Any) -> None:
        self._done = self._resume = LogPosition(self._context.file, event.packet.log_pos)
        self._events, self.in_transaction = 0, False
        self._context.gtid = None
        self._release()
        self._is_partial = False
        if self._ready:
            self._ready[-1][-1].source_offset = self.offset()

    def offset(self, events: int = 0, rows: int = 0) -> dict[str, Any]:
        """Return the offset of a place in the current transaction."""
        context, done = self._context, self._done
        facts: dict[str, Any] = {"ts_sec": context.seconds, "server_id": context.server_id}
        if context.gtid:
            facts["gtid"] = context.gtid
        return LogPosition(done.file, done.pos, events, rows).offset(**facts)

    def current_offset(self) -> dict[str, Any]:
        """Return the offset between transactions."""
        return self._resume.offset(ts_sec=self._context.seconds, server_id=self._context.server_id)

    def _define(self, event: Any) -> None:
        if not self._maker.captures(event.schema, event.table):
            self._tables[event.table_id] = None
            return
        where = f"{self._context.file}:{event.packet.log_pos}"
        try:
            self._tables[event.table_id] = self._maker.table(mapped(event, where))
        except DataError as error:
            raise ConnectError(f"{error} (table {event.schema}.{event.table} at {where})") from error

    def _rows(self, event: Any) -> None:
        index, self._events = self._events, self._events + 1
        self.in_transaction = True
        events = self._tables.get(event.table_id)
        operation = OPERATIONS[type(event)]
        if events is None or index < self._resume.events or operation in self._skipped:
            return
        context = self._context
        # As in Debezium: where the event of rows begins.
        context.pos, context.seconds = event.packet.log_pos - event.packet.event_size, event.timestamp
        context.server_id = event.packet.server_id
        if BitCount(event.columns_present_bitmap) < event.number_of_columns:
            raise ConnectError(
                f"Rows of {events.table.full_name} at {context.file}:{context.pos} do not have all columns: SET GLOBAL "
                "binlog_row_image = FULL on the server, and read the tables again (reset the offsets)"
            )
        first = self._resume.rows if index == self._resume.events else 0
        rows = event.rows
        self.held_bytes += event.packet.event_size
        for number in range(first, len(rows)):
            context.row = number
            is_last = number + 1 == len(rows)
            after = self.offset(index + 1) if is_last else self.offset(index, number + 1)
            self._emit(self._converted(events, operation, rows[number]), self.offset(index, number), after)

    def _converted(self, events: TableEvents, operation: str, row: Row) -> list[SourceRecord]:
        context = self._context
        try:
            if operation == "c":
                return events.insert(events.row(row["values"], _reasons(row, "none_sources")), context)
            if operation == "d":
                return events.delete(events.row(row["values"], _reasons(row, "none_sources")), context)
            before = events.row(row["before_values"], _reasons(row, "before_none_sources"))
            return events.update(before, events.row(row["after_values"], _reasons(row, "after_none_sources")), context)
        except DataError as error:
            raise DataError(f"{error} (row {context.row} at {context.file}:{context.pos})") from error

    def _emit(self, records: list[SourceRecord], before: dict[str, Any], after: dict[str, Any]) -> None:
        if not records:
            return
        for each in records:
            each.source_offset = before
        records[-1].source_offset = after
        self._held.append(records)
        # Of an open log the server sends complete transactions.
        if self._context.file not in self.closed or self._holds_too_much:
            self._release()
            self._is_partial = True

    @property
    def _holds_too_much(self) -> bool:
        return len(self._held) > MOST_HELD or self.held_bytes > MOST_HELD_BYTES

    def _release(self) -> None:
        self._ready += self._held
        self.ready += sum(map(len, self._held))
        self._held, self.held_bytes = [], 0


def _reasons(row: Row, name: str) -> dict[str, str]:
    found: dict[str, str] = row.get(name) or {}
    return found
