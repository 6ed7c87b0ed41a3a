"""Records without an outcome: topics, partition queues and batches, and the memory that they use.

Records enter with `append` and `append_encoded`. They leave when the core calls `finish`, `give_up` or `split` on their
batch. Callers hold the lock of the core; `encoder.try_append` is the exception (see `_encoder`). After each call that
sets `needs_step`, `ProducerCore.step` must run soon.

Invariant: `encoder.memory_used` is the sum of the sizes of `unfinished`, and `active` contains exactly the queues with
waiting batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeAlias, TypeVar

from ottla.clients.cluster import ClusterView, check_topics
from ottla.clients.errors import (
    BrokerUnavailable,
    BufferExhausted,
    ClientError,
    MessageTooLarge,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.clients.producer._encoder import Delivery, Encoded, Headers, RecordEncoder, size_limit
from ottla.clients.producer.batch import Batch, PartitionQueue
from ottla.clients.producer.effects import Effect, Wake
from ottla.clients.producer.metadata import MetadataRefresh, TopicPartitions
from ottla.clients.producer.partitioner import Choice
from ottla.clients.producer.runtime import Runtime
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.producer.transactions import Transactions
from ottla.common.errors import ErrorCode
from ottla.records.batch import HEADER_SIZE

D = TypeVar("D", bound=Delivery)
SerializedRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers and timestamp in ms, serialized and checked."""
LEAST_WAITING = 16


class CompletedBatches:
    """Counts of acknowledged and failed records, and the batches whose callbacks may not have run yet.

    `failures` has the error of each batch that failed since the last `take_failures`, and whether it was sent; only for
    a transaction, which must hear of them.

    `_waiting` is cleaned when it has twice as many batches as after the last cleaning: the cost per batch is constant.
    """

    def __init__(self) -> None:
        self.acknowledged = self.failed = 0
        self._failures: list[tuple[Exception, bool]] = []
        self._waiting: list[Batch] = []
        self._limit = 2 * LEAST_WAITING

    def add(self, batch: Batch, *, in_transaction: bool) -> None:
        if batch.error is None:
            self.acknowledged += batch.count
        else:
            self.failed += batch.count
            if in_transaction:
                self._failures.append((batch.error, batch.attempts > 0))
        if not batch.announced:
            if len(self._waiting) > self._limit:
                self._limit = 2 * max(len(self.unannounced()), LEAST_WAITING)
            self._waiting.append(batch)

    def take_failures(self) -> list[tuple[Exception, bool]]:
        failures, self._failures = self._failures, []
        return failures

    def unannounced(self) -> list[Batch]:
        self._waiting = [batch for batch in self._waiting if not batch.announced]
        return self._waiting


class WaitingSenders:
    """The callers of `send` that wait for memory or for metadata."""

    def __init__(self) -> None:
        self._wakers: list[Callable[[], object]] = []
        self._was_freed = False

    def __bool__(self) -> bool:
        return bool(self._wakers)

    def add(self, wake: Callable[[], object]) -> None:
        self._wakers.append(wake)

    def memory_released(self) -> None:
        self._was_freed = True

    def wake(self) -> list[Effect]:
        wakers, self._wakers = self._wakers, []
        return [Wake(wakers)] if wakers else []

    def wake_after_release(self) -> list[Effect]:
        """Wake them if memory was released since the last call."""
        was_freed, self._was_freed = self._was_freed, False
        return self.wake() if was_freed else []


