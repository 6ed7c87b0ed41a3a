"""Exactly-once queries of Spark while their processes and the broker are killed at random: each record is read once.

Two queries read the same topic. One writes to a topic directly, with tasks that share the partitions of the output; the
other has a state store, and writes in foreachBatch. Killed are the driver, its JVM, executors, Python's workers, the
processes that plan batches, and the broker. Some workers are cut off from Spark and continue later.

In the end a reader with read_committed must see each number once, and in order what one task has written.

Only in `make chaos`: `OTTLA_CHAOS_MINUTES` sets the duration, `OTTLA_CHAOS_SEED` the choice of kills, and
`OTTLA_TEST_BROKERS=kafka` starts stock Kafka instead, which is not killed. `make test` kills queries at chosen points
(tests/spark/test_sink_faults.py).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla.clients import Admin, Consumer
from ottla.common.ids import TopicPartition
from tests.chaos.load import Own
from tests.conftest import KAFKA
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka
from tests.spark.processes import (
    DAEMON,
    DRIVER,
    EXECUTOR,
    JVM,
    PLANNER,
    WORKER,
    kill_session,
    processes_of,
    send_signal,
)

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "5"))
SOURCES, TARGETS = 3, 2
# Starts of Spark take long on a busy machine.
WAIT_S = 500.0
PROGRAM = Path(__file__).parent / "exactly_once_queries.py"
QUERIES = ("copied", "deduplicated")
FAULTS = {
    WORKER: 25, "paused worker": 10, EXECUTOR: 15, "worker cut off": 15, DAEMON: 5, PLANNER: 5,
    "broker": 15, DRIVER: 2, JVM: 2, "all": 2,
}  # fmt: skip
SETTINGS = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}

pytestmark = pytest.mark.skipif(not SECONDS, reason="only in `make chaos`: a Spark cluster takes too long")


class Numbers(Own):
    """A smaller load: Spark shares the machine with it."""

    def values(self) -> list[tuple[int, int]]:
        time.sleep(0.02)
        return super().values()


class Program:
    """The driver's process, started again after its death, and its checkpoints."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self.directory = directory
        self.starts = 0
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[bytes] | None = None
        # Executors have their directories in Spark's home.
        self._spark = directory / "spark"
        self._spark.mkdir(parents=True)
        for path in Path(pyspark.__file__).parent.iterdir():
            (self._spark / path.name).symlink_to(path)

    @property
    def leader(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ensure_running(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                return
            self.kill()
        self.starts += 1
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, PROGRAM, self._bootstrap, self.directory],
                stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
                env={**os.environ, "SPARK_HOME": str(self._spark)},
            )  # fmt: skip

    def kill(self) -> None:
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait(WAIT_S)

    def pids(self, kind: str) -> list[int]:
        return [process.pid for process in processes_of(self.leader) if process.kind == kind]

    def batches(self) -> dict[str, int]:
        """The number of finished batches of each query."""
        return {name: self._last(name) + 1 for name in QUERIES}

    def positions(self, name: str) -> list[int]:
        """How many records of each partition a query has finished."""
        last = self._last(name)
        if last < 0:
            return [0] * SOURCES
        offsets = json.loads((self.directory / name / "offsets" / str(last)).read_text().splitlines()[-1])
        return [offsets["source"].get(str(partition), 0) for partition in range(SOURCES)]

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _last(self, name: str) -> int:
        commits = self.directory / name / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1)


class Chaos:
    """Chooses processes to kill."""

    def __init__(self, program: Program, broker: OttlaProcess | StockKafka) -> None:
        self.program = program
        self.broker = broker
        self.chance = random.Random(SEED)
        self.done: Counter[str] = Counter()
        self._timers: list[threading.Timer] = []

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fault = self.chance.choices(list(FAULTS), list(FAULTS.values()))[0]
            self.program.ensure_running()
            if not self.inflict(fault):
                time.sleep(0.05)
                continue
            self.done[fault] += 1
            if fault in (DRIVER, JVM, "all") or self.chance.random() < 0.3:
                self.wait_for_batches()
            time.sleep(self.chance.uniform(0.0, 4.0))
        for timer in self._timers:
            timer.join()

    def inflict(self, fault: str) -> bool:
        """Kill a process; False if there is none of that kind now. Stock Kafka is not killed."""
        if fault == "broker":
            if not isinstance(self.broker, OttlaProcess):
                return False
            self.broker.kill()
            time.sleep(self.chance.choice([0.0, 0.0, 1.0, 6.0]))
            self.broker.start()
            return True
        if fault == "all":
            self.program.kill()
            return True
        if fault in ("paused worker", "worker cut off"):
            return self.pause_worker(is_cut_off=fault == "worker cut off")
        pids = self.program.pids(fault)
        if pids:
            send_signal(self.chance.choice(pids), signal.SIGKILL)
        return bool(pids)

    def pause_worker(self, *, is_cut_off: bool) -> bool:
        """Stop a worker for a while; if `is_cut_off`, its executor is killed meanwhile, and it does not notice it."""
        found = {process.pid: process for process in processes_of(self.program.leader)}
        workers = [process for process in found.values() if process.kind == WORKER]
        if not workers:
            return False
        worker = self.chance.choice(workers)
        send_signal(worker.pid, signal.SIGSTOP)
        if is_cut_off:
            # The daemon would end its workers.
            send_signal(worker.parent, signal.SIGKILL)
            daemon = found.get(worker.parent)
            if daemon is not None:
                send_signal(daemon.parent, signal.SIGKILL)
        timer = threading.Timer(self.chance.uniform(0.0, 8.0), send_signal, (worker.pid, signal.SIGCONT))
        timer.start()
        self._timers.append(timer)
        return True

    def wait_for_batches(self) -> None:
        """Wait until each query has finished a batch."""
        before, deadline = self.program.batches(), time.monotonic() + WAIT_S
        while any(number == before[name] for name, number in self.program.batches().items()):
            assert time.monotonic() < deadline, f"no batch after {self.done}: {self.program.log()[-6000:]}"
            self.program.ensure_running()
            time.sleep(0.05)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OttlaProcess | StockKafka]:
    if os.environ.get("OTTLA_TEST_BROKERS") == KAFKA:
        with StockKafka(tmp_path / "kafka") as stock:
            yield stock
        return
    broker = OttlaProcess(tmp_path / "broker", SETTINGS)
    broker.start()
    yield broker
    broker.stop()
    broker.assert_no_traceback()


