"""Moves the event time of a stream that has no records, so that it does not hold back the other streams of a query.

With the option `idleAfter`, a stream without records for that long gets a record without key and value whose header
`ottla.tick` is the time of now minus `idleAfter`; and another one each time the same time has passed. `ottla.streams`
uses this time for the watermark, and shows the record to no program.

The time is part of the offset, under a name that no topic can have. So Spark stores it before the batch runs, and a
repeated batch has the same one. Spark's Kafka source cannot read a checkpoint with such an offset.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.spark.names import OptionError
from ottla.spark.offsets import IDLE, positions

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]

    from ottla.spark.options import SourceOptions
    from ottla.spark.readers import StreamReader

TICK: Final = "ottla.tick"
"""The header of a record that only moves the event time. Its value is the time in ISO format."""


class TickPartition(InputPartition):
    """The work of a task that returns the record with a time, in milliseconds since the epoch."""

    def __init__(self, value: int) -> None:
        super().__init__(value)


class IdleReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A StreamReader that adds the times of an idle stream."""

    def __init__(self, reader: StreamReader, options: SourceOptions, idle_ms: int) -> None:
        if not options.include_headers:
            raise OptionError("idleAfter needs includeHeaders=true: the time of an idle stream is a header")
        self._reader = reader
        self._options = options
        self._idle_ms = idle_ms
        self._active_s: float | None = None
        self._is_bounded = False

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        return self._reader.initialOffset()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return maxOffsetsPerTrigger."""
        return self._reader.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Store the current ends of the partitions. Such a query gets no times."""
        self._is_bounded = True
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """Return the end of the next batch, which has a new time if there were no records for long enough."""
        end = self._reader.latestOffset(start, limit)
        now_s = time.monotonic()
        if positions(end) != positions(start):
            self._active_s = now_s
            return {**end, IDLE: start[IDLE]} if IDLE in start else end
        if self._active_s is None or self._reader.is_waiting:
            self._active_s = now_s
        if self._is_bounded or (now_s - self._active_s) * 1000 < self._idle_ms:
            return start
        # The wait for the next time begins with the next call, after this batch: a slow query is not always busy.
        self._active_s = None
        return {**end, IDLE: {"0": int(time.time() * 1000) - self._idle_ms}}

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802 - Spark's name
        """Return the last known ends of the partitions."""
        return self._reader.reportLatestOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch."""
        tasks = list(self._reader.partitions(start, end))
        if IDLE in end and end[IDLE] != start.get(IDLE):
            tasks.append(TickPartition(end[IDLE]["0"]))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task; called in the task."""
        if isinstance(partition, TickPartition):
            return _tick(partition.value, self._options)
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit `end`."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Close the connections."""
        self._reader.stop()


def _tick(time_ms: int, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from ottla.spark.formats import decode
    from ottla.spark.range_reader import arrow_schema

    at = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    row = {"timestamp": at, "headers": [{"key": TICK, "value": at.isoformat().encode()}]}
    batches = iter([pa.RecordBatch.from_pylist([row], schema=arrow_schema(include_headers=True))])
    return decode(batches, options)
