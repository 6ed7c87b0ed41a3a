"""The writers of `format("ottla")`: what Spark calls on the driver, once for each batch and in a process of its own.

So it imports neither pyarrow nor the producer; `write`, which runs in the Python workers of the tasks, is in `writing`.

At least once: a task that fails is run again by Spark, and a micro-batch that was not committed is written again. The
producer is idempotent, so what it repeats itself is not doubled. Columns are those of Spark's Kafka sink (key, value,
headers, topic, partition), and `timestamp`; others are left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

from ottla.clients.errors import ClientError
from ottla.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from ottla.spark.options import SinkOptions

logger = logging.getLogger("ottla.spark")


class SinkError(ValueError):
    """What is to be written does not fit: the message says which column, and what it may be."""


class WriteFailed(ClientError):
    """Rows were not written, or nobody knows; the cause is the producer's error. Others may have been."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc,unused-ignore]
    """What one task has written: for each topic and partition the records, and the offset after the last of them."""

    partition_id: int = -1
    batch_id: int | None = None
    query_id: str | None = None
    records: int = 0
    by_partition: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(topic, partition): (records, offset after the last; -1 if nobody knows)."""


Encode = Callable[[Any], Any]


@dataclass(frozen=True)
class Plan:
    """What a writer takes along to the workers."""

    client: Mapping[str, object]
    topic: str | None
    """Where all rows go, whatever the column topic says."""
    encode: Encode | None = None
    """Makes key and value bytes of typed columns."""


class _Writer:
    """What both writers do: the columns are looked at on the driver, and the rows written in the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType, encode: Encode | None = None) -> None:
        settle()
        check_schema(schema, options.topic, encoded_parts(encode))
        self.plan = Plan(dict(options.client), options.topic, encode)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task; all are acknowledged when it returns. Raises WriteFailed."""
        from ottla.spark.batch_writer import write_task

        return write_task(self.plan, iterator)


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc,unused-ignore]
    """Writes a DataFrame. Raises SinkError for columns that do not fit."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        _log("Written", messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some task failed: what others have written stays."""
        _log("Aborted, but written and not taken back", messages, None)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc,unused-ignore]
    """Writes micro-batches. Raises SinkError for columns that do not fit."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """All tasks of the micro-batch are done."""
        _log("Written", messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Some task failed: what others have written stays, and is written again when the micro-batch is repeated."""
        _log("Aborted, but written and not taken back", messages, batchId)


def _log(what: str, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    batch = "" if batch_id is None else f", batch {batch_id}"
    logger.info("%s: %d records by %d tasks%s", what, sum(message.records for message in done), len(done), batch)


# -- the columns ---------------------------------------------------------------------------------------------------


def encoded_parts(encode: Encode | None) -> frozenset[str]:
    """The columns (key, value) that `encode` makes."""
    return frozenset() if encode is None else frozenset(getattr(encode, "parts", ("key", "value")))


def check_schema(schema: StructType, topic: str | None, encoded: frozenset[str] = frozenset()) -> None:
    """Raise SinkError unless a DataFrame of this schema can be written; `topic` is the option.

    Key and value may be of any type where they are `encoded`.
    """
    columns = {column.name: column.dataType for column in schema.fields}
    doubled = [name for name in columns if sum(column.name == name for column in schema.fields) > 1]
    if doubled:
        raise SinkError(f"There are several columns {doubled[0]!r}")
    if topic is None and "topic" not in columns:
        raise SinkError("There is no column 'topic'; without it, the option topic must say where to write")
    if "value" not in columns and "value" not in encoded:
        raise SinkError(
            f"There is no column 'value' among {', '.join(columns) or 'none'}; make one, e.g. by to_json(struct(*)), "
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
