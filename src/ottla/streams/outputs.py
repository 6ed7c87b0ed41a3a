"""Writes the rows of a query: through the sink of streams, or in foreachBatch where Spark requires it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, MapType, StringType, StructType, TimestampType

from ottla.spark.avro_values import avro_schema
from ottla.spark.exactly_once import PREFIX
from ottla.spark.format_errors import FormatError
from ottla.spark.internals.errors import SPARK_ERRORS
from ottla.spark.internals.names import INTERRUPTED
from ottla.spark.options import read_sink_options
from ottla.spark.write_encodings import Encoder
from ottla.spark.writing_formats import encoder
from ottla.streams.batch_reports import COUNT, OUTPUT
from ottla.streams.declarations import Output, Pipeline
from ottla.streams.description import Operator
from ottla.streams.errors import StreamsError
from ottla.streams.failures import classify, text_of
from ottla.streams.inputs import HEADERS
from ottla.streams.operators import PROCESSOR
from ottla.streams.registries import Registry
from ottla.streams.settings import Settings, format_options

ENCODING: Final = "spark.sql.streaming.stateStore.encodingFormat"
_STOPPED: Final = re.compile(r"InterruptedException|ClosedByInterruptException|part of cancelled job group")
_ENCODED: Final = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"
)
_NAMES: Final = ("topic", "key", "value", "headers", "timestamp")


@dataclass(frozen=True)
class Query:
    """One Spark query: outputs with the same output mode, and records for topics of invalid records."""

    name: str
    mode: Literal["append", "update"]
    outputs: tuple[Output, ...]
    dead_letters: tuple[DataFrame, ...] = ()
    operators: tuple[Operator, ...] = ()
    has_clock: bool = False
    """Whether a processor has timers or state by the clock."""


def start_query(query: Query, pipeline: Pipeline, settings: Settings) -> StreamingQuery:
    """Start a query from its checkpoint. Raises StreamsError, and Spark exceptions."""
    rows, options = _rows_and_options(query, pipeline, settings)
    options |= settings.of_clients()
    if pipeline.exactly_once:
        options |= {"exactlyOnce": "true", "transactionalIdPrefix": f"{PREFIX}{pipeline.name}."}
    # With Spark's own encoding, a field that is added to the state of a processor would be an error. Spark has Avro for
    # processors only. A query with a checkpoint keeps its encoding.
    is_processor = {each.kind for each in query.operators} == {PROCESSOR}
    rows.sparkSession.conf.set(ENCODING, "avro" if is_processor else "unsaferow")
    writer = rows.writeStream.queryName(query.name).outputMode(query.mode)
    writer = writer.option("checkpointLocation", f"{settings.checkpoint(pipeline)}/{query.name}")
    if settings.once:
        writer = writer.trigger(availableNow=True)
    elif interval_ms := settings.pace(pipeline, has_clock=query.has_clock).interval_ms:
        writer = writer.trigger(processingTime=f"{interval_ms} milliseconds")
    if query.mode == "append":
        return writer.format("ottla").options(**options).start()
    return writer.foreachBatch(_batch_writer(options)).start()


def _batch_writer(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, _: int) -> None:
        try:
            batch.write.format("ottla").mode("append").options(**options).save()
        except SPARK_ERRORS as error:
            text = text_of(error)
            if text == str(error):
                raise
            # Of this exception, the query gets the text, but not the cause.
            is_stopped = _STOPPED.search(text) is not None and classify(text).kind != "data"
            raise PySparkException(INTERRUPTED if is_stopped else text) from None

    return write


def _rows_and_options(query: Query, pipeline: Pipeline, settings: Settings) -> tuple[DataFrame, dict[str, str]]:
    registries = (pipeline.registry, settings.registry)
    if len(query.outputs) == 1 and not query.dead_letters:
        rows, formats = shape(query.outputs[0], registries)
        # Spark counts the rows of a sink, but not the rows in foreachBatch.
        counted = rows if query.mode == "append" else _counted(rows, query.outputs[0])
        return counted, {**formats, "topic": query.outputs[0].topic}
    encoded = [_counted(_encode(output, settings, registries), output) for output in query.outputs]
    encoded += [each.select(*_NAMES) for each in query.dead_letters]
    union = encoded[0]
    for each in encoded[1:]:
        union = union.unionByName(each)
    return union, {}


def _counted(rows: DataFrame, output: Output) -> DataFrame:
    """Report the number of rows with each micro-batch."""
    return rows.observe(f"{OUTPUT}.{output.topic}", F.count(F.lit(1)).alias(COUNT))


# -- the columns of a record -------------------------------------------------------------------------------------------


def shape(output: Output, registries: Sequence[Registry | None] = ()) -> tuple[DataFrame, dict[str, str]]:
    """Return the columns of the sink, and the formats with which it writes them. Raises StreamsError.

    `registries` are used if the output has none of its own.
    """
    missing = [name for name in (*output.key, *output.beside_value) if name not in output.rows.columns]
    if missing:
        raise StreamsError(
            f"to({output.topic!r}): there is no column {missing[0]!r}; the columns are {', '.join(output.rows.columns)}"
        )
    doubled = [name for name in output.rows.columns if output.rows.columns.count(name) > 1]
    if doubled:
        raise StreamsError(f"to({output.topic!r}): there are two columns {doubled[0]!r}: rename one of them")
    value, options = _value(output, (output.registry, *registries))
    if output.deleted is not None:
        value = F.when(~F.coalesce(_is_deleted(output, output.deleted), F.lit(False)), value)
    columns = {"value": value}
    if output.key:
        columns["key"], key_options = _key(output)
        options |= key_options
    if output.timestamp is not None:
        columns["timestamp"] = _timestamp(output, output.timestamp)
    if output.headers is not None:
        columns["headers"] = _headers(output, output.headers)
    return output.rows.select(*(column.alias(name) for name, column in columns.items())), options


def _key(output: Output) -> tuple[Column, dict[str, str]]:
    if len(output.key) > 1:
        return F.struct(*map(_quoted, output.key)), {"key.format": "json"}
    column, kind = _quoted(output.key[0]), output.rows.schema[output.key[0]].dataType
    if isinstance(kind, (StringType, BinaryType)):
        return column, {}
    if isinstance(kind, StructType):
        return column, {"key.format": "json"}
    if isinstance(kind, (ArrayType, MapType)):
        raise StreamsError(f"to({output.topic!r}): the key {output.key[0]!r} is of {kind.simpleString()}")
    return column.cast("string"), {}


def _is_deleted(output: Output, name: str) -> Column:
    kind = output.rows.schema[name].dataType
    if not isinstance(kind, BooleanType):
        raise StreamsError(f"to({output.topic!r}): the column {name!r} is of {kind.simpleString()}, not boolean")
    return _quoted(name)


def _value(output: Output, registries: Sequence[Registry | None]) -> tuple[Column, dict[str, str]]:
    names = [name for name in output.rows.columns if name not in output.beside_value]
    if output.value in ("json", "avro", "protobuf"):
        if not names:
            raise StreamsError(f"to({output.topic!r}): there are no columns for the value")
        schema = output.schema
        if schema is None and output.value == "avro" and output.deleted is not None:
            # A tombstone has no value, but values are not null: an output without tombstones has this schema.
            schema = avro_schema(StructType([output.rows.schema[name] for name in names]))
        options = format_options("value", output.value, schema, registries)
        return F.struct(*map(_quoted, names)), {name: text for name, text in options.items() if text}
    others = [name for name in names if name not in output.key]
    name = "value" if "value" in names else others[0] if len(others) == 1 else None
    if name is None:
        raise StreamsError(
            f"to({output.topic!r}): a value in {output.value} is one column besides the key, or the column 'value'; "
            f"the columns are {', '.join(names)}"
        )
    kind = output.rows.schema[name].dataType
    if output.value == "bytes":
        if not isinstance(kind, BinaryType):
            raise StreamsError(f"to({output.topic!r}): the column {name!r} is of {kind.simpleString()}, not binary")
        return _quoted(name), {}
    if isinstance(kind, (StructType, ArrayType, MapType)):
        raise StreamsError(f"to({output.topic!r}): the column {name!r} is of {kind.simpleString()}: set value='json'")
    return _quoted(name).cast("string"), {}


def _timestamp(output: Output, name: str) -> Column:
    kind = output.rows.schema[name].dataType
    if not isinstance(kind, TimestampType):
        raise StreamsError(f"to({output.topic!r}): the column {name!r} is of {kind.simpleString()}, not timestamp")
    return _quoted(name)


def _headers(output: Output, name: str) -> Column:
    kind = output.rows.schema[name].dataType
    if isinstance(kind, MapType):
        return F.map_entries(_quoted(name)).cast(HEADERS)
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        return _quoted(name).cast(HEADERS)
    raise StreamsError(
        f"to({output.topic!r}): the column {name!r} is of {kind.simpleString()}; headers are a map, or an array of "
        "structs of key and value"
    )


def _quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


# -- several outputs in one write --------------------------------------------------------------------------------------


def _encode(output: Output, settings: Settings, registries: Sequence[Registry | None]) -> DataFrame:
    """Return the records of an output as bytes, encoded as by the sink."""
    rows, options = shape(output, registries)
    for name in ("key", "value"):
        if f"{name}.format" not in options and name in rows.columns:
            rows = rows.withColumn(name, F.col(name).cast("binary"))
    encode = encoder(read_sink_options({**options, **settings.of_clients(), "topic": output.topic}), rows.schema)
    kinds = {"key": "binary", "headers": HEADERS, "timestamp": "timestamp"}
    added = {name: F.lit(None).cast(kind) for name, kind in kinds.items() if name not in rows.columns}
    rows = rows.withColumns({"topic": F.lit(output.topic), **added}).select(*_NAMES)
    return rows if encode is None else rows.mapInArrow(_encoding(encode, output.topic), _ENCODED)


def _encoding(encode: Encoder, topic: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def batches(given: Iterator[Any]) -> Iterator[Any]:
        for batch in given:
            try:
                encoded = encode(batch)
            except FormatError as error:
                raise FormatError(f"to({topic!r}): {error}") from None
            yield encoded

    return batches
