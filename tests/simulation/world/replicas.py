"""Brokers that replicate one topic: real partitions, fetchers and logs on simulated disks, without a network.

`ReplicaWorld` has the controller's role: it elects leaders and commits changes of the ISR by the rules of
`ottla.controller.partition_change`. Each node learns of a change after a random delay. Requests are encoded and
decoded; they take random times, and a cut link or a killed node loses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from ottla.broker.handlers import fetch, list_offsets
from ottla.broker.security import Security
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.common.work import Worker
from ottla.config import BrokerConfig, TopicResolver
from ottla.controller.partition_change import ChangeRules, Election, Target, partition_change
from ottla.log import Log, LogConfig, LogManager
from ottla.log.storage import MetaProperties, write_meta
from ottla.metadata.delta import changed_partition
from ottla.metadata.image import TOPIC as TOPIC_RESOURCE
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.network.closing_order import ClosedFirst
from ottla.network.errors import ConnectionClosed
from ottla.partitions.fetch_session import FetchSessionCache
from ottla.partitions.partition import Partition
from ottla.partitions.partitions import Partitions, PartitionsPorts
from ottla.partitions.replication.alter_partitions import AlterPartitions
from ottla.partitions.replication.context import FetcherContext
from ottla.partitions.replication.directory_moves import DirectoryMoves, MovePorts
from ottla.partitions.replication.fetchers import ReplicaFetchers
from ottla.partitions.replication.quotas import ReplicationQuotas
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.records import decode_batch, encode_batch, iter_batches
from ottla.replication.session import FetchSettings
from tests.simulation.world.disk import SimulatedDisk
from tests.unit.broker.harness import Connection, ManualLoop, Threads

TOPIC, TOPIC_ID = "replicated", b"t" * 16
FETCHED_MS, LAG_MS = 100, 2_000
SETTINGS = FetchSettings(wait_max_ms=FETCHED_MS, max_bytes=400, response_max_bytes=1_000, backoff_ms=50)
NO_SETTINGS: Mapping[str, object] = {}
HANDLERS: dict[int, Any] = {1: fetch, 2: list_offsets}


def settle_as(done: Completion[None], other: Completion[None]) -> None:
    """Complete `done` with the outcome of `other`."""
    if other.error is None:
        done.complete(None)
    else:
        done.fail(other.error)


class Context:
    """The part of `RequestContext` that the handlers use."""

    def __init__(self, connection: Connection, version: int) -> None:
        self.connection = connection
        self.api_version = version
        self.listener = "PLAINTEXT"


class Channel:
    """A connection to another node; requests and responses are encoded and take a random time."""

    def __init__(self, world: ReplicaWorld, source: ReplicaNode, target: ReplicaNode) -> None:
        self.world, self.source, self.target = world, source, target
        self.connection = Connection()
        self.pending: set[Completion[Message]] = set()
        target.channels.append(self)

    def send(
        self, request: Message, *, timeout_s: float, version: int | None = None, least_version: int = 0
    ) -> Completion[Message]:
        done: Completion[Message] = Completion()
        version = min(request.MAX_VERSION, 18) if version is None else version
        data = bytes(request.encode(version))
        self.pending.add(done)
        self.world.later(lambda: self._arrive(type(request), data, version, done))
        return done

    def _arrive(self, kind: type[Message], data: bytes, version: int, done: Completion[Message]) -> None:
        if self.connection.closed or not self.target.up or self.world.is_cut(self.source, self.target):
            self.close()
            return
        answer = HANDLERS[kind.API_KEY].handle(
            self.target, Context(self.connection, version), kind.decode(memoryview(data), version)
        )
        if hasattr(answer, "send"):
            answer = self.target.schedulers.worker.submit(answer)
        if not isinstance(answer, Completion):
            answer = Completion.of(answer)
        answer.on_done(lambda ready: self._respond(ready.result(), version, done))

    def _respond(self, response: Any, version: int, done: Completion[Message]) -> None:
        for topic in getattr(response, "responses", ()):
            for partition in topic.partitions:
                if hasattr(partition.records, "take"):
                    partition.records = partition.records.take(len(partition.records))
        data = bytes(response.encode(version))
        decoded = type(response).decode(memoryview(data), version)
        self.world.later(lambda: self._deliver(decoded, done))

    def _deliver(self, response: Message, done: Completion[Message]) -> None:
        if self.connection.closed or not self.source.up or self.world.is_cut(self.source, self.target):
            self.close()
            return
        self.pending.discard(done)
        done.complete(response)

    def close(self) -> None:
        self.connection.drop()
        pending, self.pending = self.pending, set()
        for each in pending:
            each.fail(ConnectionClosed("cut"))


class ReplicaNode:
    """One broker: what the handlers of Fetch and ListOffsets use, and the replication."""

    def __init__(self, world: ReplicaWorld, node_id: int) -> None:
        self.world, self.node_id = world, node_id
        self.disk = SimulatedDisk(world.random.randrange(1 << 30))
        for number, path in enumerate(world.directories, 1):
            self.disk.make_directory(path)
            write_meta(self.disk, path, MetaProperties("simulated", node_id, bytes([number] * 16)))
        self.clock = world.loop
        self.channels: list[Channel] = []
        self.up = False
        self.generation = 0
        self.image = MetadataImage()
        self.known = world.image
        """The metadata that this node knew last; a restarted node begins with it."""
        self.config = BrokerConfig(
            {"node.id": str(node_id), "log.dirs": "/unused", "listeners": "PLAINTEXT://127.0.0.1:0"}
        )
        resolved = TopicResolver({}, {}, self.config).resolve({})
        self._defaults: dict[str, object] = {name: entry.value for name, entry in resolved.items()}

    def start(self) -> None:
        world = self.world
        self.up, self.generation = True, self.generation + 1
        self.channels = []
        self.image = MetadataImage()
        config = LogConfig.from_topic_config(self.values)
        self.logs = LogManager(world.directories, world.loop, config, files=self.disk)
        for directory in self.logs.log_directories():
            directory.lock.acquire = lambda: None  # type: ignore[method-assign]
            directory.lock.release = lambda: None  # type: ignore[method-assign]
        # As a node, which reads the metadata of its last run first.
        self.logs.load(lambda _: config)
        self.schedulers = SimpleNamespace(worker=Worker(world.loop))
        self.settings = SimpleNamespace(current=self.config)
        self.security = Security()
        self.endpoints = SimpleNamespace(address=lambda _node_id, _listener: None)
        self.fetch_sessions = FetchSessionCache(100, lambda: world.random.randrange(1, 1 << 31))
        self.connections = SimpleNamespace(followers=ClosedFirst())
        self.replication_quotas = ReplicationQuotas(self.config, lambda: self.config, world.loop)
        worker = self.schedulers.worker
        ports = PartitionsPorts(self.node_id, self.logs, world.loop, lambda _: self.values, Threads().run, worker)
        self.partitions = Partitions(ports)
        self.partitions.cluster.lag_time_max_ms = LAG_MS
        generation = self.generation

        def call_later(delay_s: float, callback: Callable[[], object]) -> Any:
            return world.loop.call_later(delay_s, lambda: self.generation == generation and self.up and callback())

        self.alter = AlterPartitions(_Controller(world, self, generation), self.partitions.cluster, call_later)  # type: ignore[arg-type]
        self.fetchers = ReplicaFetchers(
            FetcherContext(
                cluster=self.partitions.cluster,
                logs=self.logs,
                clock=world.loop,
                call_later=call_later,
                worker=self.schedulers.worker,
                settings=SETTINGS,
                request_timeout_s=5,
                connect=lambda leader, _: Channel(world, self, world.nodes[leader]),
                on_lost=lambda leader: None,
                on_answer=lambda leader: None,
            ),
            lambda: 1,
        )
        self.partitions.send_proposal = self.alter.propose
        self.partitions.listen(self.fetchers)
        quota = self.replication_quotas.moves

        def after_a_pause(delay_s: float, callback: Callable[[], object]) -> Any:
            return call_later(delay_s + world.random.choice((0, 0.002, 0.05)), callback)

        def in_thread(work: Callable[[], object]) -> Completion[None]:
            done: Completion[None] = Completion()
            after_a_pause(0, lambda: Threads().run(work).on_done(lambda each: settle_as(done, each)))
            return done

        ports = MovePorts(self.node_id, self.logs, self.partitions, after_a_pause, in_thread, lambda: self.image, quota)
        self.moves = DirectoryMoves(ports)
        self.moves.start()
        self.learn(world.image)

    @property
    def values(self) -> dict[str, object]:
        """The topic's settings in the metadata that this node knows."""
        values = dict(self._defaults)
        values |= {"segment.bytes": 2_000, "producer.id.expiration.ms": 86_400_000}
        values |= {"min.insync.replicas": self.world.min_isr, **self.world.settings}
        known = self.known.config(TOPIC_RESOURCE, TOPIC)
        return values | {name: text.split(",") if name == "cleanup.policy" else text for name, text in known.items()}

    def kill(self, *, loses_page_cache: bool) -> None:
        self.up = False
        self.fetchers.close()
        self.alter.close()
        for channel in tuple(self.channels):
            channel.close()
        self.logs.abandon()
        if loses_page_cache:
            self.disk = self.disk.crash()

    def learn(self, image: MetadataImage) -> None:
        if image.offset > self.image.offset:
            old, self.image = self.image, image
            self.known = image
            self.partitions.publish(old if old.offset >= 0 else None, image)
            self.world.on_learned(self)

    @property
    def leads(self) -> Partition | None:
        try:
            return self.partitions.get(TOPIC, 0) if self.up else None
        except KafkaError:
            return None

    @property
    def log(self) -> Log:
        log = self.logs.get(TopicPartition(TOPIC, 0))
        assert log is not None
        return log


