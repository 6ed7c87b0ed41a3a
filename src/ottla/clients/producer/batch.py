"""A batch on its way to one partition, and the futures of its records.

A batch is open (records are added), closed, in flight, and in the end done: acknowledged or failed, once. The core
changes it; whoever runs the core calls `announce` on each batch that it reports as done, which wakes those who wait and
runs callbacks. One future costs two references: its result is worked out from the batch when somebody asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ottla.clients.producer.partition import PartitionQueue

logger = logging.getLogger("ottla.clients.producer")

Headers = Sequence[tuple[str, bytes | None]]
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
# What the encoders make of records: 61 bytes of room and the records, count, base and max timestamp, last delta.
Encoded = tuple[bytearray, int, int, int, int]

RECORD_OVERHEAD = 21  # a record's own fields at their longest, as Kafka reckons
HEADER_OVERHEAD = 10
UNKNOWN_OFFSET = -1
NOT_YET_MS: float = 1 << 62

_timestamp_of = itemgetter(0)


class RecordMetadata(NamedTuple):
    """Where a record is: `offset` is -1 if nobody knows (acks=0, or a duplicate that the broker had long ago).

    `timestamp` in ms since the epoch: the broker's if the topic stamps records itself, otherwise the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class AppendedRange(NamedTuple):
    """Where `records` consecutive records are: `first_offset` and those that follow; -1 if nobody knows."""

    topic: str
    partition: int
    first_offset: int
    records: int


class Batch:
    """Records for one partition that are sent, acknowledged or refused together."""

    __slots__ = (
        "attempts",
        "base_offset",
        "body",
        "callbacks",
        "count",
        "deadline_ms",
        "done",
        "epoch",
        "error",
        "linger_until_ms",
        "log_append_time_ms",
        "ordinal",
        "producer_id",
        "queue",
        "record_errors",
        "records",
        "sequence",
        "size",
        "timestamps",
        "urgent",
        "waiters",
        "wire",
    )

    def __init__(self, queue: PartitionQueue, ordinal: int) -> None:
        self.queue = queue
        self.ordinal = ordinal  # ascends within a partition: the order that retries keep
        self.linger_until_ms = self.deadline_ms = NOT_YET_MS  # until the core first looks at it
        self.records: list[NewRecord] = []
        self.body: Encoded | None = None
        self.wire: tuple[Any, ...] | None = None  # (encoded batch, its header), once encoded
        self.count = 0  # set when it is closed
        self.size = 0
        self.attempts = 0
        self.producer_id = -1
        self.epoch = -1
        self.sequence = -1
        self.urgent = False  # somebody waits: do not linger
        self.done = False
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = -1
        self.timestamps: Sequence[int] = ()
        self.callbacks: list[tuple[Delivery, Callable[[Delivery], object]]] = []
        self.waiters: list[Callable[[], object]] = []

    def close(self) -> None:
        """No more records from here on."""
        if self.body is None:
            self.count = len(self.records)

    def finish(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> None:
        """The end, for the core only: keeps what futures may ask and lets the records go."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        if error is None and log_append_time_ms < 0 and self.body is None:
            self.timestamps = list(map(_timestamp_of, self.records))
        self.records = []
        self.body = self.wire = None
        self.done = True

    def announce(self) -> None:
        """Wake who waits for the batch, then run the callbacks of its records in order."""
        while self.waiters:
            self.waiters.pop()()
        callbacks, self.callbacks = self.callbacks, []
        for delivery, callback in callbacks:
            try:
                callback(delivery)
            except Exception:
                logger.exception("A delivery callback failed for %s", self.queue)

    def wait_with(self, wake: Callable[[], object]) -> bool:
        """Have `wake()` called when the batch is done; False if it is done already (wake may then be called or not)."""
        self.urgent = True
        self.waiters.append(wake)
        return not self.done

    def error_of(self, index: int) -> Exception | None:
        if self.record_errors is not None and index in self.record_errors:
            return self.record_errors[index]
        return self.error

    def metadata_of(self, index: int) -> RecordMetadata:
        queue = self.queue
        timestamp = self.log_append_time_ms
        if timestamp < 0 and self.timestamps:
            timestamp = self.timestamps[index]
        offset = self.base_offset + index if self.base_offset >= 0 else UNKNOWN_OFFSET
        return RecordMetadata(queue.topic, queue.partition, offset, timestamp)


class Delivery:
    """The future of one record: done when the broker has acknowledged it, or it has failed for good."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def topic(self) -> str:
        """Where the record goes."""
        return self._batch.queue.topic

    @property
    def partition(self) -> int:
        """The partition that was chosen for the record."""
        return self._batch.queue.partition

    def done(self) -> bool:
        """Whether the record is acknowledged or failed."""
        return self._batch.done

    def peek(self) -> RecordMetadata:
        """The result of a delivery that is done; raises what it failed with."""
        error = self._batch.error_of(self._index)
        if error is not None:
            raise error
        return self._batch.metadata_of(self._index)

    def __repr__(self) -> str:
        batch = self._batch
        state = "pending" if not batch.done else repr(batch.error_of(self._index) or batch.metadata_of(self._index))
        return f"<{type(self).__name__} {batch.queue} {state}>"


class Batches:
    """Several batches that one call made: what `send_batch` gives out."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def done(self) -> bool:
        """Whether every batch is acknowledged or failed."""
        return all(batch.done for batch in self._batches)

    def peek(self) -> list[AppendedRange]:
        """Where the rows are, once done; raises the first failure (other batches may have been written)."""
        for batch in self._batches:
            if batch.error is not None:
                raise batch.error
        return [
            AppendedRange(batch.queue.topic, batch.queue.partition, batch.base_offset, batch.count)
            for batch in self._batches
        ]
