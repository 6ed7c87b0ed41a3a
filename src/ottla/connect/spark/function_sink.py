"""A sink that is a function, in the Spark tasks: each task calls it for the records of its partitions.

At least once: after a failure the whole micro-batch is written again, with the same records in the same order. The
function compares offsets, or has `resume`, as in the worker's own runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from ottla.clients.consumer.record import Record, TimestampType, record_class
from ottla.connect import plugins
from ottla.connect.api import SinkTask, SinkTaskContext, TopicPartition
from ottla.connect.errors import ConnectError
from ottla.connect.records import SinkRecord
from ottla.connect.runtime import TaskId
from ottla.connect.worker.clients import Clients
from ottla.connect.worker.control import TaskControl
from ottla.connect.worker.conversion import Chain, SinkConversion
from ottla.connect.worker.dead_letters import DeadLetters
from ottla.connect.worker.providers import Secrets
from ottla.connect.worker.settings import WorkerSettings
from ottla.connect.worker.task_settings import ErrorSettings
from ottla.connect.worker.tolerance import Failure, Stage, Tolerance

_REPORT: Final = "records long, skipped long"


class FunctionSinkWork(NamedTuple):
    """All that the Spark processes need. Settings are resolved."""

    task: TaskId
    plain: str
    config: Mapping[str, str]
    worker: Mapping[str, str]


def write_batch(
    work: FunctionSinkWork, rows: DataFrame, batch: int, report: Callable[[Mapping[str, object]], None]
) -> None:
    """Call the function for the records of a micro-batch, in the Spark tasks. Raises Spark exceptions."""

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _write_task(work, batches)

    done = rows.mapInArrow(call, _REPORT).collect()
    report({"records of batch": sum(row["records"] for row in done), "written batch": batch})
    skipped = sum(row["skipped"] for row in done)
    if skipped:
        report({"records skipped in batch": skipped})


def _write_task(work: FunctionSinkWork, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    with ExitStack() as stack:
        writer: _Writer | None = None
        for batch in batches:
            if writer is None:
                writer = _Writer(work, stack)
            writer.write([_raw(each) for each in batch.to_pylist()])
        if writer is not None:
            writer.flush()
            yield pa.RecordBatch.from_pydict({"records": [writer.records], "skipped": [writer.skipped]})


class _Writer:
    """The function's task in one Spark task."""

    def __init__(self, work: FunctionSinkWork, stack: ExitStack) -> None:
        settings, config = WorkerSettings.read(work.worker), dict(work.config)
        errors = ErrorSettings.read(config)
        chain = Chain(settings, config)
        stack.callback(chain.close)
        self._letters: DeadLetters | None = None
        if errors.dead_letter_topic.strip():
            self._letters = DeadLetters(work.task, Clients(settings, config), errors, Secrets())
            stack.callback(self._letters.close)
        self._control = TaskControl()
        self._tolerance = Tolerance(work.task, errors, self._control, self._letters)
        self._conversion = SinkConversion(chain, self._tolerance)
        self._can_reject = self._letters is not None or errors.logs
        self._starts: dict[TopicPartition, int] = {}
        self._opened: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        self.records = 0
        task = plugins.connector_class(work.plain).task_class()
        assert isinstance(task, SinkTask)
        self._task = task
        stack.callback(task.stop)
        task.start(
            SinkTaskContext(*work.task, self._seek, self._reject, lambda: False, self._control.report_facts), config
        )

    @property
    def skipped(self) -> int:
        """How many records were skipped."""
        return self._tolerance.skipped

    def write(self, rows: list[Record[bytes, bytes]]) -> None:
        """Hand records to the task, without those that the other system has already."""
        new = {TopicPartition(each.topic, each.partition): each.offset for each in reversed(rows)}
        added = [tp for tp in new if tp not in self._opened]
        if added:
            self._opened.update(added)
            self._task.open(added)
            for tp in added:
                self._check_start(tp, new[tp])
        records = []
        for each in rows:
            tp = TopicPartition(each.topic, each.partition)
            self._ends[tp] = each.offset + 1
            if each.offset >= self._starts.get(tp, 0):
                record = self._conversion.convert(each)
                if record is not None:
                    records.append(record)
        if records:
            self._task.put(records)
        self.records += len(records)

    def _check_start(self, tp: TopicPartition, first: int) -> None:
        """Raise ConnectError if the other system needs records before the micro-batch.

        Offsets without records may lie between them: transactions and compaction leave such gaps.
        """
        start = self._starts.get(tp)
        if start is not None and start < first:
            self._control.report_facts({"resumes before the batch": f"{tp.topic}-{tp.partition}: {start} < {first}"})

    def flush(self) -> None:
        """Write what is buffered. Raises ConnectError if the task has not written all."""
        returned = self._task.flush(dict(self._ends))
        if self._letters is not None:
            self._letters.flush()
        behind = [tp for tp, end in self._ends.items() if returned.get(tp, 0) < end]
        if behind:
            raise ConnectError(f"The sink has not written all records of {behind[0].topic}-{behind[0].partition}")

    def _seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._starts.update(offsets)

    def _reject(self, record: SinkRecord, error: Exception) -> None:
        if not self._can_reject:
            raise ConnectError(
                "A record cannot be rejected: neither errors.deadletterqueue.topic.name nor errors.log.enable is set"
            ) from error
        self._tolerance.failed(
            Failure(Stage.TASK_PUT, type(self._task).__name__, error, raw=getattr(record, "raw", None))
        )


def _raw(row: Mapping[str, Any]) -> Record[bytes, bytes]:
    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    timestamp = row["timestamp"]
    timestamp_ms = -1 if timestamp is None else round(timestamp.timestamp() * 1000)
    kind = record_class(row["topic"], row["partition"], timestamp_type=TimestampType(row["timestampType"]))
    return kind(row["offset"], timestamp_ms, row["key"], row["value"], headers)
