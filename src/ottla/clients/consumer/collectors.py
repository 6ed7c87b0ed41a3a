"""The result of one poll: a list of records, or columns.

A poll walks the buffered batches and calls `take` for each until the collector is full. `len` is the number of records.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.record import Record
from ottla.common.ids import TopicPartition
from ottla.records.column_kernels import Columns
from ottla.records.columns import RecordColumns

ARROW_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of the records in the columns of one poll, unless the first record alone is larger."""

_MAX_ROWS: Final = 8_000_000
"""At this number of rows, topic names of 249 characters still fit into an Arrow string column."""

_TYPICAL_RECORD_BYTES: Final = 128
"""Estimates the memory to allocate for a number of records."""


class RecordCollector:
    """Collects at most `limit` records in a list."""

    __slots__ = ("_limit", "records")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.records: list[Record[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.records)

    @property
    def is_full(self) -> bool:
        return len(self.records) >= self._limit

    def expect(self, size: int) -> None:
        """Prepare for `size` bytes of batches."""

    def take(self, fetched: Fetched) -> None:
        """Take records of one batch; none if `fetched` is exhausted. Raises CorruptRecords."""
        self.records += fetched.take(self._limit - len(self.records))


class ColumnCollector:
    """Collects at most `limit` records and `max_bytes` of them (default ARROW_BYTES) in columns."""

    __slots__ = ("_columns", "_limit", "_max_bytes", "runs")

    def __init__(self, limit: int, max_bytes: int | None = None) -> None:
        self._limit = limit
        self._max_bytes = max_bytes or ARROW_BYTES
        self._columns: Columns | None = None
        self.runs: list[tuple[TopicPartition, int]] = []
        """The partitions of the rows, in order, each with its number of rows."""

    def __len__(self) -> int:
        return 0 if self._columns is None else self._columns.rows

    @property
    def is_full(self) -> bool:
        return self._limit < 1 if self._columns is None else self._columns.full

    def expect(self, size: int) -> None:
        """Allocate columns for `size` bytes of batches."""
        if self._columns is None and size > 0 and self._limit > 0:
            limit = min(self._limit, _MAX_ROWS)
            self._columns = Columns(limit, self._max_bytes, min(size, limit * _TYPICAL_RECORD_BYTES))

    def take(self, fetched: Fetched) -> None:
        """Take records of one or several batches; none if `fetched` is exhausted. Raises CorruptRecords."""
        columns = self._columns
        assert columns is not None, "take needs a call of expect with a size first"
        previous_rows = columns.rows
        fetched.take_columns(columns)
        count = columns.rows - previous_rows
        if not count:
            return
        if self.runs and self.runs[-1][0] == fetched.tp:
            count += self.runs.pop()[1]
        self.runs.append((fetched.tp, count))

    def close(self) -> RecordColumns | None:
        """Return the columns, or None without records. May be called once."""
        return self._columns.close() if self._columns is not None and self._columns.rows else None


Collector = RecordCollector | ColumnCollector
