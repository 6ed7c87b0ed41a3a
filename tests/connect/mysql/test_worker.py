"""From a table through a topic to another table, exactly once, while the workers' processes are killed."""

from __future__ import annotations

import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

from ottla.connect.errors import ConnectError
from ottla.connect.runtime import State
from ottla.connect.worker.steps import Step
from ottla.testing.connect import ConnectWorker, KillAt
from ottla.testing.waiting import wait_until
from tests.connect.forked_process import ForkedConnect
from tests.connect.mysql.driver import Database

JSON = {"key.converter": "JsonConverter", "value.converter": "JsonConverter"}


def test_changes_become_rows_of_another_database(ottla: Any, database: Database, tmp_path: Path) -> None:
    database.sql("create table t (id int primary key, a varchar(20), d decimal(8,2), dd date)")
    database.sql("insert into t select seq, 'x', 1.25, '2024-02-29' from seq_1_to_30")
    offsets = ottla.topic(cleanup_policy="compact")
    settings = {"exactly.once.source.support": "enabled", "offset.storage.topic": offsets}
    prefix, target = ottla.topic(), tmp_path / "target.db"
    source = {**database.config(topic_prefix=prefix), **JSON, "name": "changes", "connector.class": "mariadb",
              "schema.name.adjustment.mode": "avro"}  # fmt: skip
    topic = f"{prefix}.{database.name}.t"
    sink = {
        **JSON, "name": "rows", "connector.class": "JdbcSink", "topics": topic, "insert.mode": "upsert",
        "connection.url": f"jdbc:sqlite:{target}", "pk.mode": "record_key", "delete.enabled": "true",
        "auto.create": "true", "exactly.once": "true", "table.name.format": "t",
        "consumer.override.session.timeout.ms": "6000",  # a killed member leaves the group
    }  # fmt: skip

    def rows() -> list[tuple[Any, ...]]:
        with sqlite3.connect(target) as connection:
            try:
                return connection.execute("select id, a, d, dd from t order by id").fetchall()
            except sqlite3.OperationalError:  # not created yet
                return []
            finally:
                connection.commit()

    def expected() -> list[tuple[Any, ...]]:
        found = database.rows("select * from t order by id")
        return [(i, a, *(None if each is None else str(each) for each in rest)) for i, a, *rest in found]

    kills = ((source, Step.AFTER_POLL, 2), (sink, Step.AFTER_PUT, 1), (source, Step.AFTER_POLL, 3))
    for number, (config, step, times) in enumerate(kills):
        database.sql(f"update t set a = 'n{number}' where id % 3 = {number}", f"delete from t where id = {number + 1}")
        database.sql(f"insert into t values ({100 + number}, null, null, null)")
        if config is sink:  # a sink is killed when it has records
            with ConnectWorker(ottla.bootstrap, settings) as worker:
                worker.start(source)
                ottla.consume(topic, 1)
        with ForkedConnect(ottla.bootstrap, config, settings, KillAt(step, times)) as process:
            process.wait_until_killed()
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(source)
        worker.start(sink)
        want = expected()
        wait_until(lambda: rows() == want, 30, what=lambda: f"equal tables: {worker.listener.changes}")


def test_deleted_rows_of_a_snapshot_that_died_before_the_first_interval_do_not_stay(
    ottla: Any, database: Database
) -> None:
    """At least once: the beginning of the snapshot is in the offsets before its first row is in the topic."""
    database.sql("create table t (id int primary key)", "insert into t select seq from seq_1_to_30")
    settings = {"offset.storage.topic": ottla.topic(cleanup_policy="compact"), "offset.flush.interval.ms": "60000"}
    prefix = ottla.topic()
    config = {**database.config(topic_prefix=prefix, max_batch_size="10"), **JSON, "name": "c",
              "connector.class": "mariadb"}  # fmt: skip
    topic = f"{prefix}.{database.name}.t"

    def table() -> set[int]:
        found: set[int] = set()
        for each in ottla.records(topic):
            number = json.loads(each.key)["payload"]["id"]
            if each.value is None or json.loads(each.value)["payload"]["op"] == "d":
                found.discard(number)
            else:
                found.add(number)
        return found

    sent = itertools.count()

    def reached(step: Step, task: object) -> None:
        if step is Step.AFTER_SEND and next(sent) == 2:
            wait_until(lambda: table() >= {1, 2}, 30)
            raise ConnectError("the worker dies here")

    with ConnectWorker(ottla.bootstrap, settings, reached) as worker:
        worker.start(config)
        worker.wait_for(State.FAILED)
    database.sql("delete from t where id <= 2")
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        wait_until(lambda: table() == set(range(3, 31)), 30, what=lambda: f"{table()}: {worker.listener.changes}")
