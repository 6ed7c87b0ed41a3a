# ruff: noqa: SLF001 - a future's fields are set here, and nowhere else
# cython: language_level=3, annotation_typing=False
"""The path of every record: its partition, its bytes into the open batch, and its future. Plain Python and C in one.

Cython makes the extension `_accumulator` of this file, with the types of `_accumulator.pxd`; `batch` takes that where
it was built and this otherwise. Where it is compiled, `try_append`, `release` and `Queue.close_open` need no lock: each
runs from reading the open batch to the end without Python code or an allocation that could run any (the collector's),
so with the interpreter's lock held throughout. (An interpreter without that lock takes it back when it imports the
extension.) Everything else about batches is decided under the core's lock, by code that closes a batch before it looks
at what is in it. In plain Python the caller takes the core's lock for these too.

A batch is open (records are added), closed, in flight, done (acknowledged or failed, once) and announced. The core
changes it up to done; the shell then calls `announce`, which runs the callbacks of its records, marks it announced and
wakes its waiters, in that order. So a callback has run before `result()` or `flush()` returns, as with Kafka's Java
producer. Records are encoded as they come: what waits for a broker is bytes. A future is three words.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.producer.results import RecordMetadata
from ottla.records.kernels import append_record, murmur2

if TYPE_CHECKING:
    from datetime import datetime

    from ottla.clients.producer.core import ProducerCore
    from ottla.clients.producer.partition import PartitionQueue

logger = logging.getLogger("ottla.clients.producer")

Headers = Sequence[tuple[str, bytes | None]]
# What the encoders make of records: 61 bytes of room and the records, count, base and max timestamp, last delta.
Encoded = tuple[bytearray, int, int, int, int]

HEADER_SIZE = 61
RECORD_OVERHEAD = 21  # a record's own fields at their longest, as Kafka reckons
HEADER_OVERHEAD = 10
UNKNOWN_OFFSET = -1
NO_HEADERS: Headers = ()
NOT_YET_MS: float = 1 << 62

# Held while callbacks are added or taken, so that none is missed. One for all batches: it is hardly ever contended.
_announcing = threading.Lock()
# Set while callbacks run, and in the tasks of those that are coroutines: there a delivery that is done does not wait.
in_callback: ContextVar[bool] = ContextVar("in_callback", default=False)


class Batch:
    """Records for one partition that are sent, acknowledged or refused together."""

    __slots__ = (
        "announced",
        "attempts",
        "base_offset",
        "base_timestamp",
        "callbacks",
        "count",
        "deadline_ms",
        "done",
        "epoch",
        "error",
        "linger_until_ms",
        "log_append_time_ms",
        "looked_at",
        "max_timestamp",
        "ordinal",
        "out",
        "pieces",
        "producer_id",
        "queue",
        "record_errors",
        "sequence",
        "size",
        "unsure_until_ms",
        "urgent",
        "waiters",
        "whole",
        "wire",
    )

    def __init__(self, queue: PartitionQueue, ordinal: int) -> None:
        self.queue = queue
        self.ordinal = ordinal  # ascends within a partition: the order that retries keep
        self.linger_until_ms = self.deadline_ms = NOT_YET_MS  # until the core first looks at it
        self.out = bytearray(HEADER_SIZE)  # room for a header, and the records
        self.wire: tuple[Any, ...] | None = None  # (encoded batch, its header), once encoded
        self.count = 0
        self.size = 0  # of the records, in bytes
        self.base_timestamp = self.max_timestamp = -1
        self.attempts = 0
        self.producer_id = self.epoch = self.sequence = -1
        self.unsure_until_ms: float = 0  # until then an attempt that got no answer may still be written
        self.urgent = False  # somebody waits: do not linger
        self.done = False  # the outcome is known
        self.announced = False  # and the callbacks have run
        self.looked_at = False  # somebody asked for the outcome, or has a callback
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = -1
        self.callbacks: list[Any] = []  # a future, its callback, the next future, and so on
        self.waiters: list[Callable[[], object]] = []
        self.pieces: list[Batch] | None = None  # if it was too large: all its records again, in the same order
        self.whole: Batch | None = None  # which this is a piece of

    def fill(self, body: Encoded) -> None:
        """Take records that are encoded already instead of adding one by one."""
        self.out, self.count, self.base_timestamp, self.max_timestamp, _ = body
        self.size = len(self.out) - HEADER_SIZE

    def finish(self, base_offset: int, log_append_time_ms: int, error: Exception | None) -> None:
        """The end, for the core only: keeps what futures may ask and lets the records go."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.out = bytearray()
        self.wire = None
        self.done = True
        if self.pieces is None and not self.callbacks:
            self.announced = True
        whole = self.whole
        if whole is not None and whole.pieces is not None and all(piece.done for piece in whole.pieces):
            errors = [piece.error for piece in whole.pieces if piece.error is not None]
            whole.finish(UNKNOWN_OFFSET, -1, errors[0] if errors else None)
            whole.announced = all(piece.announced for piece in whole.pieces)

    def become(self, pieces: list[Batch]) -> None:
        """Be done when all the pieces are, which have the same records in the same order."""
        for piece in pieces:
            piece.whole = self
        self.pieces = pieces
        self.out = bytearray()
        self.wire = None
        for index in range(0, len(self.callbacks), 2):
            delivery = self.callbacks[index]
            self.leaf(delivery._index)[0].callbacks.extend((delivery, self.callbacks[index + 1]))
        self.callbacks = []

    def leaf(self, index: int) -> tuple[Batch, int]:
        """Where the record at `index` is now: the batch that is sent with it, and the index there."""
        batch = self
        while batch.pieces is not None:
            for piece in batch.pieces:
                if index < piece.count:
                    break
                index -= piece.count
            batch = piece
        return batch, index

    def leaves(self) -> list[Batch]:
        """The batches that its records are sent in: itself, or its pieces, or theirs."""
        if self.pieces is None:
            return [self]
        found = []
        for piece in self.pieces:
            found += piece.leaves()
        return found

    def announce(self) -> None:
        """Run the callbacks of the records in order, then wake the waiters. The batch is done.

        Coroutines that callbacks return are run by the shell, which calls `announce` again when they have ended. May be
        called by several threads: each callback runs once.
        """
        token = in_callback.set(True)
        try:
            started = self._run_callbacks()
        except BaseException:  # Ctrl-C in a callback: no waiter may be left
            self._conclude()
            raise
        finally:
            in_callback.reset(token)
        if started:
            self.queue.owner.shell.run_coroutines(started, self.announce)
        else:
            self._conclude()

    def _run_callbacks(self) -> list[Coroutine[Any, Any, object]]:
        started: list[Coroutine[Any, Any, object]] = []
        while callbacks := self._take_callbacks(is_last=not started):
            self.looked_at = True
            for index in range(0, len(callbacks), 2):
                coroutine = call_back(callbacks[index + 1], callbacks[index], self.queue)
                if coroutine is not None:
                    started.append(coroutine)
        return started

    def _take_callbacks(self, is_last: bool) -> list[Any]:
        """Callbacks to run now. If there are none and this `is_last`, later ones are run by those who add them."""
        with _announcing:
            callbacks, self.callbacks = self.callbacks, []
            if not callbacks and is_last:
                self.announced = True
        return callbacks

    def _conclude(self) -> None:
        self.announced = True
        self.wake()
        whole = self.whole
        if whole is not None and whole.pieces is not None and all(piece.announced for piece in whole.pieces):
            whole.announce()

    def add_callback(self, delivery: Any, callback: Callable[[Any], object]) -> bool:
        """Have `callback(delivery)` run when the batch is announced; False if it is already."""
        with _announcing:
            if not self.announced:
                self.callbacks.extend((delivery, callback))
            return not self.announced

    def wake(self) -> None:
        """Wake who waits for the batch; pieces may do so for their whole from several threads at once."""
        while self.waiters:
            try:
                waiter = self.waiters.pop()
            except IndexError:
                return
            waiter()

    def wait_with(self, wake: Callable[[], object]) -> bool:
        """Have `wake()` called when the batch is announced; False if it is already (wake may then be called or not)."""
        self.urgent = True
        if self.pieces is not None:
            for piece in self.leaves():
                piece.urgent = True
        self.waiters.append(wake)
        return not self.announced

    def error_of(self, index: int) -> Exception | None:
        """What the record at `index` failed with, None if it did not."""
        self.looked_at = True
        if self.pieces is not None:
            piece, index = self.leaf(index)
            return piece.error_of(index)
        if self.record_errors is not None and index in self.record_errors:
            return self.record_errors[index]
        return self.error

    def __del__(self) -> None:
        """Report a failure that nobody asked about: no callback, no `result()`."""
        if self.error is not None and not self.looked_at and self.pieces is None:
            self.queue.owner.shell.report_unheard(self)


