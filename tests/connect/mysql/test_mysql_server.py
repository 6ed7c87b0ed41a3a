"""Changes of a real MySQL 8.0 server: what it does otherwise than MariaDB. See also `test_debezium`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ottla.connect.connectors.mysql.connector import MysqlConnector
from ottla.connect.worker.transaction_boundaries import RequestedEnds
from tests.connect.capturing import numbers, summary
from tests.connect.mysql.driver import Database
from tests.peers.cache import missing_for_mysql
from tests.peers.database import require
from tests.peers.mysql import MySqlServer


@pytest.fixture(scope="module")
def server() -> Iterator[MySqlServer]:
    """A server with GTIDs."""
    require(missing_for_mysql())
    with MySqlServer({"gtid-mode": "ON", "enforce-gtid-consistency": "ON"}) as running:
        yield running


def test_snapshot_then_changes_of_mysql(database: Database) -> None:
    """The user signs in with caching_sha2_password, MySQL's default."""
    database.sql("create table t (id int primary key, a varchar(20), j json)")
    database.sql("""insert into t values (1, 'x', '{"n": [1, null]}'), (2, null, null)""")
    config = {**database.config(), "connector.class": "mysql", "name": "c"}
    assert MysqlConnector.problems(config) == {}
    capture = database.capture()
    capture.take(2)
    database.sql("insert into t values (3, 'z', '[true]')", "update t set a = 'y' where id = 1")
    database.sql("alter table t add column n int not null default 7", "delete from t where id = 2")
    database.sql("insert into t (id) values (4)")
    records = capture.take(7)
    assert [summary(each)[:2] for each in records] == [
        ("r", (1,)), ("r", (2,)), ("c", (3,)), ("u", (1,)), ("d", (2,)), ("tombstone", (2,)), ("c", (4,)),
    ]  # fmt: skip
    assert records[2].value["after"] == {"id": 3, "a": "z", "j": "[true]"}
    assert records[6].value["after"] == {"id": 4, "a": None, "j": None, "n": 7}
    source = records[2].value["source"]
    assert (source["connector"], source["table"]) == ("mysql", "t")
    uuid, _, number = source["gtid"].partition(":")
    assert (uuid, number.isdigit()) == (database.rows("select @@server_uuid")[0][0], True)


def test_table_equals_its_topic_after_kills_of_mysql(database: Database) -> None:
    """A random workload in whole transactions; the task crashes after batches, the server is killed in the middle."""
    chance = random.Random(7)
    database.sql("create table t (id int primary key, n int)")
    given = {"max_batch_size": "7"}
    capture = database.capture(requested=RequestedEnds(), **given)
    kafka = capture.kafka
    for step in range(16):
        database.sql("begin")
        for _ in range(chance.randrange(1, 12)):
            number = chance.randrange(1, 40)
            kind = chance.randrange(4)
            if kind == 0:
                database.sql(f"delete from t where id = {number}")
            elif kind == 1:
                database.sql(f"update ignore t set id = id + 50 where id = {number}")
            else:
                database.sql(f"insert into t values ({number}, 1) on duplicate key update n = n + 1")
        database.sql("rollback" if chance.randrange(5) == 0 else "commit")
        capture.poll()
        if step == 8:
            capture.crash()
            database.server.kill()
            database.server.start()
            database.connection = database.server.connect(database.name)
            capture = database.capture(kafka, requested=RequestedEnds(), **given)
        elif chance.randrange(4) == 0:
            capture.crash()
            capture = database.capture(kafka, requested=RequestedEnds(), **given)
    expected, topic = {row[:1]: row for row in database.rows("select * from t")}, f"p.{database.name}.t"
    capture.until(lambda: kafka.table(topic) == expected)
    assert numbers(kafka.records)
