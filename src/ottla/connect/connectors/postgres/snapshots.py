"""Reading of whole tables from one exported snapshot, by one or several connections.

All connections see the same moment, and `visible` names the transactions in it (see `visibility`). A table is divided
into ranges of pages (PostgreSQL 14 and newer reads such a range without the rest); rows of one table come together, the
tables in the order of their names. The memory in use is bounded: each reader has at most a few blocks under way.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.postgres.copying import copy_blocks
from ottla.connect.connectors.postgres.events import TableEvents
from ottla.connect.connectors.postgres.pgoutput import lsn_of
from ottla.connect.connectors.postgres.replication import quoted
from ottla.connect.connectors.postgres.session import connect, errors
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.visibility import Visible
from ottla.connect.errors import ConnectError

if TYPE_CHECKING:
    import psycopg

RANGE_PAGES: Final = 4096
BLOCKS_UNDER_WAY: Final = 2
WAIT_S: Final = 0.5
STOP_S: Final = 20.0
_TID_RANGES_SINCE: Final = 140_000


@dataclass(frozen=True)
class Piece:
    """A part of a table that one connection reads with one query."""

    table: int
    query: str


@dataclass(frozen=True)
class Block:
    """Rows of a table, as COPY's text; without data: a piece has ended."""

    table: int
    data: bytes


def query_of(events: TableEvents, condition: str = "", override: str = "") -> str:
    """Return the query of a table's captured columns, in the order of the encoder's positions."""
    table = events.table
    columns = [quoted(each.name) for each in table.columns if not each.generated]
    if override:
        return f"select {', '.join(columns)} from ({override.strip().rstrip(';')}) as given"  # noqa: S608 - quoted, or a setting
    only = "" if table.kind == "p" else "only "
    where = f" where {condition}" if condition else ""
    return f"select {', '.join(columns) or 'null'} from {only}{quoted(table.schema)}.{quoted(table.name)}{where}"  # noqa: S608 - quoted


class TableReader:
    """Reads tables once. Close it in any case."""

    def __init__(
        self, options: Options, tables: Sequence[TableEvents], conditions: Sequence[str] | None = None
    ) -> None:
        self._options, self._tables = options, tables
        self._conditions = list(conditions or [""] * len(tables))
        self._connections: list[psycopg.Connection[Any]] = []
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()
        self._blocks: queue.Queue[Block | Exception] = queue.Queue()
        self._pieces: queue.SimpleQueue[Piece] = queue.SimpleQueue()
        self._open: list[int] = [0] * len(tables)
        self.visible = self._pin()

    def _pin(self) -> Visible:
        self._main = connection = connect(self._options)
        self._connections.append(connection)
        with errors(self._options, "open a snapshot"):
            connection.execute("begin isolation level repeatable read, read only")
            row = connection.execute(
                "select pg_export_snapshot(), pg_current_snapshot()::text, "
                "(extract(epoch from now()) * 1000000)::bigint"
            ).fetchone()
            # The position comes after the snapshot: commits from here on are not visible.
            end = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
        if row is None or end is None:
            raise ConnectError("PostgreSQL returned no snapshot.")
        self._snapshot, text, self.time_us = row
        return Visible.of(text, lsn_of(end[0]))

    def _divided(self) -> list[Piece]:
        pieces = []
        ranges = self._main.pgconn.server_version >= _TID_RANGES_SINCE
        for number, (events, condition) in enumerate(zip(self._tables, self._conditions, strict=True)):
            override = self._override(events.table.full_name)
            pages = events.table.pages
            if override or condition or not ranges or pages <= RANGE_PAGES or events.table.kind == "p":
                pieces.append(Piece(number, query_of(events, condition, override)))
                continue
            # The last range has no end: the table may have grown since its size was read.
            for begin in range(0, pages, RANGE_PAGES):
                end = f" and ctid < '({begin + RANGE_PAGES},0)'" if begin + RANGE_PAGES < pages else ""
                pieces.append(Piece(number, query_of(events, f"ctid >= '({begin},0)'{end}")))
        return pieces

    def _override(self, name: str) -> str:
        for each in self._options.names("snapshot.select.statement.overrides"):
            if each == name:
                return self._options.raw.get(f"snapshot.select.statement.overrides.{each}", "")
        return ""

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of the tables, one table after the other; a block without data ends a table.

        Raises the error of any reader. Yields a block of table -1 when nothing arrived for a while.
        """
        pieces = self._divided()
        for each in pieces:
            self._open[each.table] += 1
        threads = min(self._options.number("snapshot.max.threads"), len(pieces))
        if threads <= 1:
            yield from self._alone(pieces)
        else:
            yield from self._together(pieces, threads)

    def _alone(self, pieces: Sequence[Piece]) -> Iterator[Block]:
        at = 0
        for piece in pieces:
            while at < piece.table:
                yield Block(at, b"")
                at += 1
            for data in copy_blocks(self._main, piece.query, self._stop.is_set):
                yield Block(piece.table, data)
        while at < len(self._tables):
            yield Block(at, b"")
            at += 1

    def _together(self, pieces: Sequence[Piece], threads: int) -> Iterator[Block]:
        self._blocks = queue.Queue(BLOCKS_UNDER_WAY * threads)
        for piece in pieces:
            self._pieces.put(piece)
        for connection in [self._main, *(self._pinned() for _ in range(threads - 1))]:
            thread = threading.Thread(target=self._read, args=(connection,), name="postgres snapshot", daemon=True)
            self._threads.append(thread)
            thread.start()
        later: dict[int, list[Block]] = {}
        at = 0
        while at < len(self._tables):
            yield from later.pop(at, [])
            if self._open[at] == 0:
                yield Block(at, b"")
                at += 1
                continue
            try:
                block_or_error = self._blocks.get(timeout=WAIT_S)
            except queue.Empty:
                yield Block(-1, b"")
                continue
            if isinstance(block_or_error, Exception):
                raise block_or_error
            if not block_or_error.data:
                self._open[block_or_error.table] -= 1
            elif block_or_error.table == at:
                yield block_or_error
            else:
                later.setdefault(block_or_error.table, []).append(block_or_error)

    def _pinned(self) -> psycopg.Connection[Any]:
        connection = connect(self._options)
        self._connections.append(connection)
        with errors(self._options, "import a snapshot"):
            connection.execute("begin isolation level repeatable read, read only")
            connection.execute(f"set transaction snapshot '{self._snapshot}'")
        return connection

    def _read(self, connection: psycopg.Connection[Any]) -> None:
        try:
            while not self._stop.is_set():
                try:
                    piece = self._pieces.get_nowait()
                except queue.Empty:
                    return
                for data in copy_blocks(connection, piece.query, self._stop.is_set):
                    self._put(Block(piece.table, data))
                self._put(Block(piece.table, b""))
        except Exception as error:  # noqa: BLE001 - the task raises it
            self._put(error)

    def _put(self, given: Block | Exception) -> None:
        while not self._stop.is_set():
            try:
                self._blocks.put(given, timeout=WAIT_S)
            except queue.Full:
                continue
            return

    def close(self) -> None:
        """End the readers, and close their connections."""
        self._stop.set()
        deadline = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for each in self._connections:
            each.close()
