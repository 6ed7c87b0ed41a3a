"""Ottla's share consumer (KIP-932): members share the records of a partition."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import confluent_kafka
import pytest

from ottla.clients import AcknowledgeType, Admin, AsyncShareConsumer, Producer, ShareConsumer, TopicPartition
from ottla.clients.admin import ConfigResource, GroupType
from ottla.clients.consumer import Record
from ottla.clients.errors import ClientError, DeserializationFailed, NotAssigned
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S, unique
from .test_ottla_consumer import numbered, produce, values

pytestmark = pytest.mark.both
PAGE = Path(__file__).parents[2] / "docs" / "clients-share.md"


@pytest.fixture
def group(broker: RunningBroker) -> str:
    """A share group that starts at the first record."""
    name = unique("share")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        set_group(admin, name, "share.auto.offset.reset", "earliest")
    return name


def share(broker: RunningBroker, group: str, topic: str, **options: object) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": group, **options})
    consumer.subscribe(topic)
    return consumer


def poll_some(consumer: ShareConsumer, count: int = 1) -> list[Record]:
    """Poll until `count` records have been returned."""
    records: list[Record] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        records += consumer.poll(0.2)
    return records


def set_group(admin: Admin, group: str, name: str, value: str) -> None:
    """Change a setting of a group, and wait until the broker has applied it: the controller answers earlier."""
    resource = ConfigResource.group(group)
    admin.alter_config(resource, {name: value})
    deadline = time.monotonic() + WAIT_S
    while admin.describe_config(resource)[name].value != value:
        assert time.monotonic() < deadline, f"{name} does not change"
        time.sleep(0.05)


def test_next_poll_accepts_the_records_of_the_previous_one(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        produce(broker.bootstrap, topic, numbered(10), partition)
    with share(broker, group, topic) as consumer:
        seen = poll_some(consumer, 20)
        assert {(r.partition, r.offset) for r in seen} == {(p, o) for p in (0, 1) for o in range(10)}
        assert consumer.delivery_count(seen[-1]) == 1
        results = consumer.commit_sync()
        assert set(results.values()) == {None}
        with pytest.raises(NotAssigned):
            consumer.delivery_count(seen[-1])
    with share(broker, group, topic) as again:
        assert again.poll(1.0) == []


def test_offsets_of_a_share_group_are_listed_and_reset(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        produce(broker.bootstrap, topic, numbered(10), partition)
    with share(broker, group, topic) as consumer:
        poll_some(consumer, 20)
        consumer.commit_sync()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.describe_group(group).type is GroupType.SHARE
        lags = [at.lag for at in admin.list_share_group_offsets(group).values()]
        assert lags == [0, 0]
        admin.alter_share_group_offsets(group, {TopicPartition(topic, 1): 8})
    with share(broker, group, topic) as reset:
        assert [(r.partition, r.offset) for r in poll_some(reset, 2)] == [(1, 8), (1, 9)]


def test_explicit_acknowledgements_decide_about_each_record(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(4))
    with share(broker, group, topic, **{"share.acknowledgement.mode": "explicit"}) as consumer:
        accepted, released, rejected, renewed = poll_some(consumer, 4)
        consumer.acknowledge(accepted)
        consumer.acknowledge(released, AcknowledgeType.RELEASE)
        consumer.acknowledge(rejected, AcknowledgeType.REJECT)
        with pytest.raises(ClientError, match="1 records of the previous poll are not acknowledged"):
            consumer.poll(0)
        consumer.acknowledge(renewed, AcknowledgeType.RENEW)
        assert consumer.commit_sync() == {TopicPartition(topic, 0): None}
        (again,) = poll_some(consumer)
        assert (again.value, consumer.delivery_count(again)) == (b"1", 2)
        consumer.acknowledge(again)
        consumer.acknowledge(renewed)
        with pytest.raises(NotAssigned):
            consumer.acknowledge(accepted)
        outcomes: list[object] = []
        consumer.commit_async(outcomes.append)
        assert consumer.poll(1.0) == []
        assert outcomes == [{TopicPartition(topic, 0): None}]


def test_records_of_a_member_that_fails_go_to_another_one(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(6))

    def fail() -> None:
        with share(broker, group, topic) as fails:
            assert len(poll_some(fails, 6)) == 6
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with share(broker, group, topic) as takes_over:
        records = poll_some(takes_over, 6)
        assert values(records) == values(numbered(6))
        assert takes_over.delivery_count(records[0]) == 2


@pytest.mark.parametrize("mode", ["batch_optimized", "record_limit"])
def test_slow_consumer_with_short_locks_processes_each_record(
    broker: RunningBroker, make_topic: MakeTopic, group: str, mode: str
) -> None:
    """One batch takes longer than a lock: only records that are still locked are returned."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        set_group(admin, group, "share.record.lock.duration.ms", "2000")
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=50) as producer:
        for number in range(100):
            producer.send(topic, str(number).encode(), partition=0)
    accepted: set[int] = set()
    failed = 0
    deadline = time.monotonic() + WAIT_S
    with share(broker, group, topic, **{"max.poll.records": 10, "share.acquire.mode": mode}) as consumer:
        while len(accepted) < 100 and time.monotonic() < deadline:
            records = consumer.poll(0.5)
            time.sleep(0.05 * len(records))
            if not any(consumer.commit_sync().values()):
                accepted |= {record.offset for record in records}
            else:
                failed += 1
    assert accepted == set(range(100))
    assert failed <= 2, "a commit fails only if the lock ended between the poll and the commit"