def call_back(callback: Callable[[Any], object], delivery: Any, queue: Any) -> Any:
    """Run a callback; the coroutine that it returned, if it did."""
    try:
        returned = callback(delivery)
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit or a cancelled future's: the rest must be done all the same
        logger.exception("A delivery callback failed for %s", queue)
        return None
    return returned if isinstance(returned, Coroutine) else None


class Delivery:
    """The future of one record: done when the broker has acknowledged it, or it has failed for good.

    Its callbacks have run by then. Inside a callback the delivery counts as done.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    _batch: Batch
    _index: int
    _timestamp: int

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
        return self._pending() is None

    def _pending(self) -> Batch | None:
        """The batch that the record is in, None once that is announced, or done if this is a callback."""
        batch = self._batch
        if batch.pieces is not None:
            batch = batch.leaf(self._index)[0]
        if batch.announced or (batch.done and in_callback.get()):
            return None
        return batch

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Have `callback(delivery)` called when the record is acknowledged or failed; at once if it is.

        As `concurrent.futures.Future.add_done_callback`. It runs in the producer's thread (in the caller's if called at
        once); its exceptions are logged.
        """
        self._batch.queue.owner.shell.add_callback(self, callback)

    def peek(self) -> RecordMetadata:
        """The result of a delivery that is done; raises what it failed with."""
        batch, index = self._batch, self._index
        if batch.pieces is not None:
            batch, index = batch.leaf(index)
        error = batch.error_of(index)
        if error is not None:
            raise error
        timestamp = self._timestamp if batch.log_append_time_ms < 0 else batch.log_append_time_ms
        offset = batch.base_offset + index if batch.base_offset >= 0 else UNKNOWN_OFFSET
        return RecordMetadata(batch.queue.topic, batch.queue.partition, offset, timestamp)

    def __repr__(self) -> str:
        state = "pending"
        if self.done():
            state = repr(self._batch.error_of(self._index) or self.peek())
        return f"<{type(self).__name__} {self._batch.queue} {state}>"


