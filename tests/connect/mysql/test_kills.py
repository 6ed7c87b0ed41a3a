"""A random workload, and kill -9 of the worker, the broker and the database: each topic is its table, row by row.

The worker writes exactly once, so that no event is repeated either. See `capture_kills` for the variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.connect.capture_kills import KEYS, SECONDS, TABLES, Chaos, Dialect, WorkerProcess, json_converters
from tests.connect.mysql.driver import Database
from tests.ottla_process import ForkedOttla

pytestmark = pytest.mark.timeout(SECONDS + 240)
UPSERT = "insert into {table} (id, n, t) values (%s, 0, %s) on duplicate key update n = n + 1"


def test_topics_are_the_tables_after_kills(database: Database, tmp_path: Path) -> None:
    for table in TABLES:
        database.sql(f"create table {table} (id int primary key, n int, t text)")
        database.sql(f"insert into {table} select seq, 0, 'first' from seq_0_to_{KEYS // 2}")
    database.connection.close()
    broker = ForkedOttla(tmp_path / "broker", {"auto.create.topics.enable": "true"})
    broker.start()
    config = {"connector.class": "mariadb", "name": "capture", **json_converters()}
    connector = {**database.config(max_batch_size="300"), **config}
    settings = {"bootstrap.servers": broker.bootstrap, "exactly.once.source.support": "enabled", "group.id": "g"}
    worker = WorkerProcess(tmp_path, settings, connector)

    def kill_database() -> None:
        database.server.kill()
        database.server.start()

    def connect() -> Any:
        return database.server.connect(database.name)

    dialect = Dialect(connect, pymysql.MySQLError, UPSERT, ("file", "pos", "row"))
    worker.start()
    try:
        print(Chaos(dialect, f"p.{database.name}", broker, worker, kill_database).run())
    finally:
        worker.kill()
        broker.stop()
        database.connection = connect()
