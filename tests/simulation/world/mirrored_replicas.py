"""Two clusters of three brokers: the leader of one partition in the target copies it from the source.

The parts are the real ones, as in `replicas`, and the controller's rules for mirrors. The mirror's comparison of
metadata with the led partitions is repeated every 100 ms, with metadata of a random node of the source.

Checked after each event, once the in-sync replicas agree in a leader epoch of the target: as far as the leader's log
agrees with the source, its high watermark counts only records that each running in-sync replica has. Checked at the
end: all logs of both clusters are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.mirrors.mirror import reason_to_wait
from ottla.broker.mirrors.status import partition_row
from ottla.cluster.config_rules import BrokerConfigRules
from ottla.common.completion import Completion
from ottla.common.slices import finish
from ottla.config import BrokerConfig
from ottla.controller import mirrors as rules
from ottla.controller.partition_change import Election, Target
from ottla.controller.state import ControllerSettings, State
from ottla.metadata.image import MIRROR
from ottla.metadata.image import TOPIC as TOPIC_RESOURCE
from ottla.metadata.mirrors import (
    FAILBACK,
    MIRROR_SETTING,
    MIRRORING,
    STATE_SETTING,
    STOPPING,
    is_read_only,
    next_generation,
)
from ottla.partitions.partition import Partition
from ottla.partitions.promotion import forget_producers
from ottla.partitions.replication.context import FetcherContext
from ottla.partitions.replication.fetchers import ReplicaFetchers
from ottla.partitions.replication.mirrored import UNKNOWN, MirroredPartition, MirrorPorts
from ottla.protocol import metadata_records as m
from ottla.protocol.messages.metadata import MetadataResponsePartition
from ottla.records import iter_batches
from ottla.replication.leader import ClusterView
from tests.simulation.world.replicas import (
    NO_SETTINGS,
    SETTINGS,
    TOPIC,
    TOPIC_ID,
    Channel,
    ReplicaNode,
    ReplicaWorld,
    contents,
    settle_as,
)
from tests.unit.broker.harness import Threads

CONSUMER: Final = -1
NAME: Final = "dr"
COPIED: Final = {MIRROR_SETTING: NAME, STATE_SETTING: MIRRORING}
TOPIC_SETTINGS: Final = (TOPIC_RESOURCE, TOPIC)
REFRESH_MS: Final = 100
RULES: Final = BrokerConfigRules(
    BrokerConfig({"node.id": "1", "log.dirs": "/unused", "listeners": "PLAINTEXT://127.0.0.1:0"})
)


class MirrorWorld(ReplicaWorld):
    """A cluster with a mirror, which has no topics yet, and the changes of its topic's state."""

    first_configs: Final = {(MIRROR, NAME): {"topics": ""}}

    @property
    def state(self) -> str:
        """The state of the topic in the newest metadata."""
        return self.configs.get(TOPIC_SETTINGS, {}).get(STATE_SETTING, "")

    def _controller(self) -> State:
        return State(self.image, 1, "simulated", RULES, self.random, ControllerSettings())

    def move(self, state: str) -> None:
        """Change the state as a client does. Raises KafkaError."""
        before = self.configs.get(TOPIC_SETTINGS, {})
        after = {**before, MIRROR_SETTING: NAME, STATE_SETTING: state}
        rules.check_client_change(self._controller(), TOPIC, before, after)
        self.configs = {**self.configs, TOPIC_SETTINGS: after}
        self.publish()

    def follow_source(self, leader_epoch: int, *, is_read_only: bool) -> None:
        """Compare the topic with its source, as the active controller does."""
        source = rules.SourceTopic(TOPIC, TOPIC_ID, (leader_epoch,), {}, is_read_only)
        records = finish(rules.follow(self._controller(), NAME, 3, [source])).records
        for record in records:
            if isinstance(record, m.PartitionRecord):
                epochs = record.leader_epoch, record.partition_epoch
                self.partition = self.partition._replace(leader_epoch=epochs[0], partition_epoch=epochs[1])
            elif isinstance(record, m.ConfigRecord):
                settings = {**self.configs.get(TOPIC_SETTINGS, {}), record.name: record.value or ""}
                self.configs = {**self.configs, TOPIC_SETTINGS: settings}
        if records:
            self.publish()


