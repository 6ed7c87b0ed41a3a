"""Two clusters of three brokers: the leader of one partition in the target copies it from the source.

The parts are the real ones, as in `replicas`. The mirror's comparison of metadata with the led partitions is repeated
every 100 ms and after errors, with metadata of a random node of the source.

Checked after each event, once the in-sync replicas agree in a leader epoch of the target: as far as the leader's log
agrees with the source, its high watermark counts only records that each running in-sync replica has. Checked at the
end: all logs of both clusters are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.common.completion import Completion
from ottla.controller.partition_change import Election, Target
from ottla.metadata.mirrors import MIRRORING, next_generation
from ottla.partitions.replication.fetcher import FetcherContext
from ottla.partitions.replication.fetchers import ReplicaFetchers
from ottla.partitions.replication.mirrored import MirroredPartition, MirrorPorts
from ottla.records import iter_batches
from ottla.replication.leader import ClusterView
from tests.simulation.world.replicas import (
    SETTINGS,
    Channel,
    ReplicaNode,
    ReplicaWorld,
    contents,
    settle_as,
)
from tests.unit.broker.harness import Threads

CONSUMER: Final = -1
COPIED: Final = {"ottla.mirror": "dr", "ottla.mirror.state": MIRRORING}
REFRESH_MS: Final = 100


class TargetWorld(ReplicaWorld):
    """The cluster with the copy; its leader epochs are above the source's."""

    first_leader_epoch = next_generation([0])


class _Link(ReplicaWorld):
    """The network between the clusters, for channels."""

    def __init__(self, worlds: MirroredReplicas) -> None:
        self.random, self.loop = worlds.target.random, worlds.target.loop
        self._worlds = worlds

    def is_cut(self, one: ReplicaNode, other: ReplicaNode) -> bool:
        worlds = self._worlds
        return worlds.is_link_cut or one.node_id in worlds.target.cut or other.node_id in worlds.source.cut


class _Copying:
    """The mirror on one run of one node of the target."""

    def __init__(self, worlds: MirroredReplicas, node: ReplicaNode) -> None:
        self._worlds, self._node, self.generation = worlds, node, node.generation
        self.copy: MirroredPartition | None = None
        link = worlds.link

        def call_later(delay_s: float, callback: Callable[[], object]) -> object:
            return link.loop.call_later(delay_s, lambda: self.runs and callback())

        self.fetchers = ReplicaFetchers(
            FetcherContext(
                cluster=ClusterView(CONSUMER, {}),
                logs=node.logs,
                clock=link.loop,
                call_later=call_later,  # type: ignore[arg-type]
                worker=node.schedulers.worker,
                settings=SETTINGS,
                request_timeout_s=5,
                connect=lambda leader, _: Channel(link, node, worlds.source.nodes[leader]),  # type: ignore[arg-type, return-value]
                on_lost=lambda _: None,
                on_answer=lambda _: None,
            ),
            lambda: 1,
        )

    @property
    def runs(self) -> bool:
        return self._node.up and self._node.generation == self.generation

    def _flush(self, work: Callable[[], object]) -> Completion[None]:
        """Run `work` a moment later, as a thread does; never after a crash."""
        done: Completion[None] = Completion()
        self._worlds.link.later(lambda: self.runs and Threads().run(work).on_done(lambda each: settle_as(done, each)))
        return done

    def refresh(self) -> None:
        """Fetch the partition from its leader in the source, if this node leads it."""
        partition = self._node.leads
        copy = self.copy
        if copy is not None and (copy.partition is not partition or copy.partition.closed):
            copy.close()
            self.fetchers.unfollowed(copy)
            self.copy = copy = None
        known = self._worlds.source_metadata()
        if partition is None or known is None or known[0] < 0:
            return
        if copy is None:
            ports = MirrorPorts(self._flush, self._worlds.link.loop.monotonic_ms, lambda: None)
            self.copy = MirroredPartition(partition, *known, ports)
            self.fetchers.following(self.copy)
        elif copy.follow(*known):
            self.fetchers.following(copy)

    def close(self) -> None:
        self.fetchers.close()
        if self.copy is not None:
            self.copy.close()


class MirroredReplicas:
    """The two clusters of one seed."""

    def __init__(self, seed: int) -> None:
        self.source = ReplicaWorld(seed)
        self.target = TargetWorld(~seed, settings=COPIED, loop=self.source.loop)
        self.is_link_cut = False
        self.link = _Link(self)
        self.truncated = 0
        """Records that the target has dropped."""
        self._copying: dict[int, _Copying] = {}
        self._agreed_epoch = -1
        """The leader epoch of the target in which the in-sync replicas had all committed records."""

    def source_metadata(self) -> tuple[int, int] | None:
        """Leader and leader epoch, as far as a random node of the source knows; None if no node answers."""
        nodes = [node for node in self.source.nodes.values() if node.up and node.image.topics_by_name]
        if not nodes or self.is_link_cut:
            return None
        [topic] = self.link.random.choice(nodes).image.topics_by_name.values()
        return topic.partitions[0].leader, topic.partitions[0].leader_epoch

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
        for node_id, node in self.target.nodes.items():
            copying = self._copying.get(node_id)
            if copying is not None and not copying.runs:
                self._end(node_id)
                copying = None
            if node.up:
                copying = copying or self._copying.setdefault(node_id, _Copying(self, node))
                copying.refresh()

    def _end(self, node_id: int) -> None:
        copying = self._copying.pop(node_id)
        if copying.copy is not None:
            self.truncated += copying.copy.progress.truncated
        copying.close()

    def kill_target(self, node_id: int, *, power: bool) -> None:
        """As `ReplicaWorld.kill`; the mirror on the node ends before."""
        self.target.kill(node_id, power=power)
        if not self.target.nodes[node_id].up and node_id in self._copying:
            self._end(node_id)

    def elect_uncleanly(self) -> None:
        """Kill the in-sync replicas of the source; another one becomes the leader, without their last records."""
        source = self.source
        others = sorted(set(source.nodes) - set(source.partition.isr))
        if not others:
            return
        elected = source.random.choice(others)
        for node_id in source.partition.isr:
            source.kill(node_id, power=False)
        source.cut.discard(elected)
        if not source.nodes[elected].up:
            source.epochs[elected] += 1
        source.fenced.discard(elected)
        source.change(Target(), Election.UNCLEAN)
        source.publish()
        if not source.nodes[elected].up:
            source.nodes[elected].start()

    def settle(self) -> None:
        """Repair everything, and let both clusters replicate."""
        self.is_link_cut = False
        for world in (self.source, self.target):
            world.heal()
            for node_id in world.nodes:
                world.start(node_id)
        for _ in range(10):
            self.run(1_000)
            self.source.check_lag()
            self.target.check_lag()

    def check(self) -> None:
        """Compare the committed records of the target's leader with its in-sync replicas."""
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
        for node_id in list(self._copying):
            self._end(node_id)
        for world in (self.source, self.target):
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
