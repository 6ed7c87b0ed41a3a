"""Ottla's Producer against a real broker; librdkafka reads the records back."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.clients import AsyncProducer, Producer
from ottla.clients.errors import (
    BrokerUnavailable,
    BufferExhausted,
    Closed,
    ConfigurationError,
    ConnectionLost,
    InvalidRecord,
    InvalidTopic,
    MessageTooLarge,
    RequestTimedOut,
    SerializationFailed,
    UnknownTopicOrPartition,
)
from ottla.records import partition_for_key
from tests import deadlines
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .conftest import MakeTopic
from .support import WAIT_S, Sent, sample_records, wait_until
from .wire import serves

HALF = "\ud800"  # half of a surrogate pair: a str that UTF-8 cannot encode
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def producer(broker: RunningBroker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap) as made:
        yield made


def read_back(bootstrap: str, topic: str, partitions: int, count: int) -> dict[int, list[tuple[int, Sent]]]:
    """Return every record of the topic with its offset, by partition. Checks the CRCs."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True,
        "log_level": 2,
    })  # fmt: skip
    found: dict[int, list[tuple[int, Sent]]] = {p: [] for p in range(partitions)}
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        deadline = time.monotonic() + WAIT_S * 2
        got = 0
        while got < count and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                assert message.error() is None, message.error()
                got += 1
                record = Sent(message.key(), message.value(), message.headers() or [], message.timestamp()[1])
                found[message.partition()].append((message.offset(), record))
        extra = consumer.consume(100, timeout=0.3)
        assert not extra, f"{len(extra)} records more than {count}"
    finally:
        consumer.close()
    assert got == count, f"{got} of {count} records"
    return found


@pytest.mark.both
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_and_codec_are_read_back(
    broker: RunningBroker, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(3)
    records = sample_records(400)
    with Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec}) as producer:
        deliveries = [
            producer.send(topic, r.value, r.key, headers=r.headers, timestamp_ms=r.timestamp, partition=i % 3)
            for i, r in enumerate(records)
        ]
        metadata = [delivery.result(WAIT_S) for delivery in deliveries]
    found = read_back(broker.bootstrap, topic, 3, len(records))
    for partition, rows in found.items():
        assert [record for _, record in rows] == records[partition::3]
    for record, (_, partition, offset, timestamp) in zip(records, metadata, strict=True):
        assert found[partition][offset] == (offset, record)
        assert timestamp == record.timestamp


@pytest.mark.both
def test_keys_select_the_same_partitions_as_in_other_clients(producer: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(5)
    for key in (b"a", b"JFK", b"21", "Zürich".encode(), b""):
        assert producer.send(topic, b"", key).result(WAIT_S).partition == partition_for_key(key, 5)


@pytest.mark.both
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_record_is_stored_with_every_acks_level(broker: RunningBroker, make_topic: MakeTopic, acks: object) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap, acks=acks) as producer:
        offsets = [producer.send(topic, b"%d" % i).result(WAIT_S).offset for i in range(5)]
    assert offsets == ([-1] * 5 if acks == 0 else [0, 1, 2, 3, 4])
    rows = read_back(broker.bootstrap, topic, 1, 5)[0]
    assert [record.value for _, record in rows] == [b"%d" % i for i in range(5)]


@pytest.mark.both
def test_arrow_rows_are_sent_as_columns(producer: Producer, broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    count = 5000
    table = pa.table({
        "key": [None if i % 7 == 0 else f"k{i % 50}" for i in range(count)],
        "value": pa.array([None if i % 11 == 3 else b"v%d" % i for i in range(count)], pa.large_binary()),
        "timestamp": pa.array(range(1000, 1000 + count), pa.timestamp("ms")),
        "headers": [[{"name": "n", "value": b"%d" % i}] if i % 3 == 0 else None for i in range(count)],
    })  # fmt: skip
    ranges = producer.send_batch(topic, table).result(WAIT_S)
    assert sum(appended.records for appended in ranges) == count
    found = read_back(broker.bootstrap, topic, 4, count)
    everything = sorted((r for rows in found.values() for _, r in rows), key=lambda r: r.timestamp)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in everything] == [
        (
            None if i % 7 == 0 else b"k%d" % (i % 50),
            None if i % 11 == 3 else b"v%d" % i,
            1000 + i,
            [("n", b"%d" % i)] if i % 3 == 0 else [],
        )
        for i in range(count)
    ]
    for partition, rows in found.items():
        for (_, before), (_, after) in pairwise(rows):
            assert before.timestamp < after.timestamp, "rows keep their order within a partition"
        assert all(r.key is None or partition_for_key(r.key, 4) == partition for _, r in rows)


