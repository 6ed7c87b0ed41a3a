"""confluent-kafka (librdkafka): produce, consume, seek, commit, and errors of users."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, Sent, sample_records, unique
from .wire import stored_codecs

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def producer(broker: RunningBroker, **config: object) -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": 20,
        "message.timeout.ms": 15_000,
        "log_level": 2,
    }
    return Producer(settings | {k.replace("_", "."): v for k, v in config.items()})


def consumer(broker: RunningBroker, **config: object) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": unique("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6000,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 2000,
        "log_level": 2,
    }
    return Consumer(settings | {k.replace("_", "."): v for k, v in config.items()})


def send(producer: Producer, topic: str, records: list[Sent], partition: int = 0) -> list[Message]:
    """Produce, wait, and return the delivery reports in order. Raises the error of a failed delivery."""
    reports: list[Message] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        reports.append(message)
        if error is not None:
            errors.append(error)

    for r in records:
        producer.produce(
            topic, r.value, r.key, partition, on_delivery=report, timestamp=r.timestamp, headers=list(r.headers)
        )
    assert producer.flush(WAIT_S) == 0, "not every record was acknowledged"
    if errors:
        raise KafkaException(errors[0])
    return reports


def read(consumer: Consumer, count: int, timeout_s: float = WAIT_S) -> list[Message]:
    """Read exactly `count` messages. Fails on an error or after the timeout."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages after {timeout_s} s"
        for message in consumer.consume(count - len(messages), 0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def as_sent(message: Message) -> Sent:
    return Sent(message.key(), message.value(), message.headers() or [], message.timestamp()[1])


def error_code(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(raised.value.args[0].code())


@pytest.mark.both
@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_as_sent(broker: RunningBroker, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic(partitions=2)
    records = sample_records(400)
    reports = send(producer(broker, compression_type=codec), topic, records, partition=1)
    assert [m.offset() for m in reports] == list(range(400))
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
    messages = read(reader, 400)
    reader.close()
    assert [as_sent(m) for m in messages] == records
    assert [m.offset() for m in messages] == list(range(400))
    assert {m.timestamp()[0] for m in messages} == {TIMESTAMP_CREATE_TIME}
    assert codec in stored_codecs(
        broker.bootstrap, topic, 1
    )  # a batch that compression would enlarge is sent uncompressed


@pytest.mark.parametrize(("acks", "idempotent"), [("0", False), ("1", False), ("all", False), ("all", True)])
def test_every_acks_level_stores_the_records(
    broker: RunningBroker, make_topic: MakeTopic, acks: str, idempotent: bool
) -> None:
    topic = make_topic()
    records = sample_records(100)
    send(producer(broker, acks=acks, enable_idempotence=idempotent), topic, records)
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [as_sent(m) for m in read(reader, 100)] == records
    reader.close()


def test_records_without_a_key_are_spread_and_equal_keys_share_a_partition(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    client = producer(broker, partitioner="murmur2_random")
    places: dict[bytes, set[int]] = {}
    for i in range(200):
        key = f"k{i % 20}".encode()
        client.produce(topic, b"v", key, on_delivery=lambda _, m: places.setdefault(m.key(), set()).add(m.partition()))
    assert client.flush(WAIT_S) == 0
    assert all(len(p) == 1 for p in places.values())
    assert len(set.union(*places.values())) > 1


@pytest.mark.both
def test_large_batches_of_large_records_are_stored(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes=4_000_000)
    client = producer(broker, batch_size=3_500_000, batch_num_messages=100_000, message_max_bytes=3_900_000)
    large = [Sent(b"k", bytes([i]) * 900_000, [], FIRST_TIMESTAMP + i) for i in range(12)]
    many = [Sent(None, b"%d" % i, [], FIRST_TIMESTAMP + i) for i in range(20_000)]
    send(client, topic, large + many)
    reader = consumer(broker, fetch_message_max_bytes=10_000_000)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [as_sent(m) for m in read(reader, len(large + many))] == large + many
    reader.close()


@pytest.mark.both
def test_seek_goes_to_offset_beginning_end_and_timestamp(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client = producer(broker)
    for start in range(0, 100, 10):  # ten batches
        send(client, topic, [Sent(None, b"%d" % i, [], FIRST_TIMESTAMP + i * 1000) for i in range(start, start + 10)])
    reader = consumer(broker)

    def first_after(offset: int) -> int | None:
        reader.seek(TopicPartition(topic, 0, offset))
        return read(reader, 1)[0].offset()

    reader.assign([TopicPartition(topic, 0, 55)])
    assert read(reader, 1)[0].offset() == 55
    assert first_after(OFFSET_BEGINNING) == 0
    assert first_after(99) == 99
    assert first_after(37) == 37
    times = [FIRST_TIMESTAMP + 41_500, FIRST_TIMESTAMP + 42_000, 0, FIRST_TIMESTAMP + 10_000_000]
    found = [reader.offsets_for_times([TopicPartition(topic, 0, t)], WAIT_S)[0].offset for t in times]
    assert found == [42, 42, 0, OFFSET_END]
    assert first_after(found[0]) == 42
    reader.seek(TopicPartition(topic, 0, OFFSET_END))
    assert reader.consume(1, 0.5) == []
    send(client, topic, [Sent(None, b"new", [], FIRST_TIMESTAMP)])
    assert read(reader, 1)[0].value() == b"new"
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 101)
    reader.close()


@pytest.mark.both
def test_synchronous_and_asynchronous_commits_are_stored(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    send(producer(broker), topic, sample_records(50), partition=0)
    group = unique("group")
    reader = consumer(broker, group_id=group)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING), TopicPartition(topic, 1, OFFSET_BEGINNING)])
    messages = read(reader, 30)
    assert [p.offset for p in reader.committed([TopicPartition(topic, 0)], WAIT_S)] == [-1001]
    done = reader.commit(message=messages[9], asynchronous=False)
    assert [(p.partition, p.offset, p.error) for p in done] == [(0, 10, None)]
    reader.commit(offsets=[TopicPartition(topic, 1, 0, "with metadata")], asynchronous=False)
    reader.commit(message=messages[19], asynchronous=True)
    reader.commit(
        offsets=[TopicPartition(topic, 1, 0, "with metadata")], asynchronous=False
    )  # after the asynchronous commit
    reader.close()

    again = consumer(broker, group_id=group)
    stored = again.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], WAIT_S)
    assert [(p.offset, p.metadata) for p in stored] == [(20, None), (0, "with metadata")]
    again.subscribe([topic])
    assert read(again, 1)[0].offset() == 20
    again.close()


