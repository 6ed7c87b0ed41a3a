"""The sink's task: one transaction for each batch of records, with the offsets in it if `exactly.once` is set.

Power off in the middle of a batch: the database has none of it. After the transaction and before Kafka's commit: the
batch comes again, and is skipped by the offsets of the table, or written again without them (idempotent with upsert).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.connect.api import Config, SinkTask, SinkTaskContext, TopicPartition
from ottla.connect.config.definition import SettingError
from ottla.connect.connectors.sql.database import Database
from ottla.connect.connectors.sql.dialects import connect
from ottla.connect.connectors.sql.encoding import Encoder, Row
from ottla.connect.connectors.sql.offsets import OffsetTable
from ottla.connect.connectors.sql.settings import SINK, address_of
from ottla.connect.connectors.sql.writing import Writer
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.records import SinkRecord


class SqlSinkTask(SinkTask):
    """Writes rows."""

    def __init__(self) -> None:
        self._database: Database | None = None
        self._writer: Writer | None = None
        self._offsets: OffsetTable | None = None
        self._partitions: list[TopicPartition] = []

    def start(self, context: SinkTaskContext, config: Config) -> None:
        self._context = context
        try:
            self._values = values = SINK.parse(config)
            self._address = address_of(values)
        except SettingError as error:
            raise ConnectError(str(error)) from error
        self._encoder = Encoder(
            values["pk.mode"], values["pk.fields"], values["fields.whitelist"], deletes=values["delete.enabled"]
        )
        self._connect()

    def _connect(self) -> tuple[Database, Writer]:
        if self._database is not None and self._writer is not None:
            return self._database, self._writer
        database = connect(self._address)
        self._database = database
        self._writer = Writer(database, self._values, self._context.reject)
        if self._values["exactly.once"]:
            self._offsets = OffsetTable(database, self._values["offsets.table"], self._context.connector)
            self._offsets.read(self._partitions)
        return database, self._writer

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        self._partitions += partitions
        if self._values["exactly.once"]:
            self._connect()
            assert self._offsets is not None
            found = self._offsets.read(partitions)
            if found:
                self._context.seek(found)

    def put(self, records: Sequence[SinkRecord]) -> None:
        database, writer = self._connect()
        rows, ends = self._rows(records)
        if not ends:
            return
        try:
            with database.errors("write"):
                writer.prepare(rows)
                database.begin()
                writer.write(rows)
                if self._offsets is not None:
                    self._offsets.write(ends)
                database.commit()
        except BaseException as error:
            self._undo(database, error)
            raise
        if self._offsets is not None:
            self._offsets.committed(ends)
        self._context.report({"rows": writer.written})

    def _rows(self, records: Sequence[SinkRecord]) -> tuple[list[Row], dict[TopicPartition, int]]:
        """Return the rows of records that are not written yet, and the next offsets after them."""
        rows: list[Row] = []
        ends: dict[TopicPartition, int] = {}
        for record in records:
            partition = TopicPartition(record.original_topic, record.original_partition)
            if self._offsets is not None and record.original_offset < self._offsets.next(partition):
                continue
            ends[partition] = record.original_offset + 1
            try:
                row = self._encoder.row(record)
            except DataError as error:
                self._context.reject(record, error)
                continue
            if row is not None:
                rows.append(row)
        return rows, ends

    def _undo(self, database: Database, error: BaseException) -> None:
        """Undo the transaction. After a RetriableError the next put has a new connection, and reads its offsets."""
        try:
            database.rollback()
        except database.driver_errors as lost:
            if not database.classify(lost):
                raise
        if isinstance(error, RetriableError):
            database.close()
            self._database = self._writer = self._offsets = None

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return offsets  # each put has committed

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        gone = set(partitions)
        self._partitions = [each for each in self._partitions if each not in gone]
        if self._offsets is not None:
            self._offsets.forget(partitions)

    def stop(self) -> None:
        if self._database is not None:
            self._database.close()
