"""Clients of every kind write with acks=all and read while the leader and the active controller are killed."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

import confluent_kafka
import kafka
import pytest

from ottla.clients import Consumer, Producer

from .conftest import Clusters
from .processes import Cluster

TOPIC, PARTITIONS = "orders", 3
NO_LEADER = -1
RECORDS = 600
TIMEOUT_S = 40.0
Write = Callable[[str, "Iterable[int]"], None]
Read = Callable[[str, int], "list[tuple[int, int]]"]


def write_with_librdkafka(bootstrap: str, numbers: Iterable[int]) -> None:
    failures: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in numbers:
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def read_with_librdkafka(bootstrap: str, count: int) -> list[tuple[int, int]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "rdkafka", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found: list[tuple[int, int]] = []
    try:
        while len(found) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(found)} of {count} records within {TIMEOUT_S} s"
            if message.error() is None:
                found.append((message.partition(), int(message.value())))
    finally:
        consumer.close()
    return found


def write_with_kafka_python(bootstrap: str, numbers: Iterable[int]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=True)
    try:
        sent = [producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS) for number in numbers]
        for each in sent:
            each.get(TIMEOUT_S)
    finally:
        producer.close(5)


def read_with_kafka_python(bootstrap: str, count: int) -> list[tuple[int, int]]:
    consumer = kafka.KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap.split(","), group_id="python", auto_offset_reset="earliest"
    )
    found: list[tuple[int, int]] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        while len(found) < count:
            try:
                batch = consumer.poll(1000)
            except kafka.errors.KafkaConnectionError:
                batch = {}  # A poll raises it when the coordinator that it asks has just been killed.
                time.sleep(0.1)
            if batch:
                deadline_s = time.monotonic() + TIMEOUT_S
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} records within {TIMEOUT_S} s"
            found += [(record.partition, int(record.value)) for records in batch.values() for record in records]
    finally:
        consumer.close()
    return found


def write_with_ottla(bootstrap: str, numbers: Iterable[int]) -> None:
    with Producer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        sent = [producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS) for number in numbers]
        for each in sent:
            each.result(TIMEOUT_S)


def read_with_ottla(bootstrap: str, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    with Consumer(bootstrap_servers=bootstrap, group_id="ottla", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        while len(found) < count:
            batch = consumer.poll(TIMEOUT_S)
            assert batch, f"{len(found)} of {count} records within {TIMEOUT_S} s"
            found += [(record.partition, int(record.value or b"")) for record in batch]
    return found


class Paced:
    """The numbers from 0 on, one each few milliseconds; `half` is set in the middle."""

    def __init__(self) -> None:
        self.half = threading.Event()
        self._pause = threading.Event()

    def __iter__(self):  # type: ignore[no-untyped-def]
        for number in range(RECORDS):
            if number == RECORDS // 3:
                self.half.set()
            self._pause.wait(0.003)
            yield number


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (write_with_librdkafka, read_with_librdkafka),
        (write_with_kafka_python, read_with_kafka_python),
        (write_with_ottla, read_with_ottla),
    ],
    ids=["librdkafka", "kafka-python", "ottla"],
)
def test_failover_loses_and_repeats_nothing(clusters: Clusters, write: Write, read: Read) -> None:
    cluster: Cluster = clusters(properties={"min.insync.replicas": 2})
    with cluster.admin() as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    numbers, problems = Paced(), list[BaseException]()

    def run() -> None:
        try:
            write(cluster.bootstrap, numbers)
        except BaseException as error:  # noqa: BLE001 - the test's thread reports it
            problems.append(error)

    writer = threading.Thread(target=run)
    writer.start()
    assert numbers.half.wait(TIMEOUT_S), f"the writer does not progress: {problems}"
    cluster.wait_until(lambda: cluster.leader(TOPIC, 0) != NO_LEADER)
    victim = cluster.leader(TOPIC, 0)
    cluster.kill(victim)
    writer.join(2 * TIMEOUT_S)
    assert not writer.is_alive(), "the writer does not end"
    assert problems == []
    found = read(cluster.bootstrap, RECORDS)
    repeated = [number for number, count in Counter(number for _, number in found).items() if count > 1]
    assert repeated == []
    for partition in range(PARTITIONS):
        assert [n for where, n in found if where == partition] == list(range(partition, RECORDS, PARTITIONS))
    cluster.start_node(victim)
    cluster.wait_until(lambda: all(cluster.in_sync(TOPIC, each) == [1, 2, 3] for each in range(PARTITIONS)))
    cluster.assert_no_traceback()
