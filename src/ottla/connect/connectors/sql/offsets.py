"""The next offset of each partition, in a table of the destination and in the transaction of the rows (exactly once).

An update names the offset that the task knows. If another task has written since, the update changes no row, and the
transaction is undone: a task that has lost its partition cannot write rows twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.connect.api import TopicPartition
from ottla.connect.connectors.sql.database import Database, TableName
from ottla.connect.errors import RetriableError


class OffsetTable:
    """The offsets of one connector."""

    def __init__(self, database: Database, name: str, connector: str) -> None:
        self._database, self._connector = database, connector
        self._table = database.table(TableName.parse(name))
        self._known: dict[TopicPartition, int | None] = {}
        kinds = ("varchar(190)", "varchar(249)", "integer", "bigint")
        columns = ("connector", "topic", "partition_number", "next_offset")
        definition = ", ".join(
            f"{database.quoted(each)} {kind} not null" for each, kind in zip(columns, kinds, strict=True)
        )
        keys = ", ".join(map(database.quoted, columns[:3]))
        mark = database.mark
        self._where = " and ".join(f"{database.quoted(each)} = {mark}" for each in columns[:3])
        self._next = database.quoted("next_offset")
        with database.errors("create the table of offsets"):
            database.run(f"create table if not exists {self._table} ({definition}, primary key ({keys}))")
            database.commit()

    def read(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Read the next offsets of partitions that have one."""
        with self._database.errors("read offsets"):
            for each in partitions:
                rows = self._database.rows(
                    f"select {self._next} from {self._table} where {self._where}", self._key(each)
                )
                self._known[each] = rows[0][0] if rows else None
            self._database.commit()
        return {each: offset for each in partitions if (offset := self._known[each]) is not None}

    def _key(self, partition: TopicPartition) -> list[object]:
        return [self._connector, partition.topic, partition.partition]

    def next(self, partition: TopicPartition) -> int:
        """Return the next offset; records before it are written."""
        return self._known.get(partition) or 0

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write next offsets in the current transaction. Raises RetriableError if another task has written."""
        mark = self._database.mark
        for partition, offset in sorted(offsets.items()):
            key, known = self._key(partition), self._known.get(partition)
            if known is None:
                marks = ", ".join([mark] * 4)
                self._database.run(f"insert into {self._table} values ({marks})", [*key, offset])
                continue
            changed = self._database.run(
                f"update {self._table} set {self._next} = {mark} where {self._where} and {self._next} = {mark}",
                [offset, *key, known],
            )
            if changed.rowcount != 1:
                raise RetriableError(
                    f"Another task has written {partition.topic}-{partition.partition} beyond offset {known}: this "
                    "task does not own the partition any more"
                )

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Learn that a transaction is committed."""
        self._known.update(offsets)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Learn that partitions were taken away."""
        for each in partitions:
            self._known.pop(each, None)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the task."""
        return list(self._known)
