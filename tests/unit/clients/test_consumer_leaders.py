"""The consumer's core when leaders change: requests, positions and records."""

from __future__ import annotations

import pytest

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.collectors import RecordCollector
from ottla.clients.consumer.core import ConsumerCore
from ottla.clients.consumer.effects import Outcome, Refresh, Send
from ottla.clients.consumer.settings import read_settings
from ottla.clients.errors import ConnectionLost, LogTruncated, UnsupportedByBroker
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.records import encode_batch

from .metadata import metadata, topic_row

T0 = TopicPartition("t", 0)
T0_ID = b"t".ljust(16, b"\0")


def batch(base: int, count: int, epoch: int) -> bytes:
    return bytes(encode_batch([(0, None, b"v", [])] * count, base_offset=base, leader_epoch=epoch))


class ManualBroker:
    """A consumer of one partition. The test responds to its requests."""

    def __init__(self, **options: object) -> None:
        self.now_ms = 0.0
        self.view = ClusterView()
        _, settings = read_settings({"bootstrap_servers": "h:1", "auto_offset_reset": "earliest", **options})
        self.core = ConsumerCore(settings, self.view, member_id="me")
        self.sent: list[Send] = []
        self.refreshed = 0
        self.leader, self.epoch = 1, 0
        self.lead(1, 0)
        self.core.assign([T0])
        self.core.fetch.seek(T0, 0)
        self.poll()

    def lead(self, node: int, epoch: int) -> None:
        """Make the next metadata response name this leader."""
        self.leader, self.epoch = node, epoch
        self.view.apply(metadata(topic_row("t", leaders=[node], epoch=epoch)), self.now_ms)

    def work(self, ms: float = 0.0) -> None:
        self.now_ms += ms
        for _ in range(5):
            for effect in self.core.advance(self.now_ms):
                if isinstance(effect, Send):
                    self.sent.append(effect)
                elif isinstance(effect, Refresh):
                    self.refreshed += 1
                    self.lead(self.leader, self.epoch)
                    self.core.complete(effect.id, None, self.now_ms)
            self.core.validate()

    def poll(self) -> list[int]:
        self.core.begin_poll(self.now_ms)
        try:
            self.core.raise_error()
            collector = RecordCollector(500)
            self.core.fill(collector)
        finally:
            self.core.end_poll(self.now_ms)
        self.work()
        return [record.offset for record in collector.records]

    def take_sent(self) -> Send:
        """Return the only request without a response."""
        (send,) = self.sent
        self.sent.clear()
        return send

    def fetch(self) -> Send:
        send = self.take_sent()
        assert isinstance(send.request, FetchRequest)
        return send

    def check(self) -> Send:
        send = self.take_sent()
        assert isinstance(send.request, OffsetForLeaderEpochRequest)
        return send

    def complete(self, send: Send, outcome: Outcome) -> None:
        self.core.complete(send.id, outcome, self.now_ms)
        self.work()

    def answer(self, send: Send, **row: object) -> None:
        data = PartitionData(partition_index=0, **row)  # type: ignore[arg-type]
        topic = FetchableTopicResponse(topic_id=T0_ID, partitions=[data])
        self.complete(send, FetchResponse(session_id=7, responses=[topic]))

    def answer_check(self, send: Send, epoch: int, end: int, code: int = 0) -> None:
        row = EpochEndOffset(code, 0, epoch, end)
        self.core.complete(
            send.id, OffsetForLeaderEpochResponse(0, [OffsetForLeaderTopicResult("t", [row])]), self.now_ms
        )
        self.work()

    def read_five_of_epoch_0(self) -> Send:
        """Read offsets 0 to 4, leave 5 to 9 in the buffer, and return the fetch in flight."""
        self.answer(self.fetch(), records=memoryview(batch(0, 5, 0)), high_watermark=10)
        assert self.poll() == [0, 1, 2, 3, 4]
        self.answer(self.fetch(), records=memoryview(batch(5, 5, 0)), high_watermark=10)
        return self.fetch()


def test_new_leader_is_checked_for_the_records_that_were_read() -> None:
    broker = ManualBroker()
    waiting = broker.read_five_of_epoch_0()
    broker.lead(2, 3)
    broker.work()
    check = broker.check()
    (row,) = check.request.topics[0].partitions  # type: ignore[attr-defined]
    assert (check.node, row.current_leader_epoch, row.leader_epoch) == (2, 3, 0)
    assert broker.poll() == []
    broker.answer_check(check, 0, 12)
    after = broker.fetch()
    assert after.node == 2
    assert after.request.topics[0].partitions[0].fetch_offset == 5  # type: ignore[attr-defined]
    broker.answer(waiting, records=memoryview(batch(10, 5, 0)))  # a late response of the old leader
    broker.answer(after, records=memoryview(batch(5, 7, 0)), high_watermark=12)
    assert broker.poll() == [5, 6, 7, 8, 9, 10, 11]
    broker.work(1_000)
    assert broker.fetch().node == 2, "the check is not repeated"


