"""The common part of sinks for tables: records as columns, and offsets that are committed with their rows.

A table has the next offset of each partition, written in the same commit as the rows. A commit is a compare-and-swap:
it succeeds only if the table still has the offsets at which the rows begin. Then

- a lost race (another task has committed rows of the partition) drops the rows of this task, which starts again;
- an unknown outcome (timeout, 500) is decided by reading the table: it has the new offsets, or the old ones;
- a task that was paused and replaced cannot add its rows after all.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ottla.connect.api import Config, SinkTask, SinkTaskContext, TopicPartition
from ottla.connect.config.definition import (
    ConfigDef,
    Importance,
    Setting,
    SettingType,
    between,
    non_empty,
    one_of,
)
from ottla.connect.connectors.arrow import Columns
from ottla.connect.data import Schema
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.records import SinkRecord

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

TRIES: Final = 5
"""How often a commit is tried when other writers commit to the same table."""
_SCHEMAS: Final = 100
Offsets = Mapping[TopicPartition, int]

TABLE_SETTINGS: Final = (
    Setting(
        "table",
        SettingType.STRING,
        "The table; `${topic}` is replaced by the topic.",
        importance=Importance.HIGH,
        validator=non_empty,
    ),
    Setting("flush.size", SettingType.INT, "Commit after this number of records.", 100_000, validator=between(1)),
    Setting(
        "commit.interval.ms",
        SettingType.LONG,
        "Commit this time after the first record, at the next flush of the worker.",
        60_000,
        validator=between(0),
    ),
    Setting(
        "schema.evolution",
        SettingType.STRING,
        "`none`: new fields stop the task; `add`: add columns; `widen`: also widen types (Iceberg).",
        "none",
        validator=one_of("none", "add", "widen"),
    ),
    Setting(
        "behavior.on.null.values",
        SettingType.STRING,
        "A record without a value: `fail` rejects it (dead letter topic, or stop), `ignore` skips it.",
        "fail",
        validator=one_of("fail", "ignore"),
    ),
    Setting(
        "include.kafka.metadata",
        SettingType.BOOLEAN,
        "Add the column `_kafka` with topic, partition, offset, timestamp and key.",
        False,
    ),
)


class LostRaceError(RetriableError):
    """Another task has committed rows of the same partition."""


class Table(ABC):
    """A table of one format. Methods raise RetriableError, DataError for a schema that does not fit."""

    def __init__(self, name: str) -> None:
        self.name = name

    def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Read the next offsets of partitions, as far as the table has them."""
        table = self._loaded()
        return {} if table is None else self._offsets(table, partitions)

    def append(self, rows: pa.Table, old: Mapping[TopicPartition, int | None], new: Offsets) -> None:
        """Commit rows and new offsets, if the table has the old ones. Raises LostRaceError."""
        problem: Exception | None = None
        for _ in range(TRIES):
            table = self._loaded() or self._created(rows)
            if check_race(self._offsets(table, new), old, new):
                return
            try:
                self._write(table, rows, new)
            except ConnectError:
                raise
            except self._failures() as error:  # conflict or unknown outcome: the table's offsets decide
                problem = error
            else:
                return
        if check_race(self.offsets(new), old, new):
            return
        raise RetriableError(f"{self.name} was not committed in {TRIES} tries: {problem}") from problem

    @abstractmethod
    def _failures(self) -> tuple[type[Exception], ...]:
        """Return the exceptions of `_write` after which the table is read again."""

    @abstractmethod
    def _loaded(self) -> Any:
        """Return the newest version, or None if the table does not exist."""

    @abstractmethod
    def _created(self, rows: pa.Table) -> Any:
        """Create the table with the columns of rows, unless another task has created it, and return it."""

    @abstractmethod
    def _offsets(self, table: Any, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that a version has."""

    @abstractmethod
    def _write(self, table: Any, rows: pa.Table, new: Offsets) -> None:
        """Commit rows and offsets if `table` is still the newest version. Raises DataError and `_failures`."""


def check_race(found: Offsets, old: Mapping[TopicPartition, int | None], new: Offsets) -> bool:
    """Return whether the commit has landed already. Raises LostRaceError if the offsets are neither old nor new."""
    if all(found.get(tp) == offset for tp, offset in new.items()):
        return True
    for tp, offset in old.items():
        if found.get(tp) != offset:
            raise LostRaceError(
                f"Another task has committed {tp.topic}-{tp.partition} up to offset {found.get(tp)}, "
                f"but this task begins at {offset}; it starts again behind the committed rows"
            )
    return False


def fitted(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """Return rows with the columns of a table in its order and types. Raises DataError with the column."""
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    unknown = [each for each in rows.column_names if each not in target.names]
    if unknown:
        raise DataError(f"The table has no column {', '.join(unknown)}; set schema.evolution=add to add columns")
    columns = []
    for each in target:
        if each.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, each.type))
            continue
        try:
            columns.append(rows[each.name].cast(each.type))
        except pa.ArrowException as error:
            found = rows[each.name].type
            raise DataError(f"The column {each.name} is {each.type}, but records have {found}: {error}") from error
    return pa.Table.from_arrays(columns, names=target.names)


@dataclass
class _Partition:
    start: int | None
    """The offset in the table; None: it has none."""
    began: int
    """The offset at which this task began, -1 if the table has none."""
    next: int | None
    """The next offset to accept; None: any."""
    first: int | None = None
    """The first offset that is not committed."""


@dataclass
class _Buffer:
    table: Table
    records: list[SinkRecord] = field(default_factory=list)
    partitions: set[TopicPartition] = field(default_factory=set)
    since: float = 0.0


class TableSinkTask(SinkTask):
    """Buffers records and commits them with their offsets."""

    config_def: ConfigDef
    clock: Callable[[], float] = staticmethod(time.monotonic)

    @abstractmethod
    def table(self, name: str) -> Table:
        """Return a table by name."""

    def start(self, context: SinkTaskContext, config: Config) -> None:
        """Read the settings."""
        self.context, self.config = context, config
        self.values: dict[str, Any] = self.config_def.parse(config)
        self._buffers: dict[str, _Buffer] = {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._columns: dict[Schema | None, Columns] = {}
        self._commits = 0
        self._lost: LostRaceError | None = None

    def _buffer(self, topic: str) -> _Buffer:
        name = self.values["table"].replace("${topic}", topic)
        if name not in self._buffers:
            self._buffers[name] = _Buffer(self.table(name))
        return self._buffers[name]

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Continue each partition where the table ends."""
        for tp in partitions:
            found = self._buffer(tp.topic).table.offsets([tp]).get(tp)
            self._partitions[tp] = _Partition(found, -1 if found is None else found, found)
            if found is not None:
                self.context.seek({tp: found})

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Buffer records. Records that were buffered before are skipped."""
        if self._lost is not None:
            return
        for record in records:
            tp = TopicPartition(record.original_topic, record.original_partition)
            partition = self._partitions[tp]
            if partition.next is None or record.original_offset >= partition.next:
                self._add(tp, partition, record)
            elif record.original_offset < partition.began:
                raise ConnectError(
                    f"{tp.topic}-{tp.partition} delivers offset {record.original_offset}, but its rows in the table "
                    f"end at {partition.began}. Was the topic recreated? Choose another table or connector name."
                )
        for buffer in self._buffers.values():
            if len(buffer.records) >= self.values["flush.size"]:
                self._commit(buffer)

    def _add(self, tp: TopicPartition, partition: _Partition, record: SinkRecord) -> None:
        if record.value is None:
            if self.values["behavior.on.null.values"] == "fail":
                place = f"{tp.topic}-{tp.partition} offset {record.original_offset}"
                self.context.reject(record, DataError(f"The record {place} has no value"))
        else:
            buffer = self._buffer(tp.topic)
            if not buffer.records:
                buffer.since = self.clock()
            buffer.records.append(record)
            buffer.partitions.add(tp)
            if partition.first is None:
                partition.first = record.original_offset
        partition.next = record.original_offset + 1

    def _commit(self, buffer: _Buffer) -> None:
        """Commit the rows of a table. A lost race is reported by the next flush, which starts the task again."""
        rows = self._rows(buffer.records)
        old = {tp: self._partitions[tp].start for tp in buffer.partitions}
        new = {tp: self._partitions[tp].next or 0 for tp in buffer.partitions}
        if rows is not None:
            try:
                buffer.table.append(rows, old, new)
            except LostRaceError as error:
                self._lost = error
                return
        for tp in buffer.partitions:
            partition = self._partitions[tp]
            partition.first = None
            if rows is not None:
                partition.start = partition.next
        buffer.records, buffer.partitions = [], set()
        self._commits += 1
        self.context.report({"commits": self._commits})

    def _rows(self, records: Sequence[SinkRecord]) -> pa.Table | None:
        """Convert records; adjacent records with the same schema together."""
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

        tables = []
        for _, group in groupby(records, key=lambda each: id(each.value_schema)):
            same = list(group)
            found = self._columns_of(same[0].value_schema).table(same, self._reject)
            if found is not None:
                tables.append(found)
        try:
            return pa.concat_tables(tables, promote_options="permissive") if tables else None
        except pa.ArrowException as error:
            raise DataError(f"Records of one commit have no common type: {error}") from error

    def _reject(self, record: SinkRecord, error: Exception) -> None:
        """Reject a record and remove it from its buffer, so that it is rejected once."""
        self.context.reject(record, error)
        buffer = self._buffer(record.original_topic)
        buffer.records = [each for each in buffer.records if each is not record]

    def _columns_of(self, schema: Schema | None) -> Columns:
        if schema not in self._columns:
            if len(self._columns) >= _SCHEMAS:
                self._columns.clear()
            self._columns[schema] = Columns(schema, with_metadata=self.values["include.kafka.metadata"])
        return self._columns[schema]

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Commit what is old enough; return the offsets up to which all rows are in their tables."""
        for buffer in self._buffers.values():
            age_ms = (self.clock() - buffer.since) * 1000
            if buffer.records and self._lost is None and age_ms >= self.values["commit.interval.ms"]:
                self._commit(buffer)
        if self._lost is not None:
            raise self._lost
        return {tp: self._durable(self._partitions[tp], offset) for tp, offset in offsets.items()}

    @staticmethod
    def _durable(partition: _Partition, offset: int) -> int:
        if partition.first is not None:
            return partition.first
        return offset if partition.next is None else min(offset, partition.next)

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop rows that are not committed."""
        gone = set(partitions)
        for tp in gone:
            self._partitions.pop(tp, None)
        for buffer in self._buffers.values():
            buffer.partitions -= gone
            buffer.records = [each for each in buffer.records if _place(each) not in gone]

    def stop(self) -> None:
        """Drop rows that are not committed."""
        self._buffers = {}


def _place(record: SinkRecord) -> TopicPartition:
    return TopicPartition(record.original_topic, record.original_partition)
