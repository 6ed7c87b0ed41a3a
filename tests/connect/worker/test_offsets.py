"""Offsets of connectors: read, altered and reset; topics of their own; transactions over several polls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.api import SourceOffset
from ottla.connect.connectors.file_stream import FileStreamSourceConnector
from ottla.connect.errors import BadRequestError, ConnectError
from ottla.connect.runtime import State
from ottla.connect.worker.steps import Step
from ottla.testing.connect import ConnectWorker, KillAt
from ottla.testing.waiting import wait_until
from tests.connect.forked_process import ForkedConnect
from tests.connect.worker.sources import LAST
from tests.connect.worker.test_kills import committed, source_config

HERE = "tests.connect.worker.sources"


def file_config(topic: str, path: Path) -> dict[str, str]:
    return {
        "name": f"lines-{topic}",
        "connector.class": FileStreamSourceConnector.__module__ + ":FileStreamSourceConnector",
        "topic": topic,
        "file": str(path),
        "value.converter": "StringConverter",
    }


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_source_offsets_are_altered_and_reset(ottla: Any, ottla_connect: Any, tmp_path: Path, support: str) -> None:
    path, topic = tmp_path / "in", ottla.topic()
    path.write_text("a\nb\nc\n")
    config = file_config(topic, path)
    worker = ottla_connect({"exactly.once.source.support": support, "offset.storage.topic": f"{topic}-offsets"})
    name, partition = config["name"], {"filename": str(path)}

    def offsets() -> list[SourceOffset]:
        return list(worker.call(worker.runtime.offsets(name, config)))

    def stop_after(values: list[bytes]) -> None:
        tasks = worker.start(config)
        assert [each.value for each in ottla.consume(topic, len(values))] == values
        worker.stop(tasks)
        worker.call(worker.runtime.stop_connector(name))

    stop_after([b"a", b"b", b"c"])
    assert offsets() == [SourceOffset(partition, {"position": 6})]
    message = worker.call(worker.runtime.alter_offsets(name, config, [SourceOffset(partition, {"position": 2})]))
    assert message == "The offsets for this connector have been altered successfully"
    assert offsets() == [SourceOffset(partition, {"position": 2})]
    stop_after([b"b", b"c"])
    with pytest.raises(BadRequestError, match="non-negative"):
        worker.call(worker.runtime.alter_offsets(name, config, [SourceOffset(partition, {"position": -2})]))
    assert "reset successfully" in worker.call(worker.runtime.alter_offsets(name, config, None))
    assert offsets() == []
    stop_after([b"a", b"b", b"c"])


def test_sink_offsets_are_altered_and_reset(ottla: Any, ottla_connect: Any, tmp_path: Path) -> None:
    path, topic = tmp_path / "out", ottla.topic()
    ottla.produce(topic, b"0", b"1", b"2")
    name = f"sink-{topic}"
    config = {
        "name": name,
        "connector.class": f"{HERE}:append",
        "topics": topic,
        "file": str(path),
        "value.converter": "StringConverter",
    }
    worker = ottla_connect()

    def values() -> list[str]:
        return [json.loads(line)[2] for line in path.read_text().splitlines()] if path.exists() else []

    def run_until(number: int) -> None:
        tasks = worker.start(config)
        wait_until(lambda: len(values()) == number, 30.0)
        row = SourceOffset({"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": 0})
        with pytest.raises(BadRequestError, match="haven't stopped completely yet"):
            worker.call(worker.runtime.alter_offsets(name, config, [row]))
        worker.stop(tasks)
        worker.call(worker.runtime.stop_connector(name))

    run_until(3)
    (row,) = worker.call(worker.runtime.offsets(name, config))
    assert row == ({"kafka_topic": topic, "kafka_partition": 0}, {"kafka_offset": 3})
    worker.call(worker.runtime.alter_offsets(name, config, [SourceOffset(row.partition, {"kafka_offset": 2})]))
    run_until(4)
    worker.call(worker.runtime.alter_offsets(name, config, None))
    assert worker.call(worker.runtime.offsets(name, config)) == []
    run_until(7)
    assert values() == ["0", "1", "2", "2", "0", "1", "2"]
    with pytest.raises(BadRequestError, match="must contain the keys"):
        worker.call(worker.runtime.alter_offsets(name, config, [SourceOffset({"x": 1}, None)]))


def test_connector_has_an_offsets_topic_of_its_own(ottla: Any, ottla_connect: Any) -> None:
    topic, own = ottla.topic(), f"{ottla.topic()}-own"
    settings = {"exactly.once.source.support": "enabled", "offset.storage.topic": f"{topic}-shared"}
    config = {**source_config(topic, topic), "offsets.storage.topic": own}
    ottla_connect(settings).start(config)
    wait_until(lambda: LAST - 1 in committed(ottla, topic), 30.0)
    key = json.loads(ottla.records(own)[-1].key)
    assert key == [topic, {"connector": topic, "partition": None}]
    assert ottla.records(f"{topic}-shared") == []


@pytest.mark.parametrize("step", [Step.AFTER_SEND, Step.AFTER_OFFSETS, Step.AFTER_COMMIT])
def test_transactions_over_several_polls_are_exactly_once(ottla: Any, step: Step) -> None:
    topic = ottla.topic()
    settings = {"exactly.once.source.support": "enabled", "offset.storage.topic": f"{topic}-offsets", "group.id": topic}
    config = {**source_config(topic), "transaction.boundary": "interval", "transaction.boundary.interval.ms": "30"}
    times = 5 if step is Step.AFTER_SEND else 1
    with ForkedConnect(ottla.bootstrap, config, settings, KillAt(step, times)) as process:
        process.wait_until_killed()
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        wait_until(lambda: LAST - 1 in committed(ottla, topic), 30.0)
    assert committed(ottla, topic) == list(range(LAST))


def test_connector_that_defines_no_boundaries_cannot_have_the_setting(ottla: Any, ottla_connect: Any) -> None:
    topic = ottla.topic()
    worker = ottla_connect({"exactly.once.source.support": "enabled", "offset.storage.topic": f"{topic}-offsets"})
    worker.start({**source_config(topic), "transaction.boundary": "connector"})
    assert "does not define transaction boundaries of its own" in worker.wait_for(State.FAILED).trace


def test_too_many_tasks_are_refused_unless_allowed(ottla: Any, ottla_connect: Any) -> None:
    topic = ottla.topic()
    config = {**source_config(topic), "connector.class": f"{HERE}:TooManyConnector", "tasks.max": "2"}
    worker = ottla_connect({"offset.storage.topic": f"{topic}-offsets"})
    with pytest.raises(ConnectError, match="has generated 3 tasks, which is greater than 2"):
        worker.start(config)
    worker.call(worker.runtime.stop_connector(config["name"]))
    assert len(worker.start({**config, "tasks.max.enforce": "false"})) == 3


def test_two_workers_share_the_partitions_of_a_sink(ottla: Any, tmp_path: Path) -> None:
    """Partitions move between tasks; all records arrive, and none after its partition was taken away and committed."""
    topic, path = ottla.topic(partitions=4), tmp_path / "out"
    config = {
        "name": f"sink-{topic}",
        "connector.class": f"{HERE}:once",
        "topics.regex": f"{topic}.*",
        "file": str(path),
        "value.converter": "StringConverter",
        "consumer.override.metadata.max.age.ms": "200",
        "consumer.override.heartbeat.interval.ms": "100",
    }
    settings = {"offset.flush.interval.ms": "20"}

    def rows() -> list[list[Any]]:
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    with ConnectWorker(ottla.bootstrap, settings) as first:
        first.start(config)
        for number in range(20):
            ottla.produce(topic, str(number).encode(), partition=number % 4)
        wait_until(lambda: len(rows()) == 20, 30.0)
        with ConnectWorker(ottla.bootstrap, settings) as second:
            second.start(config)
            wait_until(lambda: len(ottla.group(f"connect-sink-{topic}").members) == 2, 30.0)
            for number in range(20, 60):
                ottla.produce(topic, str(number).encode(), partition=number % 4)
            wait_until(lambda: len(rows()) >= 60, 30.0)
        for number in range(60, 80):
            ottla.produce(topic, str(number).encode(), partition=number % 4)
        wait_until(lambda: len({row[2] for row in rows()}) == 80, 30.0)
    assert sorted(int(row[2]) for row in rows()) == list(range(80))


def test_connector_that_hangs_does_not_keep_the_process_alive(ottla: Any) -> None:
    program = f"""
import asyncio
from ottla.connect.runtime import TargetState
from ottla.connect.worker.runtime import WorkerRuntime
from ottla.testing.connect import Listener

async def main():
    settings = {{"bootstrap.servers": "{ottla.bootstrap}", "task.shutdown.graceful.timeout.ms": "100"}}
    runtime = WorkerRuntime(settings, Listener())
    config = {{"name": "h", "connector.class": "{HERE}:HangingConnector", "topic": "t"}}
    runtime.start_connector("h", config, TargetState.STARTED)
    await asyncio.sleep(0.2)
    await runtime.close()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=30, capture_output=True, text=True, check=True)
    assert "did not stop in time" in done.stderr
