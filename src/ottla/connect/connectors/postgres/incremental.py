"""Incremental snapshots: a table read in chunks by its key, between the changes of the stream.

Each chunk has a snapshot of its own. Its rows wait until the stream has passed the snapshot's position. A row is
dropped if the stream brought a newer change of its key before, so that no record is older than its predecessor.
Nothing is written to the database. The state is in the offsets: a restart goes on with the chunk that was not
emitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.connectors.postgres.catalog import Catalog, Table
from ottla.connect.connectors.postgres.context import Context
from ottla.connect.connectors.postgres.copying import copy_blocks, rows_of
from ottla.connect.connectors.postgres.events import EventMaker, TableEvents
from ottla.connect.connectors.postgres.pgoutput import Delete, Insert, Update, lsn_of
from ottla.connect.connectors.postgres.replication import quoted
from ottla.connect.connectors.postgres.session import errors
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.snapshots import query_of
from ottla.connect.connectors.postgres.visibility import Visible
from ottla.connect.records import SourceRecord

if TYPE_CHECKING:
    import psycopg

Texts = list[str | None]
MOST_TABLES: Final = 10_000


@dataclass
class Chunk:
    """Rows that wait for the stream, by the texts of their keys."""

    visible: Visible
    rows: dict[tuple[str | None, ...], Texts]
    last: list[str | None]
    """The key of the last row; the next chunk begins after it."""


@dataclass
class Incremental:
    """The tables that remain, and how far the first of them is."""

    tables: list[tuple[str, str]] = field(default_factory=list)
    """Names with their conditions."""
    last: list[str | None] | None = None

    def stored(self) -> str:
        """Return the form in offsets, as JSON; an empty text if no table remains."""
        return json.dumps({"tables": self.tables, "last": self.last}, separators=(",", ":")) if self.tables else ""

    @classmethod
    def of(cls, stored: str) -> Incremental:
        """Read the form in offsets. Raises ValueError."""
        if not stored:
            return cls()
        found = json.loads(stored)
        return cls([(name, condition) for name, condition in found["tables"]], found["last"])


class IncrementalReader:
    """Reads the chunks. The task calls `step` between batches of the stream, and `changed` for each change."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        options: Options,
        maker: EventMaker,
        catalog: Catalog,
        state: Incremental,
    ) -> None:
        self.state = state
        self._connection, self._options, self._maker, self._catalog = connection, options, maker, catalog
        self._size = options.number("incremental.snapshot.chunk.size")
        self._events: TableEvents | None = None
        self._chunk: Chunk | None = None
        self.rows = 0

    @property
    def active(self) -> bool:
        """Whether there is something to read."""
        return bool(self.state.tables)

    def add(self, tables: Sequence[Table], conditions: Mapping[str, str]) -> None:
        """Read more tables, after the current ones."""
        known = {name for name, _ in self.state.tables}
        for each in tables:
            if each.full_name not in known and len(self.state.tables) < MOST_TABLES:
                self.state.tables.append((each.full_name, conditions.get(each.full_name, "")))

    def remove(self, tables: Sequence[Table] | None) -> None:
        """Read these tables no more; None: all."""
        names = None if tables is None else {each.full_name for each in tables}
        first = self.state.tables[0] if self.state.tables else None
        self.state.tables = [each for each in self.state.tables if names is not None and each[0] not in names]
        if not self.state.tables or self.state.tables[0] != first:
            self._next_table()

    def changed(self, events: TableEvents, message: Insert | Update | Delete, xid: int, final_lsn: int) -> None:
        """Drop the waiting rows that a change of the stream makes old."""
        chunk = self._chunk
        if chunk is None or self._events is None or events.table.full_name != self._events.table.full_name:
            return
        if final_lsn < chunk.visible.until and chunk.visible.has(xid):
            return
        for values in (getattr(message, "new", None), message.old if not isinstance(message, Insert) else None):
            if values is not None:
                chunk.rows.pop(_key_texts(events, values), None)

    def step(self, done: int, context: Context) -> list[SourceRecord]:
        """Return the rows of a chunk that the stream has passed, or read the next chunk."""
        if self._chunk is None:
            if self.active:
                self._read()
            return []
        if done < self._chunk.visible.until:
            return []
        chunk, events = self._chunk, self._events
        assert events is not None
        self._chunk, self.state.last = None, chunk.last
        rows = [events.encoder.slow(each) for each in chunk.rows.values()]
        self.rows += len(rows)
        moment = Context(context.lsn, context.last_commit, None, context.commit_us, snapshot="incremental")
        return events.reads(rows, moment)

    def _next_table(self) -> None:
        self.state.last, self._events, self._chunk = None, None, None

    def _read(self) -> None:
        name, condition = self.state.tables[0]
        if self._events is None:
            found = [each for each in self._catalog.tables() if each.full_name == name]
            if not found or not found[0].key:
                self.state.tables.pop(0)
                self._next_table()
                return
            table = found[0]
            self._events = self._maker.table(table, self._catalog.types([each.type_oid for each in table.columns]))
        events = self._events
        query = self._query(events, condition)
        with errors(self._options, f"read a chunk of {name}"), self._connection.transaction():
            self._connection.execute("set transaction isolation level repeatable read, read only")
            row = self._connection.execute("select pg_current_snapshot()::text").fetchone()
            end = self._connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            rows = [row for block in copy_blocks(self._connection, query) for row in rows_of(block)]
        assert row is not None
        assert end is not None
        if not rows:
            self.state.tables.pop(0)
            self._next_table()
            return
        keyed = {_key_texts(events, each): each for each in rows}
        self._chunk = Chunk(Visible.of(row[0], lsn_of(end[0])), keyed, list(next(reversed(keyed))))

    def _query(self, events: TableEvents, condition: str) -> str:
        from psycopg.sql import Literal  # noqa: PLC0415 - optional

        table = events.table
        key = ", ".join(quoted(each) for each in table.key)
        conditions = [f"({condition})"] if condition else []
        if self.state.last is not None:
            after = ", ".join(Literal(each).as_string(self._connection) for each in self.state.last)
            conditions.append(f"({key}) > ({after})")
        return f"{query_of(events, ' and '.join(conditions))} order by {key} limit {self._size}"

    def facts(self) -> Mapping[str, object]:
        """Say how far it is."""
        if not self.active:
            return {"incremental_snapshot": "none"}
        return {
            "incremental_snapshot": f"{self.state.tables[0][0]}, {self.rows} rows",
            "incremental_tables": len(self.state.tables),
        }


def _key_texts(events: TableEvents, values: Sequence[Any]) -> tuple[str | None, ...]:
    positions = {each.column: each.position for each in events.encoder.members}
    found = []
    for name in events.table.key:
        value = values[positions[name]] if name in positions and positions[name] < len(values) else None
        found.append(value.decode() if isinstance(value, bytes) else value)
    return tuple(found)
