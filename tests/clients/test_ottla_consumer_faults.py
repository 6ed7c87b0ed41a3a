"""Ottla's consumer with faulty responses: a proxy changes them, or the log on disk is corrupt."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ottla.clients import Admin, Consumer, CorruptRecords, Producer, TopicPartition
from ottla.clients.consumer import Record
from ottla.clients.errors import ClientError, IllegalGeneration
from ottla.common.errors import ErrorCode
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .conftest import MakeTopic
from .proxy import Proxy
from .support import WAIT_S, unique
from .test_ottla_consumer import committed, numbered, poll_all, produce

pytestmark = pytest.mark.both
FETCH, HEARTBEAT, OFFSET_COMMIT, OFFSET_FOR_LEADER_EPOCH = 1, 12, 8, 23


def flip(records: object) -> bytes:
    """Return the bytes with one bit flipped in the last record of the first batch."""
    data = bytearray(bytes(records))  # type: ignore[call-overload]
    end = 12 + int.from_bytes(data[8:12], "big")
    data[end - 3] ^= 1
    return bytes(data)


def partitions(response: Any) -> list[Any]:
    return [row for topic in response.responses for row in topic.partitions if row.records]


def read(consumer: Consumer, until: int) -> tuple[list[Record], list[CorruptRecords]]:
    """Poll until the position is `until`. Return the records and the errors."""
    seen: list[Record] = []
    raised: list[CorruptRecords] = []
    deadline = time.monotonic() + WAIT_S
    (tp,) = consumer.assignment()
    while consumer.position(tp) < until:
        assert time.monotonic() < deadline, f"at {consumer.position(tp)}"
        try:
            seen += consumer.poll(0.2)
        except CorruptRecords as error:
            raised.append(error)
    return seen, raised


def send_two_batches(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, linger_ms=1_000) as producer:
        for _ in range(2):
            for i in range(5):
                producer.send(topic, b"%d" % i, partition=0)
            producer.flush()


@pytest.fixture
def two_batches(broker: RunningBroker, make_topic: MakeTopic) -> str:
    """A topic with the offsets 0 to 4 in one batch and 5 to 9 in another."""
    topic = make_topic()
    send_two_batches(broker.bootstrap, topic)
    return topic


class TestCorruptBatch:
    def test_batch_corrupted_by_the_network_is_refetched(self, broker: RunningBroker, two_batches: str) -> None:
        damaged: list[int] = []

        def once(_: object, response: Any) -> Any:
            for row in partitions(response):
                if not damaged:
                    damaged.append(1)
                    row.records = flip(row.records)
            return response

        with Proxy(broker.bootstrap) as proxy:
            proxy.answers[FETCH] = once
            with Consumer(bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([(two_batches, 0)])
                assert [r.offset for r in poll_all(consumer, 10)] == list(range(10))
        assert damaged

    @pytest.mark.parametrize("choice", ["raise", "skip"])
    def test_permanently_corrupt_batch_is_raised_once_or_skipped(
        self, broker: RunningBroker, two_batches: str, choice: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def always(_: object, response: Any) -> Any:
            for row in partitions(response):
                if int.from_bytes(bytes(row.records[:8]), "big") == 0:
                    row.records = flip(row.records)
            return response

        with Proxy(broker.bootstrap) as proxy:
            proxy.answers[FETCH] = always
            with Consumer(
                bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest", group_id=unique("g"),
                on_corrupt_records=choice,
            ) as consumer:  # fmt: skip
                consumer.assign([(two_batches, 0)])
                seen, raised = read(consumer, 10)
                consumer.commit()
                assert committed(consumer, TopicPartition(two_batches, 0)) == 10
        assert [r.offset for r in seen] == [5, 6, 7, 8, 9]
        if choice == "raise":
            ((topic, partition, offset),) = [(e.topic, e.partition, e.offset) for e in raised]
            assert (topic, partition, offset) == (two_batches, 0, 0)
        else:
            assert raised == []
            assert f"{TopicPartition(two_batches, 0)} at offset 0" in caplog.text


class TestThrottling:
    """KIP-219: a broker responds immediately, and the client sends nothing for the throttle time."""

    @pytest.mark.parametrize("api_key", [FETCH, OFFSET_COMMIT, HEARTBEAT])
    def test_throttled_client_sends_nothing_for_the_throttle_time(
        self, broker: RunningBroker, make_topic: MakeTopic, api_key: int
    ) -> None:
        topic = make_topic()
        produce(broker.bootstrap, topic, numbered(1))
        at: list[float] = []

        def throttle(_: object, response: Any) -> Any:
            at.append(time.monotonic())
            response.throttle_time_ms = 700 if len(at) == 1 else 0
            return response

        with Proxy(broker.bootstrap) as proxy:
            proxy.answers[api_key] = throttle
            with Consumer(
                bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest", group_id=unique("g"),
                heartbeat_interval_ms=100, fetch_max_wait_ms=50, enable_auto_commit=False,
            ) as consumer:  # fmt: skip
                consumer.subscribe(topic)
                poll_all(consumer, 1)
                deadline = time.monotonic() + WAIT_S
                while len(at) < 2 and time.monotonic() < deadline:
                    if api_key == OFFSET_COMMIT:
                        consumer.commit()
                    else:
                        consumer.poll(0.05)
        assert 0.69 <= at[1] - at[0] < 5


def test_connections_closed_mid_response_neither_lose_nor_duplicate_records(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    for start in range(0, 100, 10):
        produce(broker.bootstrap, topic, numbered(10, start))
    fetches: list[int] = []

    def every_third(_: object, response: Any) -> Any:
        fetches.append(1)
        return None if len(fetches) % 3 == 1 else response

    with Proxy(broker.bootstrap) as proxy:
        proxy.answers[FETCH] = every_third
        with Consumer(
            bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest", max_poll_records=7,
            max_partition_fetch_bytes=300, fetch_max_wait_ms=50,
        ) as consumer:  # fmt: skip
            consumer.assign([(topic, 0)])
            assert [r.offset for r in poll_all(consumer, 100)] == list(range(100))
    assert len(fetches) > 3


class TestOnDisk:
    """Corrupt or truncated logs. Each test has its own broker."""

    pytestmark: ClassVar[list[Any]] = []

    def test_flipped_bit_on_disk_is_one_error_and_other_batches_are_read(self, tmp_path: Path) -> None:
        with ForkedOttla(tmp_path) as broker:
            topic = unique("disk")
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.create_topics([topic])
            send_two_batches(broker.bootstrap, topic)
            (segment,) = (broker.data / f"{topic}-0").glob("*.log")
            data = segment.read_bytes()
            with segment.open("r+b") as file:
                file.write(flip(data)[: len(data)])
            with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([(topic, 0)])
                seen, raised = read(consumer, 10)
            assert [e.offset for e in raised] == [0]
            assert [r.offset for r in seen] == [5, 6, 7, 8, 9]

    def test_epoch_check_at_the_new_leader_decides_the_position(self, tmp_path: Path) -> None:
        """A restart begins a new epoch. If the leader reports a truncated log, the consumer returns to its end."""
        cut: list[bool] = []

        def cut_at_2(_: object, response: Any) -> Any:
            for row in [row for topic in response.topics for row in topic.partitions]:
                if not cut:
                    cut.append(True)
                    row.end_offset = 2
            return response

        with ForkedOttla(tmp_path) as broker, Proxy(broker.bootstrap) as proxy:
            topic = unique("epoch")
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.create_topics([topic])
            produce(broker.bootstrap, topic, numbered(5))
            proxy.answers[OFFSET_FOR_LEADER_EPOCH] = cut_at_2
            with Consumer(bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([(topic, 0)])
                poll_all(consumer, 5)
                broker.kill()
                broker.start()
                produce(broker.bootstrap, topic, numbered(2, 5))
                assert [r.offset for r in poll_all(consumer, 5)] == [2, 3, 4, 5, 6]
            assert proxy.asked.count(OFFSET_FOR_LEADER_EPOCH) == 1


def test_commit_retried_after_a_rebalance_does_not_overwrite_another_members_commit(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(2), unique("g")
    refuses = [True]
    outcomes: list[ClientError | None] = []

    def loading(_: object, response: Any) -> Any:
        for topic_row in response.topics if refuses else ():
            for row in topic_row.partitions:
                row.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return response

    options: dict[str, Any] = {"group_id": group, "enable_auto_commit": False}
    with Proxy(broker.bootstrap) as proxy:
        proxy.answers[OFFSET_COMMIT] = loading
        with (
            Consumer(bootstrap_servers=proxy.bootstrap, **options) as one,
            Consumer(bootstrap_servers=broker.bootstrap, **options) as two,
        ):
            one.subscribe(topic)
            poll_until(lambda: len(one.assignment()) == 2, one)
            one.commit_async({TopicPartition(topic, p): 1 for p in (0, 1)}, outcomes.append)
            two.subscribe(topic)
            poll_until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
            (theirs,) = two.assignment()
            two.commit({theirs: 9})
            refuses.clear()
            poll_until(lambda: bool(outcomes), one, two)
            assert isinstance(outcomes[0], IllegalGeneration)
            assert committed(two, theirs) == 9


def poll_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        for consumer in consumers:
            consumer.poll(0.05)
