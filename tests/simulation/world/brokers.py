"""Brokers as the controllers of a simulated cluster see them: they register, send heartbeats, change ISRs, and stop.

Each node of the `MetadataQuorum` has a broker. It knows the metadata that its own node has committed, and the leader
that its own replica follows. A crash of the node ends the broker; the next start is another incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.metadata.features import SUPPORTED_FEATURES
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tests.simulation.world.metadata_quorum import Callback, MetadataQuorum, Operation
from tests.simulation.world.quorum_parts import NONE, Faults, Setup

PERIOD_MS = 60
CALL_TIMEOUT_MS = 200
FEATURES = [Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]


@dataclass(eq=False)
class Broker:
    """One incarnation of a broker."""

    node: int
    incarnation: bytes
    previous_epoch: int = -1
    epoch: int = -1
    waits: bool = False
    stops: bool = False
    offline: list[bytes] = field(default_factory=list)

    @property
    def directories(self) -> list[bytes]:
        return [bytes([self.node, 7]) * 8, bytes([self.node, 8]) * 8][: 1 + self.node % 2]


class BrokerCluster(MetadataQuorum):
    """Controllers, and a broker on each node."""

    def __init__(self, seed: int, setup: Setup, faults: Faults = NONE) -> None:
        self.brokers: dict[int, Broker] = {}
        self.clean_epochs: dict[int, int] = {}
        """The last epoch of each broker that stopped cleanly, as its disk remembers it."""
        self.settling = False
        """Whether leaders only bring replicas back into the ISR."""
        super().__init__(seed, setup, faults)

    def on_started(self, node: int) -> None:
        super().on_started(node)
        self.begin_broker(node, self.clean_epochs.pop(node, -1))

    def on_stopped(self, node: int) -> None:
        super().on_stopped(node)
        del self.brokers[node]

    def begin_broker(self, node: int, previous_epoch: int) -> None:
        """Begin another incarnation of a node's broker."""
        broker = self.brokers[node] = Broker(node, self.random.randbytes(16), previous_epoch)
        self.clock.plan(self.random.randint(1, PERIOD_MS), partial(self._tick, broker))

    # -- messages ----------------------------------------------------------------------------------------------------

    def call(self, source: int, target: int, operation: Operation, callback: Callback, *, late_ms: int = 0) -> None:
        """Pass an operation to another node; the callback gets its response, its KafkaError, or REQUEST_TIMED_OUT.

        The request arrives `late_ms` later than others, perhaps when its sender has given up.
        """
        self.request(source, target, lambda respond: self.submit(target, operation, respond), callback, late_ms=late_ms)

    def request(
        self, source: int, target: int, serve: Callable[[Callback], None], callback: Callback, *, late_ms: int = 0
    ) -> None:
        """Let a node serve a request: `serve` gets the function that answers it. Both messages may be lost."""
        is_done = False

        def done(result: Any) -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                callback(result)

        def respond(result: Any) -> None:
            for delay_ms in self.transmit(target, source):
                self.clock.plan(delay_ms, partial(done, result))

        def arrive() -> None:
            running = self.running.get(target)
            if running is None or (source, target) in self.blocked:
                return
            if running.paused_until_ms > self.clock.now_ms:
                self.clock.plan(running.paused_until_ms - self.clock.now_ms, arrive)
            else:
                serve(respond)

        for delay_ms in self.transmit(source, target) if source != target else (0,):
            self.clock.plan(delay_ms + late_ms, arrive)
        self.clock.plan(CALL_TIMEOUT_MS, partial(done, KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

    def known_leader(self, node: int) -> int | None:
        """The active controller as far as the node knows."""
        leader = self.core(node).election.leader_id
        return leader if leader > 0 else None

    def on_registered(self, broker: Broker) -> None:
        """The broker knows its epoch."""

    # -- a broker's life ---------------------------------------------------------------------------------------------

    def _tick(self, broker: Broker) -> None:
        if self.brokers.get(broker.node) is not broker:
            return
        self.clock.plan(self.random.randint(PERIOD_MS // 2, PERIOD_MS), partial(self._tick, broker))
        if self.running[broker.node].paused_until_ms > self.clock.now_ms:
            return
        leader = self.known_leader(broker.node)
        if leader is None or broker.waits:
            return
        broker.waits = True
        if broker.epoch < 0:
            self._register(broker, leader)
        else:
            self._send_heartbeat(broker, leader)
            self.change_isr(broker, leader)

    def _register(self, broker: Broker, leader: int) -> None:
        request = BrokerRegistrationRequest(
            broker_id=broker.node,
            cluster_id="simulated",
            incarnation_id=broker.incarnation,
            listeners=[Listener("PLAINTEXT", "localhost", 9092, 0)],
            features=FEATURES,
            rack=None,
            log_dirs=broker.directories,
            previous_broker_epoch=broker.previous_epoch,
        )

        def answer(result: Any) -> None:
            broker.waits = False
            if not isinstance(result, KafkaError) and self.brokers.get(broker.node) is broker:
                broker.epoch = result.broker_epoch
                self.on_registered(broker)

        self.call(broker.node, leader, lambda c, now_ms: c.register_broker(request, now_ms=now_ms), answer)

    def _send_heartbeat(self, broker: Broker, leader: int) -> None:
        metadata = self.metadata[broker.node]
        request = BrokerHeartbeatRequest(
            broker_id=broker.node,
            broker_epoch=broker.epoch,
            current_metadata_offset=metadata.image.offset,
            want_shut_down=broker.stops,
            offline_log_dirs=list(broker.offline),
        )
        self.call(broker.node, leader, lambda c, now: c.heartbeat(request, now), partial(self._on_heartbeat, broker))

    def _on_heartbeat(self, broker: Broker, result: BrokerHeartbeatResponse | KafkaError) -> None:
        broker.waits = False
        if self.brokers.get(broker.node) is not broker:
            return
        if isinstance(result, KafkaError):
            if result.code == ErrorCode.STALE_BROKER_EPOCH:
                self.begin_broker(broker.node, -1)  # It was unregistered, or another incarnation took its place.
        elif result.should_shut_down and broker.stops:
            self.stop(broker)

    def stop(self, broker: Broker) -> None:
        """End a controlled shutdown: everything is on disk."""
        self.disks[broker.node].flushed = self.disks[broker.node].end
        self.clean_epochs[broker.node] = broker.epoch
        self.crash(broker.node)

    # -- in-sync replicas --------------------------------------------------------------------------------------------

    def change_isr(self, broker: Broker, leader: int) -> None:
        """Change the ISR of some partitions that the broker leads: at random, or to all active replicas."""
        image = self.metadata[broker.node].image
        for topic in image.topics_by_id.values():
            for index, state in topic.partitions.items():
                if state.leader != broker.node:
                    continue
                isr = self._wanted_isr(image, broker, state)
                if isr is not None:
                    self._alter(broker, leader, topic, index, isr)

    def _wanted_isr(self, image: MetadataImage, broker: Broker, state: PartitionImage) -> list[BrokerImage] | None:
        known = [image.brokers[each] for each in state.replicas if each in image.brokers]
        active = [each for each in known if each.is_active]
        if self.settling:
            return active if {each.broker_id for each in active} != set(state.isr) else None
        if self.random.random() < 0.9:
            return None
        if self.random.random() < 0.5:
            return active
        return [each for each in active if each.broker_id == broker.node or self.random.random() < 0.5]

    def _alter(self, broker: Broker, leader: int, topic: TopicImage, index: int, isr: list[BrokerImage]) -> None:
        state = topic.partitions[index]
        members = [BrokerState(each.broker_id, each.epoch) for each in isr]
        data = RequestPartitionData(index, state.leader_epoch, [], members, 0, state.partition_epoch)
        request = AlterPartitionRequest(broker.node, broker.epoch, [RequestTopicData(topic.topic_id, [data])])

        def answer(result: AlterPartitionResponse | KafkaError) -> None:
            if not isinstance(result, KafkaError):
                self.check_altered(result)

        self.call(broker.node, leader, lambda c, _: c.alter_partition(request), answer)

    def check_altered(self, response: AlterPartitionResponse) -> None:
        """Check that the controller's answer is committed."""
        for topic in response.topics:
            known = self.history.image.topics_by_id.get(topic.topic_id)
            for answer in topic.partitions:
                if answer.error_code or known is None:
                    continue
                state = known.partitions[answer.partition_index]
                is_committed = state.partition_epoch >= answer.partition_epoch
                assert is_committed, self.checks.fail("an answer before the commit")
                if state.partition_epoch == answer.partition_epoch:
                    same = (list(state.isr), state.leader_epoch) == (answer.isr, answer.leader_epoch)
                    assert same, self.checks.fail(f"the answer {answer} is not the committed {state}")

    def unsettled(self) -> str | None:
        """A broker that does not serve, or a partition without a leader or in-sync replicas; None if all is well."""
        image = self.history.image
        for node in self.nodes:
            broker = image.brokers.get(node)
            own = self.brokers[node]
            if broker is None or not broker.is_active or broker.epoch != own.epoch or own.stops:
                return f"broker {node}: {broker}"
        for topic in image.topics_by_id.values():
            for index, each in topic.partitions.items():
                if each.leader not in each.isr or set(each.isr) != set(each.replicas) or each.is_reassigning:
                    return f"{topic.name}-{index}: {each}"
        return None
