"""A Spark program as a process that is started again after its death, and the faults that kill it and its processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyspark
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla.clients import Admin, Consumer, Record
from ottla.clients.admin import TransactionState
from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition
from ottla.spark.exactly_once import PREFIX
from tests import deadlines
from tests.chaos.load import Own
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka
from tests.spark.processes import DAEMON, DRIVER, JVM, PLANNER, WORKER, kill_session, processes_of, send_signal

# Starts of Spark take long on a busy machine.
WAIT_S = 500.0
IN_TRANSACTION = "workers in a transaction"
"""Between the first record that a task has written and its commit, which takes a few milliseconds."""
STARTING = "processes of a start"
"""Python's processes, and those that Java starts for files, before each query has finished a micro-batch."""
MOST_OF_A_START = 30
"""The approximate number of processes of a start."""
TRANSACTION_S = 3.0
"""How long to wait for an open transaction."""


class Numbers(Own):
    """A smaller load: Spark shares the machine with it."""

    def values(self) -> list[tuple[int, int]]:
        time.sleep(0.02)
        return super().values()


class Program:
    """The driver's process, started again after its death, and its checkpoints.

    `queries` are the names of the queries with their checkpoints, relative to the directory. All read the same topic.
    """

    def __init__(
        self, directory: Path, command: Sequence[str | Path], queries: Mapping[str, str], sources: int
    ) -> None:
        self.directory = directory
        self.queries = queries
        self.starts = 0
        self.environment: dict[str, str] = {}
        self._command = command
        self._sources = sources
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
                self._command, stdout=log, stderr=log, cwd=self.directory, start_new_session=True,
                env={**os.environ, "SPARK_HOME": str(self._spark), **self.environment},
            )  # fmt: skip

    def kill(self) -> None:
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait(WAIT_S)

    def pids(self, kind: str) -> list[int]:
        return [process.pid for process in processes_of(self.leader) if process.kind == kind]

    def batches(self) -> dict[str, int]:
        """The number of finished batches of each query."""
        return {name: self._last(name) + 1 for name in self.queries}

    def positions(self, name: str) -> list[int]:
        """How many records of each partition a query has finished."""
        last = self._last(name)
        if last < 0:
            return [0] * self._sources
        offsets = json.loads((self.directory / self.queries[name] / "offsets" / str(last)).read_text().splitlines()[-1])
        return [offsets["source"].get(str(partition), 0) for partition in range(self._sources)]

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _last(self, name: str) -> int:
        commits = self.directory / self.queries[name] / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1)


def start_load(
    bootstrap: str, outputs: Sequence[str], sources: int, targets: int, kind: type[Numbers] = Numbers
) -> Numbers:
    """Create the topic `source` and the topics of the outputs, and begin to send to the source."""
    with Admin(bootstrap) as admin:
        admin.create_topic("source", partitions=sources)
        for name in outputs:
            admin.create_topic(name, partitions=targets)
    load = kind(bootstrap, "source", sources)
    load.start()
    return load


def run_until(program: Program, is_done: Callable[[], bool]) -> None:
    """Let the program finish, and kill it then; it is started again if it ends before."""
    deadline = time.monotonic() + WAIT_S
    while not is_done():
        assert time.monotonic() < deadline, f"the queries do not end: {program.log()[-6000:]}"
        program.ensure_running()
        time.sleep(0.2)
    program.kill()


