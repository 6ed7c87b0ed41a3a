"""Real clients that write and read across crashes of a broker, and record the acknowledged offsets.

A `Load` is a thread. `sent` counts the values that it sent, 0 1 2 ... to each partition; `acknowledged` maps, for each
partition, a value to its acknowledged offset. Clients retry for as long as the test runs, so nothing may fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaProducer

from ottla.clients import Consumer, Producer, TopicPartition
from ottla.clients.errors import ClientError

FOREVER_S = 3600
WAIT_S = 60.0
PAUSE_S = 0.004


class Load(threading.Thread):
    """Sends to `partitions` of one topic until `finish`."""

    idempotent = True

    def __init__(self, bootstrap: str, topic: str, partitions: int = 1) -> None:
        super().__init__(daemon=True, name=f"{type(self).__name__} {topic}")
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.sent = [0] * partitions
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.failures: list[str] = []
        self.last_trouble = "none"
        self._stopping = threading.Event()

    def total(self) -> int:
        return sum(len(each) for each in self.acknowledged)

    def state(self) -> str:
        """The progress, for a failure message."""
        ended = "" if self.is_alive() else " and ended"
        return f"{self.name}: {self.total()} of {sum(self.sent)} acknowledged{ended}, last trouble: {self.last_trouble}"

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the test fails with it
            self.failures.append(f"{self.name}: {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def values(self) -> list[tuple[int, int]]:
        """Yield the next partition and value to send, a few at a time."""
        time.sleep(PAUSE_S)
        batch = []
        for partition in range(self.partitions):
            batch.append((partition, self.sent[partition]))
            self.sent[partition] += 1
        return batch

    def note(self, partition: int, value: int, offset: int) -> None:
        if value in self.acknowledged[partition]:
            self.failures.append(f"{self.name}: {value} was acknowledged twice")
        self.acknowledged[partition][value] = offset

    def finish(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)
        if self.is_alive():
            self.failures.append(f"{self.name} does not end")


class Confluent(Load):
    """librdkafka."""

    settings: dict[str, Any] = {"enable.idempotence": True}

    def work(self) -> None:
        producer = ConfluentProducer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": FOREVER_S * 1000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "socket.timeout.ms": 5000,
                "log_level": 0,
                "error_cb": self._in_trouble,
                **self.settings,
            }
        )
        while not self._stopping.is_set():
            for partition, value in self.values():
                producer.produce(self.topic, self.body(value), partition=partition, on_delivery=self._delivered)
            producer.poll(0)
        left = producer.flush(WAIT_S)
        if left:
            self.failures.append(f"{self.name}: {left} were never acknowledged")

    def _in_trouble(self, error: KafkaError) -> None:
        self.last_trouble = f"{error} at {time.strftime('%H:%M:%S')}"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(f"{self.name}: {error}")
        else:
            self.note(message.partition(), int(message.value()[:12]), message.offset())

    @staticmethod
    def body(value: int) -> bytes:
        return b"%012d" % value + b"." * 200


class ConfluentLoose(Confluent):
    """librdkafka without idempotence: at least once."""

    idempotent = False
    settings = {"enable.idempotence": False, "max.in.flight": 5}


class KafkaPython(Load):
    """kafka-python, one request at a time, so that order holds without idempotence."""

    idempotent = False

    def work(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            retries=1_000_000,
            delivery_timeout_ms=FOREVER_S * 1000,
            request_timeout_ms=5000,
            reconnect_backoff_max_ms=200,
            retry_backoff_ms=50,
        )
        while not self._stopping.is_set():
            for partition, value in self.values():
                future = producer.send(self.topic, Confluent.body(value), partition=partition)
                future.add_callback(lambda told, v=value: self.note(told.partition, v, told.offset))
                future.add_errback(lambda error: self.failures.append(f"{self.name}: {error!r}"))
        producer.flush(WAIT_S)
        producer.close(WAIT_S)


class Own(Load):
    """Ottla's own producer, with idempotence."""

    def work(self) -> None:
        with Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "delivery.timeout.ms": FOREVER_S * 1000,
                "request.timeout.ms": 5000,
                "linger.ms": 1,
                "retry.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
            }
        ) as producer:
            while not self._stopping.is_set():
                for partition, value in self.values():
                    producer.send(
                        self.topic,
                        self.body(value),
                        key=self.key(value),
                        partition=partition,
                        callback=self._told(partition, value),
                    )
            if producer.flush(timeout_s=WAIT_S):
                self.failures.append(f"{self.name}: not all was acknowledged")

    def key(self, _value: int) -> bytes | None:
        return None

    def body(self, value: int) -> bytes:
        return Confluent.body(value)

    def _told(self, partition: int, value: int) -> Callable[[Any], None]:
        def told(future: Any) -> None:
            error = future.exception()
            if error is not None:
                self.failures.append(f"{self.name}: {error!r}")
            else:
                self.note(partition, value, future.result().offset)

        return told


class Keyed(Own):
    """Writes few keys repeatedly, for compaction."""

    KEYS = 50

    def key(self, value: int) -> bytes:
        return b"key %d" % (value % self.KEYS)


class Reader(threading.Thread):
    """A group member (Ottla's consumer) that commits its position. `committed` is the last acknowledged commit."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(daemon=True, name=f"Reader {topic}")
        self.bootstrap, self.topic, self.group = bootstrap, topic, group
        self.committed: dict[int, int] = {}
        self.failures: list[str] = []
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - the test fails with it
            self.failures.append(f"{self.name}: {error!r}")

    def _read(self) -> None:
        with Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "request.timeout.ms": 5000,
            }
        ) as consumer:
            consumer.subscribe(self.topic)
            read: dict[int, int] = {}
            while not self._stopping.is_set():
                for record in consumer.poll(timeout_s=0.1):
                    read[record.partition] = record.offset + 1
                if not read:
                    continue
                wanted = dict(read)
                try:
                    consumer.commit({TopicPartition(self.topic, p): offset for p, offset in wanted.items()})
                except ClientError:  # the broker was killed, or the group rebalances: retry with the next poll
                    continue
                for partition, offset in wanted.items():
                    self.committed[partition] = max(self.committed.get(partition, 0), offset)

    def finish(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)
        if self.is_alive():
            self.failures.append(f"{self.name} does not end")
