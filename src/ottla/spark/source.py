"""`format("ottla")` as Spark calls it: the data source, which checks the options and creates the readers and writers.

Spark calls `schema` once at load(), in a new process. `readers` plans the offsets on the driver, `sink` writes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.spark.names import STREAMS_ONLY
from ottla.spark.options import (
    OptionError,
    SinkOptions,
    SourceOptions,
    read_sink_options,
    read_source_options,
)
from ottla.spark.readers import BatchReader, StreamReader

if TYPE_CHECKING:
    from ottla.spark.write_encodings import Encoder

logger = logging.getLogger("ottla.spark")


def source_schema(options: SourceOptions) -> StructType:
    """Return the columns of a read: as in Spark's Kafka source, with typed key and value if they have a format."""
    key: DataType = BinaryType()
    value: DataType = BinaryType()
    if options.formats:  # a format has options, but for raw bytes
        from ottla.spark.formats import column_type

        key, value = column_type("key", options), column_type("value", options)
    fields = [
        StructField("key", key),
        StructField("value", value),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if options.include_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    if options.include_errors:
        from ottla.spark.formats import ERROR

        fields.append(StructField("error", ERROR))
    return StructType(fields)


class OttlaDataSource(DataSource):
    """Topics of Ottla or any Kafka as tables and streams; docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for format(...)."""
        return "ottla"

    def schema(self) -> StructType:
        """Check the options and return the columns. Called at load(), for batches and streams."""
        return source_schema(_resolved(read_source_options(self.options)))

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch read."""
        options = _resolved(read_source_options(self.options, streaming=False))
        _check_schema(schema, options)
        for name in STREAMS_ONLY:
            if name in self.options:
                logger.warning("The option %s is for streaming queries and has no effect on a batch read", name)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a streaming query."""
        options = _resolved(read_source_options(self.options, streaming=True))
        _check_schema(schema, options)
        reader = StreamReader(options)
        if options.idle_after_ms is None:
            return reader
        from ottla.spark.idle import IdleReader

        return IdleReader(reader, options, options.idle_after_ms)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch write."""
        from ottla.spark.sink import BatchWriter

        if overwrite:
            raise OptionError('mode("overwrite") is not supported: a sink appends to its topic; use mode("append")')
        options = read_sink_options(self.options)
        return BatchWriter(options, schema, _encoder(options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 - Spark's
        """Return the writer of a streaming query. Each batch is appended, also in output mode complete."""
        from ottla.spark.sink import StreamWriter

        options = read_sink_options(self.options)
        return StreamWriter(options, schema, _encoder(options, schema))


def _resolved(options: SourceOptions) -> SourceOptions:
    if "registry" not in (options.key_format, options.value_format):
        return options
    from ottla.spark.registry import resolved

    return resolved(options)


def _encoder(options: SinkOptions, schema: StructType) -> Encoder | None:
    if options.key_format == "raw" and options.value_format == "raw":
        return None
    from ottla.spark.writing_formats import encoder

    return encoder(options, schema)


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    wanted = source_schema(options)
    if schema != wanted:
        raise OptionError(
            f"The columns are fixed and cannot be set with schema(...): they are {wanted.simpleString()}; "
            "for typed values, set the options value.format and value.schema"
        )