class _Controller:
    """The way from a node to the controller; requests and answers may be lost."""

    def __init__(self, world: ReplicaWorld, node: ReplicaNode, generation: int) -> None:
        self._world, self._node, self._generation = world, node, generation

    def send(self, request: AlterPartitionRequest, *, timeout_s: float) -> Completion[Any]:
        done: Completion[Any] = Completion()
        world = self._world

        def lost() -> None:
            world.loop.call_later(0.2, lambda: done.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))

        def arrive() -> None:
            if self._node.node_id in world.cut or world.random.random() < 0.05:
                lost()
                return
            response = world.alter(request)
            if world.random.random() < 0.05:
                lost()
            else:
                world.later(lambda: done.complete(response))

        world.later(arrive)
        return done


class ReplicaWorld:
    """Three nodes, one partition, one seed."""

    first_leader_epoch = 0
    first_configs: Mapping[tuple[int, str], dict[str, str]] = {}

    def __init__(
        self,
        seed: int,
        *,
        min_isr: int = 1,
        settings: Mapping[str, object] = NO_SETTINGS,
        directories: Sequence[str] = ("/logs",),
        loop: ManualLoop | None = None,
    ) -> None:
        """`settings` of the topic, with typed values. Two worlds may share a loop."""
        self.random = Random(seed)
        self.settings, self.directories = settings, directories
        self.configs = dict(self.first_configs)
        self.on_learned: Callable[[ReplicaNode], object] = lambda node: None
        """Called when a node has followed newer metadata."""
        self.loop = loop or ManualLoop()
        self.min_isr = min_isr
        self.cut: set[int] = set()
        """Nodes whose connections to the others are cut."""
        self.acknowledged: dict[bytes, int] = {}
        self.written = 0
        self.image = MetadataImage()
        self.nodes = {node_id: ReplicaNode(self, node_id) for node_id in (1, 2, 3)}
        self.fenced: set[int] = set()
        self.epochs = dict.fromkeys(self.nodes, 1)
        self.partition = PartitionImage((1, 2, 3), (1, 2, 3), 1, self.first_leader_epoch, 0)
        self.publish()
        for node in self.nodes.values():
            node.start()

    def later(self, callback: Callable[[], object]) -> None:
        self.loop.call_later(self.random.choice((0, 0, 0.001, 0.005, 0.03)), callback)

    def is_cut(self, one: ReplicaNode, other: ReplicaNode) -> bool:
        return one.node_id in self.cut or other.node_id in self.cut

    # -- the controller ------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Make the state the newest metadata; the nodes learn of it later."""
        topic = TopicImage(TOPIC, TOPIC_ID, {0: self.partition})
        brokers = {
            node_id: BrokerImage(node_id, epoch, bytes(16), (), (), None, node_id in self.fenced, False, ())
            for node_id, epoch in self.epochs.items()
        }
        image = MetadataImage(
            offset=self.image.offset + 1,
            brokers=brokers,
            topics_by_name={TOPIC: topic},
            topics_by_id={TOPIC_ID: topic},
            configs=self.configs,
        )
        self.image = image
        for node in self.nodes.values():
            if node.up and node.node_id not in self.cut:
                self.later(lambda node=node, generation=node.generation: self._tell(node, generation, image))  # type: ignore[misc]

    def set_policy(self, policy: str) -> None:
        """Alter cleanup.policy."""
        self.configs = {**self.configs, (TOPIC_RESOURCE, TOPIC): {"cleanup.policy": policy}}
        self.publish()

    def _tell(self, node: ReplicaNode, generation: int, image: MetadataImage) -> None:
        if node.up and node.generation == generation and node.node_id not in self.cut:
            node.learn(image)

    def change(self, target: Target, election: Election = Election.ONLINE) -> None:
        acceptable = frozenset(self.nodes.keys() - self.fenced)
        rules = ChangeRules(acceptable, self.min_isr, election)
        record = partition_change(TOPIC_ID, 0, self.partition, target, rules)
        if record is not None:
            self.partition = changed_partition(self.partition, record)

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked = request.topics[0].partitions[0]
        answer = ResponsePartitionData(partition_index=0)
        isr = {member.broker_id: member.broker_epoch for member in asked.new_isr_with_epochs}
        partition = self.partition
        if request.broker_epoch != self.epochs[request.broker_id]:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        if asked.leader_epoch != partition.leader_epoch or partition.leader != request.broker_id:
            answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.partition_epoch != partition.partition_epoch:
            answer.error_code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(each in self.fenced or epoch not in (-1, self.epochs[each]) for each, epoch in isr.items()):
            answer.error_code = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.change(Target(isr=tuple(isr)))
            self.publish()
            partition = self.partition
            answer.leader_id, answer.leader_epoch = partition.leader, partition.leader_epoch
            answer.isr, answer.partition_epoch = list(partition.isr), partition.partition_epoch
        topics = [ResponseTopicData(topic_id=TOPIC_ID, partitions=[answer])]
        return AlterPartitionResponse(topics=topics)

    def fence(self, node_id: int) -> None:
        self.fenced.add(node_id)
        if node_id in self.partition.isr:
            self.change(Target(isr=tuple(each for each in self.partition.isr if each != node_id)))
        self.publish()

    # -- events --------------------------------------------------------------------------------------------------

    def kill(self, node_id: int, *, power: bool) -> None:
        """Kill a node, or cut its power; not if the partition has no other in-sync replica, which may lose records."""
        node = self.nodes[node_id]
        if node.up and (not power or set(self.partition.isr) - {node_id}):
            node.kill(loses_page_cache=power)
            self.cut.discard(node_id)
            self.fence(node_id)

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if not node.up:
            self.epochs[node_id] += 1
            self.fenced.discard(node_id)
            self.change(Target())
            self.publish()
            node.start()

    def isolate(self, node_id: int) -> None:
        """Cut a node off from the others and from the controller, which fences it."""
        if self.nodes[node_id].up and not self.cut and set(self.partition.isr) - {node_id}:
            self.cut.add(node_id)
            self.fence(node_id)

    def heal(self) -> None:
        for node_id in self.cut:
            self.fenced.discard(node_id)
        self.cut.clear()
        self.change(Target())
        self.publish()

    def produce(self, node_id: int) -> None:
        """Append a record with acks=all at a node, if it believes that it leads."""
        partition = self.nodes[node_id].leads
        if partition is None:
            return
        self.written += 1
        value = b"%d" % self.written
        data = bytearray(encode_batch([(self.loop.wall_ms(), None, value * self.random.choice((1, 40)), [])]))
        try:
            info = partition.append(memoryview(data))
        except KafkaError:
            return
        done = partition.when_durable(info.last_offset + 1)
        if done is None:
            self.acknowledged[value] = info.first_offset
        else:
            done.on_done(lambda done: done.error is None and self.acknowledged.__setitem__(value, info.first_offset))

    def check_lag(self) -> None:
        for node in self.nodes.values():
            if node.up:
                for partition in node.partitions:
                    partition.check_lag()

    def run(self, milliseconds: int) -> None:
        self.loop.advance(milliseconds)


def contents(log: Log) -> bytes:
    """All batches of a log, with their offsets and epochs."""
    data = b""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = bytes(log.read(offset, 1 << 20, log.log_end_offset))
        data += part
        offset = max(header.next_offset for _, header in iter_batches(part))
    return data


def values_of(data: bytes) -> list[tuple[int, bytes]]:
    """Offset and value of each record."""
    return [
        (record.offset, record.value or b"")
        for position, _ in iter_batches(data)
        for record in decode_batch(data, position)
    ]
