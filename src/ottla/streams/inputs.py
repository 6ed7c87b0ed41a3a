"""Streams and tables as DataFrames of `format("ottla")`, and the invalid records of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakSet

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import StructType, TimestampType

from ottla.spark.idle import TICK
from ottla.spark.internals.errors import SPARK_ERRORS
from ottla.spark.internals.sessions import knows_format, register
from ottla.spark.source import OttlaDataSource
from ottla.spark.table_source import TableDataSource
from ottla.streams.batch_reports import COUNT, INVALID
from ottla.streams.declarations import Pipeline, Stream, Table
from ottla.streams.errors import StreamsError, TemporaryError
from ottla.streams.event_time import milliseconds
from ottla.streams.failures import classify, text_of
from ottla.streams.resetting import TABLES
from ottla.streams.settings import Settings, format_options, options_of_table

HEADERS: Final = "array<struct<key: string, value: binary>>"
_ERRORS: Final = "__connect.errors."
_KEY: Final = "__ottla_key"
_sessions: WeakSet[SparkSession] = WeakSet()
"""Those that know the format of tables. Spark warns about a second registration."""


@dataclass(frozen=True)
class Inputs:
    """The DataFrames of a pipeline's inputs, by parameter; and the records for topics of invalid records."""

    rows: Mapping[str, DataFrame]
    dead_letters: tuple[DataFrame, ...]


def read_inputs(spark: SparkSession, pipeline: Pipeline, settings: Settings, group: str) -> Inputs:
    """Return the inputs of a pipeline. Processed offsets are committed to `group`. Raises StreamsError."""
    _ensure_format(spark)
    rows: dict[str, DataFrame] = {}
    dead_letters = []
    for name, given in pipeline.inputs.items():
        if isinstance(given, Table):
            rows[name] = _read_table(spark, given, pipeline, settings)
            continue
        records = _records(spark, given, pipeline, settings, group)
        if given.bad != "fail":
            records = records.observe(metric(name), F.count("error").alias(COUNT))
            if given.dead_letters is not None:
                dead_letters.append(_dead_letters(records, given.dead_letters, pipeline))
            records = records.where("error IS NULL")
        rows[name] = _columns(records, given, settings)
    return Inputs(rows, tuple(dead_letters))


def read_sample(
    spark: SparkSession, pipeline: Pipeline, settings: Settings, ranges: Mapping[str, Mapping[int, tuple[int, int]]]
) -> dict[str, DataFrame]:
    """Return the inputs of a pipeline as batches: of streams the records in a range of offsets.

    `ranges` has them by topic and partition. Invalid records are omitted. Tables are read as they are now.
    """
    rows = {}
    for name, given in pipeline.inputs.items():
        if isinstance(given, Table):
            rows[name] = _read_table(spark, given, pipeline, settings)
            continue
        offsets = ranges[given.topic]
        starts, ends = ({str(partition): each[at] for partition, each in offsets.items()} for at in (0, 1))
        options = {
            **_options(given, pipeline, settings),
            "assign": json.dumps({given.topic: list(offsets)}),
            "startingOffsets": json.dumps({given.topic: starts}),
            "endingOffsets": json.dumps({given.topic: ends}),
            "failOnDataLoss": "false",
        }
        if {given.value, given.key} & {"json", "avro", "protobuf"}:
            options["mode"] = "PERMISSIVE"
        records = spark.read.format("ottla").options(**options).load()
        rows[name] = _columns(records if given.bad == "fail" else records.where("error IS NULL"), given, settings)
    return rows


def metric(parameter: str) -> str:
    """The name of the observed metric of a stream."""
    return f"{INVALID}.{parameter}"


def _ensure_format(spark: SparkSession) -> None:
    """Raise TemporaryError if Spark does not find `format("ottla")`.

    Spark starts a Python process that lists all formats. If that is lost, Spark finds none, and starts another later.
    """
    name = OttlaDataSource.name()
    if not knows_format(spark, name):
        raise TemporaryError(f"Spark does not find format({name!r}): a process was lost, or its Python has no ottla")


