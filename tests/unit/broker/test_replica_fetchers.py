"""Which fetcher follows a partition, and what a lost connection reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import TopicPartition
from ottla.common.work import Worker
from ottla.network.errors import ConnectionClosed, NoAnswer
from ottla.partitions.replication import fetcher as module
from ottla.partitions.replication.context import FetcherContext
from ottla.partitions.replication.fetchers import ReplicaFetchers
from ottla.partitions.replication.followed import LATEST
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.session import FetchSettings

from .harness import ManualLoop

LEADER = 2


class FakeLog:
    log_end_offset = latest_epoch = log_start_offset = high_watermark = 0

    def __init__(self, topic: str) -> None:
        self.topic_partition = TopicPartition(topic, 0)


class FakePartition:
    """A `FollowedPartition` with an empty log."""

    leader_epoch = 0
    closed = False
    is_truncation_synced = True
    needs_end = False

    def __init__(self, topic: str) -> None:
        self.log = FakeLog(topic)
        self.topic_id = topic.encode()
        self.leader_id = LEADER
        self.on_taken: Callable[[], None] = lambda: None
        self.problem = ""
        self.asked_ms = -1

    def flush_if_due(self, now_ms: int) -> None:
        return None

    def take_offsets(self, high_watermark: int, log_start_offset: int, appended_bytes: int, asked_ms: int) -> None:
        self.asked_ms = asked_ms
        self.on_taken()

    def note_error(self, error: ErrorCode) -> None:
        return None

    def note_failure(self, problem: str) -> None:
        self.problem = problem


class FakeChannel:
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.requests: list[tuple[Any, Completion[Any]]] = []
        self.closed = False

    def send(self, request: Any, *, timeout_s: float, version: int | None = None, least_version: int = 0) -> Any:
        self.requests.append((request, Completion()))
        return self.requests[-1][1]

    def close(self) -> None:
        self.closed = True

    def answer(self, session_id: int = 7, throttle_time_ms: int = 0, **partitions: PartitionData) -> None:
        topics = [
            FetchableTopicResponse(topic_id=topic.encode(), partitions=[data]) for topic, data in partitions.items()
        ]
        self.requests[-1][1].complete(FetchResponse(throttle_time_ms, session_id=session_id, responses=topics))

    def topics(self) -> set[bytes]:
        """The topics that the last request names."""
        return {topic.topic_id for topic in self.requests[-1][0].topics}


class Follower:
    """The fetchers of one node, and their connections."""

    def __init__(self, quota: Any = None, *, fetches_last: bool = False) -> None:
        self.loop = ManualLoop()
        self.worker = Worker(self.loop)
        self.channels: list[FakeChannel] = []
        self.events: list[tuple[str, int]] = []
        self.failures: list[str] = []
        context = FetcherContext(
            cluster=cast("Any", type("View", (), {"node_id": 1, "broker_epoch": 5})()),
            logs=cast("Any", None),
            clock=self.loop,
            call_later=self.loop.call_later,
            worker=self.worker,
            settings=FetchSettings(),
            request_timeout_s=30,
            connect=self.connect,
            on_lost=lambda leader: self.events.append(("lost", leader)),
            on_answer=lambda leader: self.events.append(("answer", leader)),
            on_failure=lambda _, problem: self.failures.append(problem),
            on_throttled=lambda _, throttle_ms: self.failures.append(f"throttled for {throttle_ms} ms"),
            quota=quota,
            fetches_last=fetches_last,
        )
        self.fetchers = ReplicaFetchers(context, lambda: 1)

    def connect(self, _node_id: int, client_id: str) -> FakeChannel:
        self.channels.append(FakeChannel(client_id))
        return self.channels[-1]

    def follow(self, topic: str) -> FakePartition:
        partition = FakePartition(topic)
        self.fetchers.following(cast("Any", partition))
        self.loop.advance(0)
        return partition


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_spare_fetcher_is_free_again_when_the_regular_one_was_answered(follower: Follower) -> None:
    follower.follow("a")
    follower.follow("b")  # the regular fetcher waits for its leader
    regular, spare = follower.channels
    assert (regular.topics(), spare.topics()) == ({b"a"}, {b"b"})
    regular.answer()
    assert regular.topics() == {b"b"}, "one fetch names the taken partition; the leader knows the other partition"
    assert spare.closed
    spare.requests[-1][1].fail(ConnectionClosed("closed by this node"))
    follower.follow("c")
    another = follower.channels[2]
    assert another.client_id == spare.client_id
    assert another.topics() == {b"c"}
    assert ("lost", LEADER) not in follower.events


def test_mirror_answers_consumers_of_the_records_before_it_fetches_again() -> None:
    follower = Follower(fetches_last=True)
    follower.follow("a")
    channel, order = follower.channels[0], []
    follower.loop.call_later(0, lambda: order.append(len(channel.requests)))  # as the fetch of a consumer
    channel.answer()
    follower.loop.advance(0)
    assert order == [1]
    assert len(channel.requests) == 2


def test_partition_of_the_spare_fetcher_can_be_left(follower: Follower) -> None:
    follower.follow("a")
    b = follower.follow("b")
    regular = follower.channels[0]
    regular.answer()
    follower.fetchers.unfollowed(cast("Any", b))
    regular.answer()
    request = regular.requests[-1][0]
    assert [topic.topic_id for topic in request.forgotten_topics_data] == [b"b"]


def test_closed_connection_is_reported_and_the_next_answer(follower: Follower) -> None:
    follower.follow("a")
    first = follower.channels[0]
    first.answer()
    assert follower.events == [("answer", LEADER)]
    first.answer()
    assert len(follower.events) == 1, "only the first answer is reported"
    first.requests[-1][1].fail(ConnectionClosed("closed by the leader"))
    assert follower.events[1:] == [("lost", LEADER)]
    follower.loop.advance(20)
    follower.channels[1].answer()
    assert follower.events[2:] == [("answer", LEADER)]


def test_missing_answer_does_not_report_the_leader_as_lost(follower: Follower) -> None:
    follower.follow("a")
    follower.channels[0].requests[-1][1].fail(NoAnswer("no answer within 30 s"))
    assert follower.events == []
    assert follower.failures == ["no answer within 30 s"]


def test_partition_has_an_answer_only_when_its_row_was_taken(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion would end before the last records of an answer that is taken in slices."""
    monkeypatch.setattr(module, "SLICE_PARTITIONS", 1)
    follower.worker.later = follower.loop.call_soon
    a, b = FakePartition("a"), FakePartition("b")
    for partition in (a, b):
        follower.fetchers.following(cast("Any", partition))
    follower.loop.advance(0)
    channel = follower.channels[0]
    follower.loop.advance(20)
    channel.answer()
    assert follower.fetchers.as_of_ms(cast("Any", b)) == 0
    follower.loop.advance(30)
    # The first row takes all the time of its iteration.
    a.on_taken = lambda: setattr(follower.loop, "now_ms", 150)
    channel.answer(a=PartitionData(high_watermark=9), b=PartitionData(high_watermark=9))
    assert follower.fetchers.as_of_ms(cast("Any", b)) == 0
    follower.loop.run()
    assert follower.fetchers.as_of_ms(cast("Any", b)) == 20


