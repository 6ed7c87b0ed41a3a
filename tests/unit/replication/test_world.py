"""Three replicas of one partition under random elections, crashes, lost unsynced records and late metadata.

Each seed is one world. A node decides by the metadata that it has seen, which may be old. After every event:
- a record below the high watermark of any leader stays the same for ever;
- each replica of the committed ISR has all such records;
- in the end, all logs are equal.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.metadata.image import NO_LEADER, PartitionImage
from ottla.replication.follower import Action, EpochEnd, FetchAnswer, on_fetched, position_of
from ottla.replication.leader import ClusterView, IsrDecision, IsrProposal, Leader, Next
from ottla.replication.replica import ReplicaFetch
from tests.unit.replication.support import ModelLog, broker, partition

LAG = 1_000
NODES = (1, 2, 3)
SEEDS = range(int(os.environ.get("REPLICATION_SEEDS", "150")))


class Node:
    """One replica: its log, what it knows of the metadata, and its state as a leader."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.log = ModelLog()
        self.high_watermark = 0
        self.image: PartitionImage = partition(leader_epoch=-1, partition_epoch=-1)
        self.view = ClusterView(node_id, {}, LAG)
        self.leader: Leader | None = None
        self.up = True


class World:
    """The nodes and a controller that follows Kafka's rules for one partition."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 1_000_000
        self.nodes = {node_id: Node(node_id) for node_id in NODES}
        self.brokers = {node_id: broker(node_id) for node_id in NODES}
        self.image = partition()
        self.committed: list[tuple[int, int]] = []
        self.written = 0

    # -- controller ----------------------------------------------------------------------------------------------

    def change(self, isr: tuple[int, ...]) -> None:
        """Commit an ISR, and elect a leader if the present one is not in it or not available."""
        leader, epoch = self.image.leader, self.image.leader_epoch
        able = [node_id for node_id in isr if self.nodes[node_id].up]
        if leader not in able:
            leader = self.random.choice(able) if able else NO_LEADER
            epoch += 1
        version = self.image.partition_epoch + 1
        self.image = self.image._replace(isr=isr, leader=leader, leader_epoch=epoch, partition_epoch=version)

    def alter(self, node: Node, proposal: IsrProposal) -> tuple[ErrorCode, IsrDecision | None]:
        image = self.image
        if proposal.leader_epoch != image.leader_epoch or image.leader != node.node_id:
            return ErrorCode.FENCED_LEADER_EPOCH, None
        if proposal.partition_epoch != image.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION, None
        for node_id, epoch in proposal.members:
            if not self.brokers[node_id].is_active or epoch != self.brokers[node_id].epoch:
                return ErrorCode.INELIGIBLE_REPLICA, None
        self.change(proposal.isr)
        return ErrorCode.NONE, IsrDecision(self.image.leader_epoch, self.image.partition_epoch, self.image.isr)

    # -- events --------------------------------------------------------------------------------------------------

    def learn(self, node: Node) -> None:
        """The node's metadata is brought up to date."""
        if not node.up or node.image is self.image:
            node.view.brokers = dict(self.brokers)
            return
        node.view.brokers = dict(self.brokers)
        node.image = image = self.image
        if image.leader != node.node_id:
            node.leader = None
        elif node.leader is None:
            end = node.log.log_end_offset
            node.leader = Leader(node.view, image, min_insync_replicas=1, log_end_offset=end, now_ms=self.now)
            self.advance(node)
        else:
            node.leader.follow(image, node.log.log_end_offset, self.now)
            self.advance(node)

    def append(self, node: Node) -> None:
        if node.up and node.leader is not None:
            self.written += 1
            node.log.records.append((node.leader.leader_epoch, self.written))
            self.advance(node)

    def fetch(self, node: Node) -> None:
        image = node.image
        source = self.nodes.get(image.leader)
        if not node.up or node.leader is not None or source is None or source is node or not source.up:
            return
        requested = position_of(node.log, image.leader_epoch)
        answer, records = self.answer(source, node, requested.leader_epoch)
        step = on_fetched(requested, answer, node.log, image.leader_epoch)
        if step.action is Action.APPEND:
            node.log.records += records
            node.high_watermark = max(node.high_watermark, min(answer.high_watermark, node.log.log_end_offset))
        elif step.action is Action.TRUNCATE:
            node.log.truncate(step.offset)
            node.high_watermark = min(node.high_watermark, node.log.log_end_offset)

    def answer(self, source: Node, node: Node, epoch: int) -> tuple[FetchAnswer, list[tuple[int, int]]]:
        leader = source.leader
        if leader is None:
            return FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER), []
        if epoch != leader.leader_epoch:
            older = epoch < leader.leader_epoch
            return FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH), []
        log, end, latest = source.log, node.log.log_end_offset, node.log.latest_epoch
        if latest >= 0:
            own_epoch, own_end = log.offset_for_leader_epoch(latest)
            if own_end < 0:
                own_epoch, own_end = log.latest_epoch, log.log_end_offset
            if own_epoch < latest or own_end < end:
                return FetchAnswer(diverging=EpochEnd(own_epoch, own_end)), []
        if end > log.log_end_offset:
            return FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE), []
        fetch = ReplicaFetch(node.node_id, end, 0, self.brokers[node.node_id].epoch, epoch)
        try:
            proposal = leader.on_fetch(
                fetch, log_end_offset=log.log_end_offset, high_watermark=source.high_watermark, now_ms=self.now
            )
        except KafkaError as error:
            return FetchAnswer(error.code), []
        if proposal is not None:
            self.send(source, proposal)
        self.advance(source)
        most = self.random.randint(1, 3)
        return FetchAnswer(high_watermark=source.high_watermark), log.records[end : end + most]

    def send(self, node: Node, proposal: IsrProposal) -> None:
        """The proposal, or its answer, may be lost; a lost one is sent again."""
        for _ in range(3):
            if node.leader is None:
                return
            lost = self.random.random()
            if lost < 0.1:
                error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT
                decision = None
            else:
                error, decision = self.alter(node, proposal)
                if lost < 0.3:
                    error, decision = ErrorCode.REQUEST_TIMED_OUT, None
            if node.leader.on_answer(proposal, error, decision) is not Next.RETRY:
                break

    def check_lag(self, node: Node) -> None:
        if node.up and node.leader is not None:
            proposal = node.leader.check_lag(node.log.log_end_offset, self.now)
            if proposal is not None:
                self.send(node, proposal)
            self.advance(node)

    def advance(self, node: Node) -> None:
        assert node.leader is not None
        old = node.high_watermark
        node.high_watermark = node.leader.high_watermark(old, node.log.log_end_offset, self.now)
        assert node.high_watermark >= old
        if node.high_watermark > len(self.committed):
            self.committed += node.log.records[len(self.committed) : node.high_watermark]
        assert node.log.records[: node.high_watermark] == self.committed[: node.high_watermark]

    def crash(self, node: Node) -> None:
        """Kill a node; it may lose records that were not synced, unless it is the last in-sync replica."""
        if not node.up:
            return
        node.up, node.leader = False, None
        image = self.image
        others = tuple(each for each in image.isr if each != node.node_id)
        self.brokers[node.node_id] = broker(node.node_id, self.brokers[node.node_id].epoch, fenced=True)
        if others and self.random.random() < 0.5:
            if node.node_id in image.isr:
                self.change(others)
            node.log.truncate(self.random.randint(0, node.log.log_end_offset))
            node.high_watermark = min(node.high_watermark, node.log.log_end_offset)
        elif node.node_id in image.isr:
            self.change(others or image.isr)

    def start(self, node: Node) -> None:
        if node.up:
            return
        node.up = True
        node.image = partition(leader_epoch=-1, partition_epoch=-1, leader=NO_LEADER)
        # A checkpoint of the high watermark may be old.
        node.high_watermark = self.random.randint(0, node.high_watermark)
        self.brokers[node.node_id] = broker(node.node_id, self.brokers[node.node_id].epoch + 1)
        if self.image.leader == NO_LEADER and node.node_id in self.image.isr:
            self.change(self.image.isr)

    def step(self) -> None:
        node = self.nodes[self.random.choice(NODES)]
        self.now += self.random.choice((0, 1, 50, LAG // 3))
        events = (self.append, self.fetch, self.fetch, self.learn, self.check_lag, self.crash, self.start)
        self.random.choices(events, weights=(6, 8, 8, 6, 2, 1, 3))[0](node)

    def check(self) -> None:
        for node_id in self.image.isr:
            held = self.nodes[node_id].log.records[: len(self.committed)]
            assert held == self.committed, f"replica {node_id} of ISR {self.image.isr} lacks committed records"


@pytest.mark.parametrize("seed", SEEDS)
def test_committed_records_survive(seed: int) -> None:
    world = World(seed)
    for node in world.nodes.values():
        world.learn(node)
    for _ in range(250):
        world.step()
        world.check()
    for node in world.nodes.values():
        world.start(node)
    for _ in range(200):
        for node in world.nodes.values():
            world.learn(node)
            world.fetch(node)
    logs = [node.log.records for node in world.nodes.values()]
    assert logs[0] == logs[1] == logs[2]
    assert logs[0][: len(world.committed)] == world.committed
    assert all(
        node.high_watermark == len(logs[0]) or node.image.leader != node.node_id for node in world.nodes.values()
    )
