# ruff: noqa: SLF001 - the fields of a future are set here and nowhere else
# cython: language_level=3, annotation_typing=False
"""The path of every record: encode it into the open batch of its partition and create its future.

This one source runs compiled (types in `_encoder.pxd`) and as plain Python. It knows bytes, open batches and futures.
It does not decide when a batch is sent or how it ends: `accumulator` and `core` do.

Locking: compiled, `RecordEncoder.try_append`, `RecordEncoder.release` and `OpenQueue.close_batch` need no lock. Each
of them holds the global interpreter lock from reading the open batch to its end, because it calls no Python code and
makes no allocation that could start the garbage collector. (A free-threaded interpreter enables that lock when it
imports the extension.) All other code takes the lock of the core, and closes a batch before it reads the records. As
plain Python these three need the lock of the core too (`batch.COMPILED` is false then).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.producer.record_metadata import RecordMetadata
from ottla.records.kernels import append_record, murmur2

if TYPE_CHECKING:
    from datetime import datetime

    from ottla.clients.producer.runtime import Runtime

Headers = Sequence[tuple[str, bytes | None]]
# The result of the record kernels: 61 free bytes and the records, count, base and max timestamp, last offset delta.
Encoded = tuple[bytearray, int, int, int, int]

HEADER_SIZE = 61
RECORD_OVERHEAD = 21  # most bytes of a record's own fields, as Kafka estimates them
HEADER_OVERHEAD = 10
UNKNOWN_OFFSET = -1
NO_HEADERS: Headers = ()

# True while callbacks run, and in the tasks of callbacks that are coroutines. A delivery counts as done there as soon
# as its outcome is known, although not all callbacks of its batch have run.
in_callback: ContextVar[bool] = ContextVar("in_callback", default=False)


class BatchRecords:
    """The encoded records of a batch, and the outcome that their futures read. `batch.Batch` adds the life cycle."""

    __slots__ = (
        "announced",
        "base_offset",
        "base_timestamp",
        "callbacks",
        "count",
        "done",
        "error",
        "log_append_time_ms",
        "looked_at",
        "max_timestamp",
        "out",
        "pieces",
        "queue",
        "record_errors",
        "size",
    )

    def __init__(self, queue: OpenQueue) -> None:
        self.queue = queue
        self.out = bytearray(HEADER_SIZE)  # free bytes for a batch header, then the records
        self.count = 0
        self.size = 0  # bytes of the records
        self.base_timestamp = self.max_timestamp = -1
        self.callbacks: list[Any] = []  # a future, its callback, the next future, and so on
        self.done = False  # the outcome is known
        self.announced = False  # the outcome is known and the callbacks have run
        self.looked_at = False  # the program asked for the outcome, or has a callback
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = -1
        self.pieces: list[Any] | None = None  # after a split: batches with the same records in the same order

    def leaf(self, index: int) -> tuple[BatchRecords, int]:
        """The batch that contains the record at `index` after all splits, and the index in that batch."""
        batch: BatchRecords = self
        while batch.pieces is not None:
            for piece in batch.pieces:
                if index < piece.count:
                    break
                index -= piece.count
            batch = piece
        return batch, index

    def error_of(self, index: int) -> Exception | None:
        """The error of the record at `index`; None if it was acknowledged."""
        self.looked_at = True
        if self.pieces is not None:
            piece, index = self.leaf(index)
            return piece.error_of(index)
        if self.record_errors is not None and index in self.record_errors:
            return self.record_errors[index]
        return self.error


class Delivery:
    """The future of one record: done when the broker has acknowledged the record or the delivery has failed.

    The callbacks of the record have run by then. Inside a callback the delivery counts as done.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    _batch: BatchRecords
    _index: int
    _timestamp: int

    @property
    def topic(self) -> str:
        """The topic of the record."""
        return self._batch.queue.topic

    @property
    def partition(self) -> int:
        """The partition that was chosen for the record."""
        return self._batch.queue.partition

    def done(self) -> bool:
        """Whether the record is acknowledged or failed."""
        return self._pending() is None

    def _pending(self) -> BatchRecords | None:
        """The batch to wait for; None once it is announced, or done if the caller is a callback."""
        batch = self._batch
        if batch.pieces is not None:
            batch = batch.leaf(self._index)[0]
        if batch.announced or (batch.done and in_callback.get()):
            return None
        return batch

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(delivery)` when the record is acknowledged or failed; immediately if it already is.

        As `concurrent.futures.Future.add_done_callback`. It runs in the producer's thread (in the caller's thread if
        called immediately); its exceptions are logged.
        """
        self._batch.queue.runtime.add_callback(self, callback)

    def peek(self) -> RecordMetadata:
        """The result of a delivery that is done. Raises the error of a failed one."""
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
        """The position of the record, once it is acknowledged. Blocks, and ends the linger of its batch.

        Raises the error of the delivery (see `errors`; its `retriable` says whether to send again). Raises
        RequestTimedOut if there is no outcome after `timeout_s` seconds: the record is still being delivered.
        """
        batch = self._pending()
        if batch is not None:
            batch.queue.runtime.wait(batch, timeout_s)
        return self.peek()

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """The error of the delivery, None if the record is acknowledged. Blocks as `result`."""
        batch = self._pending()
        if batch is not None:
            batch.queue.runtime.wait(batch, timeout_s)
        return self._batch.error_of(self._index)


D = TypeVar("D", bound=Delivery)


class OpenQueue:
    """One partition and its open batch, the only batch that takes records."""

    __slots__ = ("open_batch", "partition", "runtime", "topic")

    def __init__(self, topic: str, partition: int, runtime: Runtime) -> None:
        self.topic = topic
        self.partition = partition
        self.runtime = runtime
        self.open_batch: Any = None  # a BatchRecords, if any

    def close_batch(self) -> None:
        """Close the open batch, if any: it takes no more records."""
        self.open_batch = None


class Partitions:
    """The partitions of one topic by number, and the sticky one, which takes records without a key now."""

    __slots__ = ("choose", "queues", "sticky")

    def __init__(self, choose: Callable[[bytes | None, int], int] | None = None) -> None:
        self.choose = choose  # None: murmur2_random
        self.queues: list[Any] = []  # of OpenQueue, by partition
        self.sticky: Any = None  # an OpenQueue, once there are queues

    def queue_for(self, partition: int | None, key: bytes | None) -> Any:
        """The partition of a record; None if it does not exist (yet)."""
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


class RecordEncoder:
    """Encodes records into open batches, and counts the memory of all records that have no outcome yet."""

    def __init__(self, batch_size: int, memory_limit: int) -> None:
        self.batch_size = batch_size
        self.memory_limit = memory_limit
        self.memory_used = 0
        self.topics: dict[str, Any] = {}  # Partitions of the topics whose partitions are known

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
        """Append a record; returns its future, an instance of `make`. None if the slow path has to do it.

        That is the case if there is no open batch with space, or if key or value are not exactly bytes.
        """
        if (value is not None and type(value) is not bytes) or (key is not None and type(key) is not bytes):
            return None
        partitions = self.topics.get(topic)
        if partitions is None:
            return None
        delivery = make.__new__(make) if make is not BlockingDelivery else BlockingDelivery.__new__(BlockingDelivery)
        size = size_limit(key, value, headers)
        queue = partitions.queue_for(partition, key)
        if queue is None:
            return None
        # No Python code may run from here to the end: see the module's docstring.
        batch = queue.open_batch
        if batch is None or not self.fits(batch, size):
            return None
        self.append(batch, delivery, key, value, headers, timestamp_ms)
        if callback is not None:
            batch.callbacks.append(delivery)
            batch.callbacks.append(callback)
        return delivery  # type: ignore[return-value]

    def fits(self, batch: BatchRecords, size: int) -> bool:
        """Whether a record of `size` bytes fits into memory and batch. The first record may exceed batch.size."""
        return self.memory_used + size <= self.memory_limit and (
            batch.count == 0 or batch.size + size <= self.batch_size
        )

    def append(
        self,
        batch: BatchRecords,
        delivery: Delivery,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
    ) -> None:
        """Append the record to the open batch, and make `delivery` its future."""
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
        self.memory_used += added

    def reserve(self, size: int) -> None:
        """Count `size` bytes as used."""
        self.memory_used += size

    def release(self, size: int) -> None:
        """Count `size` bytes as free."""
        self.memory_used -= size


class FastSend:
    """`Producer.send` for records that need no work but encoding. As plain Python it took 60 % more time per record."""

    _encoder: RecordEncoder
    _clock: Callable[[], int]  # ns since the epoch
    _is_fast: bool

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
        BufferExhausted, UnknownTopicOrPartition or BrokerUnavailable. Raises MessageTooLarge, SerializationFailed and
        Closed immediately. Later errors are in the future.
        """
        if self._is_fast and timestamp_ms is None and headers is NO_HEADERS:
            now_ns = self._clock()
            delivery = self._encoder.try_append(
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
        """Serialize, create a batch, wait for memory or metadata: all that `send` does not do itself."""
        raise NotImplementedError


def size_limit(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that the record may take."""
    size = RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += len(name) * 4 + len(content or b"") + HEADER_OVERHEAD
    return size
