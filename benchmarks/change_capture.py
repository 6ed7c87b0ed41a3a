"""Change data capture of PostgreSQL against Debezium: python -m benchmarks.change_capture [--rows N] [--changes N]

Races on one PostgreSQL server and one Ottla broker: rows of a snapshot per CPU second, changes per CPU second from one
slot, and the time from commit to topic; before them the start, until the slot exists, and the memory that the idle
process then has. The CPU time of the races is the connector's process alone, after its start: both
connectors wait (`snapshot.delay.ms`) until the measurement begins. Debezium runs in its embedded engine with
Kafka's producer; both write JSON with schemas, at least once.

Nothing here is a test: figures depend on the machine, ratios less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.connect.postgres.driver import Database
from tests.ottla_process import OttlaProcess
from tests.peers.cache import missing_for_debezium
from tests.peers.debezium import java
from tests.peers.postgres import PostgresServer, missing_for_postgres

from benchmarks.brokers import cpu_times, resident_mb
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.model import OffsetSpec
from ottla.clients.consumer.blocking import Consumer
from ottla.common.ids import TopicPartition

DEADLINE_S = 3600.0
DELAY_MS = 12_000
SAMPLES = 100
TABLE = """create table {} (id bigint primary key, name text not null, amount int, price numeric(10,2),
created timestamptz)"""
ROWS = """insert into {} select g, 'customer number ' || g, g % 1000, g % 10000 / 100.0,
timestamptz '2026-01-01 00:00:00Z' + g * interval '1 second' from generate_series({}, {}) g"""


@dataclass
class Figures:
    """The outcome of one contender."""

    snapshot: float = 0.0
    changes: float = 0.0
    latency_ms: float = 0.0
    start_s: float = 0.0
    """From the start of the process to the slot."""
    start_cpu_s: float = 0.0
    memory_mb: float = 0.0
    """Resident, before the first row is read."""


class Contender:
    """A process with a connector."""

    def __init__(self, name: str, command: list[str], prefix: str, log: Path) -> None:
        self.name, self.prefix = name, prefix
        self.began = time.monotonic()
        with open(log, "wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)

    @property
    def cpu_s(self) -> float:
        """User and system time so far."""
        return sum(cpu_times(self._process.pid))

    @property
    def memory_mb(self) -> float:
        """Resident memory."""
        return resident_mb(self._process.pid)

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(20)


def ottla(database: Database, broker: OttlaProcess, directory: Path) -> Contender:
    """Start Ottla's worker."""
    connector = {
        **config(database, "ottla"),
        "connector.class": "postgres",
        "name": "capture",
        "key.converter": "JsonConverter",
        "value.converter": "JsonConverter",
    }
    file = directory / "worker.json"
    file.write_text(json.dumps({"worker": {"bootstrap.servers": broker.bootstrap}, "connector": connector}))
    command = [sys.executable, "-m", "tests.connect.worker_process", str(file)]
    return Contender("Ottla", command, "ottla", directory / "ottla.log")


def debezium(database: Database, broker: OttlaProcess, directory: Path) -> Contender:
    """Start Debezium with Kafka's producer."""
    properties = {
        **config(database, "debezium"),
        "name": "capture",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "bootstrap.servers": broker.bootstrap,
    }
    file = directory / "debezium.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = java("DebeziumToKafka", str(file), heap="1g", quick=False)
    return Contender("Debezium", command, "debezium", directory / "debezium.log")


def config(database: Database, prefix: str) -> dict[str, str]:
    """Return the settings of both."""
    given = database.config(
        topic_prefix=prefix, slot_name=prefix, publication_name=prefix, snapshot_delay_ms=str(DELAY_MS)
    )
    del given["connector.class"], given["poll.interval.ms"]
    return given


class Watch:
    """Counts the records of a topic."""

    def __init__(self, broker: OttlaProcess) -> None:
        self._admin = Admin(bootstrap_servers=broker.bootstrap)
        self.bootstrap = broker.bootstrap

    def records(self, topic: str) -> int:
        """Return the end offset, or 0 without the topic."""
        partition = TopicPartition(topic, 0)
        if topic not in {each.name for each in self._admin.list_topics(timeout_s=30)}:
            return 0
        return self._admin.list_offsets({partition: OffsetSpec.LATEST}, timeout_s=30)[partition].offset

    def wait(self, topic: str, count: int) -> None:
        """Wait for a number of records."""
        until(lambda: self.records(topic) >= count)


def until(done: Callable[[], bool], pause_s: float = 0.2) -> None:
    """Wait for something."""
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("no progress")
        time.sleep(pause_s)