def test_answer_that_was_on_the_way_for_long_shows_nothing_of_the_time_since_its_request(follower: Follower) -> None:
    """A planned promotion would lose the records that the source has got meanwhile."""
    partition = FakePartition("a")
    follower.fetchers.following(cast("Any", partition))
    follower.loop.advance(10)
    [channel] = follower.channels
    follower.loop.advance(5_000)
    channel.answer(a=PartitionData(high_watermark=0))
    assert partition.asked_ms == 0
    follower.loop.advance(3_000)
    channel.answer()
    assert follower.fetchers.as_of_ms(cast("Any", partition)) == 5_010


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full"), ValueError("a defect")])
def test_error_of_one_partition_is_reported_and_delays_no_other(follower: Follower, error: Exception) -> None:
    a, b = FakePartition("a"), FakePartition("b")
    for partition in (a, b):
        follower.fetchers.following(cast("Any", partition))
    follower.loop.advance(0)
    [channel] = follower.channels

    def fail() -> None:
        raise error

    a.on_taken = fail
    channel.answer(a=PartitionData(high_watermark=9), b=PartitionData(high_watermark=9))
    assert str(error) in a.problem
    assert b.problem == ""
    assert len(channel.requests) == 2, "the other partition is fetched at once"
    assert [topic.topic_id for topic in channel.requests[-1][0].forgotten_topics_data] == [b"a"]
    follower.loop.advance(20)
    channel.answer()
    assert channel.topics() == {b"a"}, "it is retried after the backoff"