def _records(spark: SparkSession, given: Stream, pipeline: Pipeline, settings: Settings, group: str) -> DataFrame:
    starts = settings.starts.get(given.topic)
    options = {
        **_options(given, pipeline, settings),
        "subscribe": given.topic,
        "startingOffsets": json.dumps({given.topic: starts}) if starts else given.start,
        "commitGroup": group,
    }
    if pipeline.max_records is not None:
        options["maxOffsetsPerTrigger"] = str(pipeline.max_records)
        if wait_ms := settings.pace(pipeline).wait_ms:
            options |= {"minOffsetsPerTrigger": str(pipeline.max_records), "maxTriggerDelay": f"{wait_ms}ms"}
    if given.idle is not None:
        options["idleAfter"] = f"{milliseconds('idle', given.idle)}ms"
    try:
        return spark.readStream.format("ottla").options(**options).load()
    except SPARK_ERRORS as error:
        failure = classify(text_of(error))
        kind = TemporaryError if failure.is_retriable else StreamsError
        raise kind(f"stream({given.topic!r}): {failure.reason}") from error


def _options(given: Stream, pipeline: Pipeline, settings: Settings) -> dict[str, str]:
    """Return the options with which the records of a stream are read, as a stream or in a batch."""
    registries = (given.registry, pipeline.registry, settings.registry)
    options = {**settings.of_clients(), **format_options("value", given.value, given.schema, registries)}
    if given.key is not None:
        options |= format_options("key", given.key, given.key_schema, registries)
    if pipeline.exactly_once:
        options["kafka.isolation.level"] = "read_committed"
    if _has_ticks(given, settings) or given.dead_letters is not None or "headers" in given.columns:
        options["includeHeaders"] = "true"
    if given.bad != "fail":
        options |= {"mode": "PERMISSIVE", "includeErrors": "true"}
    if given.time is not None and given.has_checked_time:
        limit_ms = milliseconds("max_future", given.max_future)
        options |= {"value.time": given.time, "value.maxFuture": f"{limit_ms}ms"}
    return options


def _columns(records: DataFrame, given: Stream, settings: Settings) -> DataFrame:
    """Select the columns of a stream, and declare its event time."""
    tick, has_ticks = F.lit(None).cast("timestamp"), _has_ticks(given, settings)
    if has_ticks:
        tick = F.get(F.filter("headers", lambda each: each["key"] == TICK), 0)["value"].cast("string").cast("timestamp")
    selected, is_present = _value(records, given.value)
    if is_present is not None:
        records = records.where(is_present | tick.isNotNull())
    if given.key is not None:
        selected.append(F.col("key").cast("string").alias("key") if given.key == "text" else F.col("key"))
    selected += [F.col(name) for name in given.columns]
    rows = records.select(*selected, *([tick.alias(TICK)] if has_ticks else []))
    doubled = [name for name in rows.columns if rows.columns.count(name) > 1]
    if doubled:
        raise StreamsError(f"stream({given.topic!r}) has two columns {doubled[0]!r}: the value has such a field, too")
    return _with_time(rows, given, has_ticks)


def _has_ticks(given: Stream, settings: Settings) -> bool:
    return settings.has_ticks or given.idle is not None


def _value(records: DataFrame, kind: str) -> tuple[list[Column], Column | None]:
    """Return the columns of a value; and for values with fields, whether there is one."""
    if kind == "text":
        return [F.col("value").cast("string").alias("value")], None
    if kind == "bytes":
        return [F.col("value")], None
    if isinstance(records.schema["value"].dataType, StructType):
        return [F.col("value.*")], F.col("value").isNotNull()
    return [F.col("value")], F.col("value").isNotNull()