class TargetWorld(MirrorWorld):
    """The cluster with the copy; its leader epochs are above the source's."""

    first_leader_epoch = next_generation([0])
    first_configs: Final = {**MirrorWorld.first_configs, TOPIC_SETTINGS: COPIED}


class _Link(ReplicaWorld):
    """The network between a cluster and its source, for channels."""

    def __init__(self, worlds: MirroredReplicas, local: ReplicaWorld) -> None:
        self.random, self.loop = local.random, local.loop
        self._worlds, self._local = worlds, local

    def is_cut(self, one: ReplicaNode, other: ReplicaNode) -> bool:
        worlds = self._worlds
        source = worlds.other(self._local)
        return worlds.is_link_cut or one.node_id in self._local.cut or other.node_id in source.cut


class _Copying:
    """The mirror on one run of one node."""

    def __init__(self, worlds: MirroredReplicas, local: MirrorWorld, node: ReplicaNode) -> None:
        self._worlds, self._local, self._node, self.generation = worlds, local, node, node.generation
        self.copy: MirroredPartition | None = None
        self._resetting: Partition | None = None
        self.link = link = _Link(worlds, local)

        def call_later(delay_s: float, callback: Callable[[], object]) -> object:
            return link.loop.call_later(delay_s, lambda: self.runs and callback())

        def connect(leader: int, _: object) -> Channel:
            return Channel(link, node, worlds.other(local).nodes[leader])

        self.fetchers = ReplicaFetchers(
            FetcherContext(
                cluster=ClusterView(CONSUMER, {}),
                logs=node.logs,
                clock=link.loop,
                call_later=call_later,  # type: ignore[arg-type]
                worker=node.schedulers.worker,
                settings=SETTINGS,
                request_timeout_s=5,
                connect=connect,  # type: ignore[arg-type]
                on_lost=lambda _: None,
                on_answer=lambda _: None,
                fetches_last=True,
            ),
            lambda: 1,
        )

    @property
    def runs(self) -> bool:
        return self._node.up and self._node.generation == self.generation

    @property
    def state(self) -> str:
        """The state of the topic in the metadata of this node."""
        return str(self._node.image.config(TOPIC_RESOURCE, TOPIC).get(STATE_SETTING, ""))

    def _flush(self, work: Callable[[], object]) -> Completion[None]:
        """Run `work` a moment later, as a thread does; never after a crash."""
        done: Completion[None] = Completion()
        self.link.later(lambda: self.runs and Threads().run(work).on_done(lambda each: settle_as(done, each)))
        return done

    def drop_ended(self) -> None:
        """Drop the copy if this node no longer leads the partition, or if the topic is not copied any more."""
        copy = self.copy
        if copy is not None and (
            copy.partition is not self._node.leads or copy.partition.closed or self.state != MIRRORING
        ):
            copy.close()
            self.fetchers.unfollowed(copy)
            self.copy = None

    def refresh(self) -> None:
        """Fetch the partition from its leader in the source, if this node leads it; or end the copy."""
        self.drop_ended()
        partition = self._node.leads
        if partition is None:
            return
        if self.state == STOPPING:
            self._reset_producers(partition)
        known = self._worlds.metadata_of(self._worlds.other(self._local))
        if self.state != MIRRORING or known is None:
            return
        if reason_to_wait(partition, known) is not None:
            if self.copy is not None:
                self.copy.close()
                self.fetchers.unfollowed(self.copy)
                self.copy = None
        elif self.copy is None:
            ports = MirrorPorts(self._flush, lambda: None)
            self.copy = MirroredPartition(partition, known.leader_id, known.leader_epoch, ports)
            self.fetchers.following(self.copy)
        elif self.copy.follow(known.leader_id, known.leader_epoch):
            self.fetchers.following(self.copy)

    def _reset_producers(self, partition: Partition) -> None:
        if self._resetting is partition:
            return
        self._resetting = partition
        work = forget_producers(partition, lambda: self.state == STOPPING and not partition.closed)
        self._node.schedulers.worker.submit(work).on_done(lambda _: setattr(self, "_resetting", None))

    def row(self) -> dict[str, object] | None:
        """The report of this node about the partition, if it leads it."""
        partition, copy = self._node.leads, self.copy
        if partition is None or self.state not in (MIRRORING, STOPPING):
            return None
        age_ms = UNKNOWN
        if copy is not None and copy.progress.as_of_ms != UNKNOWN:
            as_of_ms = max(copy.progress.as_of_ms, self.fetchers.as_of_ms(copy))
            age_ms = self.link.loop.monotonic_ms() - as_of_ms
        return partition_row(partition, self.state, copy, age_ms)

    def close(self) -> None:
        self.fetchers.close()
        if self.copy is not None:
            self.copy.close()


