"""A random workload of a database under kill -9 of worker, broker and database; its topics become its tables again.

`OTTLA_CHAOS_MINUTES` sets the duration, `OTTLA_CHAOS_SEED` the random choices.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.clients.consumer.blocking import Consumer
from ottla.common.ids import TopicPartition
from tests import forked
from tests.ottla_process import OttlaProcess

SECONDS: Final = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0.15")) * 60
SEED: Final = int(os.environ.get("OTTLA_CHAOS_SEED", "7"))
SETTLE_S: Final = 90.0
TABLES: Final = ("a", "b", "c")
KEYS: Final = 200
VICTIMS: Final = ("worker", "worker", "broker", "database")
ROOT: Final = Path(__file__).parents[2]

Rows = dict[str, dict[int, dict[str, Any]]]


@dataclass(frozen=True)
class Dialect:
    """The properties in which databases differ."""

    connect: Callable[[], Any]
    """Opens a connection in autocommit mode."""
    error: type[Exception]
    upsert: str
    """An insert of (id, n, t) into {table}, or an update that counts n up."""
    place: tuple[str, ...]
    """The fields of the source block that name the place of an event in the log."""


class Workload:
    """Writes with a connection of its own, and connects again after an error."""

    def __init__(self, dialect: Dialect, seed: int) -> None:
        self._dialect, self._random = dialect, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.statements = self.definitions = self._columns = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                connection = self._dialect.connect()
                try:
                    while not self._stop.is_set():
                        self._transaction(connection.cursor())
                finally:
                    connection.close()
            except (self._dialect.error, OSError):
                time.sleep(0.2)

    def _transaction(self, cursor: Any) -> None:
        pick = self._random
        if pick.random() < 0.01:
            self._define(cursor)
            return
        cursor.execute("begin")
        for _ in range(pick.choice((1, 1, 2, 5, 20))):
            self._statement(cursor)
        cursor.execute("rollback" if pick.random() < 0.1 else "commit")
        time.sleep(pick.random() * 0.01)

    def _define(self, cursor: Any) -> None:
        """Add a column, or drop one; a number is not used again, as a cut statement may have been done."""
        self.definitions += 1
        if self._random.random() < 0.4:
            cursor.execute(f"alter table c drop column if exists x{self._columns}")
        else:
            self._columns += 1
            cursor.execute(f"alter table c add column x{self._columns} int default {self._columns}")

    def _statement(self, cursor: Any) -> None:
        pick = self._random
        table, key = pick.choice(TABLES), pick.randrange(KEYS)
        self.statements += 1
        kind = pick.random()
        if kind < 0.5:
            text = pick.choice((None, "", "short", "tab\tand\nline\\", "x" * 3000))
            cursor.execute(self._dialect.upsert.format(table=table), [key, text])
        elif kind < 0.75:
            cursor.execute(f"update {table} set n = n + 1 where id = %s", [key])
        elif kind < 0.9:
            cursor.execute(f"delete from {table} where id = %s", [key])
        else:
            cursor.execute(
                f"update {table} set id = %s where id = %s and not exists (select 1 from {table} where id = %s)",
                [key + 1, key, key + 1],
            )


class WorkerProcess:
    """A worker with the connector."""

    def __init__(self, directory: Path, worker: Mapping[str, str], connector: Mapping[str, str]) -> None:
        self._file, self._log = directory / "worker.json", directory / "worker.log"
        self._file.write_text(json.dumps({"worker": worker, "connector": connector}))

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.connect.worker_process", str(self._file)]
        with open(self._log, "ab") as log:
            self._process = forked.start(command, log, log, Path.cwd(), [str(ROOT)])

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

    def __init__(self, bootstrap: str, prefix: str, place: tuple[str, ...]) -> None:
        self.rows: Rows = {each: {} for each in TABLES}
        self.repeated: Counter[Any] = Counter()
        self.events = 0
        self._place = place
        self._consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        self._topics = {f"{prefix}.{each}": each for each in TABLES}
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
                self.repeated[table, key, event["op"], *(event["source"][each] for each in self._place)] += 1

    def close(self) -> None:
        self._consumer.close()


def expected(dialect: Dialect) -> Rows:
    """Return the tables."""
    connection = dialect.connect()
    try:
        found: Rows = {}
        for table in TABLES:
            cursor = connection.cursor()
            cursor.execute(f"select * from {table}")
            names = [each[0] for each in cursor.description]
            found[table] = {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
        return found
    finally:
        connection.close()


@dataclass
class Chaos:
    """A run: a workload and a worker, with their broker."""

    dialect: Dialect
    prefix: str
    """The topics are PREFIX.TABLE."""
    broker: OttlaProcess
    worker: WorkerProcess
    kill_database: Callable[[], None]

    def run(self) -> str:
        """Write and kill for SECONDS, and check the topics. Returns the figures."""
        workload, pick, killed = Workload(self.dialect, SEED), random.Random(SEED), Counter[str]()
        workload.start()
        try:
            end, order = time.monotonic() + SECONDS, list[str]()
            while time.monotonic() < end:
                time.sleep(pick.uniform(1.0, 2.5))
                order = order or pick.sample(VICTIMS, len(VICTIMS))
                victim = order.pop()
                killed[victim] += 1
                self._kill(victim)
                self.worker.ensure()
        finally:
            workload.stop()
        events = self.check()
        kills = ", ".join(f"{number} of the {victim}" for victim, number in sorted(killed.items()))
        return (
            f"kills: {kills}; {workload.statements} statements, {workload.definitions} definitions, {events} records; "
            "no event lost or repeated"
        )

    def _kill(self, victim: str) -> None:
        if victim == "worker":
            self.worker.kill()
            self.worker.start()
        elif victim == "broker":
            self.broker.kill()
            self.broker.start()
        else:
            self.kill_database()

    def check(self) -> int:
        """Wait until the topics have the tables' rows, and no event twice. Returns the number of records."""
        wanted, topics = expected(self.dialect), Topics(self.broker.bootstrap, self.prefix, self.dialect.place)
        try:
            deadline = time.monotonic() + SETTLE_S
            while True:
                topics.read()
                self.worker.ensure()
                if all(same(topics.rows[table], wanted[table]) for table in TABLES):
                    break
                assert time.monotonic() < deadline, (different(topics.rows, wanted), self.worker.end_of_log())
            twice = [each for each, count in topics.repeated.items() if count > 1]
            assert not twice, f"{len(twice)} events are repeated, such as {twice[:3]}"
            return topics.events
        finally:
            topics.close()


def same(rows: dict[int, dict[str, Any]], wanted: dict[int, dict[str, Any]]) -> bool:
    """Whether rows are equal; columns that were added later have their default in older events."""
    return rows.keys() == wanted.keys() and all(
        all(row.get(name, value) == value for name, value in wanted[key].items()) for key, row in rows.items()
    )


def different(rows: Rows, wanted: Rows) -> str:
    """Name some keys that differ."""
    found = []
    for table in TABLES:
        keys = rows[table].keys() | wanted[table].keys()
        bad = [each for each in sorted(keys) if not same(_only(rows[table], each), _only(wanted[table], each))]
        found.append(f"{table}: {len(bad)} of {len(keys)} keys differ, such as {bad[:5]}")
    return ", ".join(found)


def _only(rows: dict[int, dict[str, Any]], key: int) -> dict[int, dict[str, Any]]:
    return {key: rows[key]} if key in rows else {}


def json_converters() -> dict[str, str]:
    """Return the settings of JSON without schemas."""
    kinds = ("key", "value")
    return {
        **{f"{kind}.converter": "JsonConverter" for kind in kinds},
        **{f"{kind}.converter.schemas.enable": "false" for kind in kinds},
    }
