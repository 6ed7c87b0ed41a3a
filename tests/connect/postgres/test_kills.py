"""A random workload, and kill -9 of the worker, the broker and the database: each topic is its table, row by row.

The worker writes exactly once, so that no event is repeated either. See `capture_kills` for the variables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from ottla.connect.connectors.postgres.connector import PostgresConnector
from tests.connect.capture_kills import KEYS, SECONDS, TABLES, Chaos, Dialect, WorkerProcess, json_converters
from tests.connect.postgres.driver import Database
from tests.ottla_process import ForkedOttla, OttlaProcess

pytestmark = pytest.mark.timeout(SECONDS + 240)
UPSERT = "insert into {table} (id, n, t) values (%s, 0, %s) on conflict (id) do update set n = {table}.n + 1"


def test_topics_are_the_tables_after_kills(database: Database, tmp_path: Path) -> None:
    for table in TABLES:
        database.sql(f"create table {table} (id int primary key, n int, t text)")
        database.sql(f"alter table {table} replica identity full")
        database.sql(f"insert into {table} select g, 0, 'first' from generate_series(0, {KEYS // 2}) g")
    database.connection.close()
    broker = ForkedOttla(tmp_path / "broker", {"auto.create.topics.enable": "true"})
    broker.start()
    connector = {**database.config(max_batch_size="300"), **json_converters(), "name": "capture"}
    settings = {"bootstrap.servers": broker.bootstrap, "exactly.once.source.support": "enabled", "group.id": "g"}
    worker = WorkerProcess(tmp_path, settings, connector)

    def kill_database() -> None:
        database.server.kill()
        database.server.start()

    def connect() -> Any:
        return database.server.connect(database.name)

    dialect = Dialect(connect, psycopg.Error, UPSERT, ("lsn",))
    worker.start()
    try:
        print(Chaos(dialect, "p.public", broker, worker, kill_database).run())
        assert differences(connector, broker) == []
        worker.kill()
        with connect() as connection:
            connection.execute("delete from b where id = (select min(id) from b)")
        (text,) = differences(connector, broker)
        assert "is in the topic, but not in the table" in text
    finally:
        worker.kill()
        broker.stop()
        database.connection = connect()


def differences(connector: dict[str, Any], broker: OttlaProcess) -> list[str]:
    """Return the differences of `ottla connect verify`, but of c, whose older rows have no new columns in the topic."""
    found = PostgresConnector.verify(connector, {"bootstrap.servers": broker.bootstrap})
    return [each.text for each in found if each.is_difference and not each.text.startswith("public.c:")]
