"""Hours of ordinary load: memory, descriptors and tasks do not grow.

Short here; `make chaos MINUTES=60` runs for that long.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest

from ottla.clients import Admin, Consumer, Producer
from tests.chaos.support import WatchedProcess
from tests.fuzz.test_hostile_clients import descriptors
from tests.ottla_process import OttlaProcess

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.15")) * 60
# The pause between two cycles, which limits the load of the machine.
PAUSE_S = float(os.environ.get("OTTLA_CHAOS_PAUSE_S", "0"))
FIGURES = os.environ.get("OTTLA_CHAOS_FIGURES", "")
MIB = 1 << 20
RECORDS = 300
WAIT_S = 30.0
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
def process(tmp_path: Path) -> Iterator[WatchedProcess]:
    with WatchedProcess(tmp_path, SETTINGS) as process:
        yield process
    process.assert_no_traceback()


def own_client(bootstrap: str, topic: str, group: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for i in range(RECORDS):
            producer.send(topic, bytes(1000), key=b"%d" % (i % 20))
    with Consumer(
        bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(topic)
        read_all(lambda: len(list(consumer.poll(timeout_s=1.0))))
        consumer.commit()


def librdkafka(bootstrap: str, topic: str, group: str) -> None:
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = confluent_kafka.Producer(quiet)
    for i in range(RECORDS):
        producer.produce(topic, bytes(1000), key=b"%d" % (i % 20))
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer({**quiet, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read_all(lambda: len([one for one in consumer.consume(100, 1.0) if not one.error()]))
    consumer.commit(asynchronous=False)
    consumer.close()


def kafka_python(bootstrap: str, topic: str, group: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    for i in range(RECORDS):
        producer.send(topic, bytes(1000), key=b"%d" % (i % 20))
    producer.close(WAIT_S)
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    read_all(lambda: sum(map(len, consumer.poll(1000).values())))
    consumer.commit()
    consumer.close()


def read_all(poll: Callable[[], int]) -> None:
    count, deadline = 0, time.monotonic() + WAIT_S
    while count < RECORDS:
        assert time.monotonic() < deadline, f"{count} of {RECORDS} in {WAIT_S} s"
        count += poll()


CLIENTS = (own_client, librdkafka, own_client, kafka_python)


def live(process: OttlaProcess, number: int) -> None:
    """One cycle: create a topic, produce, join a group, read, commit, leave, and delete everything."""
    topic, group = f"life-{number}", f"group-{number}"
    with Admin(process.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, config={"cleanup.policy": "compact" if number % 2 else "delete"})
        CLIENTS[number % len(CLIENTS)](process.bootstrap, topic, group)
        admin.delete_group(group)
        admin.delete_topic(topic)


class Steady(threading.Thread):
    """The constant load: ten records per second and a group that reads them, across rolls and retention."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.sent, self.read = bootstrap, 0, 0
        self.problem: BaseException | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            with (
                Producer(bootstrap_servers=self.bootstrap) as producer,
                Consumer(bootstrap_servers=self.bootstrap, group_id="steady", auto_offset_reset="earliest") as consumer,
            ):
                consumer.subscribe("steady")
                while not self._stopping.wait(0.1):
                    producer.send("steady", bytes(5000)).result(timeout_s=WAIT_S)
                    self.sent += 1
                    self.read += len(list(consumer.poll(timeout_s=0)))
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self.problem = error

    def stop(self) -> None:
        self._stopping.set()
        self.join(WAIT_S)
        if self.problem is not None:
            raise self.problem
        assert not self.is_alive()
        assert self.read > 0


def flat(held: list[dict[str, float]], kind: str, allowed: float) -> str:
    """Describe the amounts of a kind in both halves of the run; fail if it grew by more than `allowed`."""
    values = [each[kind] for each in held]
    half = len(values) // 2
    early, late = statistics.median(values[:half] or values), statistics.median(values[half:])
    unit = MIB if kind == "resident" else 1
    assert late - early <= allowed, f"{kind}: {early / unit:.1f}, then {late / unit:.1f}"
    return f"{kind} {early / unit:.1f}, then {late / unit:.1f}, at most {max(values) / unit:.1f}"


# kafka-python leaves sockets to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(SECONDS + 200)
def test_memory_descriptors_tasks_and_threads_stay_flat(process: WatchedProcess) -> None:
    with Admin(process.bootstrap) as admin:
        admin.create_topic("steady")
    steady = Steady(process.bootstrap)
    steady.start()
    numbers = itertools.count()
    for _ in range(2 * len(CLIENTS)):  # everything that is loaded only once is loaded now
        live(process, next(numbers))
    begun, end = time.time(), time.monotonic() + SECONDS
    while time.monotonic() < end:
        live(process, next(numbers))
        time.sleep(PAUSE_S)
    steady.stop()
    time.sleep(1.5)
    held = [each for each in process.held() if each["at"] >= begun]
    cpu = (held[-1]["cpu"] - held[0]["cpu"]) / max(held[-1]["at"] - held[0]["at"], 1)
    print(f"\n{next(numbers)} lives in {SECONDS / 60:.1f} min, {len(held)} looks, {cpu:.0%} of a core for the broker")
    if FIGURES:
        Path(FIGURES).write_text((process.directory / "held.jsonl").read_text())
    print(flat(held, "resident", 10 * MIB))
    print(flat(held, "descriptors", 10))
    print(flat(held, "connections", 10))
    print(flat(held, "objects", 20_000))
    # One job more or less in the log's threads does not count as a leak.
    for kind, allowed in {"tasks": 1, "threads": 4, "fetch sessions": 20, "groups": 5, "logs": 5, "doomed": 20}.items():
        print(flat(held, kind, allowed))
    slots = SETTINGS["max.incremental.fetch.session.cache.slots"]
    assert max(each["fetch sessions"] for each in held) <= slots
    deadline = time.monotonic() + 20
    while descriptors(process) > held[0]["descriptors"] + 10:
        assert time.monotonic() < deadline, f"{descriptors(process)} descriptors, {held[0]['descriptors']} at first"
        time.sleep(0.1)
