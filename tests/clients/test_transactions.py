"""Transactional producers and read_committed consumers of librdkafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.structs import OffsetAndMetadata

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import WAIT_S, unique, wait_until

# The client does not close the sockets of abandoned connections; the garbage collector does.
pytestmark = [pytest.mark.both, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


def rd_producer(broker: RunningBroker, transactional_id: str, **options: object) -> confluent_kafka.Producer:
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0}
    return confluent_kafka.Producer(settings | options)


def rd_consumer(broker: RunningBroker, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def read_committed(broker: RunningBroker, topic: str) -> list[bytes]:
    """The committed values of partition 0, up to its last stable offset."""
    consumer = rd_consumer(broker, unique("reader"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None, "no end of the partition"
            if message.error() is not None:
                return values
            values.append(message.value())
    finally:
        consumer.close()


def committed_offset(admin: AdminClient, group: str, topic: str) -> int:
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    answer = admin.list_consumer_group_offsets([asked], require_stable=True)[group].result(WAIT_S)
    return int(answer.topic_partitions[0].offset)


def test_librdkafka_moves_records_and_offsets_together(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    source, target, group = make_topic(), make_topic(), unique("group")
    source_producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        source_producer.produce(source, b"%d" % number, partition=0)
    assert source_producer.flush(WAIT_S) == 0
    consumer = rd_consumer(broker, group)
    consumer.subscribe([source])
    producer = rd_producer(broker, unique("tx"))
    producer.init_transactions(WAIT_S)
    for number in range(6):
        message = consumer.poll(WAIT_S)
        assert message is not None
        producer.begin_transaction()
        producer.produce(target, message.value(), partition=0)
        position = TopicPartition(source, 0, message.offset() + 1)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), WAIT_S)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(WAIT_S)
    assert read_committed(broker, target) == [b"0", b"2", b"4"]
    assert committed_offset(admin, group, source) == 5
    consumer.close()


def test_librdkafka_fences_an_earlier_instance(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic, name = make_topic(), unique("tx")
    first = rd_producer(broker, name)
    first.init_transactions(WAIT_S)
    first.begin_transaction()
    first.produce(topic, b"lost", partition=0)
    first.flush(WAIT_S)
    second = rd_producer(broker, name)
    second.init_transactions(WAIT_S)
    second.begin_transaction()
    second.produce(topic, b"found", partition=0)
    second.commit_transaction(WAIT_S)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(WAIT_S)
    assert raised.value.args[0].fatal()
    assert read_committed(broker, topic) == [b"found"]


def test_open_transaction_holds_back_committed_readers(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic = make_topic()
    producer = rd_producer(broker, unique("tx"))
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(WAIT_S)
    assert confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap}).produce(topic, b"x", partition=0) is None
    assert read_committed(broker, topic) == []

    def latest(level: IsolationLevel) -> int:
        asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
        answers = admin.list_offsets(asked, isolation_level=level)
        return int(next(iter(answers.values())).result(WAIT_S).offset)

    assert latest(IsolationLevel.READ_COMMITTED) == 0
    assert latest(IsolationLevel.READ_UNCOMMITTED) >= 1
    producer.commit_transaction(WAIT_S)
    # Stock Kafka answers before the markers are written.
    wait_until(lambda: latest(IsolationLevel.READ_COMMITTED) >= 2, "the last stable offset follows the commit", WAIT_S)
    assert b"open" in read_committed(broker, topic)


def test_overdue_transaction_is_aborted(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = rd_producer(broker, unique("tx"), **{"transaction.timeout.ms": 1_000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    producer.flush(WAIT_S)
    plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"plain", partition=0)
    plain.flush(WAIT_S)
    wait_until(lambda: read_committed(broker, topic) == [b"plain"], "the abort", 30)
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)


def test_kafka_python_moves_records_and_offsets_together(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic, group = make_topic(), unique("group")
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("tx"))
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=0)
            position = {kafka.TopicPartition(topic, 0): OffsetAndMetadata(number + 1, "", -1)}
            producer.send_offsets_to_transaction(position, group)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close(WAIT_S)
    assert read_committed(broker, topic) == [b"0", b"2"]
    assert committed_offset(admin, group, topic) == 3
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=2_000,
    )
    try:
        assert [message.value for message in consumer] == [b"0", b"2"]
    finally:
        consumer.close()


def test_aiokafka_moves_records_and_offsets_together(
    broker: RunningBroker, make_topic: MakeTopic, admin: AdminClient
) -> None:
    topic, group = make_topic(), unique("group")

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("tx"))
        async with producer:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send(topic, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): number + 1}, group)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())

    async def read() -> Iterable[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(2)]

    asyncio.run(asyncio.wait_for(write(), 3 * WAIT_S))
    assert asyncio.run(asyncio.wait_for(read(), 3 * WAIT_S)) == [b"0", b"2"]
    assert committed_offset(admin, group, topic) == 3