def test_group_without_a_commit_starts_at_auto_offset_reset(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client = producer(broker)
    send(client, topic, sample_records(10))
    strict = consumer(broker, auto_offset_reset="error")
    strict.subscribe([topic])
    with pytest.raises(KafkaException) as refused:
        read(strict, 1)
    assert error_code(refused) == KafkaError._AUTO_OFFSET_RESET
    strict.close()
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, 5_000)])  # out of range: reset to the earliest
    assert read(reader, 1)[0].offset() == 0
    reader.close()


@pytest.mark.both
def test_log_append_time_is_the_brokers_clock(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    reports = send(producer(broker), topic, [Sent(None, b"v", [], 1000) for _ in range(5)])
    after = int(time.time() * 1000)
    kind, reported = reports[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    for message in read(reader, 5):
        assert message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
        assert before <= message.timestamp()[1] <= after
        assert message.timestamp()[1] == reported
    reader.close()


@pytest.mark.both
def test_compacted_topic_rejects_a_record_without_a_key(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(cleanup_policy="compact")
    client = producer(broker)
    with pytest.raises(KafkaException) as refused:
        send(client, topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)])
    assert error_code(refused) == KafkaError.INVALID_RECORD
    send(client, topic, [Sent(b"k", b"v", [], FIRST_TIMESTAMP)])


@pytest.mark.both
def test_record_larger_than_the_topics_limit_is_rejected(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(max_message_bytes=10_000)
    client = producer(broker)
    with pytest.raises(KafkaException) as refused:
        send(client, topic, [Sent(None, b"x" * 20_000, [], FIRST_TIMESTAMP)])
    assert error_code(refused) == KafkaError.MSG_SIZE_TOO_LARGE
    assert send(client, topic, [Sent(None, b"x" * 9_000, [], FIRST_TIMESTAMP)])[0].offset() == 0


@pytest.mark.both
def test_timestamp_outside_the_topics_bounds_is_rejected(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(message_timestamp_before_max_ms=60_000)
    with pytest.raises(KafkaException) as refused:
        send(producer(broker), topic, [Sent(None, b"v", [], 1_600_000_000_000)])
    assert error_code(refused) == KafkaError.INVALID_TIMESTAMP


@pytest.mark.both
@pytest.mark.parametrize("codec", ["gzip", "uncompressed", "zstd"])
def test_compression_type_of_the_topic_overrides_the_producers(
    broker: RunningBroker, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(compression_type=codec)
    records = sample_records(100)
    send(producer(broker, compression_type="lz4"), topic, records)
    reader = consumer(broker)
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [as_sent(m) for m in read(reader, 100)] == records
    reader.close()
    assert stored_codecs(broker.bootstrap, topic, 0) == {"none" if codec == "uncompressed" else codec}


@pytest.mark.both
def test_unknown_topic_is_auto_created_unless_the_producer_disables_it(broker: RunningBroker, topic: str) -> None:
    reader = consumer(broker, allow_auto_create_topics=False)
    reader.subscribe([topic])
    with pytest.raises(KafkaException) as unknown:
        read(reader, 1)
    assert error_code(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART
    reader.close()
    assert send(producer(broker), topic, sample_records(3))[-1].offset() == 2


def test_pattern_subscription_includes_topics_created_later(broker: RunningBroker, topic: str) -> None:
    client = producer(broker)
    send(client, f"{topic}-a", sample_records(3))
    reader = consumer(broker, topic_metadata_refresh_interval_ms=500)
    reader.subscribe([f"^{topic}-.*"])
    assert {m.topic() for m in read(reader, 3)} == {f"{topic}-a"}
    reader.commit(asynchronous=False)  # the rebalance for the new topic resets the position to the committed offset
    send(client, f"{topic}-b", sample_records(3))
    assert {m.topic() for m in read(reader, 3)} == {f"{topic}-b"}
    reader.close()


@pytest.mark.both
def test_metadata_lists_the_broker_and_topics(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    metadata = producer(broker).list_topics(timeout=WAIT_S)
    (node,) = metadata.brokers.values()
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert metadata.controller_id == node.id
    assert len(metadata.cluster_id) == 22
    assert sorted(metadata.topics[topic].partitions) == [0, 1, 2]
    assert all(p.replicas == [node.id] and p.isrs == [node.id] for p in metadata.topics[topic].partitions.values())


@pytest.mark.both
@pytest.mark.parametrize("version", ["0.10.0.0", "2.0.0"])
def test_librdkafka_works_when_configured_for_an_old_broker(
    broker: RunningBroker, make_topic: MakeTopic, version: str
) -> None:
    topic = make_topic()
    records = sample_records(50)
    send(producer(broker, api_version_request=False, broker_version_fallback=version), topic, records)
    reader = consumer(broker, api_version_request=False, broker_version_fallback=version)
    reader.subscribe([topic])
    assert [as_sent(m) for m in read(reader, 50)] == records
    reader.commit(asynchronous=False)
    reader.close()


@pytest.mark.both
def test_removed_protocol_version_of_librdkafka_times_out_and_affects_no_other_client(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    ancient = producer(
        broker, api_version_request=False, broker_version_fallback="0.9.0", message_timeout_ms=1500
    )  # Produce v1, which Kafka 4.0 removed
    with pytest.raises(KafkaException) as lost:
        send(ancient, topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)])
    assert error_code(lost) == KafkaError._MSG_TIMED_OUT
    assert send(producer(broker), topic, [Sent(None, b"v", [], FIRST_TIMESTAMP)])[0].offset() == 0