@pytest.mark.both
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_table_larger_than_buffer_memory_is_sent(broker: RunningBroker, make_topic: MakeTopic, codec: str) -> None:
    topic, count = make_topic(3), 20_000
    table = pa.table({"key": [f"k{i % 50}" for i in range(count)], "value": [f"{i}".ljust(100) for i in range(count)]})
    settings = {"buffer.memory": 200_000, "batch.size": 16_384, "compression.type": codec}
    with Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:
        ranges = producer.send_batch(topic, table).result(WAIT_S)
    assert sum(appended.records for appended in ranges) == count
    found = read_back(broker.bootstrap, topic, 3, count)
    for partition, rows in found.items():
        sent = [i for i in range(count) if partition_for_key(b"k%d" % (i % 50), 3) == partition]
        assert [int(record.value) for _, record in rows] == sent


@pytest.mark.both
def test_arrow_rows_with_partitions_and_wrong_columns(producer: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    batch = pa.record_batch({"value": ["a", "b", "c"], "partition": [2, 0, 2]})
    ranges = {(r.partition, r.first_offset, r.records) for r in producer.send_batch(topic, batch).result(WAIT_S)}
    assert ranges == {(2, 0, 2), (0, 0, 1)}
    with pytest.raises(ValueError, match="valeu"):
        producer.send_batch(topic, pa.table({"valeu": ["a"]}))
    with pytest.raises(ValueError, match="0 to 2"):
        producer.send_batch(topic, pa.table({"value": ["a"], "partition": [3]}))
    with pytest.raises(ValueError, match="neither binary nor string"):
        producer.send_batch(topic, pa.table({"value": [1.5]}))


@pytest.mark.both
def test_errors_are_typed_and_say_what_to_do(producer: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(2, cleanup_policy="compact", max_message_bytes=10_000)
    with pytest.raises(MessageTooLarge) as too_large:
        producer.send(topic, b"x" * 20_000, b"k").result(WAIT_S)
    assert not too_large.value.retriable
    with pytest.raises(MessageTooLarge, match=r"max\.request\.size"):
        producer.send(topic, b"x" * 2_000_000, b"k")
    with pytest.raises(InvalidRecord):
        producer.send(topic, b"no key").result(WAIT_S)
    with pytest.raises(UnknownTopicOrPartition, match="no partition 7"):
        producer.send(topic, b"v", b"k", partition=7)
    with pytest.raises(InvalidTopic):
        producer.send("no spaces allowed", b"v")
    with pytest.raises(TypeError, match="serializer"):
        producer.send(topic, "text", b"k")
    with pytest.raises(TypeError, match="header"):
        producer.send(topic, b"v", b"k", headers=[(b"n", b"v")])  # type: ignore[list-item]
    assert producer.send(topic, b"after all that", b"k").result(WAIT_S).offset >= 0


@pytest.mark.both
def test_unknown_topic_raises_within_max_block_ms(broker: RunningBroker) -> None:
    settings = {"max.block.ms": 700, "allow.auto.create.topics": False}
    with Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:
        start = time.monotonic()
        with pytest.raises(UnknownTopicOrPartition, match="not-there"):
            producer.send("not-there", b"v")
        assert 0.6 < time.monotonic() - start < 20, "the default is 60 s"


@pytest.mark.both
def test_topic_name_that_cannot_be_encoded_does_not_affect_other_topics(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic(1)
    with Producer(bootstrap_servers=broker.bootstrap, max_block_ms=5_000) as producer:
        for _ in range(2):
            with pytest.raises(InvalidTopic, match="surrogates"):
                producer.send(HALF, b"v")
        assert producer.send(topic, b"v").result(WAIT_S).offset == 0


def test_header_that_cannot_be_encoded_leaves_no_batch_behind(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path) as broker:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("t", b"first").result(WAIT_S)
            broker.kill()  # so that flush would wait for a leftover batch
            with pytest.raises(ValueError, match="surrogates"):
                producer.send("t", b"v", headers={HALF: b"v"})
            assert producer.flush(5) == 0
        broker.start()


@pytest.mark.both
def test_serializers_by_name_and_callable(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=broker.bootstrap, key_serializer="str", value_serializer="json") as producer:
        producer.send(topic, {"a": 1, "ü": None}, "key").result(WAIT_S)
        producer.send(topic, None, "key").result(WAIT_S)
        with pytest.raises(SerializationFailed, match="value"):
            producer.send(topic, object(), "key")
    rows = [(r.key, r.value) for _, r in read_back(broker.bootstrap, topic, 1, 2)[0]]
    assert rows == [(b"key", '{"a":1,"ü":null}'.encode()), (b"key", None)]


@pytest.mark.both
def test_callbacks_receive_their_delivery_in_order(producer: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    seen: list[int] = []
    problems: list[Exception] = []

    def done(delivery: object) -> None:
        assert hasattr(delivery, "result")
        seen.append(delivery.result().offset)

    def waits(_: object) -> None:
        try:
            producer.send(topic, b"from a callback").result(1)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            problems.append(error)

    for _ in range(100):
        producer.send(topic, b"v", callback=done)
    producer.send(topic, b"last", callback=waits)
    assert producer.flush(WAIT_S) == 0
    assert seen == list(range(100))
    assert "callback" in str(problems[0])


@pytest.mark.both
def test_callable_partitioner(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    with Producer(
        bootstrap_servers=broker.bootstrap, partitioner=lambda _topic, _key, value, count: len(value or b"") % count
    ) as producer:
        assert [producer.send(topic, b"x" * n).result(WAIT_S).partition for n in range(6)] == [0, 1, 2, 3, 0, 1]


@pytest.mark.both
def test_recreated_topic_receives_later_records(
    producer: Producer, broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    for i in range(10):
        assert producer.send(topic, b"old %d" % i, partition=0).result(WAIT_S).offset == i
    admin.delete_topics([topic])[topic].result(WAIT_S)
    wait_until(lambda: not serves(broker.bootstrap, topic, 2), f"{topic} is deleted")
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(WAIT_S)
    wait_until(lambda: serves(broker.bootstrap, topic, 1), f"leaders of the new {topic}")
    deliveries = [producer.send(topic, b"new %d" % i, partition=0) for i in range(10)]
    assert [delivery.result(WAIT_S).offset for delivery in deliveries] == list(range(10))
    assert producer.send(topic, b"after").result(WAIT_S).offset == 10
    rows = [record.value for _, record in read_back(broker.bootstrap, topic, 1, 11)[0]]
    assert rows == [*(b"new %d" % i for i in range(10)), b"after"]


@pytest.mark.both
def test_asyncio_producer(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()

    async def story() -> None:
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20}) as producer:
            deliveries = [await producer.send(topic, b"%d" % i) for i in range(1000)]
            metadata = await asyncio.gather(*deliveries)
            assert [m.offset for m in metadata] == list(range(1000))
            ranges = await (await producer.send_batch(topic, pa.table({"value": ["a", "b"]})))
            assert ranges[0].first_offset == 1000
            await producer.send(topic, b"last")
            assert await producer.flush(WAIT_S) == 0
        with pytest.raises(Closed):
            await producer.send(topic, b"late")

    asyncio.run(asyncio.wait_for(story(), 60))
    assert len(read_back(broker.bootstrap, topic, 1, 1003)[0]) == 1003


@pytest.mark.both
def test_threads_share_a_producer(producer: Producer, broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)

    def send(thread: int) -> None:
        for i in range(2000):
            producer.send(topic, b"%d-%d" % (thread, i), partition=thread % 2)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert producer.flush(WAIT_S) == 0
    found = read_back(broker.bootstrap, topic, 2, 8000)
    for n in range(4):
        own = [r.value for _, r in found[n % 2] if r.value and r.value.startswith(b"%d-" % n)]
        assert own == [b"%d-%d" % (n, i) for i in range(2000)]


def test_settings_are_checked_when_the_producer_is_created() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'linger\.ms'"):
        Producer({"bootstrap.servers": "localhost:1", "linger.sm": 5})
    with pytest.raises(ConfigurationError, match="acks"):
        Producer(bootstrap_servers="localhost:1", acks=1, enable_idempotence=True)
    with pytest.raises(ConfigurationError, match=r"delivery\.timeout\.ms"):
        Producer(bootstrap_servers="localhost:1", delivery_timeout_ms=10)
    with pytest.raises(ConfigurationError, match="twice"):
        Producer({"linger_ms": 5}, linger_ms=5, bootstrap_servers="localhost:1")


def test_unreachable_broker_raises_after_max_block_ms() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with (
        Producer(bootstrap_servers=address, max_block_ms=1500) as producer,
        pytest.raises(BrokerUnavailable, match="refused") as refused,
    ):
        producer.send("t", b"v")
    assert refused.value.retriable


def test_unknown_host_raises_immediately() -> None:
    start = time.monotonic()
    with Producer(bootstrap_servers="no-such-host.invalid:9092") as producer, pytest.raises(BrokerUnavailable):
        producer.send("t", b"v")
    assert time.monotonic() - start < 10


def test_full_buffer_memory_blocks_and_then_raises(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap, buffer_memory=20_000, max_block_ms=500)
        producer.send("t", b"first").result(WAIT_S)
        broker.kill()
        start = time.monotonic()
        for _ in range(19):
            producer.send("t", b"x" * 1000)
        with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
            producer.send("t", b"x" * 1000)
        assert 0.4 < time.monotonic() - start < 20, "the default is 60 s"
        with pytest.raises(RequestTimedOut):
            producer.send("t", b"").result(0.1)
        assert producer.flush(0.1) > 0
        producer.close(0.2)
        with pytest.raises(Closed):
            producer.send("t", b"v")
        broker.start()


def test_interrupted_close_fails_the_records_that_other_threads_wait_for(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    ends: list[Exception | None] = []
    with ForkedOttla(tmp_path) as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap)
        producer.send("t", b"first").result(WAIT_S)
        broker.kill()
        delivery = producer.send("t", b"never acknowledged")
        waiting = threading.Thread(target=lambda: ends.append(delivery.exception()), daemon=True)
        waiting.start()
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                producer.close()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        waiting.join(WAIT_S)
        assert [type(end) for end in ends] == [Closed]
        broker.start()


def test_killed_broker_is_a_retriable_error_without_idempotence_and_retries(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path) as broker:
        with Producer(bootstrap_servers=broker.bootstrap, retries=0) as producer:
            producer.send("t", b"first").result(WAIT_S)
            broker.kill()
            with pytest.raises((ConnectionLost, BrokerUnavailable)) as lost:
                producer.send("t", b"second").result(WAIT_S)
            assert lost.value.retriable
        broker.start()


def test_acknowledged_records_survive_kills_once_and_in_order(tmp_path: Path) -> None:
    """Sends 200,000 records and kills and restarts the broker twice."""
    count, partitions, topic = 200_000, 3, "chaos"
    with ForkedOttla(tmp_path, {"num.partitions": partitions}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=16_384) as producer:
            deliveries = []
            restart = threading.Thread()
            for i in range(count):
                deliveries.append(producer.send(topic, b"%07d" % i, partition=i % partitions))
                if i in (60_000, 130_000):
                    if restart.ident:
                        deadlines.join(restart, "the start of the broker")
                    broker.kill()
                    restart = threading.Timer(0.3, broker.start)
                    restart.start()
            deadlines.join(restart, "the start of the broker")
            assert producer.flush(60) == 0
            metadata = [delivery.result(0) for delivery in deliveries]
        found = read_back(broker.bootstrap, topic, partitions, count)
        for partition in range(partitions):
            assert [r.value for _, r in found[partition]] == [b"%07d" % i for i in range(partition, count, partitions)]
        for i, where in enumerate(metadata):
            assert where.partition == i % partitions
            assert found[where.partition][where.offset][1].value == b"%07d" % i
