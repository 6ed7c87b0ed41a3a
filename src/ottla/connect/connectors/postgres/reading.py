"""The phase in which tables are read: rows to records with Debezium's marks of the first and last rows, and offsets.

The last row of each table is held back until the table ends, as only then its mark is known. Offsets within a snapshot
name the tables that are complete, each with its snapshot, and the first snapshot. A restart reads the other tables from
another snapshot; for them the stream skips just what the first one has seen, as rows of it may have been emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.connectors.postgres.context import Context
from ottla.connect.connectors.postgres.copying import rows_of
from ottla.connect.connectors.postgres.events import TableEvents
from ottla.connect.connectors.postgres.fast_json import NOT_FAST
from ottla.connect.connectors.postgres.rows import Row
from ottla.connect.connectors.postgres.settings import Options
from ottla.connect.connectors.postgres.snapshots import TableReader
from ottla.connect.connectors.postgres.types import StaleEnumError
from ottla.connect.connectors.postgres.visibility import Borders, Visible
from ottla.connect.errors import DataError, RetriableError
from ottla.connect.records import SourceRecord

MARKS: Final = ("first", "first_in_data_collection", "last_in_data_collection", "last")


@dataclass(frozen=True)
class Earlier:
    """The outcome of attempts that were interrupted."""

    borders: str = ""
    """The snapshots of the tables that are complete."""
    first: Visible | None = None
    """The snapshot of the first attempt. Some of its rows may be in the topics, and deleted since, so that the
    stream must repeat everything that this snapshot had not seen."""


class Reading:
    """Reads tables; `poll` returns records until `finished`."""

    def __init__(
        self,
        options: Options,
        tables: Sequence[TableEvents],
        lsn: int,
        *,
        earlier: Earlier | None = None,
        conditions: Sequence[str] | None = None,
        name: str = "INITIAL",
    ) -> None:
        """`lsn` is where the stream goes on after it."""
        self.finished = not tables
        self.tables, self.lsn = tables, lsn
        self._name = name
        self._most = options.number("max.batch.size")
        self._reader = TableReader(options, tables, conditions)
        self._blocks = self._reader.blocks()
        self._context = Context(lsn, None, None, self._reader.time_us, snapshot="true")
        self._earlier = earlier or Earlier()
        self._done: list[str] = []
        self._held: tuple[TableEvents, Row, str] | None = None
        self._first = self._first_of_table = True
        self.rows = 0

    @property
    def visible(self) -> Visible:
        """The snapshot."""
        return self._reader.visible

    def borders(self) -> str:
        """The snapshots of the tables that are complete, as offsets have them."""
        borders = Borders(self._earlier.borders)
        if self._done:
            borders.add(self._earlier.first or self.visible, self._done)
        return borders.stored()

    def poll(self) -> list[SourceRecord]:
        """Return the next records, or none when the database is slow."""
        records: list[SourceRecord] = []
        while len(records) < self._most and not self.finished:
            block = next(self._blocks, None)
            if block is None:
                self._finish(records)
            elif block.table < 0:
                break
            elif block.data:
                self._rows_of(block.data, self.tables[block.table], records)
            else:
                self._end_of_table(self.tables[block.table], records)
        return records

    def _rows_of(self, data: bytes, events: TableEvents, records: list[SourceRecord]) -> None:
        texts = rows_of(data)
        self.rows += len(texts)
        offset = self._offset()
        begin = len(records)
        if self._held is not None:
            records.append(self._released())
        if self._first_of_table:
            self._held = (events, self._encoded(events, texts[:1])[0], "first" if self._first else MARKS[1])
            self._first = self._first_of_table = False
            texts = texts[1:]
            if texts:
                records.append(self._released())
        if events.fast is not None and len(texts) > 1:
            texts = self._fast(events, texts, records)
        if texts:
            rows = self._encoded(events, texts)
            self._held = (events, rows[-1], "true")
            self._context.snapshot = "true"
            records += events.reads(rows[:-1], self._context)
        for each in records[begin:]:
            each.source_offset = offset

    def _fast(
        self, events: TableEvents, texts: list[list[str | None]], records: list[SourceRecord]
    ) -> list[list[str | None]]:
        """Add the records of all rows but the last; return the rows that remain."""
        assert events.fast is not None
        self._context.snapshot = "true"
        try:
            records += events.fast.reads(texts[:-1], self._context)
        except (*NOT_FAST, StaleEnumError):
            return texts
        return texts[-1:]

    def _encoded(self, events: TableEvents, texts: list[list[str | None]]) -> list[Row]:
        encode, slow = events.encoder.from_text, events.encoder.slow
        try:
            try:
                return [encode(each) for each in texts]
            except (ValueError, ArithmeticError, IndexError, TypeError, DataError):
                return [slow(each) for each in texts]  # names the column
        except StaleEnumError as error:
            raise RetriableError(f"An enum of {events.table.full_name} has got the label {error}.") from error

    def _released(self) -> SourceRecord:
        assert self._held is not None
        events, row, self._context.snapshot = self._held
        self._held = None
        return events.reads([row], self._context)[0]

    def _end_of_table(self, events: TableEvents, records: list[SourceRecord]) -> None:
        last = events is self.tables[-1]
        if self._held is not None and not last:
            self._hold_mark("last_in_data_collection")
            record = self._released()
            self._done.append(events.table.full_name)
            record.source_offset = self._offset()
            records.append(record)
        else:
            self._done.append(events.table.full_name)
        self._first_of_table = True

    def _hold_mark(self, mark: str) -> None:
        assert self._held is not None
        events, row, now = self._held
        self._held = (events, row, now if now == "first" else mark)

    def _finish(self, records: list[SourceRecord]) -> None:
        self.finished = True
        if self._held is not None:
            self._hold_mark("last")
            record = self._released()
            records.append(record)
        if records:
            records[-1].source_offset = self._last_offset()
        self.close()

    def _offset(self) -> dict[str, Any]:
        offset = self._position()
        offset.update(snapshot=self._name, snapshot_completed=False, last_snapshot_record=False)
        return offset

    def _last_offset(self) -> dict[str, Any]:
        offset = self._position()
        del offset["first"], offset["first_until"]
        offset.update(snapshot=self._name, snapshot_completed=True, last_snapshot_record=True)
        return offset

    def _position(self) -> dict[str, Any]:
        position: dict[str, Any] = {
            "lsn": self.lsn,
            "lsn_proc": self.lsn,
            "lsn_commit": self.lsn,
            "ts_usec": self._context.commit_us,
        }
        borders = self.borders()
        if borders:
            position["borders"] = borders
        first = self._earlier.first or self.visible
        position["first"], position["first_until"] = first.text, first.until
        return position

    def facts(self) -> Mapping[str, object]:
        """Say how far it is."""
        return {
            "snapshot": "running",
            "snapshot_tables": f"{len(self._done)} of {len(self.tables)}",
            "snapshot_rows": self.rows,
        }

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
