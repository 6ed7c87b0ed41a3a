"""Writes Arrow batches from Spark to topics, in Spark's Python workers, which reuse their producers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.compute as pc  # type: ignore[import-untyped,unused-ignore]
from pyspark.taskcontext import TaskContext

from ottla.clients.errors import ClientError
from ottla.clients.producer import Producer
from ottla.spark.client_pool import ClientPool
from ottla.spark.exactly_once import BATCH_ID
from ottla.spark.write_plan import Plan, SinkError, WriteFailed, Written

if TYPE_CHECKING:
    from ottla.clients.producer.delivery import BlockingBatches

COLUMNS: Final = ("key", "value", "partition", "timestamp", "headers")
"""The columns of a row that are sent, to the topic in the column `topic`."""
SETTINGS: Final[Mapping[str, object]] = {"linger.ms": 0}
"""Defaults of the producer here: Spark's batches are complete, so there is nothing to linger for."""
GATHERED_BYTES: Final = 1024 * 1024
"""Spark's smaller batches are joined up to this size, so that the brokers get fewer and larger batches."""

_producers: ClientPool[Producer[Any, Any]] = ClientPool(Producer)


def write_task(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task. Raises SinkError, WriteFailed."""
    settings = {**SETTINGS, **plan.client}
    with _producers.client(settings) as producer:
        task = TaskRows(producer, plan)
        for batch in batches:
            task.take(batch)
        task.finish()
    return task_result(task.written)


def task_result(
    written: dict[tuple[str, int], tuple[int, int]], write_name: str | None = None, *, is_first_of_run: bool = False
) -> Written:
    """Return the running task's report to the driver."""
    context = TaskContext.get()
    batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
    return Written(
        partition_id=-1 if context is None else context.partitionId(),
        batch_id=None if batch_id is None else int(batch_id),
        records=sum(records for records, _ in written.values()),
        by_partition=written,
        write_name=write_name,
        is_first_of_run=is_first_of_run,
    )


class TaskRows:
    """The rows of one task: joins small batches, sends them, and counts the acknowledged records."""

    def __init__(self, producer: Producer, plan: Plan) -> None:
        self.written: dict[tuple[str, int], tuple[int, int]] = {}
        self.rows = 0
        """How many were taken."""
        self._producer = producer
        self._plan = plan
        self._gathered: dict[str, list[pa.RecordBatch]] = {}
        self._size = 0
        self._sent: deque[tuple[str, BlockingBatches]] = deque()

    @property
    def is_acknowledged(self) -> bool:
        """Whether all rows that were sent are acknowledged or failed."""
        return all(sent.done() for _, sent in self._sent)

    def take(self, batch: pa.RecordBatch) -> None:
        """Send a batch, or keep it to join it with others."""
        if not batch.num_rows:
            return
        self.rows += batch.num_rows
        if self._plan.encode is not None:
            batch = self._plan.encode(batch)
        for topic, rows in self._by_topic(batch):
            self._gathered.setdefault(topic, []).append(rows)
        self._size += batch.nbytes
        if self._size >= GATHERED_BYTES:
            self.send()

    def send(self) -> None:
        """Send the rows that were kept, without waiting. Raises WriteFailed."""
        gathered, self._gathered, self._size = self._gathered, {}, 0
        for topic, batches in gathered.items():
            rows = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
            try:
                self._sent.append((topic, self._producer.send_batch(topic, rows)))
            except (ClientError, ValueError) as error:
                raise WriteFailed(f"Topic {topic!r}: {error}") from error
        while self._sent and self._sent[0][1].done():
            self._wait_for_oldest()

    def finish(self) -> None:
        """Send the remaining rows and wait for all acknowledgements. Raises WriteFailed."""
        self.send()
        while self._sent:
            self._wait_for_oldest()

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
                f"Row {row} of a batch has no topic: the column 'topic' is null. Set it, or use the option topic"
            )
        topics = pc.unique(column).to_pylist()
        for topic in topics:
            yield topic, rows if len(topics) == 1 else rows.filter(pc.equal(column, topic))

    def _wait_for_oldest(self) -> None:
        topic, sent = self._sent.popleft()
        try:
            ranges = sent.result()
        except ClientError as error:
            raise WriteFailed(f"Topic {topic!r}: {error}") from error
        for row in ranges:
            records, end = self.written.get((topic, row.partition), (0, -1))
            last = row.first_offset + row.records if row.first_offset >= 0 else -1
            self.written[topic, row.partition] = (records + row.records, max(end, last))
