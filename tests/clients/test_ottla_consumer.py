"""Ottla's consumer against Ottla and stock Kafka. confluent-kafka produces the records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import confluent_kafka
import pytest

from ottla.clients import AsyncConsumer, Consumer, TopicPartition
from ottla.clients.consumer import OffsetAndMetadata, Record
from ottla.clients.errors import (
    ClientError,
    Closed,
    ConfigurationError,
    DeserializationFailed,
    InvalidTopic,
    NotAssigned,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, Member, Sent, rebalance_story, sample_records, unique, wait_until
from .test_confluent import consumer as confluent_consumer
from .test_confluent_groups import ConfluentMember

pytestmark = pytest.mark.both


def produce(bootstrap: str, topic: str, records: Iterable[Sent], partition: int = 0, **config: object) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 2, **config})
    for record in records:
        producer.produce(
            topic, record.value, record.key, partition=partition, timestamp=record.timestamp, headers=record.headers
        )
    assert producer.flush(WAIT_S) == 0


def numbered(count: int, start: int = 0) -> list[Sent]:
    return [Sent(None, b"%d" % i, [], FIRST_TIMESTAMP + i) for i in range(start, start + count)]


def poll_all(consumer: Consumer, count: int, timeout_s: float = WAIT_S) -> list[Record]:
    """Poll until `count` records have been returned."""
    records: list[Record] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        records += consumer.poll(0.2)
    return records


def committed(consumer: Consumer, tp: TopicPartition) -> int | None:
    row = consumer.committed([tp])[tp]
    return None if row is None else row.offset


def values(records: Iterable[Record]) -> list[Any]:
    return [record.value for record in records]


@pytest.fixture
def reader(broker: RunningBroker) -> Iterable[Callable[..., Consumer]]:
    """Return a function that creates consumers with auto.offset.reset=earliest. They are closed after the test."""
    made: list[Consumer] = []

    def make(**options: object) -> Consumer:
        consumer = Consumer(bootstrap_servers=broker.bootstrap, **{"auto_offset_reset": "earliest", **options})
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


Reader = Callable[..., Consumer]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_shape_and_codec_are_read_as_sent(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader, codec: str
) -> None:
    topic, sent = make_topic(), sample_records(300)
    produce(broker.bootstrap, topic, sent, **{"compression.type": codec})
    consumer = reader()
    consumer.assign([(topic, 0)])
    got = poll_all(consumer, 300)
    assert [Sent(r.key, r.value, r.headers, r.timestamp) for r in got] == sent
    assert [r.offset for r in got] == list(range(300))
    assert {r.topic_partition for r in got} == {TopicPartition(topic, 0)}


def test_invalid_topic_names_are_rejected_and_change_nothing(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    half = "\ud800"  # half of a surrogate pair
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(3))
    consumer = reader(group_id=unique("group"))
    with pytest.raises(InvalidTopic, match="surrogates"):
        consumer.subscribe([topic, half])
    with pytest.raises(InvalidTopic, match="surrogates"):
        consumer.assign([(half, 0)])
    with pytest.raises(ClientError, match="cannot be encoded"):
        consumer.partitions_of(half)
    consumer.subscribe([topic])
    assert values(poll_all(consumer, 3)) == [b"0", b"1", b"2"]
    with pytest.raises(ConfigurationError, match="UTF-8"):
        reader(group_id=half)


def test_arrow_batch_holds_the_same_records(broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
    topic, sent = make_topic(2), sample_records(100)
    produce(broker.bootstrap, topic, sent, 0)
    produce(broker.bootstrap, topic, sent, 1)
    consumer = reader()
    consumer.assign([(topic, 0), (topic, 1)])
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + WAIT_S
    while len(rows) < 200 and time.monotonic() < deadline:
        rows += consumer.poll_arrow(0.5).to_pylist()
    for partition in (0, 1):
        mine = [row for row in rows if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(100))
        got = [
            Sent(
                row["key"],
                row["value"],
                [(h["key"], h["value"]) for h in row["headers"]],
                round(row["timestamp"].timestamp() * 1000),
            )
            for row in mine
        ]
        assert got == sent
    assert consumer.poll_arrow(0.0).num_rows == 0


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_alternating_poll_and_poll_arrow_return_each_record_once(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader, codec: str
) -> None:
    topic, sent = make_topic(), sample_records(400)
    produce(broker.bootstrap, topic, sent, **{"compression.type": codec})
    tp = TopicPartition(topic, 0)
    consumer = reader(group_id=f"{topic}-group", enable_auto_commit=False)
    consumer.assign([tp])
    got: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + WAIT_S
    while len(got) < 400 and time.monotonic() < deadline:
        got += [(r.offset, r.key, r.value) for r in consumer.poll(0.5, max_records=7)]
        batch = consumer.poll_arrow(0.5, max_records=11)
        got += [(row["offset"], row["key"], row["value"]) for row in batch.to_pylist()]
        if got:
            assert consumer.position(tp) == len(got)
    assert got == [(offset, each.key, each.value) for offset, each in enumerate(sent)]
    consumer.commit()
    assert committed(consumer, tp) == 400


def test_seek_goes_to_offset_beginning_end_and_timestamp(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    topic = make_topic()
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbered(100))
    consumer = reader(max_poll_records=10)
    consumer.assign([tp])
    assert consumer.poll(WAIT_S)[0].offset == 0
    consumer.seek(tp, 42)
    assert consumer.position(tp) == 42
    assert consumer.poll(WAIT_S)[0].offset == 42
    consumer.seek_to_timestamp(FIRST_TIMESTAMP + 70)
    assert consumer.poll(WAIT_S)[0].offset == 70
    assert consumer.lag(tp) == 20
    consumer.seek_to_end()
    assert consumer.position(tp) == 100
    assert consumer.poll(0.1) == []
    consumer.seek_to_beginning([tp])
    assert consumer.poll(WAIT_S)[0].offset == 0
    assert consumer.beginning_offsets([tp]) == {tp: 0}
    assert consumer.end_offsets([tp]) == {tp: 100}
    assert consumer.offsets_for_times({tp: FIRST_TIMESTAMP + 5}) == {tp: (5, FIRST_TIMESTAMP + 5)}
    assert consumer.offsets_for_times({tp: FIRST_TIMESTAMP + 5000}) == {tp: None}
    with pytest.raises(NotAssigned):
        consumer.seek((topic, 7), 0)


def test_paused_partition_keeps_its_position(broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        produce(broker.bootstrap, topic, numbered(20), partition)
    consumer = reader(max_poll_records=5)
    consumer.assign([(topic, 0), (topic, 1)])
    first = poll_all(consumer, 5)
    consumer.pause([(topic, 0)])
    assert consumer.paused() == [TopicPartition(topic, 0)]
    while_paused = list(first)
    while sum(r.partition == 1 for r in while_paused) < 20:
        while_paused += poll_all(consumer, 1)
    assert consumer.poll(0.2) == []
    assert [r.offset for r in while_paused if r.partition == 1] == list(range(20))
    consumer.resume([(topic, 0)])
    rest = poll_all(consumer, 40 - len(while_paused))
    assert [r.offset for r in [*while_paused, *rest] if r.partition == 0] == list(range(20))


def test_auto_commit_excludes_records_of_the_last_poll(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    topic, group = make_topic(), unique("group")
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbered(30))
    watcher = reader(group_id=group)
    consumer = reader(group_id=group, max_poll_records=10, auto_commit_interval_ms=50)
    consumer.subscribe(topic)
    poll_all(consumer, 10)
    time.sleep(0.4)
    assert committed(watcher, tp) in (None, 0)
    poll_all(consumer, 10)
    wait_until(lambda: committed(watcher, tp) == 10, "the first poll's commit")
    consumer.close()  # close commits all returned records
    assert committed(watcher, tp) == 20


def test_exception_in_a_with_block_leaves_the_last_poll_uncommitted(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    topic, group = make_topic(), unique("group")
    produce(broker.bootstrap, topic, numbered(30))
    consumer = reader(group_id=group, max_poll_records=10)
    consumer.subscribe(topic)

    def work() -> None:
        with consumer:
            poll_all(consumer, 10)
            poll_all(consumer, 10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    again = reader(group_id=group)
    again.subscribe(topic)
    assert poll_all(again, 20)[0].offset == 10


def test_iteration_commits_only_yielded_records(broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
    topic, group = make_topic(), unique("group")
    produce(broker.bootstrap, topic, numbered(30))
    with reader(group_id=group) as consumer:
        consumer.subscribe(topic)
        for record in consumer:
            if record.offset == 6:
                break
        assert consumer.position((topic, 0)) == 7
    again = reader(group_id=group)
    again.subscribe(topic)
    assert poll_all(again, 23)[0].offset == 7


def test_commits_are_shared_with_other_clients(broker: RunningBroker, make_topic: MakeTopic, reader: Reader) -> None:
    topic, group = make_topic(), unique("group")
    produce(broker.bootstrap, topic, numbered(10))
    consumer = reader(group_id=group, enable_auto_commit=False)
    consumer.assign([(topic, 0)])
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(4, metadata="note")})
    other = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 2})
    (seen,) = other.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=WAIT_S)
    assert seen.offset == 4  # not its metadata: librdkafka may append the bytes that follow it in memory
    assert consumer.committed([(topic, 0)])[TopicPartition(topic, 0)] == OffsetAndMetadata(4, metadata="note")
    assert poll_all(consumer, 6)[0].offset == 4
    other.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 9)], asynchronous=False)
    other.close()
    assert consumer.committed([(topic, 0)]) == {TopicPartition(topic, 0): OffsetAndMetadata(9)}
    outcome: list[ClientError | None] = []
    consumer.commit_async({TopicPartition(topic, 0): 10}, outcome.append)
    wait_until(lambda: outcome == [None], "the callback of a commit")
    assert committed(consumer, TopicPartition(topic, 0)) == 10


class OurMember(Member):
    """A member with auto-commit, which commits when partitions are revoked."""

    def __init__(self, bootstrap: str, topic: str, group: str, **options: object) -> None:
        super().__init__()
        self.topic = topic
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                **options,
            }
        )

    def run(self) -> None:
        with self.consumer as consumer:
            consumer.subscribe(
                self.topic,
                on_assigned=lambda tps: self.assigned(p for _, p in tps),
                on_revoked=lambda tps: self.revoked(p for _, p in tps),
            )
            while not self.stopping.is_set():
                for record in consumer.poll(0.1):
                    self.saw(record.partition, record.offset)
            consumer.commit()


STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_our_members_share_a_group_and_read_each_record_once(
    broker: RunningBroker, make_topic: MakeTopic, strategy: str
) -> None:
    topic, group = make_topic(6), unique("group")
    sent = [0]

    def send(count: int) -> None:
        for partition in range(6):
            produce(broker.bootstrap, topic, numbered(count, sent[0]), partition)
        sent[0] += count

    rebalance_story(
        lambda: OurMember(broker.bootstrap, topic, group, **{"partition.assignment.strategy": strategy}).start(),
        send,
    )


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_our_members_and_librdkafka_share_a_group_and_read_each_record_once(
    broker: RunningBroker, make_topic: MakeTopic, strategy: str, first: str
) -> None:
    topic, group = make_topic(6), unique("group")
    sent, joined = [0], [first == "ours"]

    def join() -> Member:
        ours = joined[0]
        joined[0] = not ours
        config = {"partition.assignment.strategy": strategy}
        if ours:
            return OurMember(broker.bootstrap, topic, group, **config).start()
        theirs = confluent_consumer(broker, group_id=group, partition_assignment_strategy=strategy)
        return ConfluentMember(theirs, topic).start()

    def send(count: int) -> None:
        for partition in range(6):
            produce(broker.bootstrap, topic, numbered(count, sent[0]), partition)
        sent[0] += count

    rebalance_story(join, send)


def test_cooperative_member_keeps_reading_during_a_rebalance(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(4), unique("group")
    options = {"partition.assignment.strategy": "cooperative-sticky"}
    told: list[tuple[str, list[int]]] = []

    class Watched(OurMember):
        def revoked(self, partitions: Iterable[int]) -> None:
            revoked = list(partitions)
            told.append(("revoked", revoked))
            super().revoked(revoked)

    one = Watched(broker.bootstrap, topic, group, **options).start()
    try:
        wait_until(lambda: len(one.owned()) == 4, "one member has all")
        two = OurMember(broker.bootstrap, topic, group, **options).start()
        try:
            wait_until(lambda: len(one.owned()) == len(two.owned()) == 2, "each has two")
            assert [len(revoked) for kind, revoked in told] == [2]
        finally:
            two.stop()
    finally:
        one.stop()


def test_static_member_restarts_without_a_rebalance(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(4), unique("group")
    stays = OurMember(broker.bootstrap, topic, group, **{"group.instance.id": "a"}).start()
    comes = OurMember(broker.bootstrap, topic, group, **{"group.instance.id": "b"}).start()
    try:
        wait_until(lambda: len(stays.owned()) == len(comes.owned()) == 2, "each has two")
        before, assignments = comes.owned(), stays.assignments
        comes.stop()
        comes = OurMember(broker.bootstrap, topic, group, **{"group.instance.id": "b"}).start()
        wait_until(lambda: comes.owned() == before, "the same two again")
        assert stays.assignments == assignments
    finally:
        comes.stop()
        stays.stop()


def test_added_partitions_are_read(broker: RunningBroker, make_topic: MakeTopic, reader: Reader, admin: Any) -> None:
    from confluent_kafka.admin import NewPartitions

    topic = make_topic()
    consumer = reader(group_id=unique("group"), metadata_max_age_ms=200, heartbeat_interval_ms=200)
    consumer.subscribe([topic])
    produce(broker.bootstrap, topic, numbered(1))
    poll_all(consumer, 1)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    produce(broker.bootstrap, topic, numbered(1), 2)
    assert poll_all(consumer, 1)[0].partition == 2


def test_slow_member_leaves_after_max_poll_interval_with_a_reason(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = make_topic(), unique("group")
    produce(broker.bootstrap, topic, numbered(10))
    lost: list[TopicPartition] = []
    consumer = reader(
        group_id=group, session_timeout_ms=6000, heartbeat_interval_ms=100, max_poll_interval_ms=4000,
        max_poll_records=1, enable_auto_commit=False,
    )  # fmt: skip
    consumer.subscribe(topic, on_lost=lost.extend)
    poll_all(consumer, 1)
    time.sleep(1.0)
    consumer.commit()
    assert not lost
    wait_until(lambda: "max.poll.records" in caplog.text, "the member leaves its group")
    with pytest.raises(ClientError, match=r"max\.poll\.interval\.ms"):
        consumer.commit()
    assert poll_all(consumer, 1)[0].offset == 1
    assert lost == [TopicPartition(topic, 0)]


def test_value_that_cannot_be_deserialized_is_raised_once_with_its_offset(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    topic = make_topic()
    produce(broker.bootstrap, topic, [Sent(b"k", v, [], FIRST_TIMESTAMP) for v in (b"1", b"[2]", b"{", b'"4"')])
    consumer = reader(value_deserializer="json", key_deserializer="str")
    consumer.assign([(topic, 0)])
    assert [(r.key, r.value) for r in poll_all(consumer, 2)] == [("k", 1), ("k", [2])]
    with pytest.raises(DeserializationFailed) as raised:
        consumer.poll(WAIT_S)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == (topic, 0, 2)
    assert values(poll_all(consumer, 1)) == ["4"]


def test_poll_without_position_and_reset_raises_until_seek(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(3))
    consumer = reader(auto_offset_reset="none")
    consumer.assign([(topic, 0)])
    for _ in range(2):
        with pytest.raises(OffsetOutOfRange, match=r"auto\.offset\.reset"):
            consumer.poll(WAIT_S)
    consumer.seek((topic, 0), 1)
    assert len(poll_all(consumer, 2)) == 2
    consumer.seek((topic, 0), 99)
    with pytest.raises(OffsetOutOfRange, match="99"):
        consumer.poll(WAIT_S)


def test_aborted_transactions_are_not_returned(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(WAIT_S)
    for number, end in enumerate(["commit", "abort", "commit", "abort", "commit"]):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(topic, f"{end} {number} {i}".encode(), partition=0)
        producer.flush(WAIT_S)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(WAIT_S)
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([(topic, 0)])
        assert values(poll_all(consumer, 9)) == [f"commit {n} {i}".encode() for n in (0, 2, 4) for i in range(3)]
        assert consumer.poll(0.3) == []
        assert consumer.position((topic, 0)) == 20
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert len(poll_all(consumer, 15)) == 15


def test_large_records_and_many_partitions_stay_within_the_queue(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    topic = make_topic(4)
    for partition in range(4):
        produce(broker.bootstrap, topic, [Sent(None, bytes(300_000), [], FIRST_TIMESTAMP)] * 10, partition)
    consumer = reader(queued_max_bytes=1_000_000, max_partition_fetch_bytes=100_000, max_poll_records=2)
    consumer.assign([(topic, p) for p in range(4)])
    seen: list[Record] = []
    most = 0
    deadline = time.monotonic() + WAIT_S
    while len(seen) < 40 and time.monotonic() < deadline:
        seen += consumer.poll(0.2)
        most = max(most, sum(s.buffer.size for s in consumer._client.core.fetch.positions))
    assert len(seen) == 40
    assert most <= 2_300_000


def test_asyncio_consumer_reads_commits_and_iterates(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), unique("group")
    produce(broker.bootstrap, topic, numbered(20))
    told: list[str] = []

    async def assigned(partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        told.append(f"assigned {len(partitions)}")

    async def story() -> list[int]:
        seen: list[int] = []
        async with AsyncConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(topic, on_assigned=assigned, on_revoked=lambda tps: told.append(f"revoked {len(tps)}"))
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 4:
                    break
            await consumer.commit()
            assert (await consumer.committed([(topic, 0)]))[TopicPartition(topic, 0)] == OffsetAndMetadata(5)
            seen += [r.offset for r in await consumer.poll(WAIT_S)]
            assert await consumer.end_offsets([(topic, 0)]) == {TopicPartition(topic, 0): 20}
            assert (await consumer.poll_arrow(0.0)).num_rows == 0
        return seen

    assert asyncio.run(asyncio.wait_for(story(), 3 * WAIT_S)) == list(range(20))
    assert told == ["assigned 1", "revoked 1"]


def test_unsubscribe_leaves_the_group_and_allows_another_subscription(
    broker: RunningBroker, make_topic: MakeTopic, reader: Reader
) -> None:
    one, two = make_topic(), make_topic()
    produce(broker.bootstrap, one, numbered(2))
    produce(broker.bootstrap, two, numbered(3))
    consumer = reader(group_id=unique("group"))
    consumer.subscribe(one)
    poll_all(consumer, 2)
    consumer.unsubscribe()
    assert consumer.assignment() == []
    consumer.subscribe(two)
    assert {r.topic for r in poll_all(consumer, 3)} == {two}
    consumer.unsubscribe()
    consumer.assign([(one, 0)])
    consumer.seek_to_beginning()
    assert len(poll_all(consumer, 2)) == 2


@pytest.mark.parametrize("wrong", ["orders", ["ab"], ("orders", 0), [("orders", "0")], [("orders",)]])
def test_invalid_partition_is_rejected(broker: RunningBroker, reader: Reader, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"A partition is a TopicPartition or \(topic, number\), not"):
        reader().assign(wrong)


def test_queries_for_unknown_topics_and_invalid_settings_raise(
    broker: RunningBroker, topic: str, reader: Reader
) -> None:
    consumer = reader()
    with pytest.raises(UnknownTopicOrPartition, match=topic):
        consumer.partitions_of(topic)
    with pytest.raises(ConfigurationError, match=r"group\.id"):
        consumer.subscribe(topic)
    with pytest.raises(ConfigurationError, match=r"auto_offset_reset"):
        reader(auto_ofset_reset="x")
    consumer.close()
    with pytest.raises(Closed):
        consumer.poll(0)


class TestRestart:
    """Restarts of the broker. Each test has its own broker."""

    pytestmark: ClassVar[list[Any]] = []

    def test_restart_of_a_killed_broker_loses_no_record(self, tmp_path: Path) -> None:
        broker = ForkedOttla(tmp_path, {"group.initial.rebalance.delay.ms": 0})
        broker.start()
        topic, group = unique("restart"), unique("group")
        try:
            produce(broker.bootstrap, topic, numbered(100))
            with Consumer(
                bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest",
                max_poll_records=10, heartbeat_interval_ms=200, max_partition_fetch_bytes=700,
            ) as consumer:  # fmt: skip
                consumer.subscribe(topic)
                seen = poll_all(consumer, 50)
                consumer.commit()
                broker.kill()
                seen += consumer.poll(0.2)
                broker.start()
                produce(broker.bootstrap, topic, numbered(100, 100))
                seen += poll_all(consumer, 200 - len(seen), 60)
                assert [r.offset for r in seen] == list(range(200))
                consumer.commit()
                assert committed(consumer, TopicPartition(topic, 0)) == 200
        finally:
            broker.stop()