def test_members_share_one_partition_and_each_record_is_processed_once(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    options = {"max.poll.records": 10, "share.acquire.mode": "record_limit", "client.id": "worker"}
    with share(broker, group, topic, **options) as one, share(broker, group, topic, **options) as two:
        one.poll(0.5)
        two.poll(0.5)
        for batch in range(10):
            produce(broker.bootstrap, topic, numbered(20, batch * 20))
        seen: dict[str, list[int]] = {"one": [], "two": []}
        deadline = time.monotonic() + WAIT_S
        while sum(map(len, seen.values())) < 200 and time.monotonic() < deadline:
            for name, consumer in (("one", one), ("two", two)):
                records = consumer.poll(0.1)
                assert len(records) <= 10
                seen[name] += [record.offset for record in records]
        assert sorted(seen["one"] + seen["two"]) == list(range(200))
        assert min(map(len, seen.values())) > 20, "both members took part"


def test_record_that_cannot_be_deserialized_is_delivered_again(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for value in (b"1", b"{", b"3"):
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    with share(broker, group, topic, **{"value.deserializer": "json"}) as consumer:
        assert [r.value for r in poll_some(consumer)] == [1]
        assert [r.value for r in poll_some(consumer)] == [3]
        with pytest.raises(DeserializationFailed):
            poll_some(consumer)
    rejecting = {"value.deserializer": "json", "on.deserialization.error": "skip"}
    with share(broker, group, topic, **rejecting) as consumer:
        assert consumer.poll(1.0) == []
        assert consumer.poll(0.5) == []


def test_examples_of_the_share_consumer_page_run(broker: RunningBroker, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(10))
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    example = example.replace('"jobs"', repr(topic)).replace('"workers"', repr(group))
    exec(compile(example, str(PAGE), "exec"), {"bootstrap": broker.bootstrap})


def test_asyncio_share_consumer(broker: RunningBroker, make_topic: MakeTopic, group: str) -> None:
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(3))

    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with AsyncShareConsumer(bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
            consumer.subscribe([topic])
            while len(found) < 3:
                found += [record.value for record in await consumer.poll(1.0)]
            assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}
        return found

    assert asyncio.run(asyncio.wait_for(read(), WAIT_S)) == [b"0", b"1", b"2"]


def test_record_is_delivered_at_most_as_often_as_the_limit(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        set_group(admin, group, "share.delivery.count.limit", "2")
    topic = make_topic()
    produce(broker.bootstrap, topic, numbered(3))
    one_by_one = {"max.poll.records": 1, "share.acquire.mode": "record_limit"}
    with share(broker, group, topic, **{"share.acknowledgement.mode": "explicit"}, **one_by_one) as consumer:
        counts: dict[int, list[int | None]] = {}
        for _ in range(6):
            record = poll_some(consumer)[0]
            counts.setdefault(record.offset, []).append(consumer.delivery_count(record))
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
            consumer.commit_sync()
        assert counts == {offset: [1, 2] for offset in range(3)}
        assert consumer.poll(1.0) == []


def test_group_that_reads_committed_records_gets_no_aborted_ones(
    broker: RunningBroker, make_topic: MakeTopic, group: str
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        set_group(admin, group, "share.isolation.level", "read_committed")
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=group) as producer:
        producer.init_transactions(WAIT_S)
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, str(number).encode(), partition=0)
            producer.send(topic, str(number).encode(), partition=0)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(WAIT_S)
        with share(broker, group, topic) as consumer:
            assert values(poll_some(consumer, 4)) == [b"0", b"0", b"2", b"2"]
            producer.begin_transaction()
            producer.send(topic, b"open", partition=0).result(WAIT_S)
            assert consumer.poll(1.0) == []
            producer.commit_transaction(WAIT_S)
            assert values(poll_some(consumer, 1)) == [b"open"]