class BlockingDelivery(Delivery):
    """The future of one record: `result()` waits for it."""

    __slots__ = ()

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is, once acknowledged. Blocks, and ends the linger of its batch.

        Raises what the delivery failed with (see `errors`; its `retriable` says whether to send again), or
        RequestTimedOut if nothing is known after `timeout_s` seconds: the record is still on its way.
        """
        batch = self._pending()
        if batch is not None:
            batch.queue.owner.shell.wait(batch, timeout_s)
        return self.peek()

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """What the delivery failed with, None if it is acknowledged. Blocks as `result`."""
        batch = self._pending()
        if batch is not None:
            batch.queue.owner.shell.wait(batch, timeout_s)
        return self._batch.error_of(self._index)


D = TypeVar("D", bound=Delivery)


class Queue:
    """Of one partition's batches, the one that takes records."""

    __slots__ = ("open", "owner", "partition", "topic")

    def __init__(self, topic: str, partition: int, owner: ProducerCore) -> None:
        self.topic = topic
        self.partition = partition
        self.owner = owner
        self.open: Batch | None = None

    def close_open(self) -> None:
        """Let no more records into the open batch, if there is one."""
        self.open = None


class TopicQueues:
    """The partitions of one topic, and the one that takes records without a key now."""

    __slots__ = ("available", "choose", "queues", "random", "sticky", "topic_id")

    def __init__(self, random: Random, choose: Callable[[bytes | None, int], int] | None = None) -> None:
        self.random = random
        self.choose = choose  # None: murmur2_random
        self.queues: list[PartitionQueue] = []
        self.available: list[PartitionQueue] = []
        self.sticky: PartitionQueue | None = None  # until there are queues
        self.topic_id: Any = None  # until the topic was seen

    def queue_for(self, partition: int | None, key: bytes | None) -> PartitionQueue | None:
        """Where a record goes; None if there is no such partition (yet)."""
        if partition is None:
            if self.choose is not None:
                partition = self.choose(key, len(self.queues)) if self.queues else -1
                if partition < 0:
                    return self.sticky
            elif key is None:
                return self.sticky
            else:
                partition = (murmur2(key) & 0x7FFFFFFF) % len(self.queues)
        return self.queues[partition] if 0 <= partition < len(self.queues) else None

    def next_sticky(self) -> PartitionQueue:
        """Another partition for records without a key: any that has a leader, or any at all."""
        choice = self.available or self.queues
        while True:
            chosen = choice[int(self.random.random() * len(choice))]
            if chosen is not self.sticky or len(choice) == 1:
                self.sticky = chosen
                return chosen

    def leave(self, queue: PartitionQueue) -> None:
        """A batch of `queue` was sent: records without a key go on elsewhere, also where keyed ones keep it busy."""
        if self.sticky is queue:
            self.next_sticky()


