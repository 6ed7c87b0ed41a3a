"""The races with transactions: librdkafka produces records in transactions of one size, to 6 partitions."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from benchmarks.brokers import Broker
from benchmarks.wire import DEADLINE_S, Figures, passing_topic

PARTITIONS = 6
AIMS = {"MB per broker-CPU-second": 2.5, "commit p99 ms": 1}


def transactional(size: int, batch: int, count: int) -> Callable[[Broker, float], Figures]:
    """The race with records of `size` bytes, `batch` of them in a transaction, and `count` transactions."""

    def race(broker: Broker, scale: float) -> Figures:
        transactions = max(int(count * scale), 20)
        with passing_topic(broker, PARTITIONS) as topic:
            producer = _producer(broker)
            cpu, start = broker.cpu_seconds(), time.perf_counter()
            commits = [_transaction(producer, topic, bytes(size), batch) for _ in range(transactions)]
            seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
        megabytes = transactions * batch * size / 1e6
        cuts = statistics.quantiles(commits, n=100)
        return {
            "MB/s": megabytes / seconds,
            "MB per broker-CPU-second": megabytes / max(used, 0.01),
            "commit p50 ms": cuts[49] * 1e3,
            "commit p99 ms": cuts[98] * 1e3,
        }

    race.__doc__ = f"librdkafka produces records of {size} B in transactions of {batch}, {PARTITIONS} partitions"
    return race


def _producer(broker: Broker) -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": f"bench-{uuid.uuid4().hex}",
        "linger.ms": 0,
        "log_level": 0,
    }
    producer = Producer(settings)
    producer.init_transactions(DEADLINE_S)
    return producer


def _transaction(producer: Producer, topic: str, value: bytes, records: int) -> float:
    """Write and commit one transaction. Returns the seconds from the call of commit to its end, in which it flushes."""
    producer.begin_transaction()
    for record in range(records):
        producer.produce(topic, value, partition=record % PARTITIONS)
    begin = time.perf_counter()
    producer.commit_transaction(DEADLINE_S)
    return time.perf_counter() - begin
