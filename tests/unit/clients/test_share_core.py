"""The share consumer's core: sessions, acknowledgements, lost connections. Requests are answered by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.effects import Send
from ottla.clients.consumer.record import Record
from ottla.clients.errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    ConnectionLost,
    NotAssigned,
    UnsupportedByBroker,
)
from ottla.clients.share.acknowledgements import AcknowledgeType, batches
from ottla.clients.share.core import ShareCore
from ottla.clients.share.settings import read_share_settings
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.records import encode_batch

T = (1).to_bytes(16, "big")
T0 = TopicPartition("t", 0)
NODE = 1
LOCK_MS = 3_000


class Driven:
    """A member that has the partitions of t, each with a leader of its own: NODE, NODE + 1 and so on."""

    def __init__(self, partitions: int = 1, **options: object) -> None:
        _, settings = read_share_settings({"bootstrap_servers": "h:1", "group_id": "g", **options})
        self.view = ClusterView()
        self.core = ShareCore(settings, self.view, member_id="me")
        self.sent: list[Send] = []
        self.now_ms = 0.0
        rows = [
            MetadataResponsePartition(partition_index=index, leader_id=NODE + index, leader_epoch=0)
            for index in range(partitions)
        ]
        self.view.apply(MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=T, partitions=rows)]), 0)
        self.core.subscribe(["t"])
        self.advance()
        self.heartbeat(1, Assignment([TopicPartitions(T, list(range(partitions)))]))

    def advance(self, ms: float = 0) -> None:
        self.now_ms += ms
        self.sent += [effect for effect in self.core.advance(self.now_ms) if isinstance(effect, Send)]
        self.core.validate()

    def last(self, kind: type[Any]) -> Any:
        return next(send for send in reversed(self.sent) if isinstance(send.request, kind))

    def heartbeat(self, epoch: int, given: Assignment | None = None) -> None:
        response = ShareGroupHeartbeatResponse(member_epoch=epoch, heartbeat_interval_ms=60_000, assignment=given)
        self.core.complete(self.last(ShareGroupHeartbeatRequest).id, response, self.now_ms)
        self.advance()

    def poll(self, limit: int = 500) -> list[Record]:
        self.core.begin_poll(self.now_ms, limit)
        self.advance()
        try:
            self.core.raise_error()
            return self.core.fill(self.now_ms)
        finally:
            self.core.end_poll(self.now_ms)
            self.core.validate()

    def fetch(self) -> share_fetch.ShareFetchRequest:
        request = self.last(share_fetch.ShareFetchRequest).request
        assert isinstance(request, share_fetch.ShareFetchRequest)
        return request

    def deliver(self, values: list[bytes], acquired: list[tuple[int, int]], base: int = 0, lock_ms: int = 0) -> None:
        data = encode_batch([(0, None, value, []) for value in values], base_offset=base, leader_epoch=0)
        row = share_fetch.PartitionData(
            partition_index=0,
            records=memoryview(bytes(data)),
            acquired_records=[share_fetch.AcquiredRecords(first, last, 1) for first, last in acquired],
        )
        topic = share_fetch.ShareFetchableTopicResponse(T, [row])
        self.answer(share_fetch.ShareFetchResponse(acquisition_lock_timeout_ms=lock_ms, responses=[topic]))

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(send.request, kind) for send in self.sent)

    def accept_all(self) -> None:
        """Answer the acknowledgements that are in flight, and those that are sent then."""
        while (sent := self.sent[-1]) and isinstance(sent.request, share_acknowledge.ShareAcknowledgeRequest):
            rows = [
                share_acknowledge.ShareAcknowledgeTopicResponse(
                    topic.topic_id, [share_acknowledge.PartitionData(each.partition_index) for each in topic.partitions]
                )
                for topic in sent.request.topics
            ]
            self.answer(share_acknowledge.ShareAcknowledgeResponse(responses=rows), type(sent.request))
            if self.sent[-1] is sent:
                return

    def answer(self, outcome: Any, kind: type[Any] = share_fetch.ShareFetchRequest) -> None:
        self.core.complete(self.last(kind).id, outcome, self.now_ms)
        self.advance()


def acknowledged(request: Any) -> list[tuple[int, int, list[int]]]:
    if isinstance(request, ShareGroupHeartbeatRequest):
        return []
    return [
        (batch.first_offset, batch.last_offset, batch.acknowledge_types)
        for topic in request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
    ]


def test_adjacent_offsets_share_a_batch() -> None:
    assert list(batches({3: 1, 1: 1, 2: 1, 7: 2, 8: 3})) == [(1, 3, [1]), (7, 8, [2, 3])]


def test_records_are_acquired_only_while_a_poll_waits() -> None:
    driven = Driven()
    driven.advance(1_000)
    assert not any(isinstance(send.request, share_fetch.ShareFetchRequest) for send in driven.sent)
    assert driven.poll() == []
    first = driven.fetch()
    assert (first.share_session_epoch, [t.topic_id for t in first.topics]) == (0, [T])
    driven.deliver([b"a", b"b"], [(0, 1)])
    count = len(driven.sent)
    driven.advance(1_000)
    assert len(driven.sent) == count


def test_next_poll_accepts_what_was_returned_and_nothing_else() -> None:
    driven = Driven()
    driven.poll()
    driven.deliver([b"a", b"b", b"c"], [(0, 2)])
    assert [r.offset for r in driven.poll(2)] == [0, 1]
    assert [r.offset for r in driven.poll(2)] == [2]
    request = driven.last(share_acknowledge.ShareAcknowledgeRequest).request
    assert (request.share_session_epoch, acknowledged(request)) == (1, [(0, 1, [AcknowledgeType.ACCEPT])])


def test_acquired_offset_without_a_record_is_acknowledged_as_a_gap() -> None:
    driven = Driven()
    driven.poll()
    driven.deliver([b"a", b"b"], [(0, 3)])
    assert [r.offset for r in driven.poll()] == [0, 1]
    driven.advance()
    request = driven.last(share_acknowledge.ShareAcknowledgeRequest).request
    assert acknowledged(request) == [(2, 3, [0])]


def test_next_fetch_goes_to_the_leader_that_the_response_names() -> None:
    driven = Driven()
    driven.core.begin_poll(driven.now_ms, 500)
    driven.advance()
    row = share_fetch.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        current_leader=share_fetch.LeaderIdAndEpoch(NODE + 1, 1),
    )
    response = share_fetch.ShareFetchResponse(
        responses=[share_fetch.ShareFetchableTopicResponse(T, [row])],
        node_endpoints=[share_fetch.NodeEndpoint(NODE + 1, "elsewhere", 9092)],
    )
    assert driven.last(share_fetch.ShareFetchRequest).node == NODE
    driven.answer(response)
    sent = driven.last(share_fetch.ShareFetchRequest)
    assert (sent.node, driven.view.nodes[NODE + 1].host) == (NODE + 1, "elsewhere")


def test_records_that_were_not_acquired_are_not_returned() -> None:
    driven = Driven()
    driven.poll()
    driven.deliver([b"a", b"b", b"c"], [(1, 1)])
    assert [r.offset for r in driven.poll()] == [1]


def test_corrupt_records_are_released_not_skipped() -> None:
    driven = Driven()
    driven.poll()
    data = bytearray(encode_batch([(0, None, b"a", [])], leader_epoch=0))
    data[-1] ^= 1
    row = share_fetch.PartitionData(
        partition_index=0, records=memoryview(bytes(data)), acquired_records=[share_fetch.AcquiredRecords(0, 0, 1)]
    )
    driven.answer(share_fetch.ShareFetchResponse(responses=[share_fetch.ShareFetchableTopicResponse(T, [row])]))
    assert driven.poll() == []
    driven.advance()
    request = driven.last(share_acknowledge.ShareAcknowledgeRequest).request
    assert acknowledged(request) == [(0, 0, [AcknowledgeType.RELEASE])]
    with pytest.raises(ClientError, match="checksum"):
        driven.poll()


def test_commit_has_a_result_for_each_partition() -> None:
    driven = Driven()
    driven.poll()
    driven.deliver([b"a"], [(0, 0)])
    driven.poll()
    outcome = driven.core.commit()
    assert not outcome.is_done
    driven.advance()
    row = share_acknowledge.PartitionData(partition_index=0, error_code=ErrorCode.INVALID_RECORD_STATE)
    rows = [share_acknowledge.ShareAcknowledgeTopicResponse(T, [row])]
    driven.answer(share_acknowledge.ShareAcknowledgeResponse(responses=rows), share_acknowledge.ShareAcknowledgeRequest)
    assert outcome.is_done
    error = outcome.results[T0]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.INVALID_RECORD_STATE


def test_acknowledgements_after_a_lost_connection_fail_and_the_session_is_reopened() -> None:
    driven = Driven()
    driven.poll()
    driven.deliver([b"a"], [(0, 0)])
    assert len(driven.poll()) == 1
    driven.poll(0)
    driven.answer(ConnectionLost("x"))
    driven.poll(0)
    driven.advance(1_000)
    driven.core.begin_poll(driven.now_ms, 500)
    driven.advance()
    assert driven.fetch().share_session_epoch == 0
    driven.deliver([b"b"], [(1, 1)], base=1)
    (record,) = driven.core.fill(driven.now_ms)
    driven.core.end_poll(driven.now_ms)
    driven.core._sessions.of(NODE).fail()
    outcome = driven.core.commit()
    driven.advance()
    assert outcome.is_done
    error = outcome.results[record.topic_partition]
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_renewed_record_stays_with_the_consumer() -> None:
    driven = Driven(share_acknowledgement_mode="explicit")
    driven.poll()
    driven.deliver([b"a"], [(0, 0)])
    driven.poll()
    driven.core.acknowledge(T0, 0, AcknowledgeType.RENEW)
    driven.core.commit()
    driven.advance()
    sent = driven.last(share_acknowledge.ShareAcknowledgeRequest)
    assert (sent.request.is_renew_ack, sent.min_version) == (True, 2)
    driven.poll()
    driven.core.acknowledge(T0, 0, AcknowledgeType.ACCEPT)


def test_poll_asks_for_as_many_records_as_it_returns() -> None:
    driven = Driven()
    driven.poll(7)
    assert (driven.fetch().max_records, driven.fetch().batch_size) == (7, 7)


def test_record_whose_lock_has_ended_is_neither_returned_nor_acknowledged() -> None:
    driven = Driven()
    driven.poll(1)
    driven.deliver([b"a", b"b", b"c", b"d"], [(0, 4)], lock_ms=LOCK_MS)
    assert [r.offset for r in driven.poll(1)] == [0]
    driven.advance(LOCK_MS - 1)
    assert [r.offset for r in driven.poll(1)] == [1]
    driven.accept_all()
    driven.advance(1)
    fetches = driven.count(share_fetch.ShareFetchRequest)
    assert driven.poll(1) == []
    driven.poll(1)
    driven.accept_all()
    driven.poll(1)
    assert driven.count(share_fetch.ShareFetchRequest) == fetches + 1
    ranges = [row for send in driven.sent for row in acknowledged(send.request)]
    offsets = {offset for first, last, _ in ranges for offset in range(first, last + 1)}
    assert offsets == {0, 1, 4}, "offset 4 has no record"


def test_response_that_was_read_late_does_not_extend_the_lock() -> None:
    """A process may be paused while the response waits in the buffer of its socket."""
    for late_ms, offsets in ((LOCK_MS + 500, []), (LOCK_MS + 499, [0])):
        driven = Driven(fetch_max_wait_ms=500)
        driven.poll()
        driven.now_ms += late_ms
        driven.deliver([b"a"], [(0, 0)], lock_ms=LOCK_MS)
        assert [r.offset for r in driven.poll()] == offsets


def test_records_are_limited_once_whole_batches_take_too_long() -> None:
    driven = Driven()
    driven.poll(1)
    assert driven.fetch().share_acquire_mode == 0
    driven.deliver([b"a", b"b"], [(0, 1)], lock_ms=LOCK_MS)
    assert len(driven.poll(1)) == 1
    driven.advance(LOCK_MS)
    driven.poll(1)
    driven.accept_all()
    driven.poll(1)
    assert (driven.fetch().share_acquire_mode, driven.last(share_fetch.ShareFetchRequest).min_version) == (1, 0)


def test_records_that_no_poll_asked_for_in_time_say_nothing_about_batches() -> None:
    driven = Driven()
    driven.poll()
    driven.deliver([b"a", b"b"], [(0, 1)], lock_ms=LOCK_MS)
    driven.advance(LOCK_MS)
    assert driven.poll() == []
    driven.poll()
    assert driven.fetch().share_acquire_mode == 0


def test_record_limit_asks_one_broker_at_a_time_in_turn() -> None:
    driven = Driven(partitions=3, share_acquire_mode="record_limit")
    driven.poll(5)
    nodes = []
    for _ in range(6):
        sent = driven.last(share_fetch.ShareFetchRequest)
        nodes.append(sent.node)
        assert (sent.request.share_acquire_mode, sent.request.max_records, sent.min_version) == (1, 5, 2)
        driven.answer(share_fetch.ShareFetchResponse())
        driven.poll(5)
    assert nodes == [1, 2, 3, 1, 2, 3]
    assert driven.count(share_fetch.ShareFetchRequest) == 7


def test_buffered_records_are_dropped_with_their_share_session() -> None:
    """The broker has released them, so another member may have them."""
    for lost in (ConnectionLost("x"), share_acknowledge.ShareAcknowledgeResponse(error_code=122)):
        driven = Driven()
        driven.poll()
        driven.deliver([b"a", b"b"], [(0, 1)])
        assert len(driven.poll(1)) == 1
        driven.core.commit()
        driven.advance()
        driven.answer(lost, share_acknowledge.ShareAcknowledgeRequest)
        assert driven.poll() == []


def test_record_whose_renewal_failed_is_not_held_any_more() -> None:
    driven = Driven(share_acknowledgement_mode="explicit")
    driven.poll()
    driven.deliver([b"a"], [(0, 0)])
    driven.poll()
    driven.core.acknowledge(T0, 0, AcknowledgeType.RENEW)
    driven.core.commit()
    driven.advance()
    row = share_acknowledge.PartitionData(partition_index=0, error_code=ErrorCode.INVALID_RECORD_STATE)
    rows = [share_acknowledge.ShareAcknowledgeTopicResponse(T, [row])]
    driven.core.acknowledge(T0, 0, AcknowledgeType.ACCEPT)
    driven.answer(share_acknowledge.ShareAcknowledgeResponse(responses=rows), share_acknowledge.ShareAcknowledgeRequest)
    with pytest.raises(NotAssigned):
        driven.core.acknowledge(T0, 0, AcknowledgeType.ACCEPT)
    driven.poll()


def test_closing_acknowledges_closes_the_session_and_leaves() -> None:
    driven = Driven()
    driven.view.apply(MetadataResponse(brokers=[], topics=[]), 0)
    driven.view.nodes[NODE] = None  # type: ignore[assignment]
    driven.poll()
    driven.deliver([b"a", b"b"], [(0, 1)])
    driven.poll(1)
    driven.core.begin_close(settle=True)
    driven.core._sessions.of(NODE).is_busy = True
    effects = [effect.request for effect in driven.core.leave() if isinstance(effect, Send)]
    closing, leaving = effects
    assert isinstance(closing, share_acknowledge.ShareAcknowledgeRequest)
    assert (closing.share_session_epoch, acknowledged(closing)) == (-1, [(0, 0, [1])])
    assert isinstance(leaving, ShareGroupHeartbeatRequest)
    assert leaving.member_epoch == -1


def test_broker_without_share_groups_is_one_clear_error() -> None:
    driven = Driven()
    driven.advance(60_000)
    driven.core.complete(driven.last(ShareGroupHeartbeatRequest).id, UnsupportedByBroker("h:1 is old"), driven.now_ms)
    with pytest.raises(UnsupportedByBroker, match=r"share\.version=1"):
        driven.poll()


def test_settings_of_a_share_consumer() -> None:
    with pytest.raises(ConfigurationError, match=r"group\.id"):
        read_share_settings({"bootstrap_servers": "h:1"})
    with pytest.raises(ConfigurationError, match="enable_auto_commit"):
        read_share_settings({"bootstrap_servers": "h:1", "group_id": "g", "enable_auto_commit": True})
