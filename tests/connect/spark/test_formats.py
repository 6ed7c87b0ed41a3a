"""Spark formats as sinks and sources: what is written, pauses, failing records, offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import Consumer, Producer
from ottla.connect.errors import BadRequestError
from ottla.connect.runtime import State
from ottla.testing.connect import ConnectWorker
from ottla.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0


def produce(ottla: Any, topic: str, numbers: range, *extra: bytes) -> None:
    with Producer(bootstrap_servers=ottla.bootstrap) as producer:
        for each in numbers:
            producer.send(topic, json.dumps({"id": each, "name": f"n{each % 3}"}).encode(), key=b"k%d" % each)
        for value in extra:
            producer.send(topic, value, partition=0)


def committed(ottla: Any, topic: str) -> list[Any]:
    settings = {"bootstrap_servers": ottla.bootstrap, "isolation_level": "read_committed", "enable_auto_commit": False}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[Any] = []
        while records := consumer.poll(0.3):
            found += records
    return found


def parquet(base: dict[str, str], topic: str, path: Path) -> dict[str, str]:
    return {
        **base,
        "connector.class": "spark:parquet",
        "topics": topic,
        "spark.option.path": str(path),
        "spark.value.schema": "id BIGINT, name STRING",
    }


def ids(spark: SparkSession, path: Path) -> list[int]:
    if not (path / "_spark_metadata").exists():
        return []
    return sorted(row.id for row in spark.read.schema("id BIGINT, name STRING").parquet(str(path)).collect())


@pytest.mark.long
def test_parquet_sink_writes_partitions_and_goes_on_after_a_pause(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    topic, path = ottla.topic(), tmp_path / "table"
    produce(ottla, topic, range(100), b"null")
    config = parquet(base, topic, path) | {"spark.partition.by": "name"}
    tasks = worker.start(config)
    worker.wait_for(State.RUNNING)
    wait_until(lambda: len(ids(spark, path)) >= 100, WAIT_S)
    assert {each.name for each in path.iterdir() if each.name.startswith("name=")} >= {"name=n0", "name=n1", "name=n2"}
    wait_until(lambda: worker.report(tasks[0]).facts.get("lag") == 0, WAIT_S)
    worker.pause(tasks)
    worker.wait_for(State.PAUSED)
    produce(ottla, topic, range(100, 120))
    worker.pause(tasks, paused=False)
    wait_until(lambda: len(ids(spark, path)) >= 120, WAIT_S)
    assert ids(spark, path) == list(range(120))
    facts = worker.report(tasks[0]).facts
    assert facts["records"] == 121
    wait_until(lambda: "waits for records" in worker.report(tasks[0]).waits_for, WAIT_S)
    worker.stop(tasks)
    offsets = worker.call(worker.runtime.offsets(config["name"], config))
    assert [(dict(each.partition), dict(each.offset or {})) for each in offsets] == [
        ({"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": 121})
    ]
    with pytest.raises(BadRequestError, match="log of another query"):
        worker.call(worker.runtime.alter_offsets(config["name"], config, None))


@pytest.mark.long
def test_new_query_does_not_write_where_another_one_has(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    topic, path = ottla.topic(), tmp_path / "table"
    (path / "_spark_metadata").mkdir(parents=True)
    produce(ottla, topic, range(3))
    worker.start(parquet(base, topic, path))
    assert "lose records. Restore the checkpoint" in worker.wait_for(State.FAILED).trace
    assert ids(spark, path) == []


def test_invalid_record_stops_the_task_with_its_place(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], tmp_path: Path
) -> None:
    topic = ottla.topic()
    produce(ottla, topic, range(3), b'{"id": "no number"}')
    worker.start(parquet(base, topic, tmp_path / "table"))
    trace = worker.wait_for(State.FAILED).trace
    assert trace.startswith("ottla.connect.errors.DataError: ")
    assert f"Topic '{topic}', partition 0, offset 3" in trace.splitlines()[0]


def test_stream_of_rows_is_written_once_and_its_offset_is_reported(
    ottla: Any, worker: ConnectWorker, base: dict[str, str]
) -> None:
    topic = ottla.topic()
    config = {
        **base,
        "connector.class": "spark:rate-micro-batch",
        "topic": topic,
        "spark.option.rowsPerBatch": "20",
        "spark.option.startTimestamp": "1000",
        "spark.select": "value AS id, timestamp AS at, array(date(timestamp)) AS days",
        "spark.key": "id",
    }
    tasks = worker.start(config)
    wait_until(lambda: int(str(worker.report(tasks[0]).facts.get("batch", -1))) >= 1, WAIT_S)
    worker.stop(tasks)
    records = committed(ottla, topic)
    values = [json.loads(each.value) for each in records]
    found = sorted(each["id"] for each in values)
    assert len(found) == len(set(found))
    assert values[0]["at"] >= 1000
    assert values[0]["days"] == [0]
    assert sorted(int(each.key) for each in records) == found
    offsets = worker.call(worker.runtime.offsets(config["name"], config))
    assert [dict(each.partition) for each in offsets] == [{"source": "spark"}]
    assert offsets[0].offset is not None
    # The stop may leave a batch of which only some tasks have committed: the next start writes the rest.
    complete = 20 * (offsets[0].offset["batch"] + 1)
    assert complete >= 40
    assert found[:complete] == list(range(complete))
    assert max(found) < complete + 40
    with pytest.raises(BadRequestError, match="cannot be set"):
        worker.call(worker.runtime.alter_offsets(config["name"], config, offsets))


def test_lost_checkpoint_of_a_source_is_an_error_until_its_offsets_are_reset(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], tmp_path: Path
) -> None:
    topic, files = ottla.topic(), tmp_path / "files"
    files.mkdir()
    (files / "a.json").write_text('{"id": 1}\n')
    config = {
        **base,
        "connector.class": "spark:json",
        "topic": topic,
        "spark.option.path": str(files),
        "spark.schema": "id BIGINT",
        "value.converter": "JsonConverter",
        "spark.trigger": "available-now",
    }
    tasks = worker.start(config)
    wait_until(lambda: "processed all records" in worker.report(tasks[0]).waits_for, WAIT_S)
    worker.stop(tasks)
    (tmp_path / "checkpoints" / config["name"]).rename(tmp_path / "elsewhere")
    worker.start(config)
    assert "Restore the checkpoint" in worker.wait_for(State.FAILED).trace
    worker.stop(tasks)
    worker.call(worker.runtime.alter_offsets(config["name"], config, None))
    tasks = worker.start(config)
    wait_until(lambda: len(committed(ottla, topic)) == 2, WAIT_S)
    schema = {"fields": [{"field": "id", "optional": True, "type": "int64"}], "optional": False, "type": "struct"}
    assert [json.loads(each.value) for each in committed(ottla, topic)] == [
        {"schema": schema, "payload": {"id": 1}}
    ] * 2


def make_pass(worker: ConnectWorker, config: dict[str, str]) -> None:
    tasks = worker.start(config)
    wait_until(lambda: "Pass 1 has written all rows" in worker.report(tasks[0]).waits_for, WAIT_S)
    worker.stop(tasks)


def test_table_is_read_once_by_a_pass_and_again_after_a_reset(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], tmp_path: Path
) -> None:
    topic, files = ottla.topic(), tmp_path / "files"
    files.mkdir()
    (files / "a.json").write_text("".join(f'{{"id": {each}}}\n' for each in range(10)))
    config = {
        **base,
        "connector.class": "spark:json",
        "topic": topic,
        "spark.mode": "batch",
        "spark.option.path": str(files),
    }
    for expected in (10, 20):
        make_pass(worker, config)
        assert len(committed(ottla, topic)) == expected
        make_pass(worker, config)
        assert len(committed(ottla, topic)) == expected
        worker.call(worker.runtime.alter_offsets(config["name"], config, None))


def test_settings_of_the_whole_session_must_be_equal(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], tmp_path: Path
) -> None:
    config = parquet(base, ottla.topic(), tmp_path / "table")
    worker.start(config | {"spark.master": "local[7]"})
    assert "one session. Use the same spark.master" in worker.wait_for(State.FAILED).trace
    worker.listener.changes.clear()
    worker.start(config | {"name": "other", "spark.conf.spark.executor.memory": "7g"})
    assert "is a setting of the whole Spark session" in worker.wait_for(State.FAILED).trace


def test_table_of_a_database_as_sink_and_as_source(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """Derby comes with Spark. Spark has JDBC for batches only."""
    java: Any = spark._jvm
    java.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    topic, copy = ottla.topic(), ottla.topic()
    produce(ottla, topic, range(20))
    database = {
        "connector.class": "spark:jdbc",
        "spark.option.url": f"jdbc:derby:memory:{topic};create=true",
        "spark.option.dbtable": "flights",
        "spark.option.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    }
    fields = {"spark.value.schema": "id BIGINT, name STRING", "spark.select": "value.id AS id, value.name AS name"}
    sink = worker.start({**base, **database, **fields, "name": f"{base['name']}-sink", "topics": topic})
    wait_until(lambda: worker.report(sink[0]).facts.get("lag") == 0, WAIT_S)
    worker.stop(sink)
    make_pass(worker, {**base, **database, "topic": copy, "spark.key": "id"})
    found = [(each.key, json.loads(each.value)) for each in committed(ottla, copy)]
    assert sorted(found, key=lambda row: int(row[0])) == [
        (b"%d" % each, {"id": each, "name": f"n{each % 3}"}) for each in range(20)
    ]
