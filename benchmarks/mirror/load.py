"""Records for the source of a mirror, and readers of both sides."""

from __future__ import annotations

import multiprocessing
import os
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import confluent_kafka

from ottla.clients.admin import Admin, ConfigResource, OffsetSpec, ResourceType
from ottla.common.ids import TopicPartition

DEADLINE_S = 600.0
PARTITIONS = 6
SIZE = 1000
SLICE_S = 0.02
_SENT_AT = struct.Struct(">d")


class Load:
    """Records of SIZE bytes, each of which begins with the time of its send."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "log_level": 2}
        )
        self._rest = os.urandom(SIZE - _SENT_AT.size)
        self._sent = 0

    def send(self, topic: str, count: int) -> None:
        """Send records, spread evenly over the partitions."""
        value = _SENT_AT.pack(time.monotonic()) + self._rest
        for _ in range(count):
            while True:
                try:
                    self._producer.produce(topic, value, partition=self._sent % PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self._sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all are acknowledged."""
        if self._producer.flush(DEADLINE_S):
            raise TimeoutError("the source does not acknowledge the records")

    def steady(self, topic: str, rate: float, seconds: float) -> None:
        """Send at a rate in records per second."""
        begin, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begin) < seconds:
            due = int(passed * rate)
            self.send(topic, due - sent)
            sent = due
            time.sleep(SLICE_S)
        self.finish()


class LagReader:
    """Notes when each record of partition 0 was sent, and when it arrives at a consumer, in seconds.

    The consumer has a process of its own: in the process of the load it would wait for Python's lock.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        spawned = multiprocessing.get_context("spawn")
        self._pipe, other = spawned.Pipe()
        self._process = spawned.Process(target=_read, args=(bootstrap, topic, other), daemon=True)
        self._process.start()

    def finish(self, count: int) -> list[tuple[float, float]]:
        """Return the times of `count` records."""
        self._pipe.send(count)
        if not self._pipe.poll(DEADLINE_S):
            raise TimeoutError(f"the consumer has not read {count} records")
        times: list[tuple[float, float]] = self._pipe.recv()
        self._process.join(30)
        return times


def _read(bootstrap: str, topic: str, pipe: Connection) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "lag", "fetch.wait.max.ms": 100, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    times: list[tuple[float, float]] = []
    count = 0
    while not count or len(times) < count:
        # One by one: `consume` returns a record only when its batch is complete, or its time is over.
        message = consumer.poll(0.1)
        value = None if message is None or message.error() else message.value()
        if isinstance(value, bytes):
            times.append((_SENT_AT.unpack_from(value)[0], time.monotonic()))
        elif not count and pipe.poll():
            count = pipe.recv()
    consumer.close()
    pipe.send(times)


def records(bootstrap: str, topic: str) -> int:
    """Return the end offsets of a topic, added up; 0 without it."""
    with Admin(bootstrap) as admin:
        if topic not in {each.name for each in admin.list_topics()}:
            return 0
        keys = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return sum(each.offset for each in admin.list_offsets(dict.fromkeys(keys, OffsetSpec.LATEST)).values())


def start_mirror(target: str, source: str, topics: str, **settings: object) -> None:
    """Create the mirror `race` at the target, or change its settings."""
    with Admin(target) as admin:
        settings |= {"bootstrap.servers": source, "topics": topics}
        admin.alter_config(ConfigResource(ResourceType.MIRROR, "race"), settings)


def until(done: Callable[[], bool], pause_s: float = 0.05) -> None:
    """Wait for something."""
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("no progress")
        time.sleep(pause_s)
