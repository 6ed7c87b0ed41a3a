"""The core of a real idempotent producer against the brokers of a simulated cluster.

It has one connection to each broker: requests arrive in their order, and when one is lost, the connection is closed and
all requests on it may or may not have arrived. Each broker appends to its real log, which knows the producer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.clients.errors import ClientError, ConnectionLost, RequestTimedOut
from ottla.clients.producer._encoder import Delivery
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.effects import Effect, Finished, Outcome, RequestMetadata, RequestProducerId, Send, Wake
from ottla.clients.producer.requests import encode
from ottla.clients.producer.settings import ProducerSettings
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.records.batch import Codec
from tests.simulation.world.metadata_quorum import Callback
from tests.simulation.world.producers import values_of
from tests.simulation.world.replication import ReplicatedCluster

CLIENT = 0
REQUEST_TIMEOUT_MS = 1_000
SETTINGS = ProducerSettings(
    batch_size=200, linger_ms=5, request_timeout_ms=REQUEST_TIMEOUT_MS, delivery_timeout_ms=600_000
)


class ClusterProducer:
    """A producer; its program sends with `send`, and reads `acknowledged` and `failed`."""

    def __init__(self, cluster: ReplicatedCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.topic_errors: dict[str, int] = {}
        self.core = ProducerCore(SETTINGS, self, cluster.random)
        self.sent: dict[tuple[str, int], list[bytes]] = {}
        self.acknowledged: set[bytes] = set()
        self.failed: set[bytes] = set()
        self._image: MetadataImage | None = None
        self._deliveries: list[tuple[bytes, Delivery]] = []
        self._busy_until_ms: dict[int, int] = {}
        self._count = 0
        self._timer_ms: int | None = None

    @property
    def now_ms(self) -> int:
        """The wall clock: brokers forget a producer whose batches have old timestamps."""
        return self.cluster.clock.wall_ms()

    # -- the view of the core ----------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[int] | None:
        known = None if self._image is None else self._image.topics_by_name.get(topic)
        return None if known is None else list(known.partitions)

    def leader(self, topic: str, partition: int) -> int | None:
        known = None if self._image is None else self._image.topics_by_name.get(topic)
        if known is None or partition not in known.partitions:
            return None
        leader = known.partitions[partition].leader
        return None if leader == NO_LEADER else leader

    def topic_id(self, topic: str) -> Uuid:
        known = None if self._image is None else self._image.topics_by_name.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    # -- the program -------------------------------------------------------------------------------------------------

    def send(self, topic: str, partition: int) -> None:
        """Send the next record."""
        value = f"{self.name}-{self._count}".encode()
        delivery = self.core.accumulator.append(topic, partition, (None, value, (), self.now_ms), Delivery)
        if delivery is not None:  # otherwise the topic is not known yet
            self._count += 1
            self.sent.setdefault((topic, partition), []).append(value)
            self._deliveries.append((value, delivery))
        self.step()

    def note_deliveries(self) -> None:
        """Note which records are acknowledged, and which failed."""
        waiting = []
        for value, delivery in self._deliveries:
            if not delivery.done():
                waiting.append((value, delivery))
                continue
            try:
                delivery.peek()
            except ClientError:
                self.failed.add(value)
            else:
                self.acknowledged.add(value)
        self._deliveries = waiting

    @property
    def pending(self) -> int:
        """How many records have no outcome yet."""
        self.note_deliveries()
        return len(self._deliveries)

    # -- the core ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let the core do what is due, and plan its next step."""
        now_ms = self.now_ms
        self.perform(self.core.step(now_ms))
        self.core.validate()
        next_ms = self.core.next_timer_ms()
        if next_ms is not None and (self._timer_ms is None or self._timer_ms <= now_ms or next_ms < self._timer_ms):
            self._timer_ms = max(next_ms, now_ms + 1)
            self.cluster.clock.plan(self._timer_ms - now_ms, self.step)

    def perform(self, effects: list[Effect]) -> None:
        """Execute the effects of a step."""
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect)
            elif isinstance(effect, Finished):
                for batch in effect.batches:
                    batch.announce()
            elif isinstance(effect, RequestMetadata):
                self.cluster.clock.plan(self.cluster.latency(), self._learn)
            elif isinstance(effect, RequestProducerId):
                self._request_id()
            elif isinstance(effect, Wake):
                for wake in effect.wakers:
                    wake()

    def _answered(self, effects: list[Effect]) -> None:
        self.perform(effects)
        self.step()

    def _learn(self) -> None:
        """The answer to a metadata request: what a random broker knows."""
        cluster = self.cluster
        images = [metadata.image for metadata in cluster.metadata.values() if metadata.image.topics_by_id]
        if not images:
            self._answered(self.core.metadata_failed(ConnectionLost("no broker"), self.now_ms))
            return
        self._image = cluster.random.choice(images)
        self._answered(self.core.metadata_changed(self.now_ms))

    def _request_id(self) -> None:
        cluster = self.cluster
        brokers = [each for each in cluster.brokers.values() if each.epoch >= 0]
        leader = cluster.active()

        def answer(result: Any) -> None:
            now_ms = self.now_ms
            if isinstance(result, KafkaError):
                self._answered(self.core.producer_id_failed(ConnectionLost(str(result)), now_ms))
            else:
                self._answered(self.core.producer_id_given(result.producer_id_start, 0, now_ms))

        if not brokers or leader is None:
            cluster.clock.plan(20, lambda: answer(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return
        broker = cluster.random.choice(brokers)
        node, epoch = broker.node, broker.epoch
        cluster.call(CLIENT, leader, lambda c, _: c.allocate_producer_ids(node, epoch), answer)

    def _send(self, send: Send) -> None:
        cluster, now_ms = self.cluster, self.now_ms
        rows = []
        for batch in send.batches:
            key = (self.topic_id(batch.queue.topic), batch.queue.partition)
            rows.append(
                (
                    (batch.queue.topic, batch.queue.partition),
                    key,
                    bytes(encode(batch, Codec.NONE, None)),
                    values_of(batch),
                )
            )
        is_done = False

        def done(outcomes: dict[tuple[str, int], Outcome] | ClientError) -> None:
            nonlocal is_done
            if is_done:
                return
            is_done = True
            if isinstance(outcomes, ClientError):
                self._answered(self.core.lost(send.request_id, outcomes, self.now_ms))
            else:
                self._answered(self.core.responded(send.request_id, outcomes, 0, self.now_ms))

        lost = partial(done, ConnectionLost("the connection was lost"))
        delays = list(cluster.transmit(CLIENT, send.node_id))
        arrival_ms = max([now_ms + cluster.latency(), self._busy_until_ms.get(send.node_id, 0)])
        self._busy_until_ms[send.node_id] = arrival_ms
        if not delays or send.node_id not in cluster.running:
            cluster.clock.plan(arrival_ms - now_ms, lost)
            return
        cluster.clock.plan(arrival_ms - now_ms, partial(self._arrive, send.node_id, rows, done))
        cluster.clock.plan(REQUEST_TIMEOUT_MS, partial(done, RequestTimedOut("no answer")))

    def _arrive(self, node: int, rows: list[Any], done: Callback) -> None:
        cluster = self.cluster
        running = cluster.running.get(node)
        if running is None:
            done(ConnectionLost("the connection was refused"))
            return
        paused_ms = running.paused_until_ms - cluster.clock.now_ms
        if paused_ms > 0:
            cluster.clock.plan(paused_ms, partial(self._arrive, node, rows, done))
            return
        outcomes: dict[tuple[str, int], Outcome] = {}

        def note(name: tuple[str, int], result: int | KafkaError) -> None:
            if isinstance(result, KafkaError):
                outcomes[name] = Outcome(result.code)
            else:
                outcomes[name] = Outcome(0, result)
            if len(outcomes) == len(rows):
                for delay_ms in cluster.transmit(node, CLIENT):
                    cluster.clock.plan(delay_ms, partial(done, outcomes))

        for name, key, data, values in rows:
            if node in cluster.stores:
                cluster.append(node, key, bytearray(data), values, partial(note, name))
