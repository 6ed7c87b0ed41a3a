"""Connectors killed with SIGKILL between any two steps: exactly once, or at least once, after the restart."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Consumer
from ottla.connect.runtime import State
from ottla.connect.worker.steps import Step
from ottla.testing.connect import ConnectWorker, KillAt
from ottla.testing.waiting import wait_until
from tests.connect.forked_process import ForkedConnect
from tests.connect.worker.sources import LAST

SOURCE_STEPS = (
    Step.STARTED, Step.BEFORE_POLL, Step.AFTER_POLL, Step.AFTER_SEND, Step.AFTER_OFFSETS, Step.AFTER_COMMIT,
    Step.AFTER_TASK_COMMIT,
)  # fmt: skip
SINK_STEPS = (Step.STARTED, Step.BEFORE_PUT, Step.AFTER_PUT, Step.AFTER_FLUSH, Step.AFTER_COMMIT)
VALUES = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false",
          "key.converter": "LongConverter"}  # fmt: skip


def committed(ottla: Any, topic: str) -> list[int]:
    """The numbers in a topic that are visible to readers of committed records."""
    settings = {"bootstrap_servers": ottla.bootstrap, "isolation_level": "read_committed", "enable_auto_commit": False}
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[int] = []
        while records := consumer.poll(0.3):
            found += [json.loads(each.value)["number"] for each in records]
    return found


def source_config(topic: str, name: str = "numbers") -> dict[str, str]:
    return {"name": name, "connector.class": "tests.connect.worker.sources:numbers", "topic": topic, **VALUES}


@pytest.mark.parametrize("step", SOURCE_STEPS)
def test_exactly_once_source_killed_at_each_step(ottla: Any, step: Step) -> None:
    topic, offsets = ottla.topic(), ottla.topic(cleanup_policy="compact")
    settings = {"exactly.once.source.support": "enabled", "offset.storage.topic": offsets, "group.id": topic}
    config = source_config(topic)
    times = 1 if step is Step.STARTED else 3
    with ForkedConnect(ottla.bootstrap, config, settings, KillAt(step, times)) as process:
        process.wait_until_killed()
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        wait_until(lambda: len(ottla.records(topic)) >= LAST, 30.0)
        wait_until(lambda: LAST - 1 in committed(ottla, topic), 30.0)
    assert committed(ottla, topic) == list(range(LAST))


@pytest.mark.parametrize("step", [Step.AFTER_SEND, Step.AFTER_OFFSETS, Step.AFTER_COMMIT])
def test_at_least_once_source_loses_nothing(ottla: Any, step: Step) -> None:
    topic, offsets = ottla.topic(), ottla.topic(cleanup_policy="compact")
    settings = {"offset.storage.topic": offsets, "offset.flush.interval.ms": "1"}
    config = source_config(topic)
    with ForkedConnect(ottla.bootstrap, config, settings, KillAt(step, 2)) as process:
        process.wait_until_killed()
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        wait_until(lambda: LAST - 1 in committed(ottla, topic), 30.0)
    found = committed(ottla, topic)
    assert sorted(set(found)) == list(range(LAST))


def test_zombie_task_is_fenced_and_writes_nothing(ottla: Any) -> None:
    """A task that hangs between its records and its commit while another worker takes over."""
    topic, offsets = ottla.topic(), ottla.topic(cleanup_policy="compact")
    settings = {"exactly.once.source.support": "enabled", "offset.storage.topic": offsets, "group.id": topic}
    hangs, released = threading.Event(), threading.Event()

    def reached(step: Step, task: object) -> None:
        if step is Step.AFTER_OFFSETS and not hangs.is_set():
            hangs.set()
            released.wait(30.0)

    config = source_config(topic)
    with ConnectWorker(ottla.bootstrap, settings, reached) as zombie:
        zombie.start(config)
        assert hangs.wait(30.0)
        zombie.listener.newer_generation = True
        with ConnectWorker(ottla.bootstrap, settings) as worker:
            worker.start(config)
            wait_until(lambda: LAST - 1 in committed(ottla, topic), 30.0)
            released.set()
            change = zombie.wait_for(State.FAILED)
            assert "is not the newest one" in change.trace
            assert committed(ottla, topic) == list(range(LAST))


def sink_config(topic: str, path: Path, plugin: str) -> dict[str, str]:
    return {
        "name": f"sink-{topic}",
        "connector.class": f"tests.connect.worker.sources:{plugin}",
        "topics": topic,
        "file": str(path),
        "value.converter": "StringConverter",
        # A static member takes its place again at once.
        "consumer.override.group.instance.id": "one",
        "consumer.override.max.poll.records": "7",
    }


@pytest.mark.parametrize("step", SINK_STEPS)
@pytest.mark.parametrize("plugin", ["append", "once"])
def test_sink_killed_at_each_step(ottla: Any, tmp_path: Path, step: Step, plugin: str) -> None:
    topic, path = ottla.topic(), tmp_path / "out"
    ottla.produce(topic, *(str(number).encode() for number in range(LAST)))
    config = sink_config(topic, path, plugin)
    settings = {"offset.flush.interval.ms": "1"}
    times = 1 if step is Step.STARTED else 2
    with ForkedConnect(ottla.bootstrap, config, settings, KillAt(step, times)) as process:
        process.wait_until_killed()
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        wait_until(lambda: path.exists() and f'"{LAST - 1}"' in path.read_text(), 30.0)
    found = [int(json.loads(line)[2]) for line in path.read_text().splitlines()]
    assert sorted(set(found)) == list(range(LAST))
    if plugin == "once":
        assert found == list(range(LAST))


def test_lines_are_on_disk_before_their_offsets_are_committed(ottla: Any, tmp_path: Path) -> None:
    topic, path = ottla.topic(), tmp_path / "out"
    ottla.produce(topic, *(str(number).encode() for number in range(LAST)))
    config = {**sink_config(topic, path, ""), "connector.class": "FileStreamSink"}
    with ForkedConnect(ottla.bootstrap, config, kill_at=KillAt(Step.AFTER_COMMIT)) as process:
        process.wait_until_killed()
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        wait_until(lambda: path.exists() and path.read_text().endswith(f"{LAST - 1}\n"), 30.0)
    assert {int(line) for line in path.read_text().splitlines()} == set(range(LAST))


def test_worker_process_is_small_and_starts_quickly(ottla: Any) -> None:
    topic = ottla.topic()
    with ForkedConnect(ottla.bootstrap, source_config(topic), {"offset.storage.topic": f"{topic}-offsets"}) as process:
        ottla.consume(topic, LAST)
        assert process.resident_bytes() < 100 << 20
