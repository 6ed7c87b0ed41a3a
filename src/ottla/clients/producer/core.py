"""The core of the producer, without I/O: which batch is sent when, with which sequence number, and when it fails.

Events come in as method calls, effects go out as return values. The caller

1. holds one lock around each call here and to `accumulator` (`encoder.try_append` excepted), and passes the time of a
   steady clock as `now_ms`;
2. releases the lock and executes the returned effects in their order; `effects` says which method takes each answer;
3. calls `step` soon after `accumulator.needs_step` is set, and at `next_timer_ms`.

Promises: with idempotence, an acknowledged record is in its partition once, and in the order of the `append` calls.
Every batch is done (acknowledged, or failed with a typed error) within `delivery_timeout_ms`. Records without an
outcome take at most `buffer_memory` bytes. KIP-91 (timeouts), KIP-98, KIP-360 (idempotence), KIP-219 (throttling),
KIP-480 (sticky partitions). `outcomes` decides what a response means for a batch, `transactions` when a
transactional producer may send.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TypeVar

from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.errors import (
    BrokerError,
    BrokerUnavailable,
    ClientError,
    InvalidTransactionState,
    Purged,
    UnsupportedByBroker,
)
from ottla.clients.producer.accumulator import RecordAccumulator
from ottla.clients.producer.batch import Batch, PartitionQueue
from ottla.clients.producer.effects import (
    NO_ID,
    Effect,
    Finished,
    InFlight,
    Outcome,
    ProducerId,
    RequestMetadata,
    RequestProducerId,
    Send,
    Wake,
)
from ottla.clients.producer.metadata import FOREVER_MS, MetadataRefresh
from ottla.clients.producer.outcomes import BatchOutcomes, expired_after
from ottla.clients.producer.partitioner import Choice
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.producer.transaction_states import State
from ottla.clients.producer.transactions import Call, Transactions
from ottla.common.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.records.batch import HEADER_SIZE

R = TypeVar("R")
# A request of a lost connection arrives at the broker within this time, or not at all.
LATE_ARRIVAL_MS = 2000


class ProducerCore:
    """Decides what happens to every batch that has no outcome yet."""

    def __init__(
        self, settings: ProducerSettings, view: ClusterView, random: Random, choose: Choice | None = None
    ) -> None:
        self.settings = settings
        self.refresh = MetadataRefresh(settings.metadata_max_age_ms, self._backoff_ms)
        self.accumulator = RecordAccumulator(settings, view, random, choose, self.refresh)
        self.runtime = self.accumulator.runtime
        self.outcomes = BatchOutcomes(settings, self.accumulator, self.refresh, self._backoff_ms)
        self._view = view
        self._random = random
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self._in_flight = InFlight(settings.max_in_flight)
        self._id = ProducerId()
        self.transactions: Transactions | None = None
        if settings.transactional_id is not None:
            timeout_ms = settings.transaction_timeout_ms
            self.transactions = Transactions(settings.transactional_id, timeout_ms, self._backoff_ms)
            self.accumulator.transactions = self.transactions
        self._flushes = 0
        self._timer_ms = FOREVER_MS

    # --- what to do now -----------------------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Effect]:
        records = self.accumulator
        records.needs_step = False
        self._timer_ms = FOREVER_MS
        effects: list[Effect] = []
        records.start_timers(now_ms)
        self._expire(now_ms, effects)
        if self.transactions is not None:
            self._step_transactions(self.transactions, now_ms, effects)
            return effects + records.senders.wake_after_release()
        # The id is requested together with the first metadata: one round trip instead of two.
        needs_id = records.active or (records.topics and not self._id.is_refused)
        if needs_id and self._has_producer_id(now_ms, effects) and records.active:
            while sends := self._next_sends(now_ms):
                effects += sends
        self._request_metadata(now_ms, effects)
        return effects + records.senders.wake_after_release()

    def _step_transactions(self, transactions: Transactions, now_ms: int, effects: list[Effect]) -> None:
        """Send batches as far as the transaction allows, and the next request to its coordinator."""
        records = self.accumulator
        records.report_failures()
        if transactions.drops_batches:
            dropped = [batch for batch in records.unfinished if batch not in batch.queue.in_flight]
            for batch in dropped:
                records.give_up(batch, transactions.drop_reason())
            records.report_failures()
            effects.append(Finished(dropped))
        while sends := self._next_sends(now_ms):
            effects += sends
        is_drained = not records.unfinished and self._in_flight.is_empty()
        request = transactions.next_request(now_ms, is_drained=is_drained)
        if request is not None:
            effects.append(request)
        elif (due_ms := transactions.next_ms()) > now_ms:
            self._wake_at(due_ms)
        self._request_metadata(now_ms, effects)
        if transactions.wakers:
            effects.append(Wake(transactions.take_wakers()))

    def next_timer_ms(self) -> int | None:
        """When to `step` next even if nothing happens; None for never."""
        return None if self._timer_ms == FOREVER_MS else self._timer_ms

    def _wake_at(self, when_ms: float) -> None:
        self._timer_ms = min(self._timer_ms, math.ceil(when_ms))

    def _expire(self, now_ms: int, effects: list[Effect]) -> None:
        expired: list[Batch] = []
        for batch in self.accumulator.unfinished:
            if batch.deadline_ms > now_ms:
                self._wake_at(batch.deadline_ms)
                break
            expired.append(batch)
        for batch in expired:
            self.accumulator.give_up(batch, expired_after(self.settings.delivery_timeout_ms / 1000, batch))
        if expired:
            effects.append(Finished(expired))

    def _has_producer_id(self, now_ms: int, effects: list[Effect]) -> bool:
        if not self.settings.idempotent or self._id.producer_id >= 0:
            return True
        due_ms = self._id.next_ms()
        if due_ms <= now_ms:
            self._id.sent()
            effects.append(RequestProducerId())
        else:
            self._wake_at(due_ms)
        return False

    def _next_sends(self, now_ms: int) -> list[Send]:
        """At most one more request for each broker; `step` calls this until it returns nothing.

        The queues with waiting batches are visited in the order in which they last sent. The first batch of each queue
        is considered, since a later one must not overtake it. `_ready_leader` decides whether it may be sent now. It
        joins the request to its broker unless the request would exceed max.request.size. Then it is numbered and moved
        to those in flight, and its queue goes to the end, so that a busy partition does not starve the others.

        Invariant: a request has at most one batch of a partition, and a broker has at most `max_in_flight` requests. So
        the broker processes the batches of a partition in the order of their sequence numbers. An open batch is closed
        before its size is read, because other threads append to open batches without the lock.

        Cost: one visit per queue and call; the number of calls is bounded by `max_in_flight` + 1 for each broker.
        """
        records = self.accumulator
        plans: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        for queue in list(records.active):
            node = self._ready_leader(queue, now_ms)
            if node is None:
                continue
            head = queue.waiting[0]
            if head is queue.open_batch:
                queue.close_batch()
            while head.size >= queue.too_large and head.count > 1:
                head = records.split(head)
            size = head.size + HEADER_SIZE
            if node in plans and sizes[node] + size > self.settings.max_request_size:
                continue
            if not self._number(queue, head):
                continue
            plans.setdefault(node, []).append(queue.take())
            records.sent(queue)
            sizes[node] = sizes.get(node, 0) + size
            if self.settings.acks == 0:  # without responses no batch waits for another's outcome
                queue.in_flight.remove(head)
        return [self._in_flight.send(node, batches) for node, batches in plans.items()]

    def _ready_leader(self, queue: PartitionQueue, now_ms: int) -> int | None:
        """The broker to send the first waiting batch to now.

        None while the partition backs off, its order forbids to send, the batch lingers, the partition has no leader,
        or the broker is throttled or busy. The next timer is set if time alone changes that.
        """
        head = queue.waiting[0]
        if self.transactions is not None and not self.transactions.may_send(queue.topic, queue.partition):
            return None
        if queue.retry_at_ms > now_ms:
            self._wake_at(queue.retry_at_ms)
            return None
        if not queue.may_send(self.settings.max_in_flight):
            return None
        is_urgent = head.urgent or self._flushes or bool(self.accumulator.senders)
        if self.transactions is not None and self.transactions.is_committing:
            is_urgent = True
        if head is queue.open_batch and head.linger_until_ms > now_ms and not is_urgent:
            self._wake_at(head.linger_until_ms)
            return None
        node = self._view.leader(queue.topic, queue.partition)
        if node is None:
            self.refresh.missing.add(queue.topic)
            return None
        free_at_ms = self._in_flight.free_at_ms(node, now_ms)
        if free_at_ms is not None and free_at_ms > now_ms:
            self._wake_at(free_at_ms)
        return node if free_at_ms == now_ms else None

    def _number(self, queue: PartitionQueue, head: Batch) -> bool:
        if self.transactions is not None:
            _, producer_id, epoch = self.transactions.identity
            queue.number_in_transaction(head, producer_id, epoch)
            return True
        if not self.settings.idempotent or queue.number(head, self._id.producer_id, self._id.epoch):
            return True
        self._id.producer_id = NO_ID  # the epoch is exhausted: the next step requests another id
        self.accumulator.needs_step = True
        self._wake_at(0)
        return False

    def _request_metadata(self, now_ms: int, effects: list[Effect]) -> None:
        due_ms = self.refresh.next_ms()
        if due_ms > now_ms:
            self._wake_at(due_ms)
            return
        topics = self.accumulator.topics
        self.refresh.sent(topics)
        # All topics in use: one that is missing from a response would look deleted.
        effects.append(RequestMetadata(tuple(topics), self.refresh.failures))

    # --- responses ----------------------------------------------------------------------------------------------

    def responded(
        self, request_id: int, outcomes: dict[tuple[str, int], Outcome], throttle_ms: int, now_ms: int
    ) -> list[Effect]:
        """The broker responded. A batch without an outcome is sent again."""
        send = self._in_flight.take(request_id)
        if throttle_ms > 0:
            self._in_flight.throttle(send.node_id, now_ms + throttle_ms)
        done: list[Batch] = []
        for batch in send.batches:
            queue = batch.queue
            outcome = outcomes.get((queue.topic, queue.partition))
            if self.settings.acks != 0:
                queue.in_flight.remove(batch)
            if outcome is None:
                outcome = Outcome(ErrorCode.NETWORK_EXCEPTION, message="the response does not mention the partition")
            if self.outcomes.judge(batch, outcome, now_ms):
                done.append(batch)
        return [Finished(done), *self.step(now_ms)]

    def lost(self, request_id: int, error: ClientError, now_ms: int) -> list[Effect]:
        """There will be no response (connection lost, or timeout). The batches may or may not have been written."""
        send = self._in_flight.take(request_id)
        is_final = not error.retriable and not isinstance(error, BrokerUnavailable)
        done: list[Batch] = []
        for batch in send.batches:
            if self.settings.acks != 0:
                batch.queue.in_flight.remove(batch)
            self.refresh.missing.add(batch.queue.topic)
            batch.unsure_until_ms = now_ms + LATE_ARRIVAL_MS
            if self.accumulator.finish(batch, error) if is_final else self.outcomes.retry_or_fail(batch, error, now_ms):
                done.append(batch)
        return [Finished(done), *self.step(now_ms)]

    def _backoff_ms(self, failures: int) -> int:
        """The time to the next attempt (KIP-580). The first failure is number 0."""
        return int(self._backoff.delay_ms(failures + 1, self._random.random()))

    # --- metadata and producer id -------------------------------------------------------------------------------

    def metadata_changed(self, now_ms: int) -> list[Effect]:
        self.refresh.received(self.accumulator.learn(), now_ms)
        return [*self.accumulator.senders.wake(), *self.step(now_ms)]

    def metadata_failed(self, error: ClientError, now_ms: int) -> list[Effect]:
        self.refresh.failed(error, now_ms)
        return [*self.accumulator.senders.wake(), *self.step(now_ms)]

    def producer_id_given(self, producer_id: int, epoch: int, now_ms: int) -> list[Effect]:
        self._id.received(producer_id, epoch)
        return self.step(now_ms)

    def producer_id_failed(self, error: ClientError, now_ms: int) -> list[Effect]:
        """Retry after a backoff if that may help, or if no record needs the id yet. Otherwise stop the producer."""
        if isinstance(error, (BrokerError, UnsupportedByBroker)) and not error.retriable:
            if self.accumulator.active:
                return self.stop(error)
            self._id.is_refused = True
        self._id.failed(now_ms + self._backoff_ms(self._id.failures))
        return self.step(now_ms)

    # --- transactions -------------------------------------------------------------------------------------------

    def call(self, call: Callable[[Transactions], R]) -> R:
        """Make a call of the program to `transactions`. Raises its errors, and InvalidTransactionState without id."""
        if self.transactions is None:
            raise InvalidTransactionState("This producer has no transactions: create it with a transactional_id")
        self.accumulator.report_failures()
        try:
            return call(self.transactions)
        finally:
            if self.transactions.state is not State.IN_TRANSACTION:
                self.accumulator.close_batches()
            self.accumulator.needs_step = True

    def begin_close(self) -> Call | None:
        """Abort an open transaction; the call to wait for before `stop`, if any."""
        return None if self.transactions is None else self.call(lambda transactions: transactions.close())

    def coordinator_answered(self, response: Message, level: int | None, now_ms: int) -> list[Effect]:
        """A coordinator responded. `level` is the finalized transaction.version that it reported, if it did."""
        assert self.transactions is not None
        if level is not None:
            self.transactions.learn(level)
        self.transactions.answered(response, now_ms)
        return self.step(now_ms)

    def coordinator_lost(self, error: ClientError, now_ms: int) -> list[Effect]:
        assert self.transactions is not None
        self.transactions.lost(error, now_ms)
        return self.step(now_ms)

    # --- flush, purge and stop ----------------------------------------------------------------------------------

    def begin_flush(self) -> list[Batch]:
        """Send without linger until `end_flush`; returns the batches that are not announced yet."""
        self._flushes += 1
        self.accumulator.needs_step = True
        return [*self.accumulator.completed.unannounced(), *self.accumulator.unfinished]

    def end_flush(self) -> None:
        self._flushes -= 1

    def pending_records(self) -> int:
        """The number of records without an outcome. Needs no lock."""
        return sum(batch.count for batch in list(self.accumulator.unfinished))

    def purge(self, *, in_queue: bool, in_flight: bool) -> list[Effect]:
        """Fail the batches that wait to be sent, or those in flight, or both, with Purged."""
        records = self.accumulator
        purged = [batch for batch in records.unfinished if (in_flight if batch in batch.queue.in_flight else in_queue)]
        for batch in purged:
            sent = "it was sent and may have been written" if batch.attempts else "it was not sent"
            records.give_up(batch, Purged(f"{batch.count} records for {batch.queue} were purged: {sent}"))
        records.needs_step = True
        return [Finished(purged), *records.senders.wake()]

    def stop(self, error: ClientError) -> list[Effect]:
        """Fail all batches, and every further `append`, with `error`."""
        self.accumulator.fatal = error
        stopped = list(self.accumulator.unfinished)
        for batch in stopped:
            self.accumulator.give_up(batch, error)
        self.accumulator.active.clear()
        effects = [Finished(stopped), *self.accumulator.senders.wake()]
        if self.transactions is not None:
            self.transactions.stop(error)
            effects.append(Wake(self.transactions.take_wakers()))
        return effects

    def validate(self) -> None:
        self.accumulator.validate()
        self._in_flight.validate()
        if self.transactions is not None:
            self.transactions.validate()


def metrics(core: ProducerCore) -> dict[str, float]:
    pending = core.pending_records()
    completed = core.accumulator.completed
    encoder = core.accumulator.encoder
    return {
        "record-send-total": completed.acknowledged + completed.failed + pending,
        "record-acknowledged-total": completed.acknowledged,
        "record-error-total": completed.failed,
        "batch-retry-total": core.outcomes.retried,
        "records-pending": pending,
        "buffer-total-bytes": encoder.memory_limit,
        "buffer-available-bytes": encoder.memory_limit - encoder.memory_used,
    }
