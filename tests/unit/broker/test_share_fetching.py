"""ShareFetch and ShareAcknowledge on one broker: sessions, long polls, acknowledgements, bad input. KIP-932."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.share_leaders import with_leaders
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.share.events import InitializeState, ShareKey
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest

from .harness import BrokerHarness, Connection, open_harness, records_of

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
Acks = dict[int, Sequence[tuple[int, int, Sequence[int]]]]


class Member:
    """A member of the group "g" with one connection."""

    def __init__(self, harness: BrokerHarness, topic_id: bytes, name: str = "m") -> None:
        self.harness = harness
        self.topic_id = topic_id
        self.name = name
        self.connection = Connection()
        self.epoch = 0

    def start(self, acks: Acks | None = None, version: int = 2, **fields: Any) -> Completion[Any]:
        topics = [
            share_fetch.FetchTopic(
                topic_id=self.topic_id,
                partitions=[
                    share_fetch.FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=[share_fetch.AcknowledgementBatch(*row) for row in rows],
                    )
                    for index, rows in (acks or ({0: (), 1: ()} if not self.epoch else {})).items()
                ],
            )
        ]
        defaults = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        request = ShareFetchRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch,
            topics=topics,
            **(defaults | fields),
        )
        requests = self.harness.broker.coordinators.shares.requests
        answer = self.harness.broker.schedulers.worker.submit(
            requests.fetch(request, version, self.connection, lambda _: True)
        )  # type: ignore[arg-type]
        self.harness.loop.run()
        self.epoch += 1
        return answer

    def fetch(self, acks: Acks | None = None, **fields: Any) -> Any:
        answer = self.start(acks, **fields)
        if not answer.done:
            self.harness.loop.advance(1_000)
        return answer.result()

    def read(self, acks: Acks | None = None, **fields: Any) -> list[tuple[int, int]]:
        """The partitions and offsets that were acquired."""
        response = self.fetch(acks, **fields)
        assert not response.error_code, response
        return acquired(response)

    def acknowledge(self, acks: Acks, epoch: int | None = None, version: int = 2, *, renews: bool = False) -> Any:
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.name,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[share_acknowledge.AcknowledgementBatch(*row) for row in rows],
                        )
                        for index, rows in acks.items()
                    ],
                )
            ],
        )
        requests = self.harness.broker.coordinators.shares.requests
        answer = self.harness.broker.schedulers.worker.submit(requests.acknowledge(request, version, lambda _: True))
        self.harness.loop.run()
        response = answer.result()
        if not response.error_code:
            self.epoch += 1
        return response


def acquired(response: Any) -> list[tuple[int, int]]:
    found = []
    for topic in response.responses:
        for partition in topic.partitions:
            in_records = {offset for offset, _ in records_of(partition.records)}
            for piece in partition.acquired_records:
                offsets = range(piece.first_offset, piece.last_offset + 1)
                assert in_records.issuperset(offsets)
                found += [(partition.partition_index, offset) for offset in offsets]
    return sorted(found)


def errors(response: Any) -> list[int]:
    return [partition.error_code for topic in response.responses for partition in topic.partitions]


def ack_errors(response: Any) -> list[int]:
    return [partition.acknowledge_error_code for topic in response.responses for partition in topic.partitions]


class World:
    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.topic_id = harness.create("t", partitions=2)
        for index in (0, 1):
            shares = harness.broker.coordinators.shares
            shares.prepare()
            harness.loop.run()
            done = shares.initialize(InitializeState(ShareKey("g", self.topic_id, index), 1, 0))
            harness.loop.run()
            assert not done.result().error
        harness.append("t", b"a", b"b", b"c")
        harness.append("t", b"d", index=1)

    def start_offsets(self) -> list[int]:
        shared = self.harness.broker.coordinators.shares.partitions
        found = [shared.existing(ShareKey("g", self.topic_id, index)) for index in (0, 1)]
        return [each.share.start_offset for each in found if each is not None]

    def member(self, name: str = "m") -> Member:
        return Member(self.harness, self.topic_id, name)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_harness(tmp_path) as harness:
        yield World(harness)


def test_members_share_the_records_and_acknowledge_with_the_next_fetch(world: World) -> None:
    m, n = world.member("m"), world.member("n")
    assert m.read() == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert n.read() == []
    world.harness.append("t", b"e")
    assert n.read() == [(0, 3)]
    response = m.fetch({0: [(0, 1, [ACCEPT]), (2, 2, [REJECT])], 1: [(0, 0, [ACCEPT])]})
    assert ack_errors(response) == [0, 0]
    assert acquired(response) == []
    assert world.start_offsets() == [3, 1]


def test_response_names_the_leader_of_a_partition_that_has_moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, member = world.harness.broker, world.member()
    member.read()
    monkeypatch.setattr(broker.endpoints, "address", lambda node_id, _listener: ("elsewhere", 9092 + node_id, "rack"))
    monkeypatch.setattr(broker.partitions, "leader_of", lambda _topic, index: (2 + index, 7))
    for index in (0, 1):
        partition = world.harness.partition("t", index)
        partition.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def moved(*_: object) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    monkeypatch.setattr(broker.partitions, "get_by_id", moved)
    response = with_leaders(broker, "PLAINTEXT", member.fetch())
    rows = [row for topic in response.responses for row in topic.partitions]
    leaders = {row.partition_index: row.current_leader for row in rows}
    assert leaders == {0: share_fetch.LeaderIdAndEpoch(2, 7), 1: share_fetch.LeaderIdAndEpoch(3, 7)}
    assert response.node_endpoints == [
        share_fetch.NodeEndpoint(2, "elsewhere", 9094, "rack"),
        share_fetch.NodeEndpoint(3, "elsewhere", 9095, "rack"),
    ]
    fenced = share_acknowledge.PartitionData(partition_index=0, error_code=ErrorCode.FENCED_LEADER_EPOCH)
    topic = share_acknowledge.ShareAcknowledgeTopicResponse(world.topic_id, [fenced])
    acknowledged = with_leaders(broker, "PLAINTEXT", share_acknowledge.ShareAcknowledgeResponse(responses=[topic]))
    assert fenced.current_leader == share_acknowledge.LeaderIdAndEpoch(2, 7)
    assert [node.node_id for node in acknowledged.node_endpoints] == [2]


def test_leader_of_another_partition_is_unknown_and_not_node_zero(world: World) -> None:
    """Both fields have the default 0 in Kafka's schema."""
    unknown = (-1, -1)
    m = world.member()
    world.harness.append("t", b"a")
    m.topic_id = b"x" * 16
    responses = [m.fetch(), m.acknowledge({0: [(0, 0, [ACCEPT])]})]
    m = world.member("n")
    responses += [m.fetch(), m.acknowledge({0: [(0, 0, [ACCEPT])]})]
    named = [with_leaders(world.harness.broker, "PLAINTEXT", response) for response in responses]
    rows = [row for response in named for topic in response.responses for row in topic.partitions]
    assert {row.error_code for row in rows} == {0, ErrorCode.UNKNOWN_TOPIC_ID}
    assert [(row.current_leader.leader_id, row.current_leader.leader_epoch) for row in rows] == [unknown] * len(rows)


