"""The consumer's core in simulation: groups, positions, fetch sessions, commits."""

from __future__ import annotations

import random
import re

import pytest

from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.fetch_session import FetchSession, WantedPartition
from ottla.clients.consumer.group_member import Duty
from ottla.clients.consumer.membership import MOVES, Membership, State
from ottla.clients.consumer.record import Record, record_class
from ottla.clients.consumer.requests import read_offsets
from ottla.clients.consumer.settings import read_settings
from ottla.clients.errors import ClientError, CorruptRecords, OffsetOutOfRange, RebalanceInProgress, error_for
from ottla.clients.offsets import OffsetAndMetadata
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.fetch import FetchResponse
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.records import BatchProducer, Codec, encode_batch, encode_end_transaction_marker, patch
from ottla.records.column_kernels import whole_batches
from tests.simulation.world.consumers import Simulated, World

T0 = TopicPartition("t", 0)


def settle(world: World, *consumers: Simulated, rounds: int = 12) -> None:
    """Run the network and let the consumers poll, alternately."""
    for _ in range(rounds):
        world.run(100)
        for consumer in consumers:
            consumer.poll(0)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_partitions_and_take_over_a_leaving_members_partitions(strategy: str) -> None:
    world = World({"t": 6})
    group = [Simulated(world, group_id="g", partition_assignment_strategy=strategy) for _ in range(3)]
    for count in (1, 2, 3):
        group[count - 1].core.subscribe(["t"], None)
        settle(world, *group[:count], rounds=120)
        assert sorted(p for member in group[:count] for p in member.owned()) == list(range(6))
        assert {len(member.owned()) for member in group[:count]} == {6 // count}
    group[0].core.unsubscribe()
    settle(world, *group, rounds=120)
    assert [len(member.owned()) for member in group] == [0, 3, 3]


def test_cooperative_member_revokes_only_partitions_that_move() -> None:
    world = World({"t": 4})
    one, two = (Simulated(world, group_id="g", partition_assignment_strategy="cooperative-sticky") for _ in range(2))
    one.core.subscribe(["t"], None)
    settle(world, one)
    two.core.subscribe(["t"], None)
    settle(world, one, two, rounds=60)
    revoked = [partitions for kind, partitions in one.story if kind == "revoked"]
    assert [len(partitions) for partitions in revoked] == [2]
    assert sorted(one.owned() + two.owned()) == [0, 1, 2, 3]


def test_partitions_are_revoked_only_during_a_poll() -> None:
    world = World({"t": 2})
    one, two = Simulated(world, group_id="g"), Simulated(world, group_id="g")
    one.core.subscribe(["t"], None)
    settle(world, one)
    two.core.subscribe(["t"], None)
    two.poll()
    world.run(20_000)
    assert one.owned() == [0, 1]
    assert one.core.membership is not None
    assert one.core.membership.state is State.PREPARING
    settle(world, one, two, rounds=40)
    assert len(one.owned()) == len(two.owned()) == 1


def test_heartbeats_continue_between_polls_until_max_poll_interval() -> None:
    world = World({"t": 1})
    one = Simulated(
        world, group_id="g", session_timeout_ms=6_000, heartbeat_interval_ms=1_000, max_poll_interval_ms=60_000
    )
    one.core.subscribe(["t"], None)
    settle(world, one)
    generation = one.core.membership.generation  # type: ignore[union-attr]
    world.run(50_000)
    assert one.core.membership.state is State.STABLE  # type: ignore[union-attr]
    world.run(15_000)
    assert one.core.membership.state is State.OUTSIDE  # type: ignore[union-attr]
    with pytest.raises(ClientError, match=r"max\.poll\.records"):
        one.core.required_commits().commit_request({})
    settle(world, one)
    assert ("lost", [0]) in one.story
    assert one.core.membership.generation > generation  # type: ignore[union-attr]


def test_member_removed_by_the_coordinator_loses_its_partitions_and_rejoins() -> None:
    world = World({"t": 2})
    one = Simulated(world, group_id="g", session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    one.core.subscribe(["t"], None)
    settle(world, one)
    world.down = True
    world.run(10_000)
    world.down = False
    assert isinstance(one.core.membership, Membership)
    one.core.membership._handle_removal(ErrorCode.UNKNOWN_MEMBER_ID)
    with pytest.raises(RebalanceInProgress):
        one.core.required_commits().commit_request({})
    settle(world, one, rounds=30)
    assert one.owned() == [0, 1]
    assert [kind for kind, _ in one.story] == ["assigned", "lost", "assigned"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_member_removed_while_a_rebalance_waits_for_its_poll_rejoins(code: ErrorCode) -> None:
    world = World({"t": 2})
    one = Simulated(world, group_id="g", session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    one.core.subscribe(["t"], None)
    settle(world, one)
    membership = one.core.membership
    assert isinstance(membership, Membership)
    known_as = membership.member_id
    membership._move(State.PREPARING)
    membership.commit_refused(code, (membership.generation, membership.member_id))
    assert membership.member_id == (known_as if code == ErrorCode.ILLEGAL_GENERATION else "")
    settle(world, one)
    world.run(10_000)  # the group may wait for the session timeout of the removed member
    settle(world, one, rounds=30)
    assert membership.state is State.STABLE
    assert one.owned() == [0, 1]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_heartbeat_response_after_a_failure_is_ignored(code: ErrorCode) -> None:
    world = World({"t": 2})
    one = Simulated(world, group_id="g")
    one.core.subscribe(["t"], None)
    settle(world, one)
    membership = one.core.membership
    assert isinstance(membership, Membership)
    membership._send_heartbeat(world.now_ms)
    heartbeat = membership._heartbeats.in_flight
    assert heartbeat is not None
    late = heartbeat.id
    membership._fail(error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    membership.complete(late, HeartbeatResponse(error_code=code), world.now_ms)
    assert membership.state is State.FAILED


def test_offsets_of_partitions_that_were_not_requested_are_ignored() -> None:
    world = World({"t": 1})
    one = Simulated(world, group_id="g")
    one.core.subscribe(["t"], None)
    settle(world, one)
    commits = one.core.required_commits()
    commit = commits.commit_request({T0: OffsetAndMetadata(4)})
    rows = [OffsetCommitResponsePartition(index, 0) for index in (0, 7)]
    other = OffsetCommitResponseTopic("", b"?" * 16, rows)
    assert (
        commits.apply_commit(commit, OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", b"", rows), other]))
        is None
    )
    assert commits.committed_offset(T0) == 4
    request = commits.offset_fetch_request([T0])
    groups = [
        OffsetFetchResponseGroup("g", [OffsetFetchResponseTopics("", b"?" * 16, [OffsetFetchResponsePartitions(0, 5)])])
    ]
    topics = [OffsetFetchResponseTopic("", [OffsetFetchResponsePartition(0, 5)])]
    assert T0 not in read_offsets(request, OffsetFetchResponse(topics=topics, groups=groups))


def test_late_commit_response_of_an_older_generation_removes_no_member() -> None:
    world = World({"t": 2})
    one, two = Simulated(world, group_id="g"), Simulated(world, group_id="g")
    one.core.subscribe(["t"], None)
    settle(world, one)
    late = one.core.required_commits().commit_request({T0: OffsetAndMetadata(4)})
    two.core.subscribe(["t"], None)
    settle(world, one, two, rounds=40)
    before = list(one.story)
    error = one.core.required_commits().apply_commit(late, world.coordinator.ask(late, 9))
    assert error is not None
    assert error.code is ErrorCode.ILLEGAL_GENERATION  # type: ignore[attr-defined]
    settle(world, one, two)
    assert one.core.membership.state is State.STABLE  # type: ignore[union-attr]
    assert one.story == before


def test_leader_rebalances_when_partitions_are_added() -> None:
    world = World({"t": 1})
    one = Simulated(world, group_id="g", metadata_max_age_ms=1_000)
    one.view.max_age_ms = 1_000
    one.core.subscribe(["t"], None)
    settle(world, one)
    world.topics["t"] = 3
    world.run(2_000)
    settle(world, one)
    assert one.owned() == [0, 1, 2]


def test_pattern_matches_new_topics_but_not_internal_ones() -> None:
    world = World({"ab": 1, "b": 1, "__consumer_offsets": 1})
    one = Simulated(world, group_id="g")
    one.view.max_age_ms = 1_000
    one.core.subscribe(None, re.compile(".*b|__.*"))
    settle(world, one)
    assert one.core.subscription.topics == {"ab", "b"}
    world.topics["cb"], world.ids["cb"] = 1, bytes(15) + b"\x09"
    world.run(2_000)
    settle(world, one)
    assert [tp.topic for tp in one.core.fetch.positions.assigned()] == ["ab", "b", "cb"]


def test_auto_commit_commits_records_of_earlier_polls_only() -> None:
    world = World({"t": 1})
    world.append("t", 0, *[b"%d" % i for i in range(10)])
    one = Simulated(world, group_id="g", auto_commit_interval_ms=100)
    one.core.subscribe(["t"], None)
    settle(world, one)
    assert len(one.poll(4)) == 4
    world.run(1_000)
    assert (one.core.committed_offset(T0) or 0) == 0
    assert len(one.poll(4)) == 4
    world.run(1_000)
    assert one.core.committed_offset(T0) == 4


def test_lost_connections_neither_lose_nor_duplicate_records() -> None:
    world = World({"t": 1})
    one = Simulated(world)
    one.core.assign([T0])
    world.run(100)
    seen: list[int] = []
    chance = random.Random(3)
    for number in range(60):
        world.append("t", 0, b"a%d" % number, b"b%d" % number)
        world.down = chance.random() < 0.4
        world.run(chance.randrange(300))
        seen += [r.offset for r in one.poll(chance.randrange(1, 5))]
    world.down = False
    for _ in range(100):
        world.run(300)
        seen += [r.offset for r in one.poll()]
    assert seen == list(range(120))


def test_commit_or_seek_before_the_first_poll_takes_effect() -> None:
    world = World({"t": 1})
    world.append("t", 0, *[b"v"] * 10)
    commits, seeks = Simulated(world, group_id="g", enable_auto_commit=False), Simulated(world)
    for consumer in (commits, seeks):
        consumer.core.assign([T0])
        world.run(1_000)
    assert commits.commit({T0: OffsetAndMetadata(4)}) is None
    seeks.core.fetch.seek(T0, 7)
    world.run(1_000)
    assert world.fetches == []
    for consumer, first in ((commits, 4), (seeks, 7)):
        consumer.poll()
        world.run(1_000)
        assert [r.offset for r in consumer.poll()] == list(range(first, 10))


def test_listener_may_commit_before_a_position_is_looked_up() -> None:
    world = World({"t": 1})
    world.append("t", 0, *[b"v"] * 10)
    one = Simulated(world, group_id="g", enable_auto_commit=False)

    def listen(duty: Duty) -> None:
        world.run(1_000)
        world.coordinator.ask(one.core.required_commits().commit_request({T0: OffsetAndMetadata(6)}), 9)

    one.listener = listen
    one.core.subscribe(["t"], None)
    settle(world, one)
    assert [r.offset for r in one.poll()] == [6, 7, 8, 9]


def test_fetch_response_from_before_a_seek_is_ignored() -> None:
    world = World({"t": 1})
    world.append("t", 0, *[b"v"] * 10)
    one = Simulated(world)
    one.core.assign([T0])
    one.poll()
    world.run(500)
    one.core.fetch.seek(T0, 7)
    world.run(10)
    assert [r.offset for r in one.poll()] == [7, 8, 9]


def test_offset_out_of_range_resets_or_raises() -> None:
    world = World({"t": 1})
    world.append("t", 0, b"a", b"b")
    earliest, none = Simulated(world), Simulated(world, auto_offset_reset="none")
    for consumer in (earliest, none):
        consumer.core.assign([T0])
        consumer.core.fetch.seek(T0, 50)
        consumer.poll()
    world.run(1_000)
    assert [r.offset for r in earliest.poll()] == [0, 1]
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange):
            none.poll()


def test_error_that_each_poll_raises_does_not_grow() -> None:
    """Python appends the frames of each raise to the traceback of an exception."""
    world = World({"t": 1})
    consumer = Simulated(world, auto_offset_reset="none")
    consumer.core.assign([T0])
    consumer.core.fetch.seek(T0, 50)
    consumer.poll()
    world.run(1_000)
    frames = set()
    for _ in range(5):
        with pytest.raises(OffsetOutOfRange) as raised:
            consumer.poll()
        frames.add(len(raised.traceback))
    assert len(frames) == 1


def test_full_buffer_stops_fetching() -> None:
    world = World({"t": 1})
    for _ in range(20):
        world.append("t", 0, bytes(1000))
    one = Simulated(world, max_partition_fetch_bytes=2_000)
    one.core.assign([T0])
    one.poll()
    for _ in range(30):
        world.run(10)
    (state,) = one.core.fetch.positions
    assert 2_000 <= state.buffer.size < 4_200
    asked = len(world.fetches)
    world.run(1_000)
    assert len(world.fetches) == asked


def test_corrupt_batch_is_refetched_then_raised_once_then_skipped() -> None:
    world = World({"t": 1})
    world.append("t", 0, b"a", b"b")
    world.append("t", 0, b"c")
    upto, batch = world.logs[T0][0]
    world.logs[T0][0] = (upto, batch[:-1] + bytes([batch[-1] ^ 1]))
    one = Simulated(world)
    one.core.assign([T0])
    raised: list[CorruptRecords] = []
    seen: list[int] = []
    for _ in range(20):
        world.run(200)
        try:
            seen += [r.offset for r in one.poll()]
        except CorruptRecords as error:
            raised.append(error)
    assert [(e.topic, e.partition, e.offset) for e in raised] == [("t", 0, 0)]
    assert seen == [2]


def test_session_sends_only_changed_partitions() -> None:
    session = FetchSession(read_settings({"bootstrap_servers": "h:1"})[1].fetch)
    topic_id = bytes(15) + b"\x01"
    a, b = TopicPartition("t", 0), TopicPartition("t", 1)
    row = WantedPartition(topic_id, 0, 100, 0)
    first, newest = session.build({a: row, b: row}, 1000)
    assert (first.session_epoch, newest, len(first.topics[0].partitions)) == (0, None, 2)
    assert session.apply(FetchResponse(session_id=5))
    second, _ = session.build({a: row, b: WantedPartition(topic_id, 9, 100, 0)}, 1000)
    assert (second.session_id, second.session_epoch) == (5, 1)
    assert [(p.partition, p.fetch_offset) for t in second.topics for p in t.partitions] == [(1, 9)]
    assert session.apply(FetchResponse(session_id=5))
    third, _ = session.build({a: row}, 1000)
    assert third.topics == []
    assert [(t.topic_id, t.partitions) for t in third.forgotten_topics_data] == [(topic_id, [1])]
    assert not session.apply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    fourth, _ = session.build({a: row}, 1000)
    assert (fourth.session_id, fourth.session_epoch, len(fourth.topics)) == (0, 0, 1)
    by_name, newest = session.build({a: WantedPartition(bytes(16), 0, 100, 0)}, 1000)
    assert (by_name.session_epoch, newest) == (0, 12)


def batch(base: int, *values: bytes, **options: object) -> bytes:
    return bytes(encode_batch([(0, None, v, []) for v in values], base_offset=base, **options))  # type: ignore[arg-type]


def test_aborted_transactions_and_markers_are_skipped() -> None:
    transactional = 0x10
    marker = encode_end_transaction_marker(
        commit=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    patch(marker, 0, 2, 0)
    log = (
        batch(0, b"a", producer=BatchProducer(1, 0, 0), attributes=transactional)
        + batch(1, b"b", producer=BatchProducer(2, 0, 0), attributes=transactional)
        + bytes(marker)
    )
    fetched = Fetched(T0, memoryview(log), 0, aborted=[(1, 0)])
    rows: list[Record] = []
    while not fetched.exhausted:
        rows += fetched.take(10)
    assert [r.value for r in rows] == [b"b"]
    assert fetched.next_offset == 3


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_can_be_taken_in_parts(codec: Codec) -> None:
    log = batch(10, *[b"%d" % i for i in range(5)], codec=codec) + batch(20, b"x")
    assert whole_batches(memoryview(log + b"\0" * 30)) == (21, len(log))
    fetched = Fetched(T0, memoryview(log), 12)
    assert [r.offset for r in fetched.take(2)] == [12, 13]
    assert fetched.next_offset == 14
    assert [r.offset for r in fetched.take(2)] == [14]
    assert fetched.next_offset == 15
    assert [r.offset for r in fetched.take(2)] == [20]
    assert fetched.exhausted


def test_record_has_its_topic_and_partition() -> None:
    import pickle

    record = record_class("t", 3)(7, 1, b"k", b"v", [])
    assert (record.topic, record.partition, record.topic_partition) == ("t", 3, TopicPartition("t", 3))
    assert type(record) is record_class("t", 3)
    again = pickle.loads(pickle.dumps(record))
    assert again == record
    assert again != record_class("t", 4)(*record)
    assert "topic='t', partition=3, offset=7" in repr(record)


def test_every_transition_leads_to_a_state_of_the_table() -> None:
    assert set(MOVES) == set(State)
    assert all(target in MOVES for targets in MOVES.values() for target in targets)
