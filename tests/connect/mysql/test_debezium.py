"""Debezium's MySqlConnector reads the same server at the same time: keys, values and schemas of events are the same.

Debezium's MySqlConnector refuses MariaDB by its version, which a server may report as another one: 5.7.19 is the last
with whose variables its driver works on MariaDB. The wheel has no MariaDbConnector.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connect.debezium_events import differences, ours, require_debezium, without
from tests.connect.mysql.driver import Database
from tests.connect.mysql.test_capture import COLUMNS, VALUES
from tests.peers.cache import missing_for_mysql
from tests.peers.database import require
from tests.peers.debezium import DebeziumEngine, Event
from tests.peers.mariadb import MariaDbServer, missing_for_mariadb
from tests.peers.mysql import MySqlServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]
VERSION = "5.7.19-MariaDB-log"
# Times differ by nature; version and connector are ours; a connector of MySQL reads no GTIDs of MariaDB.
ALWAYS = frozenset({"version", "connector", "gtid", "thread", "ts_ms", "ts_us", "ts_ns"})
TIMESTAMPS = frozenset({"ts", "t3", "t6"})
SNAPSHOT_ROWS = 7
JSON = '{"a": [1, 2.5, null, "\u00fc"], "b": {"c": true, "d": 123456789012}}'
TIMES = "id int primary key, t0 timestamp null, t3 timestamp(3) null, t6 timestamp(6) null, d3 datetime(3), tt time(6)"
TIME_ROWS = """insert into times values
(1, '2024-02-29 10:11:00', '2024-02-29 10:11:00', '2024-02-29 10:11:00', '2024-02-29 10:11:00', '00:00:00'),
(2, '2024-02-29 10:11:12', '2024-02-29 10:11:12.010', '2024-02-29 10:11:12.012300',
    '1960-01-01 00:00:00.5', '838:59:59'),
(3, '1970-01-01 00:00:01', '2024-02-29 10:11:12.1', '2024-02-29 10:11:12.000001',
    '9999-12-31 23:59:59', '-00:00:01.5')"""


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[MariaDbServer]:
    """A server: MySQL, or MariaDB that calls itself MySQL 5.7."""
    require_debezium()
    is_mysql = request.param == "mysql"
    require(missing_for_mysql() if is_mysql else missing_for_mariadb())
    with MySqlServer() if is_mysql else MariaDbServer({"version": VERSION}) as running:
        yield running


@pytest.fixture
def database(server: MariaDbServer) -> Iterator[Database]:
    """A database with tables of all types."""
    server.create("c")
    database = Database(server, "c")
    database.sql(f"create table every ({COLUMNS})", f"insert into every values {VALUES % 1}")
    database.sql("insert into every (id) values (2)", f"create table times ({TIMES})")
    database.sql(TIME_ROWS)
    database.sql("create table r (k int, l varchar(10), n int, t text, d decimal(8,2), primary key (k, l))")
    database.sql("insert into r values (1, 'x', 1, 'first', 1.50), (2, 'y', null, null, null)")
    if isinstance(server, MySqlServer):  # MariaDB's JSON is text
        database.sql("create table j (id int primary key, j json)", f"insert into j values (1, '{JSON}')")
    yield database
    database.close()


@pytest.fixture
def debezium(database: Database, tmp_path: Path) -> Iterator[DebeziumEngine]:
    config = {
        **database.config(database_server_id="78"),
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.password": database.server.password,
        "database.ssl.mode": "disabled",
        "database.allowPublicKeyRetrieval": "true",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
    }
    with DebeziumEngine(tmp_path, config) as engine:
        yield engine


def comparable(event: Event) -> Event:
    """Take out what cannot be the same."""
    if event.value is None:
        return event
    payload = without(event.value["payload"], ALWAYS)
    if payload["op"] == "r":  # Debezium's snapshot has no zeros at the end of a fraction; its stream has them
        payload["after"] = without(payload["after"], TIMESTAMPS)
    schema = json.loads(json.dumps(event.value["schema"]).replace("connector.mariadb.", "connector.mysql."))
    return Event(event.topic, event.key, {"schema": schema, "payload": payload})


def change(database: Database) -> None:
    """Write every type, and a random workload."""
    if isinstance(database.server, MySqlServer):
        database.sql(f"insert into j values (2, '{JSON}')")
    database.sql(f"insert into every values {VALUES % 3}", "insert into every (id, s) values (4, '')")
    database.sql("update times set id = id + 10")
    database.sql("update every set t = 5, dt6 = null where id in (1, 3)", "delete from every where id = 2")
    pick = random.Random(3)
    for _ in range(60):
        database.sql("begin")
        for _ in range(pick.randrange(1, 6)):
            key, kind = pick.randrange(30), pick.random()
            text = pick.choice(("null", "''", "'ü\\t\\\\'", "repeat('x', 900)"))
            if kind < 0.5:
                database.sql(
                    f"insert into r values ({key}, 'x', 0, {text}, {key}.25) on duplicate key update n = n + 1"
                )
            elif kind < 0.7:
                database.sql(f"update r set n = 7, t = {text} where k < {key}")
            elif kind < 0.85:
                database.sql(f"delete from r where k = {key}")
            else:
                database.sql(f"update ignore r set k = k + 100 where k = {key}")
        database.sql(pick.choice(("commit", "commit", "commit", "rollback")))


def test_events_are_debeziums(database: Database, debezium: DebeziumEngine) -> None:
    rows = SNAPSHOT_ROWS + isinstance(database.server, MySqlServer)
    theirs: list[Any] = debezium.take(rows)
    capture = database.capture()
    capture.take(rows)
    change(database)
    theirs += debezium.take(100)
    capture.until(lambda: len(capture.kafka.records) >= len(theirs))
    found = ours(capture.kafka.records)
    assert [each.topic for each in found] == [each.topic for each in theirs]
    pairs = [(comparable(own), comparable(their)) for own, their in zip(found, theirs, strict=True)]
    assert [own.key for own, _ in pairs] == [their.key for _, their in pairs]
    assert sorted({text for own, their in pairs for text in differences(their.value, own.value)}) == []
    print(f"{len(found)} events")
