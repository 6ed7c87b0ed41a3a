"""The producer without I/O: batches per partition, who is sent what and when, retries, sequences, ends.

The caller holds one lock around every call here, gives the time (`now_ms`, steady) and obeys the effects in order, with
the lock released. After `append`, `hurry` or any answer it calls `step`, and again at `next_timer_ms`. What it must
answer is said at the effects (see `events`).

Promises: with idempotence an acknowledged record is in its partition once, and in the order in which `append` was
called; every batch ends (acknowledged, or failed with a typed error) within `delivery_timeout_ms`; no more than
`buffer_memory` bytes wait. KIP-91 (timeouts), KIP-98, KIP-360 (idempotence), KIP-219 (throttling), KIP-480 (sticky).
Left out: transactions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

from ottla.clients.cluster import check_topics
from ottla.clients.errors import (
    BrokerError,
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    DeliveryTimedOut,
    MessageTooLarge,
    Purged,
    UnsupportedByBroker,
    error_for,
)
from ottla.clients.producer.batch import Accumulator, Batch, Delivery, Encoded, Headers, TopicQueues, bound
from ottla.clients.producer.ended import Ended
from ottla.clients.producer.events import (
    SEQUENCE_GAPS,
    STALE_METADATA,
    AskProducerId,
    Effect,
    Finished,
    Outcome,
    RefreshMetadata,
    Send,
    Wake,
)
from ottla.clients.producer.in_flight import InFlight
from ottla.clients.producer.metadata_refresh import FOREVER_MS, MetadataWish, View
from ottla.clients.producer.partition import PartitionQueue
from ottla.clients.producer.partitioner import Choice
from ottla.clients.producer.producer_id import NO_ID, ProducerIdWish
from ottla.clients.producer.send_errors import expired_after, obstacle, refusal
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.producer.shell import Shell
from ottla.clients.producer.splitting import in_place_of, split, too_large
from ottla.clients.producer.topics import learn
from ottla.common.errors import ErrorCode
from ottla.records.batch import HEADER_SIZE

# A request that was given up is written within that, or not at all.
LATE_MS = 2000
D = TypeVar("D", bound=Delivery)


class ProducerCore:
    """Every record that is not acknowledged yet, and what to do about it."""

    def __init__(self, settings: ProducerSettings, view: View, random: Random, choose: Choice | None = None) -> None:
        self.settings = settings
        self._choose = choose
        self.shell = Shell()
        self.needs_step = False  # True: the caller must call `step` soon
        self.accumulator = Accumulator(settings.batch_size, settings.buffer_memory)
        self.fatal: ClientError | None = None  # raised by every further append
        self._view = view
        self._random = random
        self._topics: dict[str, TopicQueues] = {}
        self._known = self.accumulator.known
        self._unfinished: dict[Batch, None] = {}  # in order of creation, so of deadline
        self._fresh: list[Batch] = []  # whose time runs from the next step
        self._active: dict[PartitionQueue, None] = {}  # those with waiting batches
        self._in_flight = InFlight(settings.max_in_flight)
        self._flushes = 0
        self.ended = Ended()
        self._timer_ms = FOREVER_MS
        self._waiting_senders: list[Callable[[], object]] = []
        self.retried = 0  # batches that were sent again
        self._freed = False  # memory was released since the last step
        self._wish = MetadataWish(settings.metadata_max_age_ms, self._backoff_ms)
        self._id = ProducerIdWish()

    # --- records in ---------------------------------------------------------------------------------------------

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        make: type[D],
        callback: Callable[[D], object] | None = None,
    ) -> D | None:
        """The future of the record, a `make`; None if there is no room or the topic is unknown (`wait_for_change`).

        Raises MessageTooLarge if no request could hold the record, and what has stopped the producer. What
        `accumulator.try_append` does not take comes here.
        """
        queues = self._known.get(topic)
        queue = None if queues is None else queues.queue_for(partition, key)
        if queues is None or queue is None:
            self._want(topic)
            return None
        if self.fatal is not None:
            raise self.fatal
        size = bound(key, value, headers)
        limit = self.settings.max_request_size
        if size + HEADER_SIZE > limit or size > self.accumulator.room:
            of = f"max.request.size ({limit})" if size + HEADER_SIZE > limit else "buffer.memory"
            raise MessageTooLarge(f"A record of {size} bytes for {queue} exceeds {of}")
        if self.accumulator.used + size > self.accumulator.room:
            return None
        batch = queue.open
        if batch is None or not self.accumulator.has_room(batch, size):
            if partition is None and self._is_sticky(key, len(queues.queues)):
                queue = queues.next_sticky()
                batch = queue.open
            if batch is None or not self.accumulator.has_room(batch, size):
                batch = self._add(queue)
        delivery = make.__new__(make)
        self.accumulator.put(batch, delivery, key, value, headers, timestamp_ms)
        if callback is not None:
            batch.callbacks.extend((delivery, callback))
        return delivery

    def _is_sticky(self, key: bytes | None, partitions: int) -> bool:
        return key is None if self._choose is None else self._choose(key, partitions) < 0

    def _add(self, queue: PartitionQueue, *, is_open: bool = True) -> Batch:
        batch = queue.add(is_open=is_open)
        self._unfinished[batch] = None
        self._fresh.append(batch)
        self._active[queue] = None
        self.needs_step = True
        return batch

    def append_encoded(self, topic: str, partition: int, body: Encoded) -> Batch | None:
        """A batch whose records are encoded already, after all that was appended before; None as for `append`."""
        queues = self._topics.get(topic)
        if queues is None or not 0 <= partition < len(queues.queues):
            self._want(topic)
            return None
        if self.fatal is not None:
            raise self.fatal
        size = len(body[0]) - HEADER_SIZE
        if self.accumulator.used and self.accumulator.used + size > self.accumulator.room:
            return None
        queue = queues.queues[partition]
        batch = self._add(queue, is_open=False)
        batch.fill(body)
        self.accumulator.reserve(batch.size)
        return batch

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; 0 while it is unknown, and then it will be asked for."""
        count = self._count(topic)
        if not count:
            self._want(topic)
        return count

    def _want(self, topic: str) -> None:
        if self.fatal is not None:
            raise self.fatal
        if topic not in self._topics:
            check_topics((topic,))  # or every request for metadata from now on would fail by it
            self._topics[topic] = TopicQueues(self._random, self._choose)
            self._learn(topic)
        if topic not in self._wish.missing:
            self._wish.missing.add(topic)
            self.needs_step = True

    def wait_for_change(self, wake: Callable[[], object]) -> None:
        """Have `wake()` called when `append` may succeed that gave None."""
        self._waiting_senders.append(wake)
        self.needs_step = True

    @property
    def metadata_version(self) -> int:
        """Counts the answers about metadata."""
        return self._wish.version

    def refusal(self, topic: str, partition: int | None, since: int) -> ClientError | None:
        """What to raise at once; None while waiting may help. `since` is the `metadata_version` at the first try."""
        code = self._view.topic_errors.get(topic, 0)
        return refusal(topic, partition, since, self._count(topic), code, self._wish)

    def obstacle(self, topic: str, partition: int | None) -> ClientError:
        """What to raise when the time for waiting is over."""
        return obstacle(topic, partition, self._count(topic), self._wish, self.accumulator.used, self.accumulator.room)

    def unfinished_queues(self, topic: str) -> dict[int, PartitionQueue]:
        """By partition, those of the topic that have batches without an end."""
        return {batch.queue.partition: batch.queue for batch in self._unfinished if batch.queue.topic == topic}

    def _count(self, topic: str) -> int:
        queues = self._topics.get(topic)
        return 0 if queues is None else len(queues.queues)

    # --- the turn of the wheel ----------------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Effect]:
        """What is to be done now."""
        self.needs_step = False
        self._timer_ms = FOREVER_MS
        effects: list[Effect] = []
        fresh, self._fresh = self._fresh, []
        for batch in fresh:
            batch.linger_until_ms = now_ms + self.settings.linger_ms
            batch.deadline_ms = now_ms + self.settings.delivery_timeout_ms
        self._expire(now_ms, effects)
        # Asked for together with the first metadata: one wait instead of two.
        is_due = self._active or (self._topics and not self._id.refused)
        if is_due and self._has_producer_id(now_ms, effects) and self._active:
            while sends := self._next_sends(now_ms):
                effects += sends
                if self.settings.acks == 0:
                    self._forget_in_flight(sends)
        self._ask_metadata(now_ms, effects)
        if self._freed:
            self._freed = False
            effects += self._wake_senders()
        return effects

    def next_timer_ms(self) -> int | None:
        """When to `step` next although nothing happens; None for never."""
        return None if self._timer_ms == FOREVER_MS else self._timer_ms

    def _at(self, when_ms: float) -> None:
        self._timer_ms = min(self._timer_ms, math.ceil(when_ms))

    def _expire(self, now_ms: int, effects: list[Effect]) -> None:
        expired: list[Batch] = []
        for batch in self._unfinished:
            if batch.deadline_ms > now_ms:
                self._at(batch.deadline_ms)
                break
            expired.append(batch)
        for batch in expired:
            self._give_up(batch, expired_after(self.settings.delivery_timeout_ms / 1000, batch))
        if expired:
            effects.append(Finished(expired))

    def _give_up(self, batch: Batch, error: ClientError) -> None:
        """End a batch that waits or is in flight. If it is in flight, its answer will change nothing."""
        queue = batch.queue
        if batch is queue.open:
            queue.close_open()
        if batch in queue.waiting:
            queue.waiting.remove(batch)
            if not queue.waiting:
                self._active.pop(queue, None)
        self._end(batch, error)

    def purge(self, *, in_queue: bool, in_flight: bool) -> list[Effect]:
        """Fail what waits to be sent, or waits for its answer, or both, with Purged."""
        ended = [batch for batch in self._unfinished if (in_flight if batch in batch.queue.in_flight else in_queue)]
        for batch in ended:
            sent = "it was sent and may have been written" if batch.attempts else "it was not sent"
            self._give_up(batch, Purged(f"{batch.count} records for {batch.queue} were purged: {sent}"))
        return [Finished(ended), *self._wake_senders()]

    def _has_producer_id(self, now_ms: int, effects: list[Effect]) -> bool:
        if not self.settings.idempotent or self._id.producer_id >= 0:
            return True
        due_ms = self._id.next_ms()
        if due_ms <= now_ms:
            self._id.asked()
            effects.append(AskProducerId())
        else:
            self._at(due_ms)
        return False

    def _next_sends(self, now_ms: int) -> list[Send]:
        """At most one more request for each node."""
        settings = self.settings
        hurried = bool(self._flushes or self._waiting_senders)
        plans: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        for queue in list(self._active):
            head = queue.waiting[0]
            if queue.retry_at_ms > now_ms:
                self._at(queue.retry_at_ms)
                continue
            if not queue.may_send(settings.max_in_flight):
                continue
            if head is queue.open and head.linger_until_ms > now_ms and not hurried and not head.urgent:
                self._at(head.linger_until_ms)
                continue
            node = self._view.leader(queue.topic, queue.partition)
            if node is None:
                self._wish.missing.add(queue.topic)
                continue
            if not self._is_free(node, now_ms):
                continue
            if head is queue.open:
                queue.close_open()
            while head.size >= queue.too_large and head.count > 1:
                head = self._split(head)
            size = head.size + HEADER_SIZE
            if node in plans and sizes[node] + size > settings.max_request_size:
                continue
            if not self._number(queue, head):
                continue
            plans.setdefault(node, []).append(queue.take())
            self._known[queue.topic].leave(queue)
            sizes[node] = sizes.get(node, 0) + size
            # At the end of the line, so that a busy partition does not keep others waiting.
            del self._active[queue]
            if queue.waiting:
                self._active[queue] = None
        return [self._in_flight.send(node, batches) for node, batches in plans.items()]

    def _is_free(self, node: int, now_ms: int) -> bool:
        free_at_ms = self._in_flight.free_at_ms(node, now_ms)
        if free_at_ms is not None and free_at_ms != now_ms:
            self._at(free_at_ms)
        return free_at_ms == now_ms

    def _number(self, queue: PartitionQueue, head: Batch) -> bool:
        if not self.settings.idempotent or queue.number(head, self._id.producer_id, self._id.epoch):
            return True
        self._id.producer_id = NO_ID  # used up: the next step asks for another
        self.needs_step = True
        self._at(0)
        return False

    def _forget_in_flight(self, sends: Iterable[Send]) -> None:
        """With acks=0 nothing waits for an answer, so no batch waits for another's."""
        for send in sends:
            for batch in send.batches:
                batch.queue.in_flight.remove(batch)

    def _ask_metadata(self, now_ms: int, effects: list[Effect]) -> None:
        due_ms = self._wish.next_ms()
        if due_ms > now_ms:
            self._at(due_ms)
            return
        self._wish.asked(self._topics)
        # All that are in use: one that has been left out of a refresh might look lost.
        effects.append(RefreshMetadata(tuple(self._topics), self._wish.failures))

    # --- answers ------------------------------------------------------------------------------------------------

    def responded(
        self, request_id: int, outcomes: dict[tuple[str, int], Outcome], throttle_ms: int, now_ms: int
    ) -> list[Effect]:
        """The broker's answer. A batch that it does not mention is sent again."""
        send = self._in_flight.take(request_id)
        if throttle_ms > 0:
            self._in_flight.throttle(send.node_id, now_ms + throttle_ms)
        ended: list[Batch] = []
        for batch in send.batches:
            queue = batch.queue
            outcome = outcomes.get((queue.topic, queue.partition))
            if self.settings.acks != 0:
                queue.in_flight.remove(batch)
            if outcome is None:
                outcome = Outcome(ErrorCode.NETWORK_EXCEPTION, message="the answer does not mention the partition")
            if self._judge(batch, outcome, now_ms):
                ended.append(batch)
        return [Finished(ended), *self.step(now_ms)]

    def lost(self, request_id: int, error: ClientError, now_ms: int) -> list[Effect]:
        """No answer will come (connection lost, or too late): nobody knows whether the batches were written."""
        send = self._in_flight.take(request_id)
        is_final = not error.retriable and not isinstance(error, BrokerUnavailable)
        ended: list[Batch] = []
        for batch in send.batches:
            if self.settings.acks != 0:
                batch.queue.in_flight.remove(batch)
            self._wish.missing.add(batch.queue.topic)
            batch.unsure_until_ms = now_ms + LATE_MS
            if self._end(batch, error) if is_final else self._retry_or_end(batch, error, now_ms):
                ended.append(batch)
        return [Finished(ended), *self.step(now_ms)]

    def _judge(self, batch: Batch, outcome: Outcome, now_ms: int) -> bool:
        """Whether the batch has its end now."""
        code = outcome.error_code
        if not code or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.queue.retry_at_ms = 0
            batch.queue.is_known = not batch.queue.renumber  # else it was another topic of this name
            return self._end(batch, None, outcome.base_offset, outcome.log_append_time_ms)
        if batch.done:
            return False
        if code in STALE_METADATA:
            self._wish.missing.add(batch.queue.topic)
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            return self._refused_as_too_large(batch, outcome.message)
        error = error_for(code, outcome.message)
        if code in SEQUENCE_GAPS and self.settings.idempotent:
            if batch.queue.is_oldest(batch):
                if batch.whole is not None and batch.unsure_until_ms:
                    # Too large now, but it was sent before: it may have been written as a whole then.
                    return self._end(batch, ConnectionLost(f"{batch.count} records for {batch.queue} may be written"))
                batch.queue.renumber = batch.unsure_until_ms <= now_ms
            return self._retry_or_end(batch, error, now_ms)
        if error.retriable:
            has_ended = self._retry_or_end(batch, error, now_ms)
            if outcome.has_moved:
                batch.queue.retry_at_ms = now_ms
            return has_ended
        if outcome.record_errors:
            others = error_for(code, "Another record of the same batch was refused")
            batch.record_errors = {index: error_for(code, message) for index, message in outcome.record_errors}
            return self._end(batch, others)
        return self._end(batch, error)

    def _retry_or_end(self, batch: Batch, error: ClientError, now_ms: int) -> bool:
        if batch.done:
            return False
        if self.settings.acks == 0 or batch.attempts > self.settings.retries or self.fatal is not None:
            return self._end(batch, error)
        if batch.deadline_ms <= now_ms:
            late = DeliveryTimedOut(f"{batch.count} records for {batch.queue} ran out of time; the last error: {error}")
            late.__cause__ = error
            return self._end(batch, late)
        queue = batch.queue
        self.retried += 1
        queue.put_back(batch, error)
        queue.retry_at_ms = now_ms + self._backoff_ms(batch.attempts - 1)
        self._active[queue] = None
        return False

    def _refused_as_too_large(self, batch: Batch, message: str | None) -> bool:
        """Whether the batch has its end now: it is split if it can be, which does not count as a retry. KIP-126."""
        queue = batch.queue
        if batch.count == 1:
            return self._end(batch, too_large(batch, message))
        queue.too_large = min(queue.too_large, batch.size)
        queue.put_back(batch)
        self._active[queue] = None
        self._split(batch)
        return False

    def _split(self, batch: Batch) -> Batch:
        """Put smaller batches in the place of one that waits, and is closed; gives the first."""
        pieces = split(batch.queue, batch)
        batch.queue.replace(batch, pieces)
        self.accumulator.release(batch.size - sum(piece.size for piece in pieces))
        self._unfinished = in_place_of(batch, pieces, self._unfinished)
        return pieces[0]

    def _backoff_ms(self, failures: int) -> int:
        """Doubles with each failure, with a fifth of chance so that clients do not return all at once. KIP-580."""
        settings = self.settings
        backoff = min(settings.retry_backoff_ms << min(failures, 20), settings.retry_backoff_max_ms)
        return int(backoff * (0.8 + 0.4 * self._random.random()))

    def _end(self, batch: Batch, error: Exception | None, base_offset: int = -1, log_append_time_ms: int = -1) -> bool:
        """End the batch; False if it had its end already."""
        if batch.done:
            return False
        batch.finish(base_offset, log_append_time_ms, error)
        self.ended.add(batch)
        del self._unfinished[batch]
        self.accumulator.release(batch.size)
        self._freed = True
        return True

    # --- metadata and producer id -------------------------------------------------------------------------------

    def metadata_changed(self, now_ms: int) -> list[Effect]:
        """The view is new."""
        missing = {topic for topic in self._topics if not self._learn(topic)}
        for queue in self._active:
            if self._view.leader(queue.topic, queue.partition) is None:
                missing.add(queue.topic)
        self._wish.changed(missing, now_ms)
        return [*self._wake_senders(), *self.step(now_ms)]

    def metadata_failed(self, error: ClientError, now_ms: int) -> list[Effect]:
        """No broker answered."""
        self._wish.failed(error, now_ms)
        return [*self._wake_senders(), *self.step(now_ms)]

    def _wake_senders(self) -> list[Effect]:
        wakers, self._waiting_senders = self._waiting_senders, []
        return [Wake(wakers)] if wakers else []

    def _learn(self, topic: str) -> bool:
        """Take in what the view says of a topic; False if it is still unknown."""
        queues = self._topics[topic]
        if not learn(topic, queues, self._view, self):
            return False
        self._known[topic] = queues
        return True

    def producer_id_given(self, producer_id: int, epoch: int, now_ms: int) -> list[Effect]:
        """From now on batches carry this id."""
        self._id.given(producer_id, epoch)
        return self.step(now_ms)

    def producer_id_failed(self, error: ClientError, now_ms: int) -> list[Effect]:
        """Asked again after a while if that may help, or if no record needs it yet; else the producer is at its end."""
        if isinstance(error, (BrokerError, UnsupportedByBroker)) and not error.retriable:
            if self._active:
                return self.stop(error)
            self._id.refused = True
        self._id.failed(now_ms + self._backoff_ms(self._id.failures))
        return self.step(now_ms)

    # --- flush and end ------------------------------------------------------------------------------------------

    def begin_flush(self) -> list[Batch]:
        """Stop lingering until `end_flush`; the batches that are not announced yet."""
        self._flushes += 1
        self.needs_step = True
        return [*self.ended.unannounced(), *self._unfinished]

    def end_flush(self) -> None:
        """Batches linger again."""
        self._flushes -= 1

    def pending_records(self) -> int:
        """How many records have no end yet. Needs no lock."""
        return sum(batch.count for batch in list(self._unfinished))

    def stop(self, error: ClientError) -> list[Effect]:
        """Everything without an end fails with `error`, and so does every further `append`."""
        self.fatal = error
        ended = list(self._unfinished)
        for batch in ended:
            self._give_up(batch, error)
        self._active.clear()
        return [Finished(ended), *self._wake_senders()]

    def validate(self) -> None:
        """Invariants, for tests after every event."""
        for topic in self._topics.values():
            for queue in topic.queues:
                queue.validate()
                assert bool(queue.waiting) == (queue in self._active), f"{queue}: active {queue in self._active}"
        assert self.accumulator.used == sum(batch.size for batch in self._unfinished), "memory is not what batches take"
        assert all(not batch.done for batch in self._unfinished)
        self._in_flight.validate()
