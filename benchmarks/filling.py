"""Filling a topic and reading it, as fast as librdkafka can."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, Producer

from benchmarks.brokers import Address, Broker
from benchmarks.wire import DEADLINE_S

NO_SETTINGS: Mapping[str, str] = {}


def fill(
    broker: Address, topic: str, count: int, size: int, acks: str, client: Mapping[str, str] = NO_SETTINGS
) -> None:
    """Produce `count` records of `size` bytes with librdkafka, which has the settings `client`."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": acks,
            "message.max.bytes": 1_048_576,
            "linger.ms": 20,
            "batch.size": 900_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            **client,
        }
    )
    value = bytes(range(256)) * (size // 256 + 1)
    value = value[:size]
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(DEADLINE_S)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged by {broker.name}")


def drain(broker: Broker, topic: str, count: int) -> None:
    """Consume `count` records from the start of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"drain-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    got, deadline = 0, time.monotonic() + DEADLINE_S
    while got < count and time.monotonic() < deadline:
        got += len(consumer.consume(10_000, 1.0))
    consumer.close()
    if got < count:
        raise RuntimeError(f"{broker.name} gave {got} of {count} records")