@pytest.fixture
def program(process: OttlaProcess | StockKafka, tmp_path: Path) -> Iterator[Program]:
    running = Program(tmp_path / "program", process.bootstrap)
    yield running
    running.kill()


@pytest.mark.timeout(SECONDS + 3 * WAIT_S)
def test_each_record_is_read_once_and_in_order_whatever_is_killed(
    process: OttlaProcess | StockKafka, program: Program
) -> None:
    with Admin(process.bootstrap) as admin:
        admin.create_topic("source", partitions=SOURCES)
        for name in QUERIES:
            admin.create_topic(name, partitions=TARGETS)
    load = Numbers(process.bootstrap, "source", SOURCES)
    load.start()
    chaos = Chaos(program, process)
    program.ensure_running()
    chaos.wait_for_batches()
    chaos.run(SECONDS)
    load.finish()
    assert not load.failures
    deadline = time.monotonic() + WAIT_S
    while any(program.positions(name) != load.sent for name in QUERIES):
        assert time.monotonic() < deadline, f"the queries do not end: {program.log()[-6000:]}"
        program.ensure_running()
        time.sleep(0.1)
    program.kill()
    assert "ExactlyOnceError" not in program.log(), "no batch was taken for a changed one"
    batches = program.batches()
    for name in QUERIES:
        seen = read(process.bootstrap, name, "read_committed")
        assert read_by_librdkafka(process.bootstrap, name) == seen
        check(name, seen, load.sent)
        records = sum(map(len, seen))
        aborted = sum(map(len, read(process.bootstrap, name, "read_uncommitted"))) - records
        print(f"{name}: {records} records in {batches[name]} batches, and {aborted} that were aborted")
    print(f"seed {SEED}: killed {dict(chaos.done)}, {program.starts} starts, {program.log().count('FAILED')} failures")


def check(name: str, seen: list[list[str]], sent: list[int]) -> None:
    """Check that the partitions have each number of the source once; if it was copied, in order."""
    for target, values in enumerate(seen):
        for source in range(SOURCES):
            numbers = [int(value.split()[1]) for value in values if int(value.split()[0]) == source]
            expected = list(range(target, sent[source], TARGETS))
            found = Counter(numbers)
            doubled = [number for number, copies in found.items() if copies > 1]
            lost = sorted(set(expected) - set(numbers))
            assert not doubled, f"{name}-{target}: {len(doubled)} numbers of source {source} doubled: {doubled[:10]}"
            assert not lost, f"{name}-{target}: {len(lost)} numbers of source {source} lost: {lost[:10]}"
            assert sorted(numbers) == expected
            # A shuffle has no order.
            assert numbers == expected or name == "deduplicated", f"{name}-{target}: source {source} is out of order"


def read(bootstrap: str, topic: str, isolation: str) -> list[list[str]]:
    """The values of each partition, read by Ottla's consumer."""
    partitions = [TopicPartition(topic, number) for number in range(TARGETS)]
    seen: list[list[str]] = [[] for _ in partitions]
    settings = {"isolation.level": isolation, "auto.offset.reset": "earliest"}
    with Consumer(settings, bootstrap_servers=bootstrap) as reader:
        reader.assign(partitions)
        ends = reader.end_offsets(partitions)
        deadline = time.monotonic() + WAIT_S
        while any(reader.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, "the end of a partition cannot be read"
            for record in reader.poll(1.0):
                seen[record.partition].append(record.value.decode())
    return seen


def read_by_librdkafka(bootstrap: str, topic: str) -> list[list[str]]:
    reader = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0,
        }
    )  # fmt: skip
    reader.assign([ConfluentPartition(topic, number, 0) for number in range(TARGETS)])
    seen: list[list[str]] = [[] for _ in range(TARGETS)]
    left, deadline = set(range(TARGETS)), time.monotonic() + WAIT_S
    try:
        while left:
            assert time.monotonic() < deadline, f"no end of {left}"
            for message in reader.consume(1000, 1.0):
                if message.error() is not None:
                    left.discard(message.partition())
                else:
                    seen[message.partition()].append(message.value().decode())
    finally:
        reader.close()
    return seen
