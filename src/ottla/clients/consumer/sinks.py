"""Where a poll puts what it takes: into a list of records, or into columns. One walk over the batches fills both.

A sink is for one poll. `full` ends the poll; `len` says how many records there are.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.record import Record
from ottla.common.ids import TopicPartition
from ottla.records.column_kernels import Columns
from ottla.records.columns import RecordColumns

ARROW_BYTES: Final = 64 * 1024 * 1024
"""So many bytes of records fit into the columns of one poll, or one record that is larger."""

_MOST_ROWS: Final = 8_000_000  # the names of their topics, of 249 characters at most, fit into a column

_LIKELY_SIZE: Final = 128  # of a record: memory that is not needed costs too


class RecordSink:
    """At most `limit` records."""

    __slots__ = ("_limit", "records")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.records: list[Record[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.records)

    @property
    def full(self) -> bool:
        """Whether no more fit."""
        return len(self.records) >= self._limit

    def expect(self, size: int) -> None:
        """So many bytes are there to be taken."""

    def take(self, fetched: Fetched) -> None:
        """Take what one step gives; nothing if there is no more. Raises CorruptRecords."""
        self.records += fetched.take(self._limit - len(self.records))


class ColumnSink:
    """At most `limit` records and `most_bytes` of them (ARROW_BYTES) as columns, and `runs` of them that are of one
    partition."""

    __slots__ = ("_columns", "_limit", "_most_bytes", "runs")

    def __init__(self, limit: int, most_bytes: int | None = None) -> None:
        self._limit = limit
        self._most_bytes = most_bytes or ARROW_BYTES
        self._columns: Columns | None = None
        self.runs: list[tuple[TopicPartition, int]] = []
        """In order, how many records of which partition."""

    def __len__(self) -> int:
        return 0 if self._columns is None else self._columns.rows

    @property
    def full(self) -> bool:
        """Whether no more fit."""
        return self._limit < 1 if self._columns is None else self._columns.full

    def expect(self, size: int) -> None:
        """So many bytes are there to be taken."""
        if self._columns is None and size > 0 and self._limit > 0:
            limit = min(self._limit, _MOST_ROWS)
            self._columns = Columns(limit, self._most_bytes, min(size, limit * _LIKELY_SIZE))

    def take(self, fetched: Fetched) -> None:
        """Take what one step gives; nothing if there is no more. Raises CorruptRecords."""
        columns = self._columns
        assert columns is not None, "nothing was expected"
        before = columns.rows
        fetched.take_columns(columns)
        count = columns.rows - before
        if not count:
            return
        if self.runs and self.runs[-1][0] == fetched.tp:
            count += self.runs.pop()[1]
        self.runs.append((fetched.tp, count))

    def close(self) -> RecordColumns | None:
        """The columns, None without a record. For once."""
        return self._columns.close() if self._columns is not None and self._columns.rows else None


Sink = RecordSink | ColumnSink