def race(start: Callable[[], Contender], database: Database, watch: Watch, rows: int, changes: int) -> Figures:
    """Run the three races with one contender."""
    contender, found = start(), Figures()
    try:
        slot = f"select 1 from pg_replication_slots where slot_name = '{contender.prefix}'"
        until(lambda: bool(database.rows(slot)), 0.02)
        found.start_s, found.start_cpu_s = time.monotonic() - contender.began, contender.cpu_s
        time.sleep(DELAY_MS / 1000 - 2)
        found.memory_mb = contender.memory_mb
        before = contender.cpu_s
        topic = f"{contender.prefix}.public.snapshot"
        watch.wait(topic, rows)
        found.snapshot = rows / (contender.cpu_s - before)
        time.sleep(3)
        topic = f"{contender.prefix}.public.changes"
        before, seen = contender.cpu_s, watch.records(topic)
        for begin in range(0, changes, 1000):
            database.sql(ROWS.format("changes", begin, begin + 999))
        watch.wait(topic, seen + changes)
        found.changes = changes / (contender.cpu_s - before)
        found.latency_ms = latency(database, watch, f"{contender.prefix}.public.single")
    finally:
        contender.stop()
        database.sql("truncate changes, single")
    return found


def latency(database: Database, watch: Watch, topic: str) -> float:
    """Return the median of the milliseconds from the return of a commit to the record at a consumer."""
    database.sql("insert into single values (-1)")
    watch.wait(topic, 1)
    consumer: Consumer[Any, Any] = Consumer(bootstrap_servers=watch.bootstrap, auto_offset_reset="latest")
    found = []
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.position(TopicPartition(topic, 0), 30)
        for number in range(SAMPLES):
            database.sql("insert into single values (%s)", number)
            begin, deadline = time.perf_counter(), time.monotonic() + 30
            while not list(consumer.poll(1.0)) and time.monotonic() < deadline:
                pass
            found.append((time.perf_counter() - begin) * 1000)
            time.sleep(0.02)
    finally:
        consumer.close()
    return statistics.median(found)


def prepared(database: Database, rows: int) -> None:
    """Create the tables."""
    for name in ("snapshot", "changes"):
        database.sql(TABLE.format(name))
    database.sql("create table single (id int primary key)")
    for begin in range(1, rows + 1, 100_000):
        database.sql(ROWS.format("snapshot", begin, min(rows, begin + 99_999)))
    database.sql("vacuum analyze snapshot")


def main() -> int:
    """Run the races and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=300_000)
    options = parser.parse_args()
    for missing in (missing_for_postgres(), missing_for_debezium()):
        if missing is not None:
            print(missing, file=sys.stderr)
            return 1
    results: dict[str, Figures] = {}
    starts: Mapping[str, Callable[..., Contender]] = {"Ottla": ottla, "Debezium": debezium}
    with tempfile.TemporaryDirectory(prefix="ottla-capture-") as folder, PostgresServer() as server:
        directory = Path(folder)
        broker = OttlaProcess(directory / "broker")
        broker.start()
        try:
            server.create("race")
            database, watch = Database(server, "race"), Watch(broker)
            prepared(database, options.rows)
            for name, start in starts.items():
                results[name] = race(
                    lambda start=start: start(database, broker, directory),  # type: ignore[misc]
                    database, watch, options.rows, options.changes,
                )  # fmt: skip
                print(f"{name}: {results[name]}", flush=True)
        finally:
            broker.stop()
    report(results, options.rows, options.changes)
    return 0


def report(results: Mapping[str, Figures], rows: int, changes: int) -> None:
    """Print conditions and ratios."""
    own, their = results["Ottla"], results["Debezium"]
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"{rows} rows and {changes} inserts of 5 columns, {os.cpu_count()} cores, load {load}, JSON with schemas")
    for name, a, b, ratio in (
        ("snapshot, rows per CPU second", own.snapshot, their.snapshot, own.snapshot / their.snapshot),
        ("stream, changes per CPU second", own.changes, their.changes, own.changes / their.changes),
        ("commit to topic, p50 ms", own.latency_ms, their.latency_ms, their.latency_ms / own.latency_ms),
        ("start to the slot, s", own.start_s, their.start_s, their.start_s / own.start_s),
        ("start to the slot, CPU s", own.start_cpu_s, their.start_cpu_s, their.start_cpu_s / own.start_cpu_s),
        ("idle, resident MB", own.memory_mb, their.memory_mb, their.memory_mb / own.memory_mb),
    ):
        print(f"{name:34} Ottla {a:12,.1f}   Debezium {b:12,.1f}   {ratio:5.2f}x")


if __name__ == "__main__":
    sys.exit(main())