def test_long_poll_is_woken_by_a_produced_record(world: World) -> None:
    m = world.member()
    m.read()
    answer = m.start(max_wait_ms=10_000)
    assert not answer.done
    world.harness.append("t", b"e", index=1)
    world.harness.loop.run()
    assert acquired(answer.result()) == [(1, 1)]
    assert not world.harness.partition("t").watchers


def test_long_poll_is_woken_by_a_released_record(world: World) -> None:
    m, n = world.member("m"), world.member("n")
    m.read()
    answer = n.start(max_wait_ms=10_000)
    assert not answer.done
    m.acknowledge({0: [(1, 1, [RELEASE])]})
    world.harness.loop.run()
    assert acquired(answer.result()) == [(0, 1)]


def test_lost_connection_releases_the_records_of_its_member(world: World) -> None:
    m, n = world.member("m"), world.member("n")
    m.read()
    assert n.read() == []
    m.connection.drop()
    world.harness.loop.run()
    assert n.read() == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_lost_connection_acquires_nothing(world: World) -> None:
    m, n = world.member("m"), world.member("n")
    m.read(max_records=1)
    m.start(max_wait_ms=10_000, min_bytes=1 << 19)
    m.connection.drop()
    world.harness.append("t", b"e")
    world.harness.loop.advance(20_000)
    assert len(n.read()) == 5
    assert not any(each.watchers for each in world.harness.broker.coordinators.shares.partitions._loaded.values())


