"""A random workload, and kill -9 of the worker, the broker and the database: each topic is its table, row by row.

The worker writes exactly once, so that no event is repeated either. `OTTLA_CHAOS_MINUTES` sets the duration,
`OTTLA_CHAOS_SEED` the random choices.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.consumer.blocking import Consumer
from ottla.common.ids import TopicPartition
from ottla.connect.connectors.postgres.connector import PostgresConnector
from tests.connect.postgres.driver import Database
from tests.ottla_process import OttlaProcess

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.15")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "7"))
SETTLE_S = 90.0
TABLES = ("a", "b", "c")
KEYS = 200
VICTIMS = ("worker", "worker", "broker", "database")

pytestmark = pytest.mark.timeout(SECONDS + 240)


class Workload:
    """Writes with a connection of its own, and connects again after an error."""

    def __init__(self, database: Database, seed: int) -> None:
        self._database, self._random = database, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.statements = self.extra = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        import psycopg

        while not self._stop.is_set():
            try:
                with self._database.server.connect(self._database.name) as connection:
                    while not self._stop.is_set():
                        self._transaction(connection)
            except psycopg.Error:
                time.sleep(0.2)

    def _transaction(self, connection: Any) -> None:
        pick = self._random
        if pick.random() < 0.01:
            self.extra += 1
            connection.execute(f"alter table c add column x{self.extra} int default {self.extra}")
            return
        connection.execute("begin")
        for _ in range(pick.choice((1, 1, 2, 5, 20))):
            self._statement(connection)
        connection.execute("rollback" if pick.random() < 0.1 else "commit")
        time.sleep(pick.random() * 0.01)

    def _statement(self, connection: Any) -> None:
        pick = self._random
        table, key = pick.choice(TABLES), pick.randrange(KEYS)
        self.statements += 1
        kind = pick.random()
        if kind < 0.5:
            text = pick.choice((None, "", "short", "tab\tand\nline\\", "x" * 3000))
            connection.execute(
                f"insert into {table} (id, n, t) values (%s, 0, %s) on conflict (id) do update set n = {table}.n + 1",
                [key, text],
            )
        elif kind < 0.75:
            connection.execute(f"update {table} set n = n + 1 where id = %s", [key])
        elif kind < 0.9:
            connection.execute(f"delete from {table} where id = %s", [key])
        else:
            connection.execute(
                f"update {table} set id = %s where id = %s and not exists (select 1 from {table} where id = %s)",
                [key + 1, key, key + 1],
            )


class WorkerProcess:
    """The worker."""

    def __init__(self, directory: Path, worker: dict[str, str], connector: dict[str, str]) -> None:
        self._file, self._log = directory / "worker.json", directory / "worker.log"
        self._file.write_text(json.dumps({"worker": worker, "connector": connector}))

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.connect.postgres.worker_process", str(self._file)], stdout=log, stderr=log
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)

    def ensure(self) -> None:
        """Start it again if it has given up (the broker was down at its start)."""
        if self._process.poll() is not None:
            self.start()

    def end_of_log(self) -> str:
        return self._log.read_text()[-3000:]


class Topics:
    """The rows and events in the topics."""

    def __init__(self, bootstrap: str) -> None:
        self.rows: dict[str, dict[int, dict[str, Any]]] = {each: {} for each in TABLES}
        self.repeated: Counter[Any] = Counter()
        self.events = 0
        self._consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        self._topics = {f"p.public.{each}": each for each in TABLES}
        self._consumer.assign([TopicPartition(each, 0) for each in self._topics])

    def read(self) -> None:
        """Read what is new."""
        for record in self._consumer.poll(0.5):
            table = self._topics[record.topic]
            key = json.loads(record.key)["id"]
            event = None if record.value is None else json.loads(record.value)
            self.events += 1
            if event is None or event["op"] == "d":
                self.rows[table].pop(key, None)
            else:
                self.rows[table][key] = event["after"]
            if event is not None and event["op"] != "r":
                self.repeated[table, key, event["op"], event["source"]["lsn"]] += 1

    def close(self) -> None:
        self._consumer.close()


def expected(database: Database) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the tables."""
    with database.server.connect(database.name) as connection:
        found = {}
        for table in TABLES:
            cursor = connection.execute(f"select * from {table}")
            names = [each.name for each in cursor.description]
            found[table] = {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
        return found


def test_topics_are_the_tables_after_kills(database: Database, tmp_path: Path) -> None:
    for table in TABLES:
        database.sql(f"create table {table} (id int primary key, n int, t text)")
        database.sql(f"alter table {table} replica identity full")
        database.sql(f"insert into {table} select g, 0, 'first' from generate_series(0, {KEYS // 2}) g")
    database.connection.close()
    broker = OttlaProcess(tmp_path / "broker", {"auto.create.topics.enable": "true"})
    broker.start()
    json_converter = {"schemas.enable": "false"}
    connector = {
        **database.config(max_batch_size="300"),
        "name": "capture",
        **{f"{kind}.converter": "JsonConverter" for kind in ("key", "value")},
        **{f"{kind}.converter.{n}": v for kind in ("key", "value") for n, v in json_converter.items()},
    }
    worker = WorkerProcess(
        tmp_path,
        {"bootstrap.servers": broker.bootstrap, "exactly.once.source.support": "enabled", "group.id": "g"},
        connector,
    )
    workload, pick, killed = Workload(database, SEED), random.Random(SEED), Counter[str]()
    workload.start()
    worker.start()
    try:
        end, order = time.monotonic() + SECONDS, list[str]()
        while time.monotonic() < end:
            time.sleep(pick.uniform(1.0, 2.5))
            order = order or pick.sample(VICTIMS, len(VICTIMS))
            victim = order.pop()
            killed[victim] += 1
            if victim == "worker":
                worker.kill()
                worker.start()
            elif victim == "broker":
                broker.kill()
                broker.start()
            else:
                database.server.kill()
                database.server.start()
            worker.ensure()
        workload.stop()
        check(database, broker, worker)
        assert differences(connector, broker) == []
        worker.kill()
        with database.server.connect(database.name) as connection:
            connection.execute("delete from b where id = (select min(id) from b)")
        (text,) = differences(connector, broker)
        assert "is in the topic, but not in the table" in text
    finally:
        workload.stop()
        worker.kill()
        broker.stop()
        database.connection = database.server.connect(database.name)
    print(f"{dict(killed)} kills, {workload.statements} statements, {workload.extra} columns added")


def check(database: Database, broker: OttlaProcess, worker: WorkerProcess) -> None:
    """Wait until the topics have the tables' rows, and no event twice."""
    wanted, topics = expected(database), Topics(broker.bootstrap)
    try:
        deadline = time.monotonic() + SETTLE_S
        while True:
            topics.read()
            worker.ensure()
            if all(_same(topics.rows[table], wanted[table]) for table in TABLES):
                break
            assert time.monotonic() < deadline, (different(topics, wanted), worker.end_of_log())
        twice = [each for each, count in topics.repeated.items() if count > 1]
        assert not twice, f"{len(twice)} events are repeated, such as {twice[:3]}"
        print(f"{topics.events} events")
    finally:
        topics.close()


def differences(connector: dict[str, Any], broker: OttlaProcess) -> list[str]:
    """Return the differences of `ottla connect verify`, but of c, whose older rows have no new columns in the topic."""
    found = PostgresConnector.verify(connector, {"bootstrap.servers": broker.bootstrap})
    return [each.text for each in found if each.is_difference and not each.text.startswith("public.c:")]


def _same(rows: dict[int, dict[str, Any]], wanted: dict[int, dict[str, Any]]) -> bool:
    """Whether rows are equal; columns that were added later have their default in older events."""
    return rows.keys() == wanted.keys() and all(
        all(row.get(name, value) == value for name, value in wanted[key].items()) for key, row in rows.items()
    )


def different(topics: Topics, wanted: dict[str, dict[int, dict[str, Any]]]) -> str:
    """Say how many rows differ."""
    return ", ".join(f"{table}: {len(topics.rows[table])} rows for {len(wanted[table])}" for table in TABLES)
