"""`ottla connect verify`: a table and its topic are compared; rows that were changed by hand are found."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.connect.connectors.capture import verification
from ottla.connect.connectors.capture.verification import TableName
from ottla.connect.connectors.mysql.connector import MysqlConnector
from ottla.connect.connectors.mysql.settings import options_of
from ottla.connect.connectors.mysql.verification import table_rows
from ottla.connect.errors import ConnectError
from ottla.testing.connect import ConnectWorker
from ottla.testing.waiting import wait_until
from tests.connect.capture_kills import json_converters
from tests.connect.mysql.driver import Database
from tests.connect.mysql.test_capture import COLUMNS, VALUES

ROWS = 3000


def findings(config: dict[str, str], bootstrap: str) -> list[str]:
    """Return the differences."""
    found = list(MysqlConnector.verify(config, {"bootstrap.servers": bootstrap}))
    assert any(each.is_difference for each in found) or "are in the topic, and no others" in found[-1].text
    return [each.text for each in found if each.is_difference]


@pytest.mark.parametrize("schemas", ["false", "true"])
def test_row_that_was_changed_by_hand_is_found(
    ottla: Any, database: Database, monkeypatch: pytest.MonkeyPatch, schemas: str
) -> None:
    monkeypatch.setattr(verification, "ROUND_S", 0.2)
    database.sql(f"create table t ({COLUMNS})", f"insert into t values {VALUES % 1}")
    database.sql(f"insert into t (id, v, d, e) select seq, 'x', 1.5, 'a' from seq_2_to_{ROWS}")
    prefix = ottla.topic()
    config = {
        **database.config(topic_prefix=prefix), **json_converters(), "name": "capture", "connector.class": "mariadb",
        "value.converter.schemas.enable": schemas,
    }  # fmt: skip
    topic = f"{prefix}.{database.name}.t"
    settings = {"exactly.once.source.support": "enabled", "offset.storage.topic": ottla.topic(cleanup_policy="compact")}
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        ottla.consume(topic, ROWS)
        database.sql(
            "update t set v = 'y' where id = 7", "delete from t where id = 8", "update t set id = 9001 where id = 9"
        )
        ottla.consume(topic, 6)
        assert findings(config, ottla.bootstrap) == []
    database.sql("set sql_log_bin = 0", "update t set d = 2.5 where id = 1234")
    name = f"{database.name}.t: the row"
    assert findings(config, ottla.bootstrap) == [f'{name} {{"id":1234}} has other values in the topic']
    database.sql("delete from t where id = 5", "insert into t (id) values (5000)", "set sql_log_bin = 1")
    assert findings(config, ottla.bootstrap) == [
        f'{name} {{"id":5000}} is not in the topic',
        f'{name} {{"id":5}} is in the topic, but not in the table',
        f'{name} {{"id":1234}} has other values in the topic',
    ]


def test_rows_that_are_not_needed_are_not_transferred(database: Database) -> None:
    def sent() -> int:
        return int(database.rows("show global status like 'Bytes_sent'")[0][1])

    def reader(table: str) -> Any:
        return table_rows(options_of(database.config()), TableName(database.name, table))

    for table, key in (("t", "primary key"), ("without", "")):
        database.sql(f"create table {table} (id int {key}, a text)")
        database.sql(f"insert into {table} select seq, repeat('x', 1000) from seq_1_to_60000")
    before = sent()
    with pytest.raises(ConnectError, match="has no key"):
        list(reader("without"))
    assert sent() - before < 1 << 20
    rows = reader("t")
    next(rows)
    rows.close()
    # The buffers of the sockets take several MB.
    wait_until(lambda: not database.rows("select * from information_schema.processlist where info like '%`t`'"))
    assert sent() - before < 30 << 20


def test_table_without_key_or_without_existence(database: Database) -> None:
    database.sql("create table t (a int)", "insert into t values (1)")
    options = options_of(database.config())
    with pytest.raises(ConnectError, match="has no key"):
        list(table_rows(options, TableName(database.name, "t")))
    with pytest.raises(ConnectError, match="does not exist"):
        list(table_rows(options, TableName(database.name, "u")))