def test_final_epoch_acknowledges_and_releases_the_rest(world: World) -> None:
    m, n = world.member("m"), world.member("n")
    m.read()
    assert not m.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=-1).error_code
    world.harness.loop.run()
    assert n.read() == [(0, 1), (0, 2), (1, 0)]
    assert m.acknowledge({}, epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(world.harness.broker.coordinators.shares.sessions) == 1


def test_renewal_extends_the_lock(world: World) -> None:
    m, n = world.member("m"), world.member("n")
    m.read()
    world.harness.loop.advance(20_000)
    assert not any(errors(m.acknowledge({0: [(0, 2, [RENEW])]}, renews=True)))
    world.harness.loop.advance(15_000)
    assert n.read() == [(1, 0)]


def test_limits_of_records_and_bytes(world: World) -> None:
    m = world.member()
    assert len(m.read(max_records=2, share_acquire_mode=1)) == 2
    assert len(m.read(max_bytes=1)) >= 1
    assert m.read(max_records=0) == []


@pytest.mark.parametrize(
    "batches",
    [
        [(0, 5, [ACCEPT])],
        [(7, 8, [ACCEPT])],
        [(2, 1, [ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
        [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 2, [9])],
        [(0, 2, [RENEW])],
        [(0, 2**62, [REJECT])],
    ],
)
def test_bad_acknowledgements_change_nothing(world: World, batches: list[tuple[int, int, list[int]]]) -> None:
    m = world.member()
    m.read()
    assert errors(m.acknowledge({0: batches}))[0] in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE)
    assert errors(m.acknowledge({0: [(0, 2, [ACCEPT])]})) == [0]


def test_forged_members_and_epochs_are_refused(world: World) -> None:
    m, forged = world.member("m"), world.member("forged")
    m.read()
    assert forged.acknowledge({0: [(0, 2, [ACCEPT])]}, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    forged.read()
    assert errors(forged.acknowledge({0: [(0, 2, [ACCEPT])]})) == [ErrorCode.INVALID_RECORD_STATE]
    for epoch in (0, 7):
        assert m.acknowledge({}, epoch=epoch).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    for name in ("", "x" * 37):
        assert world.member(name).fetch().error_code == ErrorCode.INVALID_REQUEST
    first = world.member("first")
    assert first.fetch({0: [(0, 0, [ACCEPT])]}).error_code == ErrorCode.INVALID_REQUEST
    assert world.member("mode").fetch(share_acquire_mode=5).error_code == ErrorCode.INVALID_REQUEST
    assert world.member("renew").fetch(is_renew_ack=True).error_code == ErrorCode.INVALID_REQUEST


def test_unknown_topics_and_partitions_have_their_errors(world: World) -> None:
    m = world.member()
    m.topic_id = b"x" * 16
    assert errors(m.fetch()) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    assert errors(m.acknowledge({0: [(0, 0, [ACCEPT])]})) == [ErrorCode.UNKNOWN_TOPIC_ID]
    n = world.member("n")
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in errors(n.fetch({0: (), 9: ()}))


def test_more_sessions_than_the_limit_wait_and_are_refused(tmp_path: Path) -> None:
    with open_harness(tmp_path, {"group.share.max.share.sessions": "200"}) as harness:
        world = World(harness)
        members = [world.member(f"m{number}") for number in range(201)]
        for member in members[:200]:
            member.start(max_wait_ms=0)
        answer = members[200].start(max_wait_ms=500)
        assert not answer.done
        harness.loop.advance(600)
        assert answer.result().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
