"""Functions as Spark queries: the same records as in the worker's own runtime, once each, and kills of the driver."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import Producer
from ottla.connect.runtime import State
from ottla.spark.session import QUICK_JAVA
from ottla.testing.connect import ConnectWorker
from ottla.testing.waiting import wait_until
from tests.connect.spark.test_formats import WAIT_S, committed, ids, parquet, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = "tests.connect.spark.functions"
ROWS = 30


def as_records(ottla: Any, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    return sorted((each.key, each.value) for each in committed(ottla, topic))


def test_source_writes_the_same_records_in_both_runtimes(
    ottla: Any, worker: ConnectWorker, base: dict[str, str]
) -> None:
    written = []
    for runtime in ("embedded", "spark"):
        topic = ottla.topic()
        config = {
            **base,
            "name": f"{base['name']}-{runtime}",
            "connector.class": f"{MODULE}:pages",
            "topic": topic,
            "ottla.runtime": runtime,
        }
        tasks = worker.start(config)
        wait_until(lambda topic=topic: len(committed(ottla, topic)) >= ROWS, WAIT_S)  # type: ignore[misc]
        worker.stop(tasks)
        written.append(as_records(ottla, topic))
        offsets = worker.call(worker.runtime.offsets(config["name"], config))
        assert [(dict(each.partition), dict(each.offset or {})) for each in offsets] == [
            ({"partition": f"part-{each}"}, {"after": 3}) for each in range(2)
        ]
    assert len(written[0]) == ROWS
    assert written[0] == written[1]


def test_source_goes_on_at_altered_offsets(ottla: Any, worker: ConnectWorker, base: dict[str, str]) -> None:
    topic = ottla.topic()
    config = {**base, "connector.class": f"{MODULE}:pages", "topic": topic, "ottla.runtime": "spark"}
    tasks = worker.start(config)
    wait_until(lambda: len(committed(ottla, topic)) >= ROWS, WAIT_S)
    worker.stop(tasks)
    offsets = worker.call(worker.runtime.offsets(config["name"], config))
    worker.call(worker.runtime.alter_offsets(config["name"], config, [offsets[0]._replace(offset={"after": 2})]))
    tasks = worker.start(config)
    wait_until(lambda: len(committed(ottla, topic)) >= ROWS + 5, WAIT_S)
    worker.stop(tasks)
    again = [json.loads(each.value)["id"] for each in committed(ottla, topic)[ROWS:]]
    assert again == [f"part-0/{each}" for each in range(10, 15)]


def test_error_of_a_function_stops_the_task(ottla: Any, worker: ConnectWorker, base: dict[str, str]) -> None:
    topic = ottla.topic()
    config = {**base, "connector.class": f"{MODULE}:pages", "topic": topic, "ottla.runtime": "spark", "fail_at": "1"}
    worker.start(config)
    trace = worker.wait_for(State.FAILED).trace
    assert trace.startswith("ottla.connect.errors.ConnectError: ValueError: page 1 of part-")
    assert committed(ottla, topic) == []


def test_sink_gets_the_same_records_in_both_runtimes(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], tmp_path: Path
) -> None:
    topic = ottla.topic(partitions=2)
    with Producer(bootstrap_servers=ottla.bootstrap) as producer:
        for each in range(50):
            value = json.dumps({"id": each}).encode()
            producer.send(topic, value, key=b"%d" % each, headers=[("number", b"%d" % each)], timestamp_ms=each)
    found = []
    for runtime in ("embedded", "spark"):
        file = tmp_path / runtime
        config = {
            **base,
            "name": f"{base['name']}-{runtime}",
            "connector.class": f"{MODULE}:lines",
            "topics": topic,
            "ottla.runtime": runtime,
            "file": str(file),
        }
        tasks = worker.start(config)

        def rows(file: Path = file) -> list[Any]:
            paths = [Path(f"{file}-{each}") for each in range(2)]
            return [json.loads(line) for path in paths if path.exists() for line in path.read_text().splitlines()]

        wait_until(lambda rows=rows: len(rows()) >= 50, WAIT_S)  # type: ignore[misc]
        worker.stop(tasks)
        found.append(rows())
        offsets = worker.call(worker.runtime.offsets(config["name"], config))
        assert sum((each.offset or {})["kafka_offset"] for each in offsets) == 50
    assert found[0] == found[1]


def test_invalid_record_of_a_function_sink_stops_the_task_with_its_place(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], tmp_path: Path
) -> None:
    topic = ottla.topic()
    produce(ottla, topic, range(2), b"no JSON")
    config = {
        **base,
        "connector.class": f"{MODULE}:lines",
        "topics": topic,
        "ottla.runtime": "spark",
        "file": str(tmp_path / "lines"),
    }
    worker.start(config)
    trace = worker.wait_for(State.FAILED).trace
    assert trace.startswith("ottla.connect.errors.DataError: VALUE_CONVERTER of JsonConverter failed at ")
    assert f"topic {topic}, partition 0, offset 2" in trace.splitlines()[0]


def test_sink_with_resume_gets_only_records_that_it_does_not_have(
    ottla: Any, worker: ConnectWorker, base: dict[str, str], tmp_path: Path
) -> None:
    topic, file = ottla.topic(), tmp_path / "once"
    produce(ottla, topic, range(10))
    Path(f"{file}-0").write_text("".join(f"[0, {each}]\n" for each in range(4)))
    config = {
        **base,
        "connector.class": f"{MODULE}:once",
        "topics": topic,
        "ottla.runtime": "spark",
        "file": str(file),
    }
    tasks = worker.start(config)
    wait_until(lambda: len(Path(f"{file}-0").read_text().splitlines()) >= 10, WAIT_S)
    worker.stop(tasks)
    assert [json.loads(line) for line in Path(f"{file}-0").read_text().splitlines()] == [[0, at] for at in range(10)]


def test_class_is_not_a_function(worker: ConnectWorker, base: dict[str, str]) -> None:
    config = {**base, "connector.class": "file-stream-sink", "topics": "t", "ottla.runtime": "spark"}
    with pytest.raises(Exception, match="is for connectors that are functions; file-stream-sink is a class"):
        worker.start(config)


@pytest.mark.long
def test_parquet_and_a_function_that_does_not_repeat_itself_survive_kills(
    ottla: Any, base: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """A process is killed after each connector has finished a micro-batch; another one goes on from the checkpoint."""
    topic, target, path = ottla.topic(), ottla.topic(), tmp_path / "table"
    produce(ottla, topic, range(300))
    offsets = ottla.topic(cleanup_policy="compact")
    common = {"offset.storage.topic": offsets, "group.id": offsets, "value.converter.schemas.enable": "false"}
    common |= {"exactly.once.source.support": "enabled", "key.converter": "StringConverter"}
    base["spark.master"] = "local[2]"
    quick = common | {"spark.conf.spark.driver.extraJavaOptions": QUICK_JAVA}
    sink = parquet(base, topic, path)
    source = {
        **base,
        "name": f"{base['name']}-source",
        "connector.class": f"{MODULE}:pages",
        "topic": target,
        "ottla.runtime": "spark",
        "spark.calls.per.batch": "1",
        "file": str(tmp_path / "calls"),
    }
    child = [sys.executable, "-m", "tests.connect.spark.child", json.dumps([ottla.bootstrap, quick, [sink, source]])]
    done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    produce(ottla, topic, range(300, 400))
    with ConnectWorker(ottla.bootstrap, common) as second:
        for config in (sink, source):
            second.start(config)
        wait_until(lambda: len(ids(spark, path)) >= 400, WAIT_S)
        wait_until(lambda: len(committed(ottla, target)) >= ROWS, WAIT_S)
    assert ids(spark, path) == list(range(400))
    found = [json.loads(each.value)["id"] for each in committed(ottla, target)]
    assert sorted(found) == sorted(f"part-{part}/{each}" for part in range(2) for each in range(15))
