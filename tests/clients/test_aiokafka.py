"""aiokafka, an asyncio client. It uses no flexible versions, so these tests cover the old versions of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    InvalidPartitionsError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokafka.structs import OffsetAndMetadata

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, Member, Sent, rebalance_story, sample_records, unique
from .wire import stored_codecs

TOPIC_ALREADY_EXISTS, INVALID_TOPIC, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG = 36, 17, 37, 38, 40
UNKNOWN_TOPIC, INVALID_RECORD = 3, 87


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine with a deadline."""

    async def bounded() -> None:
        await asyncio.wait_for(story(), 3 * WAIT_S)

    asyncio.run(bounded())


@asynccontextmanager
async def producing(broker: RunningBroker, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **options) as client:
        yield client


def consumer(broker: RunningBroker, *topics: str, **options: Any) -> AIOKafkaConsumer:
    defaults = {
        "group_id": unique("group"),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
        "fetch_max_wait_ms": 100,
        "metadata_max_age_ms": 2000,
    }
    return AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **(defaults | options))


@asynccontextmanager
async def administering(broker: RunningBroker) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def send(client: AIOKafkaProducer, topic: str, records: list[Sent], partition: int = 0) -> list[int]:
    futures = [await client.send(topic, r.value, r.key, partition, r.timestamp, r.headers) for r in records]
    return [report.offset for report in await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)]


async def read(reader: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await asyncio.wait_for(reader.getone(), WAIT_S) for _ in range(count)]


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(400):
        if await condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"not in time: {what}")


def as_sent(record: Any) -> Sent:
    return Sent(record.key, record.value, list(record.headers), record.timestamp)


@pytest.mark.both
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_read_as_sent(broker: RunningBroker, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(partitions=2)
    records = sample_records(300)

    async def story() -> None:
        async with producing(broker, compression_type=None if codec == "none" else codec, linger_ms=20) as client:
            assert await send(client, topic, records, 1) == list(range(300))
        async with consumer(broker) as reader:
            reader.assign([TopicPartition(topic, 1)])
            assert [as_sent(r) for r in await read(reader, 300)] == records

    run(story)
    assert codec in stored_codecs(broker.bootstrap, topic, 1)


@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), ("all", False), ("all", True)])
def test_every_acks_level_stores_the_records(
    broker: RunningBroker, make_topic: MakeTopic, acks: int | str, idempotent: bool
) -> None:
    topic = make_topic()
    records = sample_records(100)

    async def story() -> None:
        async with producing(broker, acks=acks, enable_idempotence=idempotent) as client:
            for r in records:
                await client.send(topic, r.value, r.key, 0, r.timestamp, r.headers)
            await client.flush()
        async with consumer(broker) as reader:
            reader.assign([TopicPartition(topic, 0)])
            assert [as_sent(r) for r in await read(reader, 100)] == records

    run(story)


@pytest.mark.both
def test_seek_goes_to_offset_beginning_end_and_timestamp(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with producing(broker) as client:
            for start in range(0, 100, 10):
                some = [Sent(None, b"v", [], FIRST_TIMESTAMP + i * 1000) for i in range(start, start + 10)]
                await send(client, topic, some)
        async with consumer(broker) as reader:
            reader.assign([partition])
            for offset in (55, 0, 99, 37):
                reader.seek(partition, offset)
                assert (await read(reader, 1))[0].offset == offset
            found = (await reader.offsets_for_times({partition: FIRST_TIMESTAMP + 41_500}))[partition]
            assert (found.offset, found.timestamp) == (42, FIRST_TIMESTAMP + 42_000)
            assert await reader.beginning_offsets([partition]) == {partition: 0}
            assert await reader.end_offsets([partition]) == {partition: 100}
            await reader.seek_to_end(partition)
            assert await reader.position(partition) == 100
            await reader.seek_to_beginning(partition)
            assert (await read(reader, 1))[0].offset == 0
            reader.seek(partition, 5_000)  # beyond the end: reset to the earliest
            assert (await read(reader, 1))[0].offset == 0

    run(story)


@pytest.mark.both
def test_commits_are_stored_and_listed(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    group = unique("group")
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with producing(broker) as client:
            await send(client, topic, sample_records(50))
        async with consumer(broker, topic, group_id=group) as reader:
            await read(reader, 10)
            assert await reader.committed(partition) is None
            await reader.commit()
            assert await reader.committed(partition) == 10
            await reader.commit({partition: OffsetAndMetadata(33, "note")})
        async with consumer(broker, topic, group_id=group) as reader:
            assert (await read(reader, 1))[0].offset == 33
            async with administering(broker) as admin:
                assert await admin.list_consumer_group_offsets(group) == {partition: OffsetAndMetadata(33, "note")}
                assert (group, "consumer") in await admin.list_consumer_groups()
                (answer,) = await admin.describe_consumer_groups([group])
                assert "Stable" in str(answer)

    run(story)


class AioMember(Member, ConsumerRebalanceListener):
    def __init__(self, make: Callable[[], AIOKafkaConsumer], topic: str) -> None:
        super().__init__()
        self._make = make
        self._topic = topic

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._consumer = self._make()
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        try:
            while not self.stopping.is_set():
                for records in (await self._consumer.getmany(timeout_ms=50)).values():
                    for record in records:
                        self.saw(record.partition, record.offset)
            await self._commit(self.owned())
        finally:
            await self._consumer.stop()

    async def _commit(self, partitions: set[int]) -> None:
        done = {TopicPartition(self._topic, p): end for p, end in self.positions().items() if p in partitions}
        if done:
            await self._consumer.commit(done)

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.assigned(p.partition for p in assigned)

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        await self._commit({p.partition for p in revoked})
        self.revoked(p.partition for p in revoked)


ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


@pytest.mark.both
@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda a: a.name)
def test_group_shares_a_topic_while_members_join_and_leave(
    broker: RunningBroker, make_topic: MakeTopic, assignor: type
) -> None:
    topic = make_topic(partitions=6)
    group = unique("group")

    def produce(each: int) -> None:
        async def story() -> None:
            async with producing(broker) as client:
                for partition in range(6):
                    await send(client, topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)] * each, partition)

        run(story)

    def join() -> Member:
        def make() -> AIOKafkaConsumer:
            return consumer(broker, group_id=group, partition_assignment_strategy=[assignor])

        return AioMember(make, topic).start()

    rebalance_story(join, produce)


