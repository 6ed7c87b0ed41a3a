"""Hours of ordinary life, and more clients than the broker can carry: memory, descriptors and tasks stay flat.

Short here; `make chaos MINUTES=60` lives for that long.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.errors import ClientError
from tests.chaos.support import create_topic
from tests.clients.wire import Connection, batch, produce
from tests.fuzz.test_hostile_clients import descriptors, resident
from tests.ottla_process import OttlaProcess

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.15")) * 60
MIB = 1 << 20
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 100,
    "log.cleaner.backoff.ms": 200,
    "log.retention.bytes": 2 * MIB,
    "log.segment.bytes": 1 * MIB,
    "max.incremental.fetch.session.cache.slots": 20,
}


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess]:
    with OttlaProcess(tmp_path, SETTINGS) as process:
        yield process
    process.assert_no_traceback()


def live(process: OttlaProcess, number: int) -> None:
    """A topic, a producer, a group with a member that joins, reads, commits and leaves, and all is deleted."""
    topic, group = f"life-{number}", f"group-{number}"
    with Admin(process.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, config={"cleanup.policy": "compact" if number % 2 else "delete"})
        with Producer(bootstrap_servers=process.bootstrap) as producer:
            for i in range(300):
                producer.send(topic, bytes(1000), key=b"%d" % (i % 20))
        with Consumer(
            bootstrap_servers=process.bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(topic)
            count, deadline = 0, time.monotonic() + 30
            while count < 300:
                assert time.monotonic() < deadline
                count += len(list(consumer.poll(timeout_s=1.0)))
            consumer.commit()
        admin.delete_group(group)
        admin.delete_topic(topic)


@pytest.mark.timeout(SECONDS + 200)
def test_memory_and_descriptors_stay_flat(process: OttlaProcess) -> None:
    numbers = itertools.count()
    for _ in range(4):  # what is loaded once is loaded
        live(process, next(numbers))
    end = time.monotonic() + SECONDS
    memory, files = [resident(process)], [descriptors(process)]
    while time.monotonic() < end:
        live(process, next(numbers))
        memory.append(resident(process))
        files.append(descriptors(process))
    half = len(memory) // 2
    early, late = statistics.median(memory[:half] or memory), statistics.median(memory[half:])
    print(
        f"\n{len(memory)} lives: resident {memory[0] / MIB:.1f} MiB, then {early / MIB:.1f}, then {late / MIB:.1f};"
        f" descriptors {files[0]}, then {files[-1]}"
    )
    assert late - early < 10 * MIB
    deadline = time.monotonic() + 20
    while descriptors(process) > files[0] + 10:
        assert time.monotonic() < deadline, f"{descriptors(process)} descriptors, {files[0]} at first"
        time.sleep(0.1)


class Pusher(threading.Thread):
    """Sends as fast as it is answered."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.count, self.refused = bootstrap, 0, 0
        self.stopping = threading.Event()

    def run(self) -> None:
        data = batch([bytes(200_000)])
        with contextlib.suppress(ClientError), Connection(self.bootstrap, 30.0) as connection:
            while not self.stopping.is_set():
                if produce(connection, "t", data).error:
                    self.refused += 1
                else:
                    self.count += 1


def test_more_clients_than_it_can_carry_slow_down_and_are_forgotten(process: OttlaProcess) -> None:
    create_topic(process, "t")
    before = resident(process)

    def median_ms() -> float:
        times = []
        with Connection(process.bootstrap, 30.0) as connection:
            for _ in range(20):
                begun = time.perf_counter()
                assert produce(connection, "t", batch([b"x"])).error == 0
                times.append((time.perf_counter() - begun) * 1000)
        return statistics.median(times)

    calm = median_ms()
    pushers = [Pusher(process.bootstrap) for _ in range(40)]
    for each in pushers:
        each.start()
    time.sleep(1.5)
    loaded = median_ms()  # it is answered, if late
    peak = resident(process)
    for each in pushers:
        each.stopping.set()
    for each in pushers:
        each.join(30)
        assert not each.is_alive()
        assert each.count > 0, "nobody starves"
    after = median_ms()
    print(
        f"\nmedian {calm:.2f} ms alone, {loaded:.2f} beside 40 that send all they can, {after:.2f} afterwards;"
        f" resident {before / MIB:.0f} MiB, {peak / MIB:.0f}, {resident(process) / MIB:.0f};"
        f" {sum(each.count for each in pushers) * 0.2:.0f} MB"
    )
    assert peak - before < 150 * MIB
    assert all(each.refused == 0 for each in pushers)
