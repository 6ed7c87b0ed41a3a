"""kill -9 during produce requests: every acknowledged record is stored once and in order afterwards."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.ottla_process import ForkedOttla, OttlaProcess

ROUNDS = 4
PARTITIONS = 3
WAIT_S = 20.0
TOPIC = "survivor"
STARTING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    broker = ForkedOttla(tmp_path, {"group.initial.rebalance.delay.ms": 0})
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


class Producing(threading.Thread):
    """Sends 0, 1, 2, ... to each partition until it is stopped; records the acknowledged offsets."""

    def __init__(self, bootstrap: str, idempotent: bool) -> None:
        super().__init__(daemon=True)
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failures: list[KafkaError] = []
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "socket.timeout.ms": 5000,
                "log_level": 2,
            }
        )

    def run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                value = self.sent[partition]
                self._producer.produce(TOPIC, b"%d" % value, partition=partition, on_delivery=self._delivered)
                self.sent[partition] += 1
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[message.partition()][int(message.value())] = message.offset()

    def total(self) -> int:
        return sum(len(a) for a in self.acknowledged)

    def finish(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)
        assert self._producer.flush(WAIT_S) == 0


def read_all(bootstrap: str, partition: int) -> list[int]:
    """Every value of a partition, in order."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker", "enable.auto.commit": False})
    place = TopicPartition(TOPIC, partition)
    _, end = consumer.get_watermark_offsets(place, WAIT_S)
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING)])
    values: list[int] = []
    deadline = time.monotonic() + WAIT_S
    position = 0
    while position < end:
        assert time.monotonic() < deadline, f"partition {partition}: read to {position} of {end}"
        for message in consumer.consume(1000, 0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            assert message.offset() == position, "offsets without gaps"
            position += 1
            values.append(int(message.value()))
    consumer.close()
    return values


@pytest.mark.parametrize("idempotent", [True, False])
def test_acknowledged_records_survive_kill_9(process: OttlaProcess, idempotent: bool) -> None:
    chance = random.Random(9)
    admin = AdminClient({"bootstrap.servers": process.bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(WAIT_S)
    producing = Producing(process.bootstrap, idempotent)
    producing.start()
    for _ in range(ROUNDS):
        before = producing.total()
        deadline = time.monotonic() + WAIT_S
        while producing.total() < before + 300:
            assert time.monotonic() < deadline, f"no progress: {producing.failures[:3]}"
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
        process.kill()
        process.start()
    producing.finish()
    assert producing.failures == []
    for partition in range(PARTITIONS):
        stored = read_all(process.bootstrap, partition)
        for value, offset in producing.acknowledged[partition].items():
            assert stored[offset] == value, f"partition {partition}: {value} was acknowledged at {offset}"
        if idempotent:
            assert stored == list(range(producing.sent[partition])), f"partition {partition}: once and in order"
        else:
            assert set(stored) == set(range(producing.sent[partition]))


def committed(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """The committed offsets; waits while a broker that has just started loads them."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return consumer.committed(places, WAIT_S)
        except KafkaException as error:
            if error.args[0].code() not in STARTING or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def test_committed_offsets_and_topics_survive_kill_9(process: OttlaProcess) -> None:
    settings = {"bootstrap.servers": process.bootstrap, "group.id": "remembers", "log_level": 2}
    for i in range(5):
        name = f"topic-{i}"
        admin = AdminClient({"bootstrap.servers": process.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "123456789"})])[name].result(WAIT_S)
        consumer = Consumer(settings)
        consumer.commit(offsets=[TopicPartition(name, 1, i + 1, f"note {i}")], asynchronous=False)
        process.kill()
        process.start()
        places = [TopicPartition(f"topic-{n}", 1) for n in range(i + 1)]
        stored = committed(consumer, places)
        assert [(p.offset, p.metadata) for p in stored] == [(n + 1, f"note {n}") for n in range(i + 1)]
        assert {f"topic-{n}" for n in range(i + 1)} <= set(consumer.list_topics(timeout=WAIT_S).topics)
        consumer.close()