class MirroredReplicas:
    """The two clusters of one seed."""

    def __init__(self, seed: int, settings: Mapping[str, object] = NO_SETTINGS) -> None:
        """`settings` of the topic in both clusters, with typed values."""
        self.source: MirrorWorld = MirrorWorld(seed, settings=settings)
        self.target: MirrorWorld = TargetWorld(~seed, settings=settings, loop=self.source.loop)
        self.is_link_cut = False
        self.truncated = 0
        """Records that copies have dropped."""
        self._copying: dict[ReplicaNode, _Copying] = {}
        self._agreed_epoch = -1
        """The leader epoch of the target in which the in-sync replicas had all committed records."""
        for world in self.worlds:
            world.on_learned = self._learned

    @property
    def worlds(self) -> tuple[MirrorWorld, MirrorWorld]:
        return self.source, self.target

    def other(self, world: ReplicaWorld) -> MirrorWorld:
        return self.target if world is self.source else self.source

    def metadata_of(self, world: MirrorWorld) -> MetadataResponsePartition | None:
        """The partition's leader as far as a random node of a source knows it; None if no node answers."""
        node = self._asked(world)
        if node is None:
            return None
        partition = node.image.topics_by_name[TOPIC].partitions[0]
        return MetadataResponsePartition(leader_id=partition.leader, leader_epoch=partition.leader_epoch)

    def _asked(self, world: MirrorWorld) -> ReplicaNode | None:
        nodes = [node for node in world.nodes.values() if node.up and node.image.topics_by_name]
        return world.random.choice(nodes) if nodes and not self.is_link_cut else None

    def run(self, milliseconds: int) -> None:
        """Let time pass, and compare the metadata at intervals."""
        while True:
            part = min(milliseconds, REFRESH_MS)
            self.source.run(part)
            milliseconds -= part
            self._refresh()
            if milliseconds <= 0:
                return

    def _refresh(self) -> None:
        for world in self.worlds:
            for node in world.nodes.values():
                copying = self._copying.get(node)
                if copying is not None and not copying.runs:
                    self._end(node)
                    copying = None
                if node.up:
                    copying = copying or self._copying.setdefault(node, _Copying(self, world, node))
                    copying.refresh()
            if world.state in (FAILBACK, MIRRORING):
                self._follow_source(world)

    def _follow_source(self, world: MirrorWorld) -> None:
        asked = self._asked(self.other(world))
        if asked is not None:
            epoch = asked.image.topics_by_name[TOPIC].partitions[0].leader_epoch
            settings = asked.image.config(TOPIC_RESOURCE, TOPIC)
            world.follow_source(epoch, is_read_only=is_read_only(settings))

    def _learned(self, node: ReplicaNode) -> None:
        copying = self._copying.get(node)
        if copying is not None and copying.runs:
            copying.drop_ended()

    def _end(self, node: ReplicaNode) -> None:
        copying = self._copying.pop(node)
        if copying.copy is not None:
            self.truncated += copying.copy.progress.truncated
        copying.close()

    def rows(self, world: MirrorWorld) -> list[dict[str, object]]:
        """The reports of the nodes of a cluster that a command gets."""
        known = [self._copying[node] for node in world.nodes.values() if node in self._copying]
        found = [each.row() for each in known if each.runs]
        return [row for row in found if row is not None]

    def leader_row(self, world: MirrorWorld) -> dict[str, object] | None:
        """The report of the newest leader; a node that was replaced may believe to lead, too."""
        node = world.nodes.get(world.partition.leader)
        partition, copying = (None, None) if node is None else (node.leads, self._copying.get(node))
        if partition is None or copying is None or partition.leader_epoch != world.partition.leader_epoch:
            return None
        return copying.row() if copying.runs else None

    def kill(self, world: MirrorWorld, node_id: int, *, power: bool) -> None:
        """As `ReplicaWorld.kill`; the mirror on the node ends before."""
        world.kill(node_id, power=power)
        node = world.nodes[node_id]
        if not node.up and node in self._copying:
            self._end(node)

    def elect_uncleanly(self) -> ReplicaNode | None:
        """Kill the in-sync replicas of the source; another replica becomes the leader, without their last records.

        Returns the new leader, if there is one.
        """
        source = self.source
        others = sorted(set(source.nodes) - set(source.partition.isr))
        if not others:
            return None
        elected = source.random.choice(others)
        for node_id in source.partition.isr:
            self.kill(source, node_id, power=False)
        source.cut.discard(elected)
        if not source.nodes[elected].up:
            source.epochs[elected] += 1
        source.fenced.discard(elected)
        source.change(Target(), Election.UNCLEAN)
        source.publish()
        if not source.nodes[elected].up:
            source.nodes[elected].start()
        return source.nodes.get(source.partition.leader)

    def settle(self) -> None:
        """Repair everything, and let both clusters replicate."""
        self.is_link_cut = False
        for world in self.worlds:
            world.heal()
            for node_id in world.nodes:
                world.start(node_id)
        for _ in range(10):
            self.run(1_000)
            self.source.check_lag()
            self.target.check_lag()
            logs = [node.log for world in self.worlds for node in world.nodes.values()]
            ends = {end for log in logs for end in (log.log_end_offset, log.high_watermark)}
            if len(ends) == 1 and all(len(world.partition.isr) == len(world.nodes) for world in self.worlds):
                return

    def check(self) -> None:
        """Compare the committed records of the target's leader with its in-sync replicas."""
        if self.target.state != MIRRORING:
            return
        source, target = self.source.nodes.get(self.source.partition.leader), self.target.partition
        leader = self.target.nodes.get(target.leader)
        partition = None if leader is None else leader.leads
        if source is None or not source.up or partition is None or partition.leader_epoch != target.leader_epoch:
            return
        copied, original = contents(partition.log), contents(source.log)
        common = _common(copied, original)
        committed = contents_before(partition.log.high_watermark, copied)
        others = [self.target.nodes[node_id] for node_id in target.isr if node_id != target.leader]
        agreed = [_common(copied, contents(node.log)) for node in others if node.up]
        lacks = any(size < min(common, committed) for size in agreed)
        # A new leader may know an old high watermark: the previous one may have made the others drop records that this
        # replica has, and that the source has again after one more unclean election.
        if self._agreed_epoch == target.leader_epoch:
            assert not lacks, "the high watermark counts records that an in-sync replica lacks"
        elif all(size >= committed for size in agreed):
            self._agreed_epoch = target.leader_epoch

    def check_equal(self) -> None:
        """All logs are equal, and everything is committed."""
        nodes = [*self.source.nodes.values(), *self.target.nodes.values()]
        [original, *copies] = [contents(node.log) for node in nodes]
        assert all(each == original for each in copies)
        assert {node.log.high_watermark for node in nodes} == {nodes[0].log.log_end_offset}

    def close(self) -> None:
        for node in list(self._copying):
            self._end(node)
        for world in self.worlds:
            for node in world.nodes.values():
                if node.up:
                    node.kill(loses_page_cache=False)


def contents_before(offset: int, data: bytes) -> int:
    """The bytes of the batches that end at or below an offset."""
    return sum(header.size for _, header in iter_batches(data) if header.next_offset <= offset)


def _common(one: bytes, other: bytes) -> int:
    """The bytes of the batches that both logs begin with."""
    size = 0
    for position, header in iter_batches(one):
        end = position + header.size
        if one[position:end] != other[position:end]:
            break
        size = end
    return size