@pytest.mark.both
def test_static_member_rejoins_with_its_instance_id(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    group = unique("group")

    async def story() -> None:
        async with consumer(broker, topic, group_id=group, group_instance_id="one") as reader:
            async with administering(broker) as admin:
                (answer,) = await admin.describe_consumer_groups([group])
                assert answer.groups[0][1] == group
                assert len(answer.groups[0][5]) == 1
            assert reader.assignment() == {TopicPartition(topic, 0)}
        async with consumer(broker, topic, group_id=group, group_instance_id="one") as reader:
            assert reader.assignment() == {TopicPartition(topic, 0)}

    run(story)


@pytest.mark.both
def test_topics_are_created_grown_described_and_deleted_with_typed_errors(
    broker: RunningBroker, make_topic: MakeTopic, topic: str
) -> None:
    there = make_topic()
    cases = [
        (NewTopic(topic, 2, 1, topic_configs={"retention.ms": "5000"}), 0),
        (NewTopic(there, 1, 1), TOPIC_ALREADY_EXISTS),
        (NewTopic("not/a/topic", 1, 1), INVALID_TOPIC),
        (NewTopic(f"{topic}-none", 0, 1), INVALID_PARTITIONS),
        (NewTopic(f"{topic}-three", 1, 3), INVALID_REPLICATION_FACTOR),
        (NewTopic(f"{topic}-name", 1, 1, topic_configs={"no.such.config": "1"}), INVALID_CONFIG),
        (NewTopic(f"{topic}-value", 1, 1, topic_configs={"retention.ms": "soon"}), INVALID_CONFIG),
    ]

    async def story() -> None:
        async with administering(broker) as admin:
            for new, code in cases:
                answer = await admin.create_topics([new])
                assert [e[1] for e in answer.topic_errors] == [code], new.name

            async def listed() -> bool:
                return topic in await admin.list_topics()

            await until(listed, "the topic is listed")
            await admin.create_partitions({topic: NewPartitions(4)})

            async def grown() -> bool:
                return len((await admin.describe_topics([topic]))[0]["partitions"]) == 4

            await until(grown, "four partitions")
            with pytest.raises(InvalidPartitionsError):
                await admin.create_partitions({topic: NewPartitions(1)})
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            (described,) = await admin.describe_configs([resource])
            values = {c[0]: c[1] for c in described.resources[0][4]}
            assert (values["retention.ms"], values["segment.bytes"]) == ("5000", "1073741824")
            cluster = await admin.describe_cluster()
            assert f"{cluster['brokers'][0]['host']}:{cluster['brokers'][0]['port']}" == broker.bootstrap
            assert [e[1] for e in (await admin.delete_topics([topic])).topic_error_codes] == [0]

            async def gone() -> bool:
                return topic not in await admin.list_topics()

            await until(gone, "the topic is deleted")
            assert [e[1] for e in (await admin.delete_topics([topic])).topic_error_codes] == [UNKNOWN_TOPIC]

    run(story)


@pytest.mark.both
def test_records_are_deleted(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with producing(broker) as client:
            await send(client, topic, sample_records(10))
        async with administering(broker) as admin:
            assert await admin.delete_records({partition: RecordsToDelete(4)}) == {partition: 4}
            with pytest.raises(OffsetOutOfRangeError):
                await admin.delete_records({partition: RecordsToDelete(99)})
        async with consumer(broker) as reader:
            assert await reader.beginning_offsets([partition]) == {partition: 4}

    run(story)


@pytest.mark.both
def test_record_that_violates_a_topic_config_is_rejected_with_the_reason(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    small = make_topic(max_message_bytes=10_000)
    compacted = make_topic(cleanup_policy="compact")

    async def story() -> None:
        async with producing(broker) as client:
            with pytest.raises(MessageSizeTooLargeError):
                await send(client, small, [Sent(None, b"x" * 20_000, [], FIRST_TIMESTAMP)])
            with pytest.raises(KafkaError) as refused:
                await send(client, compacted, [Sent(None, b"no key", [], FIRST_TIMESTAMP)])
            assert not isinstance(refused.value, UnknownTopicOrPartitionError)
            assert await send(client, compacted, [Sent(b"k", b"v", [], FIRST_TIMESTAMP)]) == [0]

    run(story)
