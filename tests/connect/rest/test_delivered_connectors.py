"""Each delivered connector in one worker process, by REST only: from its validation to its deletion."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.testing import Ottla
from tests.connect.http_server import Request, Response, http_server
from tests.connect.mysql.driver import Database as MariaDb
from tests.connect.postgres.driver import Database as Postgres
from tests.connect.rest.script import Answer
from tests.connect.rest.worker_process import WorkerProcess
from tests.peers.mariadb import MariaDbServer, missing_for_mariadb
from tests.peers.postgres import PostgresServer, missing_for_postgres

DEADLINE_S = 60.0
QUIET_S = 1.0
TOOLS = "org.apache.kafka.connect.tools"
PLAIN = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
ROW = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")]


class Case(NamedTuple):
    """A connector: `feed` adds the record with a number, `count` says how many have arrived."""

    config: dict[str, str]
    feed: Callable[[int], object]
    count: Callable[[], int]


class Places:
    """The systems that the connectors read and write."""

    def __init__(self, ottla: Ottla, directory: Path, stack: ExitStack) -> None:
        self.ottla, self.directory, self.stack = ottla, directory, stack
        self.posted = 0
        self.documents: set[str] = set()
        self.items: list[dict[str, int]] = []
        self.lock = threading.Lock()
        self.url = stack.enter_context(http_server(self.answer))

    def answer(self, request: Request) -> Response:
        with self.lock:
            if request.method == "GET":
                after = int(request.query.get("after", "0"))
                found = self.items[after:]
                return Response(200, json.dumps({"data": found, "cursor": after + len(found)}).encode())
            if request.path == "/_bulk":
                actions = [json.loads(line) for line in request.body.splitlines()][::2]
                self.documents |= {each["index"]["_id"] for each in actions}
                rows = [{"index": {"status": 201}} for _ in actions]
                return Response(200, json.dumps({"errors": False, "items": rows}).encode())
            found = json.loads(request.body)
            self.posted += len(found) if isinstance(found, list) else 1
            return Response(200)

    def append(self, name: str, number: int) -> None:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f'{{"id": {number}}}\n')

    def source(self, config: dict[str, str], feed: Callable[[int], object], topic: str = "") -> Case:
        topic = topic or self.ottla.topic()
        named = {name: value.replace("TOPIC", topic) for name, value in config.items()}
        return Case(named, feed, lambda: len(self.ottla.records(topic)))

    def sink(self, config: dict[str, str], count: Callable[[], int], *, has_schema: bool = False) -> Case:
        topic = self.ottla.topic()

        def feed(number: int) -> None:
            row: Any = {"id": number}
            self.ottla.produce(topic, json.dumps({"schema": ROW, "payload": row} if has_schema else row).encode())

        converter = {"value.converter": "JsonConverter"} if has_schema else PLAIN
        return Case({**converter, "topics": topic, **config}, feed, count)

    def sql(self, statement: str) -> None:
        connection = sqlite3.connect(self.directory / "db.sqlite", timeout=20, isolation_level=None)
        connection.execute(statement)
        connection.close()


def lines_below(path: Path, pattern: str) -> int:
    return sum(len(each.read_text().splitlines()) for each in path.rglob(pattern)) if path.exists() else 0


def parquet_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(each).num_rows for each in path.rglob("*.parquet")) if path.exists() else 0


def delta_rows(path: Path) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(str(path)).to_pyarrow_table().num_rows) if (path / "_delta_log").exists() else 0


def iceberg_rows(warehouse: Path, catalog: dict[str, str]) -> int:
    from pyiceberg.catalog import load_catalog

    # The sink creates the tables of the catalog, too: both must not do it at the same time.
    if not any(warehouse.rglob("*.avro")):
        return 0
    found = load_catalog("ottla", **catalog)
    try:
        return int(found.load_table("db.rows").scan().to_arrow().num_rows)
    finally:
        found.close()


def cases(places: Places, stdout: Path) -> Iterator[tuple[str, Case]]:
    """Yield the connectors that need no server."""
    base, nothing = places.directory, lambda _: None
    rotate = {"rotate.interval.ms": "1"}
    text = {"value.converter": "StringConverter"}
    yield (
        "lines-in",
        places.source(
            {"connector.class": "FileStreamSource", "file": f"{base}/lines.txt", "topic": "TOPIC", **text},
            lambda number: places.append("lines.txt", number),
        ),
    )
    yield (
        "lines-out",
        places.sink(
            {"connector.class": "FileStreamSink", "file": f"{base}/copy.txt", **text},
            lambda: lines_below(base, "copy.txt"),
        ),
    )
    verifiable = f"{TOOLS}.VerifiableSourceConnector"
    yield "verifiable-in", places.source({"connector.class": verifiable, "topic": "TOPIC", "throughput": "20"}, nothing)
    yield (
        "verifiable-out",
        places.sink(
            {"connector.class": f"{TOOLS}.VerifiableSinkConnector"},
            lambda: stdout.read_text().count('"sinkTask"'),
        ),
    )
    yield "files-in", places.source(
        {"connector.class": "files", "path": f"{base}/in", "format": "jsonl", "topic": "TOPIC",
         "scan.interval.ms": "100", **PLAIN},
        lambda number: places.append(f"in/{number}.jsonl", number),
    )  # fmt: skip
    yield (
        "jsonl-out",
        places.sink(
            {"connector.class": "files-sink", "path": f"{base}/jsonl", **rotate},
            lambda: lines_below(base / "jsonl", "*.jsonl"),
        ),
    )
    yield (
        "parquet-out",
        places.sink(
            {"connector.class": "files-sink", "path": f"{base}/parquet", "format": "parquet", **rotate},
            lambda: parquet_rows(base / "parquet"),
            has_schema=True,
        ),
    )
    places.sql("create table rows (id integer primary key)")
    prefix = places.ottla.topic()
    yield "sql-in", places.source(
        {"connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector", "mode": "incrementing",
         "connection.url": f"jdbc:sqlite:{base}/db.sqlite", "incrementing.column.name": "id",
         "table.whitelist": "rows", "topic.prefix": f"{prefix}-", "poll.interval.ms": "100", **PLAIN},
        lambda number: places.sql(f"insert into rows values ({number})"), f"{prefix}-rows",
    )  # fmt: skip
    yield "sql-out", places.sink(
        {"connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector", "auto.create": "true",
         "connection.url": f"jdbc:sqlite:{base}/target.sqlite", "table.name.format": "copies"},
        lambda: target_rows(base / "target.sqlite"), has_schema=True,
    )  # fmt: skip
    yield "http-in", places.source(
        {"connector.class": "http", "url": f"{places.url}/items", "topic": "TOPIC", "records.path": "data",
         "poll.interval.ms": "100", **PLAIN},
        lambda number: places.items.append({"id": number}),
    )  # fmt: skip
    yield "http-out", places.sink({"connector.class": "http-sink", "url": f"{places.url}/rows"}, lambda: places.posted)
    yield (
        "search-out",
        places.sink(
            {"connector.class": "search", "connection.url": places.url, "key.ignore": "true"},
            lambda: len(places.documents),
        ),
    )
    commit = {"flush.size": "1", "commit.interval.ms": "100"}
    yield "delta-out", places.sink(
        {"connector.class": "delta", "table": f"{base}/delta", **commit},
        lambda: delta_rows(base / "delta"), has_schema=True,
    )  # fmt: skip
    catalog = {"type": "sql", "uri": f"sqlite:///{base}/catalog.db", "warehouse": f"file://{base}/warehouse"}
    yield "iceberg-out", places.sink(
        {"connector.class": "iceberg", "table": "db.rows", **commit,
         **{f"catalog.{name}": value for name, value in catalog.items()}},
        lambda: iceberg_rows(base / "warehouse", catalog), has_schema=True,
    )  # fmt: skip
    if missing_for_postgres() is None:
        postgres = places.stack.enter_context(PostgresServer())
        postgres.create("shop")
        database = Postgres(postgres, "shop")
        places.stack.callback(database.close)
        database.sql("create table rows (id int primary key)")
        prefix = places.ottla.topic()
        yield "postgres-in", places.source(
            {**database.config(topic_prefix=prefix), **PLAIN},
            lambda number: database.sql(f"insert into rows values ({number})"), f"{prefix}.public.rows",
        )  # fmt: skip
    if missing_for_mariadb() is None:
        maria = places.stack.enter_context(MariaDbServer())
        maria.create("shop")
        shop = MariaDb(maria, "shop")
        places.stack.callback(shop.close)
        shop.sql("create table numbers (id int primary key)")
        prefix = places.ottla.topic()
        yield "mariadb-in", places.source(
            {**shop.config(topic_prefix=prefix), **PLAIN, "connector.class": "mariadb"},
            lambda number: shop.sql(f"insert into numbers values ({number})"), f"{prefix}.shop.numbers",
        )  # fmt: skip


def target_rows(path: Path) -> int:
    if not path.exists():
        return 0
    connection = sqlite3.connect(path, timeout=20)
    try:
        if not connection.execute("select 1 from sqlite_master where name = 'copies'").fetchone():
            return 0
        return int(connection.execute("select count(*) from copies").fetchone()[0])
    finally:
        connection.close()


class Fleet:
    """All connectors in one worker: each step is done with all of them, before its results are awaited."""

    def __init__(self, worker: WorkerProcess, all_cases: dict[str, Case]) -> None:
        self.worker, self.cases = worker, all_cases
        self.number = 0

    def each(self, method: str, path: str, status: int, body: Callable[[str], object] = lambda _: None) -> None:
        """Send a request for each connector."""
        for name in self.cases:
            answer = self.worker.request(method, f"/connectors/{name}{path}", body(name))
            assert answer.status == status, (name, answer)

    def until(self, what: str, holds: Callable[[str], object]) -> None:
        """Wait until something holds for all connectors."""
        deadline, left = time.monotonic() + DEADLINE_S, list(self.cases)
        while left := [name for name in left if not holds(name)]:
            states = {name: self.status(name).body for name in left}
            assert time.monotonic() < deadline, f"{what}: {json.dumps(states)[:6000]}"
            time.sleep(0.1)

    def status(self, name: str) -> Answer:
        return self.worker.request("GET", f"/connectors/{name}/status")

    def states(self, name: str) -> set[str]:
        body = self.status(name).body
        return {each["state"] for each in (body["connector"], *body["tasks"])} if "connector" in body else set()

    def has_tasks(self, name: str) -> bool:
        return bool(self.status(name).body.get("tasks"))

    def feed(self) -> None:
        """Add a record for each connector."""
        self.number += 1
        for case in self.cases.values():
            case.feed(self.number)

    def arrives(self, what: str) -> None:
        """Add a record for each connector, and wait for it."""
        before = {name: case.count() for name, case in self.cases.items()}
        self.feed()
        self.until(what, lambda name: self.cases[name].count() > before[name])


@pytest.mark.long
def test_each_connector_from_validation_to_deletion(ottla: Ottla, tmp_path: Path) -> None:
    words = ("serve", "-b", ottla.bootstrap, "--group", ottla.topic(), "--listen", "127.0.0.1:0",
             "-X", "offset.flush.interval.ms=200", "-X", "exactly.once.source.support=enabled",
             "-X", "key.converter=StringConverter")  # fmt: skip
    with ExitStack() as stack:
        found = dict(cases(Places(ottla, tmp_path, stack), tmp_path / "worker" / "stdout.log"))
        worker = stack.enter_context(WorkerProcess(tmp_path / "worker", *words))
        fleet = Fleet(worker, found)
        fleet.feed()
        for name, case in found.items():
            path = f"/connector-plugins/{case.config['connector.class']}/config/validate"
            checked = worker.request("PUT", path, {**case.config, "name": name})
            assert checked.body["error_count"] == 0, (name, [each for each in checked.body["configs"]
                                                             if each["value"]["errors"]])  # fmt: skip
            assert worker.request("POST", "/connectors", {"name": name, "config": case.config}).status == 201
        fleet.until("RUNNING", lambda name: fleet.states(name) == {"RUNNING"} and fleet.has_tasks(name))
        fleet.arrives("records after the start")
        fleet.each("PUT", "/pause", 202)
        fleet.until("PAUSED", lambda name: fleet.states(name) == {"PAUSED"})
        paused = {name: case.count() for name, case in found.items()}
        fleet.feed()
        time.sleep(QUIET_S)
        assert {name: case.count() for name, case in found.items()} == paused
        fleet.each("PUT", "/resume", 202)
        fleet.until("records after the pause", lambda name: found[name].count() > paused[name])
        fleet.each("POST", "/restart?includeTasks=true", 202)
        fleet.until("RUNNING again", lambda name: fleet.states(name) == {"RUNNING"})
        fleet.arrives("records after the restart")
        offsets: dict[str, Any] = {}

        def has_offsets(name: str) -> bool:
            offsets[name] = worker.request("GET", f"/connectors/{name}/offsets").body
            return bool(offsets[name]["offsets"])

        fleet.until("offsets", has_offsets)
        fleet.each("DELETE", "/offsets", 400)
        fleet.each("PUT", "/stop", 204)
        fleet.until("STOPPED", lambda name: fleet.states(name) == {"STOPPED"} and not fleet.has_tasks(name))
        fleet.until("the last offsets", has_offsets)
        fleet.each("PATCH", "/offsets", 200, offsets.__getitem__)
        fleet.each("PUT", "/resume", 202)
        fleet.until("RUNNING at the offsets", lambda name: fleet.states(name) == {"RUNNING"} and fleet.has_tasks(name))
        fleet.arrives("records after the change of offsets")
        fleet.each("PUT", "/stop", 204)
        fleet.until("STOPPED again", lambda name: fleet.states(name) == {"STOPPED"} and not fleet.has_tasks(name))
        fleet.each("DELETE", "/offsets", 200)
        fleet.until("no offsets", lambda name: not has_offsets(name))
        fleet.each("DELETE", "", 204)
        assert worker.request("GET", "/connectors").body == []
        assert worker.stop() == 0
        assert "Traceback" not in worker.log()