def test_truncated_log_continues_at_the_divergence_or_raises() -> None:
    resets, raises = ManualBroker(), ManualBroker(auto_offset_reset="none")
    for broker in (resets, raises):
        broker.read_five_of_epoch_0()
        broker.lead(2, 3)
        broker.work()
        broker.answer_check(broker.check(), 0, 3)
    fetch = resets.fetch()
    assert fetch.request.topics[0].partitions[0].fetch_offset == 3  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(LogTruncated, match="offset 3") as raised:
            raises.poll()
        error = raised.value
        assert (error.topic, error.partition, error.offset, error.diverged_at) == ("t", 0, 5, 3)
    raises.core.fetch.seek(T0, 3)
    raises.poll()
    assert raises.fetch().node == 2


def test_leader_without_the_epoch_causes_a_reset() -> None:
    broker = ManualBroker(auto_offset_reset="latest")
    broker.read_five_of_epoch_0()
    broker.lead(2, 3)
    broker.work()
    broker.answer_check(broker.check(), -1, -1)
    assert broker.take_sent().request.topics[0].partitions[0].timestamp == -1  # type: ignore[attr-defined]


def test_failed_epoch_check_is_retried_but_an_unsupported_one_is_skipped() -> None:
    broker = ManualBroker()
    broker.read_five_of_epoch_0()
    broker.lead(2, 3)
    broker.work()
    broker.answer_check(broker.check(), -1, -1, ErrorCode.FENCED_LEADER_EPOCH)
    assert not broker.sent
    broker.work(200)
    broker.complete(broker.check(), ConnectionLost("lost"))
    broker.work(200)
    broker.complete(broker.check(), UnsupportedByBroker("old"))
    assert broker.fetch().node == 2


def test_error_that_names_the_new_leader_needs_no_metadata_request() -> None:
    broker = ManualBroker()
    fetch = broker.fetch()
    asked = broker.refreshed
    response = FetchResponse(
        session_id=7,
        responses=[
            FetchableTopicResponse(
                topic_id=T0_ID,
                partitions=[
                    PartitionData(
                        partition_index=0,
                        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                        current_leader=LeaderIdAndEpoch(9, 4),
                    )
                ],
            )
        ],
        node_endpoints=[NodeEndpoint(9, "host9", 9092)],
    )
    broker.complete(fetch, response)
    assert broker.fetch().node == 9
    assert (broker.view.nodes[9].host, broker.view.leader_epoch(*T0), broker.refreshed) == ("host9", 4, asked)


def test_unknown_server_error_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    broker = ManualBroker()
    broker.answer(broker.fetch(), error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert "at offset 0" in caplog.text
    broker.work(200)
    broker.answer(broker.fetch(), records=memoryview(batch(0, 3, 0)), high_watermark=3)
    assert broker.poll() == [0, 1, 2]


def test_responses_of_two_leaders_for_the_same_offset_are_not_duplicated() -> None:
    broker = ManualBroker()
    old = broker.fetch()
    broker.lead(2, 1)
    broker.work()
    new = broker.fetch()
    assert (old.node, new.node) == (1, 2)
    broker.answer(new, records=memoryview(batch(0, 3, 0)), high_watermark=3)
    broker.answer(old, records=memoryview(batch(0, 3, 0)), high_watermark=3)
    assert broker.poll() == [0, 1, 2]
    assert broker.poll() == []


class TestRack:
    """KIP-392: the leader names a replica in the client's rack."""

    def test_preferred_replica_serves_until_metadata_max_age(self) -> None:
        broker = ManualBroker(client_rack="r", metadata_max_age_ms=10_000)
        first = broker.fetch()
        assert first.request.rack_id == "r"  # type: ignore[attr-defined]
        broker.answer(first, preferred_read_replica=2)
        for offset in range(3):
            follower = broker.fetch()
            assert follower.node == 2
            broker.answer(follower, records=memoryview(batch(offset, 1, 0)))
            assert broker.poll() == [offset]
        broker.now_ms += 10_001
        broker.answer(broker.fetch(), records=memoryview(batch(3, 1, 0)))
        assert broker.fetch().node == 1

    @pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    def test_fetches_return_to_the_leader_after_an_error_of_the_replica(self, code: ErrorCode) -> None:
        broker = ManualBroker(client_rack="r")
        broker.answer(broker.fetch(), preferred_read_replica=2)
        broker.answer(broker.fetch(), error_code=code)
        broker.work(200)
        assert broker.fetch().node == 1

    def test_fetches_return_to_the_leader_after_the_replica_disconnects(self) -> None:
        broker = ManualBroker(client_rack="r")
        broker.answer(broker.fetch(), preferred_read_replica=2)
        follower = broker.fetch()
        assert follower.node == 2
        broker.complete(follower, ConnectionLost("lost"))
        broker.work(200)
        assert broker.fetch().node == 1
