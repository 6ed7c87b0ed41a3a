"""The races. Each drives one broker with records of one kind and returns its figures by name."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

from benchmarks import lives
from benchmarks.brokers import Broker
from benchmarks.wire import DEADLINE_S, Figures, new_topic, produce_frame, receive

MEMBERS = 30
# Without a warm-up and no more than twice: a start of its own is part of each.
TWICE = ("start", "memory")


def fill(broker: Broker, topic: str, count: int, size: int, acks: str) -> None:
    """Produce `count` records of `size` bytes with librdkafka."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": acks,
            "message.max.bytes": 1_048_576,
            "linger.ms": 20,
            "batch.size": 900_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
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


def _produce(size: int, acks: str, count: int) -> Callable[[Broker, float], Figures]:
    def race(broker: Broker, scale: float) -> Figures:
        topic = new_topic(broker, 6)
        records = int(count * scale)
        cpu, start = broker.cpu_seconds(), time.perf_counter()
        fill(broker, topic, records, size, acks)
        seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
        megabytes = records * size / 1e6
        return {"MB/s": megabytes / seconds, "MB per broker-CPU-second": megabytes / max(used, 0.01)}

    race.__doc__ = f"librdkafka produces records of {size} B, acks={acks}, 6 partitions"
    return race


def consume(broker: Broker, scale: float) -> Figures:
    """librdkafka consumes 1 KB records from the page cache, 6 partitions"""
    topic, records = new_topic(broker, 6), int(400_000 * scale)
    fill(broker, topic, records, 1000, "1")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 4_000_000,
            "queued.max.messages.kbytes": 200_000,
        }
    )
    consumer.subscribe([topic])
    got, cpu, start, deadline = 0, broker.cpu_seconds(), 0.0, time.monotonic() + DEADLINE_S
    while got < records and time.monotonic() < deadline:
        messages = consumer.consume(10_000, 1.0)
        if messages and not got:
            start = time.perf_counter()
        got += len(messages)
    seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
    consumer.close()
    if got < records:
        raise RuntimeError(f"{broker.name} gave {got} of {records} records")
    return {"MB/s": records / 1e3 / seconds, "MB per broker-CPU-second": records / 1e3 / max(used, 0.01)}


def _single(acks: int) -> Callable[[Broker, float], Figures]:
    def race(broker: Broker, scale: float) -> Figures:
        topic = new_topic(broker, 1)
        frame, count = produce_frame(topic, acks), int(20_000 * scale)
        times: list[float] = []
        with socket.create_connection(broker.address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            cpu = broker.cpu_seconds()
            for _ in range(count):
                start = time.perf_counter()
                connection.sendall(frame)
                receive(connection)
                times.append(time.perf_counter() - start)
            used = broker.cpu_seconds() - cpu
        cuts = statistics.quantiles(times, n=100)
        return {"p50 ms": cuts[49] * 1e3, "p99 ms": cuts[98] * 1e3, "broker CPU us per request": used / count * 1e6}

    race.__doc__ = f"one 100 B record at a time over one connection, acks={acks}"
    return race


def pipelined(broker: Broker, scale: float) -> Figures:
    """one-record requests, 500 in flight on one connection, acks=1"""
    topic = new_topic(broker, 1)
    rounds, window = max(int(100 * scale), 5), 500
    frames = produce_frame(topic, 1) * window
    with socket.create_connection(broker.address) as connection:
        cpu, start = broker.cpu_seconds(), time.perf_counter()
        for _ in range(rounds):
            connection.sendall(frames)
            for _ in range(window):
                receive(connection)
        seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
    return {
        "requests/s": rounds * window / seconds,
        "requests per broker-CPU-second": rounds * window / max(used, 0.01),
    }


def idle(broker: Broker, scale: float) -> Figures:
    """50 consumers long-polling one idle topic of 20 partitions, 500 ms each"""
    topic = new_topic(broker, 20)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "fetch.wait.max.ms": 500}
    from confluent_kafka import TopicPartition

    consumers = [Consumer(settings) for _ in range(50)]
    for consumer in consumers:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(20)])
    time.sleep(2)
    cpu = broker.cpu_seconds()
    time.sleep(max(10 * scale, 3))
    used = (broker.cpu_seconds() - cpu) / max(10 * scale, 3)
    for consumer in consumers:
        consumer.close()
    return {"% of a core": used * 100, "resident MB": broker.resident_mb()}


def groups(broker: Broker, scale: float) -> Figures:  # noqa: ARG001 - the number of members is the point
    """30 members join a group of 30 partitions at once, until each has one; librdkafka, classic protocol"""
    topic = new_topic(broker, MEMBERS)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "log_level": 0}
    cpu, start = broker.cpu_seconds(), time.perf_counter()
    consumers = [Consumer(settings) for _ in range(MEMBERS)]
    for consumer in consumers:
        consumer.subscribe([topic])
    while any(len(consumer.assignment()) != 1 for consumer in consumers):
        for consumer in consumers:
            consumer.poll(0)
        if time.perf_counter() - start > DEADLINE_S:
            raise RuntimeError(f"the group is not balanced by {broker.name}")
        time.sleep(0.002)
    seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
    for consumer in consumers:
        consumer.unsubscribe()
    for consumer in consumers:
        consumer.close()
    return {"seconds": seconds, "broker CPU seconds": used}


RACES: dict[str, Callable[[Broker, float], Figures]] = {
    "produce-100": _produce(100, "1", 1_000_000),
    "produce-100-all": _produce(100, "all", 1_000_000),
    "produce-1k": _produce(1000, "1", 400_000),
    "produce-1k-all": _produce(1000, "all", 400_000),
    "consume": consume,
    "single": _single(1),
    "single-all": _single(-1),
    "pipelined": pipelined,
    "idle": idle,
    "groups": groups,
    "start": lives.start,
    "memory": lives.memory,
}
