"""Shared by the tests that kill the broker during transactions: the broker, programs that go on, a committed reader.

`OTTLA_CHAOS_MINUTES` sets the duration, `OTTLA_CHAOS_SEED` the moments of the kills.
"""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ottla.clients.errors import ClientError
from tests.ottla_process import ForkedOttla, OttlaProcess

from .support import WAIT_S

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.1")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "3"))
# Of a librdkafka client that finds the broker again soon after it was killed.
QUICK = {"reconnect.backoff.max.ms": 200, "socket.timeout.ms": 5_000, "log_level": 0}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    settings = {
        "transaction.state.log.num.partitions": 3,
        "offsets.topic.num.partitions": 3,
        "group.initial.rebalance.delay.ms": 0,
    }
    broker = ForkedOttla(tmp_path, settings)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


class Program(threading.Thread, ABC):
    """A program that begins again with new clients after each error of one, until `finish`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self._problem: BaseException | None = None

    @abstractmethod
    def serve(self) -> None:
        """Create clients and work until `stopping` is set."""

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    self.serve()
                except (KafkaException, ClientError):
                    time.sleep(0.1)  # the broker is down, or this instance was fenced
        except BaseException as problem:  # noqa: BLE001 - reported by `finish`
            self._problem = problem

    def finish(self) -> None:
        """End the program. Raises what it raised."""
        self.stopping.set()
        self.join(3 * WAIT_S)
        assert not self.is_alive(), "the program did not stop"
        if self._problem is not None:
            raise self._problem


def kill_repeatedly(process: OttlaProcess, longest_s: float = 2.5) -> int:
    """Kill and restart the broker for `SECONDS`, at the latest `longest_s` after each start; return how often."""
    chance = random.Random(SEED)
    end = time.monotonic() + SECONDS
    kills = 0
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.3, longest_s))
        process.kill()
        process.start()
        kills += 1
    return kills


def reader(bootstrap: str, group: str, **settings: object) -> Consumer:
    """A librdkafka consumer that reads committed records from the beginning."""
    defaults: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **QUICK,
    }
    return Consumer(defaults | settings)


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, bytes]]:
    """(partition, value) of all records that committed readers see, in order within a partition."""
    consumer = reader(bootstrap, "auditor", **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[tuple[int, bytes]] = []
    left = set(range(partitions))
    deadline = time.monotonic() + 3 * WAIT_S + SECONDS / 10
    try:
        while left:
            assert time.monotonic() < deadline, f"no end of the partitions {left}"
            message: Message | None = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                left.discard(message.partition())
                continue
            found.append((message.partition(), message.value()))
    finally:
        consumer.close()
    return found


def wait_until_no_transaction_is_open(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until committed readers may read each partition to its end."""
    everything = reader(bootstrap, "auditor", **{"isolation.level": "read_uncommitted"})
    committed = reader(bootstrap, "auditor")
    rows = [TopicPartition(topic, partition) for partition in range(partitions)]
    deadline = time.monotonic() + 2 * WAIT_S
    try:
        while any(
            everything.get_watermark_offsets(row, WAIT_S) != committed.get_watermark_offsets(row, WAIT_S)
            for row in rows
        ):
            assert time.monotonic() < deadline, "a transaction hangs"
            time.sleep(0.5)
    finally:
        everything.close()
        committed.close()