class Chaos:
    """Chooses processes to kill."""

    def __init__(
        self, program: Program, broker: OttlaProcess | StockKafka, faults: Mapping[str, int], seed: int
    ) -> None:
        """`faults` have a weight each."""
        self.program = program
        self.broker = broker
        self.chance = random.Random(seed)
        self._faults = faults
        self.done: Counter[str] = Counter()
        self._timers: list[threading.Timer] = []

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fault = self.chance.choices(list(self._faults), list(self._faults.values()))[0]
            self.program.ensure_running()
            if not self.inflict(fault):
                time.sleep(0.05)
                continue
            self.done[fault] += 1
            if fault in (DRIVER, JVM, "all") or self.chance.random() < 0.3:
                self.wait_for_batches()
            time.sleep(self.chance.uniform(0.0, 4.0))
        for timer in self._timers:
            deadlines.join(timer, "the fault that a timer ends", WAIT_S)

    def inflict_all(self, *faults: str) -> None:
        """Kill a process of each kind as soon as there is one, and wait until each query has finished a batch."""
        deadline = time.monotonic() + WAIT_S
        for fault in faults:
            while not self.inflict(fault):
                assert time.monotonic() < deadline, f"there is no {fault}: {self.program.log()[-6000:]}"
                time.sleep(0.02)
            self.done[fault] += 1
        self.wait_for_batches()

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
        if fault == IN_TRANSACTION:
            return self.kill_in_transaction()
        if fault == STARTING:
            self.kill_at_start()
            return True
        pids = self.program.pids(fault)
        if pids:
            send_signal(self.chance.choice(pids), signal.SIGKILL)
        return bool(pids)

    def kill_in_transaction(self) -> bool:
        """Kill the workers as soon as one has written in a transaction.

        Returns whether that stays open: a worker may commit before it is killed, and then its task has ended.
        """
        workers = self.program.pids(WORKER)
        if not workers:
            return False
        deadline = time.monotonic() + TRANSACTION_S
        try:
            with Admin(self.broker.bootstrap) as admin:
                while not (before := _open_transactions(admin)):
                    if time.monotonic() >= deadline:
                        return False
                for pid in workers:
                    send_signal(pid, signal.SIGKILL)
                is_open = not before.isdisjoint(_open_transactions(admin))
                self.done["workers after their commit"] += not is_open
                return is_open
        except ClientError:
            return False

    def kill_at_start(self) -> None:
        """Start the program again, and kill some of the processes that it starts until its first micro-batches."""
        self.program.kill()
        before, deadline = self.program.batches(), time.monotonic() + WAIT_S
        self.program.ensure_running()
        leader, seen = self.program.leader, set[int]()
        victims = set(self.chance.sample(range(MOST_OF_A_START), 4)) | {0}
        while any(number == before[name] for name, number in self.program.batches().items()):
            assert time.monotonic() < deadline, f"no start: {self.program.log()[-6000:]}"
            found = processes_of(leader)
            assert found or self.program.leader != leader, f"the start has failed: {self.program.log()[-6000:]}"
            for process in found:
                # Before Spark has a daemon, other processes belong to the start of Java itself.
                if process.kind in (DAEMON, WORKER, PLANNER) and process.pid not in seen:
                    if not seen and process.kind != DAEMON:
                        continue
                    if len(seen) in victims:
                        send_signal(process.pid, signal.SIGKILL)
                        self.done[f"{process.kind} of a start"] += 1
                    seen.add(process.pid)
            time.sleep(0.005)

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


def _open_transactions(admin: Admin) -> set[str]:
    """The transactional ids with which tasks have written, and not committed."""
    found = admin.list_transactions(states=[TransactionState.ONGOING], timeout_s=TRANSACTION_S)
    return {each.transactional_id for each in found if each.transactional_id.startswith(PREFIX)}


def read(bootstrap: str, topic: str, targets: int, isolation: str) -> list[list[str]]:
    """The values of each partition, read by Ottla's consumer."""
    records = read_records(bootstrap, topic, targets, isolation)
    return [[(record.value or b"").decode() for record in each] for each in records]


def read_records(bootstrap: str, topic: str, targets: int, isolation: str) -> list[list[Record]]:
    """The records of each partition, read by Ottla's consumer."""
    partitions = [TopicPartition(topic, number) for number in range(targets)]
    seen: list[list[Record]] = [[] for _ in partitions]
    settings = {"isolation.level": isolation, "auto.offset.reset": "earliest"}
    with Consumer(settings, bootstrap_servers=bootstrap) as reader:
        reader.assign(partitions)
        ends = reader.end_offsets(partitions)
        deadline = time.monotonic() + WAIT_S
        while any(reader.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < deadline, "the end of a partition cannot be read"
            for record in reader.poll(1.0):
                seen[record.partition].append(record)
    return seen


def read_by_librdkafka(bootstrap: str, topic: str, targets: int) -> list[list[str]]:
    reader = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0,
        }
    )  # fmt: skip
    reader.assign([ConfluentPartition(topic, number, 0) for number in range(targets)])
    seen: list[list[str]] = [[] for _ in range(targets)]
    left, deadline = set(range(targets)), time.monotonic() + WAIT_S
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