class RecordAccumulator:
    """Every record that has no outcome yet, in the batch of its partition."""

    def __init__(
        self,
        settings: ProducerSettings,
        view: ClusterView,
        random: Random,
        choose: Choice | None,
        refresh: MetadataRefresh,
    ) -> None:
        self.encoder = RecordEncoder(settings.batch_size, settings.buffer_memory)
        self.runtime = Runtime()
        self.needs_step = False  # True: the caller must let the core `step` soon
        self.fatal: ClientError | None = None  # raised by every further append
        self.transactions: Transactions | None = None  # says when a transactional producer may append
        self.topics: dict[str, TopicPartitions] = {}
        self.unfinished: dict[Batch, None] = {}  # in order of creation, and so of deadline
        self.active: dict[PartitionQueue, None] = {}  # queues with waiting batches, in the order in which they send
        self.completed = CompletedBatches()
        self._settings = settings
        self._view = view
        self._new_topic = partial(TopicPartitions, random, choose)
        self._refresh = refresh
        self._new: list[Batch] = []  # batches whose linger and delivery timeout start with the next step
        self.senders = WaitingSenders()

    # --- append -------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int | None,
        record: SerializedRecord,
        make: type[D],
        callback: Callable[[D], object] | None = None,
    ) -> D | None:
        """Append a record that `encoder.try_append` did not take; returns its future, an instance of `make`.

        None if the memory is full or the topic is unknown (see `wait_for_change`). Raises MessageTooLarge if no request
        could contain the record, and the error that stopped the producer.
        """
        key, value, headers, timestamp_ms = record
        if self.transactions is not None:
            self.transactions.check_send()
        partitions = self.encoder.topics.get(topic)
        queue = None if partitions is None else partitions.queue_for(partition, key)
        if partitions is None or queue is None:
            self._want(topic)
            return None
        if self.fatal is not None:
            raise self.fatal
        encoder = self.encoder
        size = size_limit(key, value, headers)
        limit = self._settings.max_request_size
        if size + HEADER_SIZE > limit or size > encoder.memory_limit:
            setting = f"max.request.size ({limit})" if size + HEADER_SIZE > limit else "buffer.memory"
            raise MessageTooLarge(f"A record of {size} bytes for {queue} exceeds {setting}")
        if encoder.memory_used + size > encoder.memory_limit:
            return None
        batch = queue.open_batch
        if batch is None or not encoder.fits(batch, size):
            if partition is None and partitions.is_sticky(key):
                queue = partitions.next_sticky()
                batch = queue.open_batch
            if batch is None or not encoder.fits(batch, size):
                batch = self._add(queue)
        delivery = make.__new__(make)
        encoder.append(batch, delivery, key, value, headers, timestamp_ms)
        if callback is not None:
            batch.callbacks.extend((delivery, callback))
        return delivery

    def _add(self, queue: PartitionQueue, *, is_open: bool = True) -> Batch:
        batch = queue.add(is_open=is_open)
        self.unfinished[batch] = None
        self._new.append(batch)
        self.active[queue] = None
        self.needs_step = True
        return batch

    def append_encoded(self, topic: str, partition: int, body: Encoded) -> Batch | None:
        """Append a batch whose records are encoded already; None as for `append`."""
        if self.transactions is not None:
            self.transactions.check_send()
        partitions = self.topics.get(topic)
        if partitions is None or not 0 <= partition < len(partitions.queues):
            self._want(topic)
            return None
        if self.fatal is not None:
            raise self.fatal
        encoder = self.encoder
        size = len(body[0]) - HEADER_SIZE
        if encoder.memory_used and encoder.memory_used + size > encoder.memory_limit:
            return None
        batch = self._add(partitions.queues[partition], is_open=False)
        batch.fill(body)
        encoder.reserve(batch.size)
        return batch

    def partition_count(self, topic: str) -> int:
        """The number of partitions of the topic; 0 while it is unknown, and then its metadata is requested."""
        count = self._count(topic)
        if not count:
            self._want(topic)
        return count

    def _count(self, topic: str) -> int:
        partitions = self.topics.get(topic)
        return 0 if partitions is None else len(partitions.queues)

    def _want(self, topic: str) -> None:
        if self.fatal is not None:
            raise self.fatal
        if topic not in self.topics:
            check_topics((topic,))  # an invalid name would make every later request for metadata fail
            self.topics[topic] = self._new_topic()
            self._learn(topic)
        if topic not in self._refresh.missing:
            self._refresh.missing.add(topic)
            self.needs_step = True

    def start_timers(self, now_ms: int) -> None:
        """Start linger and delivery timeout of the batches that were created since the last call."""
        new, self._new = self._new, []
        for batch in new:
            batch.linger_until_ms = now_ms + self._settings.linger_ms
            batch.deadline_ms = now_ms + self._settings.delivery_timeout_ms

    # --- senders that wait --------------------------------------------------------------------------------------

    def wait_for_change(self, wake: Callable[[], object]) -> None:
        """Call `wake()` when an `append` that returned None may succeed."""
        self.senders.add(wake)
        self.needs_step = True

    def immediate_error(self, topic: str, partition: int | None, since: int) -> ClientError | None:
        """The error to raise immediately; None while waiting may help.

        `since` is the metadata version of the first attempt.
        """
        code, partitions, refresh = self._view.topic_errors.get(topic, 0), self._count(topic), self._refresh
        if code and not (error := error_for(code, f"{topic}: {ErrorCode(code).text}")).retriable:
            return error
        if refresh.problem is not None and not refresh.problem.retriable and not partitions:
            return refresh.problem
        if partition is not None and partitions and not 0 <= partition < partitions and refresh.version > since:
            return UnknownTopicOrPartition(f"{topic} has no partition {partition}, only 0 to {partitions - 1}")
        return None

    def timeout_error(self, topic: str, partition: int | None) -> ClientError:
        partitions, refresh, encoder = self._count(topic), self._refresh, self.encoder
        if refresh.problem is not None and not partitions:
            return BrokerUnavailable(
                f"{refresh.problem} (send() waited for max.block.ms; delivery.timeout.ms starts when a record is "
                "appended)",
                retriable=refresh.problem.retriable,
            )
        if not partitions or (partition or 0) >= partitions:
            name = topic if partition is None else f"{topic}-{partition}"
            return UnknownTopicOrPartition(
                f"{name} is not known to the cluster after max.block.ms; does it exist, may we see it, and is the "
                "address of the cluster right?"
            )
        return BufferExhausted(
            f"The record does not fit into buffer.memory after max.block.ms: {encoder.memory_used} of "
            f"{encoder.memory_limit} bytes wait for brokers; send less, or raise buffer.memory"
        )

    # --- outcomes -----------------------------------------------------------------------------------------------

    def finish(
        self, batch: Batch, error: Exception | None, base_offset: int = -1, log_append_time_ms: int = -1
    ) -> bool:
        """Record the outcome of the batch and release its memory; False if it had an outcome already."""
        if batch.done:
            return False
        batch.finish(base_offset, log_append_time_ms, error)
        self.completed.add(batch, in_transaction=self.transactions is not None)
        del self.unfinished[batch]
        self.encoder.release(batch.size)
        self.senders.memory_released()
        return True

    def report_failures(self) -> None:
        """Report the batches that failed since the last call to the transaction, which may fail with them."""
        if self.transactions is None:
            return
        for error, was_sent in self.completed.take_failures():
            self.transactions.batch_failed(error, was_sent=was_sent)
        if self.transactions.drops_batches:
            self.close_batches()

    def close_batches(self) -> None:
        """Close every open batch: each further record passes `append`, which checks whether it is allowed."""
        for queue in self.active:
            queue.close_batch()

    def give_up(self, batch: Batch, error: ClientError) -> None:
        """Fail a batch that waits or is in flight. A later response to it changes nothing."""
        queue = batch.queue
        if batch is queue.open_batch:
            queue.close_batch()
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            if not queue.waiting:
                self.active.pop(queue, None)
        self.finish(batch, error)

    def split(self, batch: Batch) -> Batch:
        """Replace a closed, waiting batch by smaller ones; returns the first. They keep its place in every order."""
        pieces = batch.queue.split(batch)
        self.encoder.release(batch.size - sum(piece.size for piece in pieces))
        unfinished: dict[Batch, None] = {}
        for other in self.unfinished:
            unfinished.update(dict.fromkeys(pieces if other is batch else (other,)))
        self.unfinished = unfinished
        return pieces[0]

    def sent(self, queue: PartitionQueue) -> None:
        """A batch of `queue` was sent: the queue goes to the end of `active`, so that no partition starves."""
        self.topics[queue.topic].leave(queue)
        del self.active[queue]
        if queue.waiting:
            self.active[queue] = None

    # --- metadata -----------------------------------------------------------------------------------------------

    def learn(self) -> set[str]:
        """Update all topics from the view; returns those that are unknown, or whose batches have no leader."""
        missing = {topic for topic in self.topics if not self._learn(topic)}
        for queue in self.active:
            if self._view.leader(queue.topic, queue.partition) is None:
                missing.add(queue.topic)
        return missing

    def _learn(self, topic: str) -> bool:
        unfinished = {
            (topic, batch.queue.partition): batch.queue for batch in self.unfinished if batch.queue.topic == topic
        }
        partitions = self.topics[topic]
        if not partitions.learn(topic, self._view, self.runtime, unfinished):
            return False
        self.encoder.topics[topic] = partitions
        return True

    def validate(self) -> None:
        for topic in self.topics.values():
            for queue in topic.queues:
                queue.validate()
                assert bool(queue.waiting) == (queue in self.active), f"{queue}: active {queue in self.active}"
        used = sum(batch.size for batch in self.unfinished)
        assert self.encoder.memory_used == used, f"memory: {self.encoder.memory_used} is not {used}"
        assert all(not batch.done for batch in self.unfinished)
