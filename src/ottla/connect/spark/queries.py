"""Starts the streaming queries of connectors: a Spark format or a function, as a source or as a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.connect.api import Kind
from ottla.connect.errors import ConnectError
from ottla.connect.spark.checkpoints import METADATA, other_query, output_log
from ottla.connect.spark.failures import translated
from ottla.connect.spark.function_sink import FunctionSinkWork, write_batch
from ottla.connect.spark.function_source import FunctionWork, function_source
from ottla.connect.spark.kafka import commit, read_options, write_options
from ottla.connect.spark.settings import AVAILABLE_NOW, SparkSettings
from ottla.connect.spark.sink_rows import sink_rows
from ottla.connect.spark.source_rows import source_rows
from ottla.connect.spark.values import part_of
from ottla.connect.worker.environment import TaskEnvironment
from ottla.spark.internals import files
from ottla.spark.internals.errors import SPARK_ERRORS
from ottla.spark.internals.sessions import register

OTTLA: Final = "ottla"
_HEADERS: Final = {"includeHeaders": "true"}


class QueryFactory:
    """Starts the query of one connector, also again after a pause."""

    def __init__(self, environment: TaskEnvironment, session: SparkSession, settings: SparkSettings) -> None:
        self._environment = environment
        self._session = session
        self._settings = settings

    @property
    def is_mirrored(self) -> bool:
        """Whether the worker writes the offset of the query: a function writes its own, a sink commits to its group."""
        return self._environment.connector_class.kind is Kind.SOURCE and not self._plain

    @property
    def has_checkpoint(self) -> bool:
        """Whether the query continues. Raises ConnectError."""
        return self._exists(f"{self._settings.checkpoint}/{METADATA}")

    @property
    def _plain(self) -> str:
        return str(getattr(self._environment.connector_class, "plain", ""))

    def start(self) -> StreamingQuery:
        """Start the query from its checkpoint. Raises ConnectError, ClientError and Spark exceptions."""
        is_source = self._environment.connector_class.kind is Kind.SOURCE
        if self._plain:
            writer = self._function_source() if is_source else self._function_sink()
        else:
            writer = self._source() if is_source else self._sink()
        settings = self._settings
        writer = writer.queryName(settings.name).option("checkpointLocation", settings.checkpoint)
        if settings.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif settings.trigger:
            writer = writer.trigger(processingTime=settings.trigger)
        return writer.start()

    def commit(self, report: Mapping[str, Any]) -> None:
        """Commit the offsets of the last micro-batch of a sink. Raises ClientError."""
        if self._environment.connector_class.kind is Kind.SINK:
            commit(self._environment, self._settings, report)

    # -- formats -----------------------------------------------------------------------------------------------------

    def _sink(self) -> DataStreamWriter:
        settings, environment = self._settings, self._environment
        log = output_log(settings)
        if log is not None and not self.has_checkpoint and self._exists(log):
            raise ConnectError(other_query(log))
        key, value = (part_of(each, environment.worker, environment.connector, reads=True) for each in ("key", "value"))
        options = {**read_options(environment, settings), **key.read_options(), **value.read_options()}
        records = self._session.readStream.format(OTTLA).options(**options).load()
        rows = sink_rows(self._session, records, key, value, settings)
        written = dict(settings.options)
        if settings.format == OTTLA:
            written.setdefault("exactlyOnce", "true")
        if settings.is_batch:
            return rows.writeStream.foreachBatch(_batches(settings.format, written, settings.partition_by))
        writer = rows.writeStream.format(settings.format).options(**written).outputMode("append")
        return writer.partitionBy(*settings.partition_by) if settings.partition_by else writer

    def _source(self) -> DataStreamWriter:
        settings, environment = self._settings, self._environment
        reader = self._session.readStream.format(settings.format).options(**settings.options)
        if settings.schema:
            reader = reader.schema(settings.schema)
        rows, options = written_rows(environment, self._session, reader.load(), settings)
        return rows.writeStream.format(OTTLA).options(**options)

    # -- functions ---------------------------------------------------------------------------------------------------

    def _function_source(self) -> DataStreamWriter:
        settings, environment = self._settings, self._environment
        work = FunctionWork(
            settings.name,
            self._plain,
            dict(environment.connector),
            dict(environment.worker.given),
            environment.task.task,
        )
        found = function_source(work)
        register(self._session, found)
        rows = self._session.readStream.format(found.name()).load()
        return rows.writeStream.format(OTTLA).options(**write_options(environment, settings))

    def _function_sink(self) -> DataStreamWriter:
        settings, environment = self._settings, self._environment
        work = FunctionSinkWork(
            environment.task, self._plain, dict(environment.connector), dict(environment.worker.given)
        )
        options = {**read_options(environment, settings), **_HEADERS}
        records = self._session.readStream.format(OTTLA).options(**options).load()
        report = environment.control.report_facts
        return records.writeStream.foreachBatch(lambda rows, batch: write_batch(work, rows, batch, report))

    def _exists(self, name: str) -> bool:
        try:
            return files.exists(self._session, name)
        except files.FileError as error:
            raise ConnectError(str(error)) from error


def written_rows(
    environment: TaskEnvironment, session: SparkSession, rows: DataFrame, settings: SparkSettings
) -> tuple[DataFrame, dict[str, str]]:
    """Return the records for rows of a source, and the options of the write."""
    key, value = (part_of(each, environment.worker, environment.connector, reads=False) for each in ("key", "value"))
    shaped = source_rows(session, rows, key, value, settings)
    options = {**write_options(environment, settings), "topic": settings.topic, **value.write_options()}
    if settings.key:
        options |= key.write_options()
    return shaped, options


def _batches(format_: str, options: dict[str, str], partition_by: tuple[str, ...]) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        del batch
        writer: Any = rows.write.format(format_).options(**options).mode("append")
        try:
            (writer.partitionBy(*partition_by) if partition_by else writer).save()
        except SPARK_ERRORS as error:
            # The query would get the name of the failed call only.
            raise translated(error) from None

    return write