def test_answer_that_a_quota_of_the_source_has_emptied_does_not_show_that_nothing_is_new(follower: Follower) -> None:
    """A planned promotion would lose the records that the source has withheld."""
    partition = follower.follow("a")
    [channel] = follower.channels
    channel.answer(a=PartitionData(high_watermark=0))
    channel.answer()
    assert follower.fetchers.as_of_ms(cast("Any", partition)) == 0
    channel.answer(throttle_time_ms=40_000)
    assert follower.fetchers.as_of_ms(cast("Any", partition)) == -1
    assert follower.failures == ["throttled for 40000 ms"]
    sent = len(channel.requests)
    follower.loop.advance(39_000)
    assert len(channel.requests) == sent, "the source does not read from the connection: a request would time out"
    follower.loop.advance(1_000)
    assert len(channel.requests) == sent + 1
    channel.answer()
    assert follower.fetchers.as_of_ms(cast("Any", partition)) == 40_000
    assert follower.events[-1] == ("answer", LEADER)


class FullQuota:
    """A quota that has no room for the topic `a` within the next minute."""

    def __init__(self) -> None:
        self.topics = {"a": None}

    def is_throttled(self, partition: TopicPartition) -> bool:
        return partition.topic == "a"

    def record(self, size: int) -> None:
        """Nothing is counted."""

    def wait_ms(self) -> int:
        return 60_000


def test_backoff_after_an_error_does_not_wait_for_a_throttled_partition() -> None:
    follower = Follower(FullQuota())
    for topic in ("a", "b"):
        follower.fetchers.following(cast("Any", FakePartition(topic)))
    follower.loop.advance(0)
    channel = follower.channels[0]
    channel.answer(
        a=PartitionData(high_watermark=9),
        b=PartitionData(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, high_watermark=-1),
    )
    assert len(channel.requests) == 1
    follower.loop.advance(20)
    assert len(channel.requests) == 2
    assert channel.topics() == {b"b"}


class PartitionWithoutEnd(FakePartition):
    """A copy of another cluster's partition, whose new leader has not named its end."""

    needs_end = True

    def take_end(self, offset: int, asked_ms: int) -> None:
        self.end, self.needs_end, self.asked_ms = offset, False, asked_ms


def answer_end(channel: FakeChannel, error: ErrorCode, offset: int) -> None:
    request, done = channel.requests[-1]
    [topic] = request.topics
    assert topic.partitions[0].timestamp == LATEST
    row = ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=offset)
    done.complete(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=[row])]))


def test_end_of_a_new_leader_is_looked_up_until_the_leader_knows_it(follower: Follower) -> None:
    partition = PartitionWithoutEnd("a")
    follower.fetchers.following(cast("Any", partition))
    follower.loop.advance(0)
    [channel] = follower.channels
    for error, offset in ((ErrorCode.OFFSET_NOT_AVAILABLE, -1), (ErrorCode.NONE, 9)):
        assert channel.topics() == {b"a"}
        channel.answer(a=PartitionData(partition_index=0))
        follower.loop.advance(500)
        answer_end(channel, error, offset)
        follower.loop.advance(1_000)
    assert (partition.end, partition.asked_ms) == (9, 1_500), "the second request for its end was sent at that time"
    assert channel.topics() == {b"a"}
    channel.answer(a=PartitionData(partition_index=0))
    assert channel.topics() == set(), "the leader knows the position"


def test_end_is_looked_up_though_the_leader_names_no_partition_without_a_change(follower: Follower) -> None:
    partition = PartitionWithoutEnd("a")
    follower.fetchers.following(cast("Any", partition))
    follower.loop.advance(0)
    [channel] = follower.channels
    channel.answer(throttle_time_ms=10)
    follower.loop.advance(100)
    assert (channel.topics(), partition.needs_end) == (set(), True), "a quota may have emptied the answer"
    # The row of the partition was in an earlier answer of the session, e.g. before a truncation.
    channel.answer()
    answer_end(channel, ErrorCode.NONE, 9)
    assert (partition.end, partition.needs_end) == (9, False)
