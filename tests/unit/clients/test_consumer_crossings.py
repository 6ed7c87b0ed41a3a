"""Events that overtake each other in a consumer: responses, rebalances, commits and interrupts."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from ottla.clients.consumer.client import ConsumerClient
from ottla.clients.consumer.collectors import RecordCollector
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.effects import Effect, Send
from ottla.clients.consumer.membership import Membership, State
from ottla.clients.consumer.settings import read_settings
from ottla.clients.errors import BrokerUnavailable, ClientError, ConnectionLost, IllegalGeneration
from ottla.clients.offsets import OffsetAndMetadata
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.simulation.world.consumers import Simulated, World

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def settle(world: World, *consumers: Simulated, rounds: int = 12) -> None:
    """Run the network and let the consumers poll, alternately."""
    for _ in range(rounds):
        world.run(100)
        for consumer in consumers:
            consumer.poll(0)


def member(world: World, **options: object) -> Simulated:
    made = Simulated(world, group_id="g", **options)
    made.core.subscribe(["t"], None)
    settle(world, made)
    return made


def only(consumer: Simulated, kind: type[Any]) -> Any:
    """Return the only effect with a request of this kind; the other effects are dropped."""
    effects = consumer.core.advance(consumer.world.now_ms)
    (found,) = [effect for effect in effects if isinstance(getattr(effect, "request", None), kind)]
    return found


def joins(consumer: Simulated) -> bool:
    assert consumer.core.membership is not None
    return consumer.core.membership.state is State.JOINING


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_unsubscribing_while_joining_leaves_the_group(strategy: str) -> None:
    """Otherwise the group would assign partitions to it that it never reads."""
    world = World({"t": 2})
    one = member(world, partition_assignment_strategy=strategy)
    membership = one.core.membership
    assert isinstance(membership, Membership)
    membership._rejoin = True
    one.poll()
    assert joins(one)
    one.core.unsubscribe()
    while (duty := one.core.duty()) is not None:
        one.perform(duty)
    assert membership.state is State.OUTSIDE
    assert one.owned() == []
    one.core.assign([T0])
    settle(world, one)
    assert membership.state is State.OUTSIDE
    two = member(world)
    assert two.owned() == [0, 1]


def test_static_leader_that_returned_notices_new_partitions() -> None:
    """It does not assign the present partitions (KIP-814), but must know them to compare."""
    world = World({"t": 2})
    member(world, group_instance_id="i")
    returned = member(world, group_instance_id="i")
    assert returned.owned() == [0, 1]
    world.topics["t"] = 4
    returned.view.apply(world.metadata(), world.now_ms, is_complete=True)
    settle(world, returned)
    assert returned.owned() == [0, 1, 2, 3]


@pytest.mark.parametrize("leads", [True, False])
def test_static_member_that_returns_with_another_subscription_reads_only_that(leads: bool) -> None:
    """The group is stable, so that it gets the partitions of its former subscription."""
    world = World({"t": 2, "u": 2})
    other = None if leads else member(world)
    member(world, group_instance_id="i")
    if other is not None:
        settle(world, other)
    returned = Simulated(world, group_id="g", group_instance_id="i")
    returned.core.subscribe(["u"], None)
    settle(world, *([] if other is None else [other]), returned, rounds=60)
    membership = returned.core.membership
    assert isinstance(membership, Membership)
    assert {tp.topic for tp in membership.owned} == {"u"}
    assert len(membership.owned) == 2


def test_heartbeat_response_that_crosses_a_join_causes_no_second_join() -> None:
    world = World({"t": 2})
    one = member(world, heartbeat_interval_ms=1_000)
    membership = one.core.membership
    assert isinstance(membership, Membership)
    world.coordinator.advance(1_500)
    beat = only(one, HeartbeatRequest)
    membership._rejoin = True
    one.poll()
    only(one, JoinGroupRequest)
    one.core.complete(beat.id, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), world.now_ms)
    assert not membership._rejoin


def test_removed_member_commits_offsets_of_its_transaction_as_the_member_that_it_was() -> None:
    """A commit without a generation would be accepted and overwrite the offsets of the next owner."""
    world = World({"t": 1})
    one = member(world, heartbeat_interval_ms=1_000, session_timeout_ms=6_000)
    was = one.core.group_metadata()
    assert was.generation > 0
    world.coordinator.advance(1_500)
    beat = only(one, HeartbeatRequest)
    one.core.complete(beat.id, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), world.now_ms)
    assert one.core.member_id == ""
    assert one.core.group_metadata() == was
    settle(world, one, rounds=80)
    assert one.core.group_metadata() != was, "it has joined again"
    one.core.unsubscribe()
    settle(world, one)
    assert one.core.group_metadata() == ("g", -1, "", None, "")


def test_fenced_member_of_a_group_of_the_new_protocol_commits_with_its_last_epoch() -> None:
    world = World({"t": 1})
    one = Simulated(world, group_id="g", group_protocol="consumer")
    one.core.subscribe(["t"], None)
    one.poll()
    beat = only(one, ConsumerGroupHeartbeatRequest)
    response = ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=3, heartbeat_interval_ms=1_000)
    one.core.complete(beat.id, response, world.now_ms)
    world.coordinator.advance(1_500)
    beat = only(one, ConsumerGroupHeartbeatRequest)
    fenced = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
    one.core.complete(beat.id, fenced, world.now_ms)
    assert one.core.group_metadata() == ("g", 3, "m", None, "")


def test_sync_response_after_a_fatal_heartbeat_error_is_ignored() -> None:
    world = World({"t": 2})
    one = member(world, heartbeat_interval_ms=1_000)
    membership = one.core.membership
    assert isinstance(membership, Membership)
    membership._rejoin = True
    one.poll()
    join = only(one, JoinGroupRequest)
    joined = JoinGroupResponse(
        generation_id=membership.generation + 1, protocol_name="range", leader="other", member_id=membership.member_id
    )
    one.core.complete(join.id, joined, world.now_ms)
    sync = only(one, SyncGroupRequest)
    world.coordinator.advance(1_500)
    beat = only(one, HeartbeatRequest)
    one.core.complete(beat.id, HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED), world.now_ms)
    one.core.complete(sync.id, SyncGroupResponse(), world.now_ms)
    assert membership.state is State.FAILED
    with pytest.raises(ClientError, match="authorization failed"):
        one.poll()


def test_pattern_subscription_refreshes_all_topics_at_once() -> None:
    world = World({"t": 1})
    one = member(world)
    world.topics["new"], world.ids["new"] = 1, bytes(15) + b"\x09"
    one.core.subscribe(None, re.compile("t|new"))
    settle(world, one, rounds=30)
    assert world.now_ms < one.view.max_age_ms
    assert [tp.topic for tp in one.core.fetch.positions.assigned()] == ["new", "t"]


def test_empty_group_instance_id_means_no_static_membership() -> None:
    world = World({"t": 1})
    one = Simulated(world, group_id="g", group_instance_id="")
    one.core.subscribe(["t"], None)
    one.poll()
    request = only(one, JoinGroupRequest).request
    assert JoinGroupRequest.decode(request.encode(9), 9).group_instance_id is None
    two = member(world, group_instance_id="")
    assert two.core.group_metadata().instance_id is None
    # A static member would not leave the group.
    assert [type(effect.request) for effect in two.core.leave() if isinstance(effect, Send)] == [LeaveGroupRequest]


def test_committed_offset_of_an_earlier_assignment_is_ignored() -> None:
    world = World({"t": 2})
    world.append("t", 0, *[b"v"] * 10)
    one = Simulated(world, group_id="g")
    one.core.assign([T0])
    world.run(1_000)
    one.core.begin_poll(world.now_ms)
    asked = only(one, OffsetFetchRequest)
    one.core.assign([T1])
    one.core.assign([T0])
    one.core.begin_poll(world.now_ms)
    world.run(100)
    other = Simulated(world, group_id="g")
    request = other.core.required_commits().commit_request({T0: OffsetAndMetadata(6)})
    world.coordinator.ask(request, 9)
    one.core.complete(asked.id, committed_nothing(asked.request), world.now_ms)
    settle(world, one)
    assert one.core.fetch.positions.of(T0).offset == 6


def committed_nothing(request: OffsetFetchRequest) -> OffsetFetchResponse:
    rows = [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=p, committed_offset=-1) for p in topic.partition_indexes
            ],
        )
        for topic in request.groups[0].topics or ()
    ]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=rows)])


def test_buffers_of_paused_partitions_do_not_block_other_partitions() -> None:
    world = World({"t": 2})
    for _ in range(10):
        world.append("t", 0, bytes(1000))
    one = Simulated(world, queued_max_bytes=3_000)
    one.core.assign([T0, T1])
    one.poll(0)
    world.run(1_000)
    one.core.fetch.pause([T0])
    world.append("t", 1, b"v")
    seen: list[tuple[int, int]] = []
    for _ in range(5):
        world.run(500)
        seen += [(r.partition, r.offset) for r in one.poll()]
    assert seen == [(1, 0)]
    one.core.fetch.resume([T0])
    for _ in range(20):
        world.run(500)
        seen += [(r.partition, r.offset) for r in one.poll()]
    assert seen == [(1, 0), *((0, offset) for offset in range(10))]


def test_coordinator_whose_name_does_not_resolve_is_retried() -> None:
    world = World({"t": 2})
    one = member(world)
    membership = one.core.membership
    assert isinstance(membership, Membership)
    membership._rejoin = True
    one.poll()
    join = only(one, JoinGroupRequest)
    one.core.complete(join.id, BrokerUnavailable("the name resolves to nothing", retriable=False), world.now_ms)
    settle(world, one)
    assert membership.state is State.STABLE
    assert one.owned() == [0, 1]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_commit_retried_after_a_rebalance_is_refused_for_reassigned_partitions(strategy: str) -> None:
    world = World({"t": 2})
    one = member(world, partition_assignment_strategy=strategy)
    offsets = {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(1)}
    held = one.core.required_commits().assignments(offsets)
    assert one.core.required_commits().commit_request(offsets, held).topics
    two = Simulated(world, group_id="g", partition_assignment_strategy=strategy)
    two.core.subscribe(["t"], None)
    settle(world, one, two, rounds=60)
    assert len(one.owned()) == 1
    with pytest.raises(IllegalGeneration, match="not this consumer's any more"):
        one.core.required_commits().commit_request(offsets, held)
    (mine,) = one.core.fetch.positions.assigned()
    if strategy == "cooperative-sticky":  # this partition was never reassigned
        assert one.core.required_commits().commit_request({mine: offsets[mine]}, {mine: held[mine]}).topics


class Counting(Simulated):
    """A consumer that counts its commits."""

    commits = 0

    def _execute(self, effect: Effect) -> bool:
        self.commits += isinstance(effect, Send) and isinstance(effect.request, OffsetCommitRequest)
        return super()._execute(effect)


def test_unchanged_position_is_recommitted_before_the_broker_expires_it() -> None:
    """Without subscribed members, a broker expires an offset some time after its commit."""
    world = World({"t": 1})
    world.append("t", 0, b"v")
    one = Counting(world, group_id="g", auto_commit_interval_ms=600_000)
    one.core.assign([T0])
    for _ in range(30):
        one.poll()
        world.run(500_000)
    assert 3 <= one.commits <= 6, "about every hour"


class Interrupted(RecordCollector):
    """Raises KeyboardInterrupt after a number of `take` calls."""

    def __init__(self, after: int) -> None:
        super().__init__(100)
        self.after = after

    def take(self, fetched: Fetched) -> None:
        super().take(fetched)
        self.after -= 1
        if self.after == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 2, 3])
def test_records_of_an_interrupted_poll_are_returned_by_the_next(after: int) -> None:
    world = World({"t": 2})
    for partition in (0, 1):
        world.append("t", partition, b"a", b"b")
        world.append("t", partition, b"c", b"d")
    one = Simulated(world, group_id="g")
    one.core.assign([T0, T1])
    one.poll(0)
    world.run(2_000)
    seen = [(r.partition, r.offset) for r in one.poll(1)]
    one.core.begin_poll(world.now_ms)
    with pytest.raises(KeyboardInterrupt):
        one.core.fill(Interrupted(after))
    one.core.fetch.delivery.revert_poll()
    one.core.end_poll(world.now_ms)
    one.core.validate()
    one.core.settle()
    assert {tp: row.offset for tp, row in one.core.processed().items() if row.offset} == {T0: 1}
    for _ in range(20):
        world.run(500)
        seen += [(r.partition, r.offset) for r in one.poll()]
    assert sorted(seen) == [(partition, offset) for partition in (0, 1) for offset in range(4)]


class SlowCommits:
    """Stands in for `EffectRunner.send`: the first commit takes longer than the next one."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.arrived: list[int] = []

    async def send(
        self, node: int, request: Any, timeout_s: float | None = None, max_version: int | None = None, *_: object
    ) -> Any:
        if not isinstance(request, OffsetCommitRequest):
            await asyncio.sleep(0.01)
            raise ConnectionLost(f"{node} responds only to commits ({timeout_s}, {max_version})")
        ((row,),) = [topic.partitions for topic in request.topics]
        self.sent.append(row.committed_offset)
        await asyncio.sleep(0.1 if len(self.sent) == 1 else 0)
        self.arrived.append(row.committed_offset)
        rows = [OffsetCommitResponseTopic(name="t", partitions=[OffsetCommitResponsePartition(0)])]
        return OffsetCommitResponse(topics=rows)


def test_slow_automatic_commit_does_not_overwrite_a_later_explicit_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = SlowCommits()

    async def scenario() -> None:
        options = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g", "auto_commit_interval_ms": 100}
        client = ConsumerClient(*read_settings(options), lambda: None)
        monkeypatch.setattr(client.runner, "send", commits.send)
        client.start(asyncio.get_running_loop())
        client.change(lambda core: core.assign([T0]))
        client.change(lambda core: core.fetch.seek(T0, 5))
        client.begin_poll()
        while not commits.sent:
            await asyncio.sleep(0.01)
        client.change(lambda core: core.fetch.seek(T0, 9))
        await client.commit(({T0: OffsetAndMetadata(9)}, {}))
        await asyncio.sleep(0.15)
        await client.close(1)

    asyncio.run(asyncio.wait_for(scenario(), 10))
    assert commits.arrived[:2] == [5, 9]
    assert commits.arrived[-1] == 9
