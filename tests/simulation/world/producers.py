"""A simulated cluster, network and clock around the producer's core, with seeded random faults.

Brokers follow Kafka's rules for idempotent producers: they remember the last five batches per producer and partition,
refuse gaps, and check epochs. The network delivers the requests of a connection in order. It may lose a request or a
response, or delay the response beyond the timeout of the client; then the request may still arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ottla.clients.errors import ConnectionLost, RequestTimedOut
from ottla.clients.producer._encoder import Delivery
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.effects import (
    Effect,
    Finished,
    Outcome,
    RequestMetadata,
    RequestProducerId,
    Send,
    Wake,
)
from ottla.clients.producer.settings import ProducerSettings
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.records import EncodedRecords, Record, kernels
from tests.simulation.world.clock import SimulatedClock

LATENCY_MS = 3


def values_of(batch: Batch) -> list[bytes | None]:
    """The values of the records in a batch."""
    records = kernels.decode_records(EncodedRecords(batch.out, 61, len(batch.out), batch.count), Record)
    return [record.value for record in records]


@dataclass
class ProducerState:
    epoch: int
    last_sequence: int
    recent: list[tuple[int, int, int]] = field(default_factory=list)  # first, last sequence, base offset


@dataclass
class Log:
    """One partition, as on all replicas: acknowledged records are never lost."""

    leader: int
    values: list[bytes | None] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    max_bytes: int = 1 << 60  # of a batch as it is sent

    def append(self, size: int, values: list[bytes | None], producer_id: int, epoch: int, sequence: int) -> Outcome:
        if size > self.max_bytes:  # as in Kafka, before the check for duplicates
            return Outcome(ErrorCode.MESSAGE_TOO_LARGE)
        if producer_id < 0:
            self.values += values
            return Outcome(0, len(self.values) - len(values))
        last = sequence + len(values) - 1
        state = self.producers.get(producer_id)
        if state is not None and epoch < state.epoch:
            return Outcome(ErrorCode.INVALID_PRODUCER_EPOCH)
        if state is not None and epoch == state.epoch:
            for known_first, known_last, offset in state.recent:
                if (known_first, known_last) == (sequence, last):
                    return Outcome(0, offset)
            if sequence != state.last_sequence + 1:
                return Outcome(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif state is not None and sequence != 0:  # like Kafka, it accepts any first number of an unknown producer
            return Outcome(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if state is None or epoch > state.epoch:
            state = self.producers[producer_id] = ProducerState(epoch, -1)
        offset = len(self.values)
        self.values += values
        state.last_sequence = last
        state.recent = [*state.recent[-4:], (sequence, last, offset)]
        return Outcome(0, offset)


class World:
    """Runs the core against brokers. The test sets the probability of each fault."""

    def __init__(
        self, seed: int = 1, partitions: int = 1, nodes: int = 1, topic: str = "t", **settings: object
    ) -> None:
        self.random = Random(seed)
        self.topic = topic
        self.clock = SimulatedClock(1000)
        self.nodes = nodes
        self.logs = {p: Log(leader=p % nodes) for p in range(partitions)}
        self.topic_errors: dict[str, int] = {}
        self.known = {p: log.leader for p, log in self.logs.items()}
        self.topic_exists = True
        self.hints = False
        self.id_latency_ms = LATENCY_MS
        self.id_now = self.id_seen = Uuid(b"1" * 16)
        self.lose_request = self.lose_answer = self.delay_answer = 0.0
        self.arrivals_ms: list[int] = []  # of the next requests with late responses; then random
        self.latest_arrival_ms = 1500  # of a request with a late response; the client gives up after 1000
        self.refuse: dict[int, float] = {}  # error code -> probability
        self.down: set[int] = set()
        self.sends: list[Send] = []
        self.next_producer_id = 100
        self.metadata_requests = 0
        self._busy_until: dict[int, int] = {}
        defaults: dict[str, object] = {"linger_ms": 5, "request_timeout_ms": 1000, "delivery_timeout_ms": 600_000}
        self.settings = ProducerSettings(**{**defaults, **settings})  # type: ignore[arg-type]
        self.core = ProducerCore(self.settings, self, self.random)
        self.announced: list[object] = []
        self._known_now = dict(self.known) if self.topic_exists else {}
        self._seen = False

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms

    # the view -----------------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[int] | None:
        return sorted(self.known) if self._seen and topic == self.topic else None

    def leader(self, topic: str, partition: int) -> int | None:
        leader = self.known.get(partition, -1)
        return None if leader < 0 else leader

    def topic_id(self, topic: str) -> Uuid:
        return self.id_seen

    # what a test does ---------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """The first metadata."""
        assert self.core.accumulator.partition_count(self.topic) == 0
        self.run(until=lambda: self._seen)

    def send(self, value: bytes, partition: int | None = 0, key: bytes | None = None) -> Delivery | None:
        delivery = self.core.accumulator.append(self.topic, partition, (key, value, (), self.now_ms), Delivery)
        if self.core.accumulator.needs_step:
            self.perform(self.core.step(self.now_ms))
        return delivery

    def wait_for(self, delivery: Delivery) -> None:
        """Act as `result()`: end the linger of the batch, and step."""
        if delivery._batch.wait_with(lambda: None):
            self.perform(self.core.step(self.now_ms))
            self.core.validate()

    def run(self, for_ms: int = 10_000_000, until: Callable[[], bool] | None = None) -> None:
        """Let time pass, event by event."""
        end = self.now_ms + for_ms
        while True:
            if until is not None and until():
                return
            if self.core.accumulator.needs_step:
                self.perform(self.core.step(self.now_ms))
                continue
            timer = self.core.next_timer_ms()
            due = min((when for when in (timer, self.clock.next_ms()) if when is not None), default=None)
            if due is None or due > end:
                assert until is None, "nothing more will happen, and the condition is still false"
                self.clock.advance_to(end)
                return
            self.clock.advance_to(due)
            event = self.clock.take_due()
            if event is not None:
                event()
            else:
                self.perform(self.core.step(self.now_ms))
            self.core.validate()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sends.append(effect)
                self._transmit(effect)
            elif isinstance(effect, Finished):
                for batch in effect.batches:
                    assert batch.done
                    batch.announce()
                    self.announced.append(batch)
            elif isinstance(effect, RequestMetadata):
                self.metadata_requests += 1
                self.at(LATENCY_MS, self._answer_metadata)
            elif isinstance(effect, RequestProducerId):
                self.at(self.id_latency_ms, self._give_producer_id)
            elif isinstance(effect, Wake):
                for wake in effect.wakers:
                    wake()

    def at(self, delay_ms: int, event: Callable[[], list[Effect]]) -> None:
        self.clock.plan(delay_ms, lambda: self.perform(event()))

    def recreate_topic(self, partitions: int = 1) -> None:
        """Delete and create the topic; the client does not know about it yet."""
        self.logs = {p: Log(leader=p % self.nodes) for p in range(partitions)}
        self.id_now = Uuid(bytes([self.id_now[0] + 1]) * 16)

    def move_leader(self, partition: int, node: int) -> None:
        self.logs[partition].leader = node

    # the other side -----------------------------------------------------------------------------------------------

    def _answer_metadata(self) -> list[Effect]:
        if not self.topic_exists:
            return self.core.metadata_changed(self.now_ms)
        self._seen = True
        self.id_seen = self.id_now
        self.known = {p: log.leader for p, log in self.logs.items()}
        return self.core.metadata_changed(self.now_ms)

    def _give_producer_id(self) -> list[Effect]:
        self.next_producer_id += 1
        return self.core.producer_id_given(self.next_producer_id, 0, self.now_ms)

    def _transmit(self, send: Send) -> None:
        chance = self.random.random
        rows = [
            (batch.queue.partition, len(batch.out), values_of(batch), batch.producer_id, batch.epoch,
             batch.sequence)
            for batch in send.batches
        ]  # fmt: skip
        topic_id = self.id_seen
        lost = ConnectionLost("the connection was lost")
        if send.node_id in self.down or chance() < self.lose_request:
            self.at(LATENCY_MS, lambda: self.core.lost(send.request_id, lost, self.now_ms))
            return
        arrival_ms = max(LATENCY_MS + self.now_ms, self._busy_until.get(send.node_id, 0))
        self._busy_until[send.node_id] = arrival_ms
        outcomes: dict[tuple[str, int], Outcome] = {}

        def arrive() -> list[Effect]:
            for partition, size, values, *producer in rows:
                outcome = self._append(send.node_id, topic_id, partition, size, values, *producer)
                outcomes[self.topic, partition] = outcome
                if self.hints and outcome.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    # KIP-951. The sender would update the view from the response.
                    has_moved = self.known[partition] != self.logs[partition].leader
                    self.known[partition] = self.logs[partition].leader
                    outcomes[self.topic, partition] = outcome._replace(has_moved=has_moved)
            return []

        if chance() < self.delay_answer:
            # The client gives up before the request arrives, and it may arrive after the retry.
            self.at(1000, lambda: self.core.lost(send.request_id, RequestTimedOut("no answer"), self.now_ms))
            by_chance_ms = self.random.randrange(900, self.latest_arrival_ms)
            self.at(self.arrivals_ms.pop(0) if self.arrivals_ms else by_chance_ms, arrive)
            return
        self.at(arrival_ms - self.now_ms, arrive)
        after = arrival_ms - self.now_ms + LATENCY_MS
        if chance() < self.lose_answer:
            self.at(after, lambda: self.core.lost(send.request_id, lost, self.now_ms))
        elif self.settings.acks == 0:
            self.at(0, lambda: self.core.responded(
                send.request_id, {(self.topic, row[0]): Outcome() for row in rows}, 0, self.now_ms
            ))  # fmt: skip
        else:
            self.at(after, lambda: self.core.responded(send.request_id, outcomes, 0, self.now_ms))

    def _append(
        self, node: int, topic_id: Uuid, partition: int, size: int, values: list[bytes | None], *producer: int
    ) -> Outcome:
        if topic_id != self.id_now:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
        log = self.logs[partition]
        if log.leader != node:
            return Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for code, chance in self.refuse.items():
            if self.random.random() < chance:
                return Outcome(code, message=f"refused with {code}")
        return log.append(size, values, *producer)
