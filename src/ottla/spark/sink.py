"""Arrow batches from Spark into topics: the writers of `format("ottla")`. `write` runs in Spark's Python workers.

At least once: a task that fails is run again by Spark, and a micro-batch that was not committed is written again. The
producer is idempotent, so what it repeats itself is not doubled. Columns are those of Spark's Kafka sink (key, value,
headers, topic, partition), and `timestamp`; others are left out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
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
from pyspark.taskcontext import TaskContext

from ottla.clients.errors import ClientError
from ottla.clients.producer import Producer
from ottla.spark.kept import Kept

if TYPE_CHECKING:
    from ottla.clients.producer.face import BlockingBatches
    from ottla.spark.options import SinkOptions

logger = logging.getLogger("ottla.spark")

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
COLUMNS: Final = ("key", "value", "partition", "timestamp", "headers")
"""What is sent of a row; and `topic` says where to."""


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


SETTINGS: Final[Mapping[str, object]] = {"linger.ms": 0}
"""Where the user has no wish: batches come whole, so there is nothing to wait for."""
GATHERED_BYTES: Final = 1024 * 1024
"""Batches of Spark's that are smaller are gathered to that, so that the brokers get fewer and fuller ones."""

Encode = Callable[[Any], Any]

_producers = Kept(Producer)


@dataclass(frozen=True)
class Plan:
    """What a writer takes along to the workers."""

    client: Mapping[str, object]
    topic: str | None
    """Where all rows go, whatever the column topic says."""
    encode: Encode | None = None
    """Makes key and value bytes of typed columns."""


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc,unused-ignore]
    """Writes a DataFrame. Raises SinkError for columns that do not fit."""

    def __init__(self, options: SinkOptions, schema: StructType, encode: Encode | None = None) -> None:
        check_schema(schema, options.topic, encoded_parts(encode))
        self.plan = Plan(dict(options.client), options.topic, encode)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task; all are acknowledged when it returns. Raises WriteFailed."""
        return write_task(self.plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done."""
        _log("Written", messages, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some task failed: what others have written stays."""
        _log("Aborted, but written and not taken back", messages, None)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc,unused-ignore]
    """Writes micro-batches. Raises SinkError for columns that do not fit."""

    def __init__(self, options: SinkOptions, schema: StructType, encode: Encode | None = None) -> None:
        check_schema(schema, options.topic, encoded_parts(encode))
        self.plan = Plan(dict(options.client), options.topic, encode)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task of a micro-batch; all are acknowledged when it returns. Raises WriteFailed."""
        return write_task(self.plan, iterator)

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


# -- in a worker ---------------------------------------------------------------------------------------------------


def write_task(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task. Raises SinkError, WriteFailed."""
    context = TaskContext.get()
    settings = {**SETTINGS, **plan.client}
    with _producers.client(settings) as producer:
        task = _Task(producer, plan)
        for batch in batches:
            task.take(batch)
        task.finish()
    batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
    return Written(
        partition_id=-1 if context is None else context.partitionId(),
        batch_id=None if batch_id is None else int(batch_id),
        query_id=None if context is None else context.getLocalProperty(QUERY_ID),
        records=sum(records for records, _ in task.written.values()),
        by_partition=task.written,
    )


class _Task:
    """One task's rows on their way: small batches are gathered, and what is acknowledged is counted."""

    def __init__(self, producer: Producer, plan: Plan) -> None:
        self.written: dict[tuple[str, int], tuple[int, int]] = {}
        self._producer = producer
        self._plan = plan
        self._gathered: dict[str, list[pa.RecordBatch]] = {}
        self._size = 0
        self._sent: deque[tuple[str, BlockingBatches]] = deque()

    def take(self, batch: pa.RecordBatch) -> None:
        """Send it, or gather it with others."""
        if not batch.num_rows:
            return
        if self._plan.encode is not None:
            batch = self._plan.encode(batch)
        for topic, rows in self._by_topic(batch):
            self._gathered.setdefault(topic, []).append(rows)
        self._size += batch.nbytes
        if self._size >= GATHERED_BYTES:
            self._send()

    def finish(self) -> None:
        """Everything is sent and acknowledged. Raises WriteFailed."""
        self._send()
        while self._sent:
            self._settle()

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        names = batch.schema.names
        rows = batch.select([name for name in COLUMNS if name in names])
        if self._plan.topic is not None:
            yield self._plan.topic, rows
            return
        column = batch.column(names.index("topic"))
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            raise SinkError(
                f"Row {row} of a batch has no topic: the column 'topic' is null; the option topic would be for all"
            )
        topics = pc.unique(column).to_pylist()
        for topic in topics:
            yield topic, rows if len(topics) == 1 else rows.filter(pc.equal(column, topic))

    def _send(self) -> None:
        gathered, self._gathered, self._size = self._gathered, {}, 0
        for topic, batches in gathered.items():
            rows = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
            try:
                self._sent.append((topic, self._producer.send_batch(topic, rows)))
            except (ClientError, ValueError) as error:
                raise WriteFailed(f"Topic {topic!r}: {error}") from error
        while self._sent and self._sent[0][1].done():
            self._settle()

    def _settle(self) -> None:
        topic, sent = self._sent.popleft()
        try:
            ranges = sent.result()
        except ClientError as error:
            raise WriteFailed(f"Topic {topic!r}: {error}") from error
        for row in ranges:
            records, end = self.written.get((topic, row.partition), (0, -1))
            last = row.first_offset + row.records if row.first_offset >= 0 else -1
            self.written[topic, row.partition] = (records + row.records, max(end, last))