def _with_time(rows: DataFrame, given: Stream, has_ticks: bool) -> DataFrame:
    if given.time is not None:
        if given.time not in rows.columns or not isinstance(rows.schema[given.time].dataType, TimestampType):
            raise StreamsError(
                f"stream({given.topic!r}): time={given.time!r} must be a column of type timestamp; the columns are "
                f"{', '.join(f'{name} {kind}' for name, kind in rows.dtypes if name != TICK)}"
            )
        if has_ticks:
            rows = rows.withColumn(given.time, F.coalesce(F.col(f"`{TICK}`"), F.col(given.time)))
        # Without this filter, Spark would move the program's filters before the watermark, and "the key is not null"
        # of a join: only the remaining records would have an event time, and records with a time would be deleted.
        # It moves nothing before a filter that looks random. (It knows that rand() is less than 1, but not this.)
        never = F.rand(0) * 2 > 3
        is_kept = (F.col(f"`{TICK}`").isNull() | never) if has_ticks else ~never
        rows = rows.withWatermark(given.time, f"{milliseconds('late', given.late)} milliseconds").where(is_kept)
    elif has_ticks:
        rows = rows.where(F.col(f"`{TICK}`").isNull())
    return rows.drop(TICK)


def _dead_letters(records: DataFrame, topic: str, pipeline: Pipeline) -> DataFrame:
    """Return the invalid records for their topic: as they were, with the headers of Kafka Connect (KIP-298)."""
    error = F.col("error")
    about: dict[str, Column] = {
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "connector.name": F.lit(pipeline.name),
        "task.id": F.spark_partition_id(),
        "stage": F.concat(F.upper(error["part"]), F.lit("_CONVERTER")),
        "class.name": F.lit("ottla.streams"),
        "exception.class.name": F.lit("ottla.spark.formats.FormatError"),
        "exception.message": error["message"],
    }
    added = [
        F.struct(F.lit(f"{_ERRORS}{name}").alias("key"), value.cast("string").cast("binary").alias("value"))
        for name, value in about.items()
    ]
    own = F.coalesce(F.col("headers"), F.array().cast(HEADERS))
    return records.where("error IS NOT NULL").select(
        F.lit(topic).alias("topic"),
        error["key"].alias("key"),
        error["value"].alias("value"),
        F.concat(own, F.array(*added)).cast(HEADERS).alias("headers"),
        F.col("timestamp"),
    )


def _read_table(spark: SparkSession, given: Table, pipeline: Pipeline, settings: Settings) -> DataFrame:
    """Return the latest value of each key, as of each micro-batch."""
    options = {
        **options_of_table(given, settings.of_clients(), (pipeline.registry, settings.registry)),
        "groupPrefix": f"{TABLES}{pipeline.name}.",
        "tasks": "1" if given.broadcast else str(spark.sparkContext.defaultParallelism),
    }
    if isinstance(given.as_of, int):
        options["endingTimestamp"] = str(given.as_of)
    elif given.as_of is not None:
        offsets = {str(partition): offset for partition, offset in given.as_of}
        options["endingOffsets"] = json.dumps({given.topic: offsets})
    if pipeline.exactly_once:
        options["kafka.isolation.level"] = "read_committed"
    if spark not in _sessions:
        register(spark, TableDataSource)
        _sessions.add(spark)
    latest = spark.read.format(TableDataSource.name()).options(**options).load()
    key = F.col("key").cast("string").alias(_KEY)
    if given.broadcast:
        latest = latest.select(key, "value")
    else:
        # A key in several partitions has a row of each.
        latest = latest.groupBy(key).agg(F.max_by("value", F.struct("timestamp", "partition")).alias("value"))
    selected, _ = _value(latest, given.value)
    rows = latest.select(*selected, _KEY).drop(given.key).withColumnRenamed(_KEY, given.key)
    return F.broadcast(rows) if given.broadcast else rows