class Accumulator:
    """The part of the producer's core that every record passes through, and the memory that records take."""

    def __init__(self, batch_size: int, room: int) -> None:
        self.batch_size = batch_size
        self.room = room
        self.used = 0  # bytes of records that have no end yet
        self.known: dict[str, TopicQueues] = {}  # topics of which the partitions are known

    def try_append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        make: type[D],
        callback: Callable[[D], object] | None,
    ) -> D | None:
        """The future of the record, a `make`; None unless there is an open batch that has room for it.

        None also if key or value are not exactly bytes: they need a serializer, or an error.
        """
        if (value is not None and type(value) is not bytes) or (key is not None and type(key) is not bytes):
            return None
        queues = self.known.get(topic)
        if queues is None:
            return None
        delivery = make.__new__(make) if make is not BlockingDelivery else BlockingDelivery.__new__(BlockingDelivery)
        size = bound(key, value, headers)
        queue = queues.queue_for(partition, key)
        if queue is None:
            return None
        # From here on nothing may run Python code: see above.
        batch = queue.open
        if batch is None or not self.has_room(batch, size):
            return None
        self.put(batch, delivery, key, value, headers, timestamp_ms)
        if callback is not None:
            batch.callbacks.append(delivery)
            batch.callbacks.append(callback)
        return delivery  # type: ignore[return-value]

    def has_room(self, batch: Batch, size: int) -> bool:
        """Whether a record of `size` bytes fits in the memory and in the batch; the first always does in a batch."""
        return self.used + size <= self.room and (batch.count == 0 or batch.size + size <= self.batch_size)

    def put(
        self,
        batch: Batch,
        delivery: Delivery,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> None:
        """Add the record to the batch, which is open, and make `delivery` its future."""
        if batch.count == 0:
            batch.base_timestamp = batch.max_timestamp = timestamp_ms
        elif timestamp_ms > batch.max_timestamp:
            batch.max_timestamp = timestamp_ms
        added = append_record(batch.out, timestamp_ms - batch.base_timestamp, batch.count, key, value, headers)
        delivery._batch = batch
        delivery._index = batch.count
        delivery._timestamp = timestamp_ms
        batch.count += 1
        batch.size += added
        self.used += added

    def reserve(self, size: int) -> None:
        """Count bytes as used."""
        self.used += size

    def release(self, size: int) -> None:
        """Count bytes as free again."""
        self.used -= size


class Front:
    """The part of the blocking face that every record passes through."""

    _accumulator: Accumulator
    _clock: Callable[[], int]  # ns since the epoch
    _is_direct: bool

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] = NO_HEADERS,
        callback: Callable[[BlockingDelivery], object] | None = None,
    ) -> BlockingDelivery:
        """The future of the record: `.result()` waits until it is acknowledged.

        Keys decide the partition unless one is given; `timestamp_ms` is since the epoch, or a datetime, default now.
        `callback` gets the future before it is done, in the producer's own thread: it must be short and must not wait.

        Blocks only while buffer.memory is full or the topic is not known yet, at most max.block.ms, and then raises
        BufferExhausted, UnknownTopicOrPartition or BrokerUnavailable. Raises MessageTooLarge, SerializationFailed,
        Closed at once. What happens later is in the future.
        """
        if self._is_direct and timestamp_ms is None and headers is NO_HEADERS:
            now_ns = self._clock()
            delivery = self._accumulator.try_append(
                topic, partition, key, value, NO_HEADERS, now_ns // 1_000_000, BlockingDelivery, callback
            )
            if delivery is not None:
                return delivery
        return self._send_slowly(topic, value, key, partition, timestamp_ms, headers, callback)

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: Any,
        headers: Any,
        callback: Callable[[BlockingDelivery], object] | None,
    ) -> BlockingDelivery:
        """Everything that `send` does not do itself."""
        raise NotImplementedError


def bound(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that the record may take."""
    size = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += len(name) * 4 + len(content or b"") + HEADER_OVERHEAD
    return size
