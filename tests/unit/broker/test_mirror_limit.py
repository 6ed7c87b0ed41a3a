"""The limit of bytes that a mirror fetches: exact over half a minute, and no bursts above one second's bytes."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker import late
from ottla.broker.mirrors.mirror import mirror_fetch_settings
from ottla.broker.mirrors.mirrors import Mirrors
from ottla.common.completion import Completion
from ottla.common.rate import UNLIMITED
from ottla.common.work import Worker
from ottla.config import BrokerConfig
from ottla.metadata.image import MIRROR, MetadataImage
from ottla.partitions.replication.context import FetcherContext
from ottla.partitions.replication.fetchers import ReplicaFetchers
from ottla.partitions.replication.quotas import FetchLimit
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.replication.session import FetchSettings

from .harness import ManualLoop
from .test_replica_fetchers import FakePartition

LIMIT = 1_000_000
WAIT_MS = 500


class CopiedPartition(FakePartition):
    def __init__(self, leader_id: int) -> None:
        super().__init__(f"t{leader_id}")
        self.leader_id = leader_id

    def append(self, records: bytes, now_ms: int) -> None:
        """The source has counted them."""


class Source:
    """Leaders that each have one partition, with records for ever from `begins_ms` on, behind a link."""

    def __init__(self, leaders: int, round_trip_ms: int, begins_ms: int = 0) -> None:
        self.loop = ManualLoop()
        self.round_trip_ms, self.begins_ms = round_trip_ms, begins_ms
        self.limit = LIMIT
        self.batch_size = 1
        self.received: list[tuple[int, int]] = []
        self.fetch_limit = FetchLimit(self.loop, lambda: self.limit)
        context = FetcherContext(
            cluster=cast("Any", type("View", (), {"node_id": -1, "broker_epoch": -1})()),
            logs=cast("Any", None),
            clock=self.loop,
            call_later=self.loop.call_later,
            worker=Worker(self.loop),
            settings=FetchSettings(wait_max_ms=WAIT_MS),
            request_timeout_s=30,
            connect=lambda leader, _: cast("Any", Channel(self, leader)),
            on_lost=lambda _: None,
            on_answer=lambda _: None,
            limit=self.fetch_limit,
        )
        self.fetchers = ReplicaFetchers(context, lambda: 1)
        for leader in range(leaders):
            self.fetchers.following(cast("Any", CopiedPartition(leader)))

    def answer(self, leader: int, most_bytes: int, done: Completion[Any]) -> None:
        now_ms = self.loop.monotonic_ms()
        size = max(min(most_bytes, 10_000_000), self.batch_size) if now_ms >= self.begins_ms else 0
        if size:
            self.received.append((now_ms, size))
        data = PartitionData(high_watermark=9, records=cast("Any", bytes(size)))
        topic = FetchableTopicResponse(topic_id=b"t%d" % leader, partitions=[data])
        done.complete(FetchResponse(session_id=7, responses=[topic]))

    def bytes_between(self, from_ms: int, to_ms: int) -> int:
        return sum(size for at_ms, size in self.received if from_ms < at_ms <= to_ms)

    def check_bursts(self) -> None:
        for index, (from_ms, _) in enumerate(self.received):
            total = 0
            for at_ms, size in self.received[index:]:
                total += size
                assert total <= LIMIT * (at_ms - from_ms) / 1000 + LIMIT * 0.76


class Channel:
    def __init__(self, source: Source, leader: int) -> None:
        self.source, self.leader = source, leader

    def send(self, request: FetchRequest, **_: object) -> Completion[Any]:
        done: Completion[Any] = Completion()
        source = self.source
        # Without records, the leader waits for some.
        is_idle = source.loop.monotonic_ms() < source.begins_ms
        after_ms = WAIT_MS if is_idle else source.round_trip_ms
        source.loop.call_later(after_ms / 1000, partial(source.answer, self.leader, request.max_bytes, done))
        return done

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("leaders", [1, 3])
@pytest.mark.parametrize("round_trip_ms", [1, 100])
def test_rate_is_exact_and_without_bursts(leaders: int, round_trip_ms: int) -> None:
    source = Source(leaders, round_trip_ms, begins_ms=5_000)
    source.loop.advance(35_000)
    assert source.bytes_between(5_000, 35_000) == pytest.approx(30 * LIMIT, rel=0.05)
    source.check_bursts()


def test_changed_limit_has_an_effect_within_a_second() -> None:
    source = Source(2, 10)
    source.loop.advance(10_000)
    source.limit = LIMIT // 10
    source.loop.advance(31_000)
    assert source.bytes_between(11_000, 41_000) == pytest.approx(3 * LIMIT, rel=0.05)
    source.limit = UNLIMITED
    source.loop.advance(2_000)
    assert source.bytes_between(42_000, 43_000) > 100 * LIMIT


def test_batch_above_the_limit_is_followed_by_a_pause() -> None:
    source = Source(1, 10)
    source.batch_size = 5 * LIMIT
    source.loop.advance(60_000)
    assert source.bytes_between(0, 60_000) == pytest.approx(60 * LIMIT, rel=0.1)


def test_limit_reports_its_rate_and_whether_it_delays() -> None:
    source = Source(1, 10)
    source.loop.advance(30_000)
    throttling = source.fetch_limit.throttling()
    assert throttling is not None
    assert (throttling.limit, throttling.is_delaying) == (LIMIT, True)
    assert throttling.rate == pytest.approx(LIMIT, rel=0.15)
    source.begins_ms = source.loop.monotonic_ms() + 60_000
    source.loop.advance(30_000)
    assert source.fetch_limit.throttling() == (LIMIT, 0, False)
    source.limit = UNLIMITED
    assert source.fetch_limit.throttling() is None


class RunningMirror:
    """A mirror that only notes its limit, and that it was closed."""

    def __init__(self, _node: object, _name: str, settings: dict[str, Any]) -> None:
        self.rate, self.closed = settings["replication.throttled.rate"], False

    def throttle(self, rate: int) -> None:
        self.rate = rate

    def publish(self, *_: object) -> None:
        """No topics."""

    def replaces(self, closed: RunningMirror) -> None:
        self.replaced = closed

    def close(self) -> None:
        self.closed = True


def test_mirror_is_not_restarted_when_only_its_rate_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart forgets how many records the mirror has dropped, and which offsets of groups are copies."""
    started: list[RunningMirror] = []

    def new(*arguments: Any) -> RunningMirror:
        started.append(RunningMirror(*arguments))
        return started[-1]

    monkeypatch.setattr(late, "Mirror", new)
    mirrors, images = Mirrors(), []

    def set_to(**settings: str) -> None:
        given = {name.replace("_", "."): text for name, text in settings.items()}
        images.append(MetadataImage(configs={(MIRROR, "dr"): given} if given else {}))
        if len(images) == 1:
            mirrors.start(cast("Any", SimpleNamespace(metadata=SimpleNamespace(image=images[0]))))
        else:
            mirrors.publish(*images[-2:])

    set_to(topics="a")
    assert started[0].rate == UNLIMITED
    set_to(topics="a", replication_throttled_rate="1000")
    assert (len(started), started[0].rate) == (1, 1000)
    set_to(topics="a")
    assert (len(started), started[0].rate) == (1, UNLIMITED)
    set_to(topics="b")
    assert (len(started), started[0].closed) == (2, True)
    assert started[1].replaced is started[0], "it reports what the former one knew"
    set_to()
    assert started[1].closed


def test_partition_may_fill_an_answer_unless_its_limit_is_set() -> None:
    node = {"node.id": "1", "log.dirs": "logs"}
    by_default = mirror_fetch_settings(BrokerConfig(node))
    assert by_default.max_bytes == by_default.response_max_bytes == 10 << 20
    limited = mirror_fetch_settings(BrokerConfig({**node, "replica.fetch.max.bytes": "1000"}))
    assert (limited.max_bytes, limited.response_max_bytes) == (1000, 10 << 20)
