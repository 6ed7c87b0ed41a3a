"""The writers of `format("ottla")`. Spark calls them on the driver, in a new process for each batch.

To start quickly, this module imports neither pyarrow nor the producer. `batch_writer` writes the rows, in the Python
workers of the tasks.

Delivery is at least once: Spark re-runs a failed task and an uncommitted micro-batch, and their rows are written again.
The producer is idempotent, so its own retries write no duplicates. With the option exactlyOnce, each task writes in a
transaction, and a task that runs again writes nothing (`exactly_once`, `transactional_writer`).

The columns are key, value, headers, topic and partition, as in Spark's Kafka sink, and `timestamp`; other columns are
ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.spark.workers import tune_worker
from ottla.spark.write_plan import Encode, Plan, SinkError, Written

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from ottla.spark.options import SinkOptions

logger = logging.getLogger("ottla.spark")


class _Writer:
    """The common part of both writers: checks the columns on the driver, and writes the rows in the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType, encode: Encode | None = None) -> None:
        tune_worker()
        check_schema(schema, options.topic, encoded_parts(encode))
        once = options.exactly_once
        if once is not None:
            once = replace(once, in_stream=isinstance(self, DataSourceStreamArrowWriter))
        self.plan = Plan(dict(options.client), options.topic, encode, once)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the writer in a task. Spark sends the next bytes after these are acknowledged."""
        self.__dict__.update(state)
        tune_worker()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task, and wait until all are acknowledged. Raises WriteFailed, ExactlyOnceError."""
        if self.plan.exactly_once is not None:
            from ottla.spark.transactional_writer import write_task_once

            return write_task_once(self.plan, self.plan.exactly_once, iterator)
        from ottla.spark.batch_writer import write_task

        return write_task(self.plan, iterator)

    def _check_tasks(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the first batch of a run: raise ExactlyOnceError if other tasks than these have written it, too."""
        done = [message for message in messages if isinstance(message, Written) and message.write_name is not None]
        if any(message.is_first_of_run for message in done):
            from ottla.spark.markers import check_tasks

            check_tasks(self.plan.client, done)


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc,unused-ignore]
    """Writes a DataFrame. Raises SinkError for invalid columns."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that all tasks have succeeded. Raises ExactlyOnceError."""
        self._check_tasks(messages)
        _log("Written", messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that a task failed. The rows of other tasks remain written."""
        _log("Aborted; records that remain written", messages, None)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc,unused-ignore]
    """Writes micro-batches. Raises SinkError for invalid columns."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Log that all tasks of the micro-batch have succeeded. Raises ExactlyOnceError."""
        self._check_tasks(messages)
        _log("Written", messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Log that a task failed. The rows of other tasks remain written, and the re-run writes them again."""
        _log("Aborted; records that remain written", messages, batchId)


def _log(what: str, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    batch = "" if batch_id is None else f", batch {batch_id}"
    logger.info("%s: %d records by %d tasks%s", what, sum(message.records for message in done), len(done), batch)


# -- the columns ---------------------------------------------------------------------------------------------------


def encoded_parts(encode: Encode | None) -> frozenset[str]:
    """Return which of the columns key and value `encode` creates."""
    return frozenset() if encode is None else frozenset(getattr(encode, "parts", ("key", "value")))


def check_schema(schema: StructType, topic: str | None, encoded: frozenset[str] = frozenset()) -> None:
    """Raise SinkError unless a DataFrame of this schema can be written; `topic` is the option.

    Key and value may be of any type where they are `encoded`.
    """
    columns = {column.name: column.dataType for column in schema.fields}
    duplicates = [name for name in columns if sum(column.name == name for column in schema.fields) > 1]
    if duplicates:
        raise SinkError(f"There are several columns {duplicates[0]!r}")
    if topic is None and "topic" not in columns:
        raise SinkError("There is no column 'topic'; add it, or set the option topic")
    if "value" not in columns and "value" not in encoded:
        raise SinkError(
            f"There is no column 'value' among {', '.join(columns) or 'none'}; add one, e.g. with to_json(struct(*)), "
            "or set value.format"
        )
    for name, (allowed, words) in _KINDS.items():
        kind = columns.get(name)
        if kind is None or name in encoded:
            continue
        if not allowed(kind):
            raise SinkError(f"The column {name!r} is of {kind.simpleString()}; it must be {words}")


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and _is_text(kind.valueType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return (
        [column.name for column in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and _is_text(fields[1].dataType)
    )


_KINDS: Final[Mapping[str, tuple[Callable[[DataType], bool], str]]] = {
    "key": (_is_text, "string or binary"),
    "value": (_is_text, "string or binary"),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, (ByteType, ShortType, IntegerType, LongType)), "int"),
    "timestamp": (lambda kind: isinstance(kind, (TimestampType, TimestampNTZType)), "timestamp"),
    "headers": (_is_headers, "array<struct<key:string,value:binary>>"),
}
