"""Connectors on the target of a mirror: a sink reads the copy, and a source cannot write it before the promotion.

A worker whose topics are copies starts after their promotion, and goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.testing.waiting import wait_until
from tests.conftest import TEST_PROPERTIES
from tests.connect.rest.worker_process import WorkerProcess
from tests.mirrors import PARTITIONS, TOPIC, WAIT_S, mirror, wait_until_copied
from tests.ottla_process import ForkedOttla, OttlaProcess

from .test_worker import JSON, rows

REASON = f"Topic {TOPIC} is read-only: mirror dr copies it from another cluster"


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[OttlaProcess, OttlaProcess]]:
    """A source with the rows 0 to 99, and the target of a mirror."""
    with (
        ForkedOttla(tmp_path / "source", TEST_PROPERTIES) as source,
        ForkedOttla(tmp_path / "target", TEST_PROPERTIES) as target,
    ):
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        send(source, 0, 100)
        mirror(source.bootstrap, target.bootstrap)
        yield source, target
        target.assert_no_traceback()


def send(cluster: OttlaProcess, first: int, count: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        sent = [
            producer.send(TOPIC, json.dumps({"id": number}).encode(), partition=number % PARTITIONS)
            for number in range(first, first + count)
        ]
        for each in sent:
            each.result(WAIT_S)


def task(worker: WorkerProcess, name: str) -> dict[str, Any]:
    """The status of the only task of a connector."""
    tasks = worker.request("GET", f"/connectors/{name}/status").body.get("tasks", [])
    return dict(tasks[0]) if tasks else {"state": "none"}


def create(worker: WorkerProcess, name: str, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    answer = worker.request("PUT", f"/connectors/{name}/config", {**settings, **JSON})
    assert answer.status == 201, answer.body


def wait_for_rows(directory: Path, count: int, worker: WorkerProcess) -> None:
    wait_until(lambda: len(rows(directory)) >= count, WAIT_S, what=lambda: f"{rows(directory)}\n{worker.log()[-3000:]}")


@pytest.mark.parametrize("exactly_once", ["disabled", "enabled"])
def test_connectors_of_a_copy_go_on_over_its_promotion(
    clusters: tuple[OttlaProcess, OttlaProcess], tmp_path: Path, exactly_once: str
) -> None:
    source, target = clusters
    lines, out = tmp_path / "in", tmp_path / "out"
    lines.mkdir()
    (lines / "later").write_text("".join(f'{{"id": {number}}}\n' for number in range(200, 300)))
    support = ("-X", f"exactly.once.source.support={exactly_once}", "-X", "offset.flush.interval.ms=200")
    words = ("serve", "-b", target.bootstrap, "--group", "etl", "--listen", "127.0.0.1:0", *support)
    with WorkerProcess(tmp_path / "worker", *words) as worker:
        wait_until_copied(source.bootstrap, target.bootstrap)
        create(worker, "out", connector_class="files-sink", topics=TOPIC, path=str(out), rotate_interval_ms="1")
        wait_for_rows(out, 100, worker)
        send(source, 100, 100)
        wait_for_rows(out, 200, worker)
        create(worker, "in", connector_class="files", path=str(lines), format="jsonl", topic=TOPIC)
        wait_until(lambda: task(worker, "in")["state"] == "FAILED", WAIT_S, what=worker.log)
        assert REASON in task(worker, "in")["trace"].splitlines()[0]
        wait_until_copied(source.bootstrap, target.bootstrap)

        assert main(["mirror", "promote", "dr", "--yes", "-b", target.bootstrap]) == 0
        assert worker.request("POST", "/connectors/in/tasks/0/restart").status == 204
        wait_for_rows(out, 300, worker)
        assert task(worker, "in")["state"] == task(worker, "out")["state"] == "RUNNING"
        assert worker.stop() == 0
    assert rows(out) == list(range(300))


def test_worker_moves_to_the_target_with_its_topics(
    clusters: tuple[OttlaProcess, OttlaProcess], tmp_path: Path
) -> None:
    """The name of the group lets the mirror copy its topics."""
    source, target = clusters
    lines, out = tmp_path / "in", tmp_path / "out"
    lines.mkdir()
    settings = ("--group", f"{TOPIC}-etl", "--listen", "127.0.0.1:0", "-X", "offset.flush.interval.ms=200")

    def write(first: int) -> None:
        (lines / f"{first}").write_text("".join(f'{{"id": {number}}}\n' for number in range(first, first + 100)))

    write(100)
    with WorkerProcess(tmp_path / "first", "serve", "-b", source.bootstrap, *settings) as worker:
        create(worker, "in", connector_class="files", path=str(lines), format="jsonl", topic=TOPIC)
        create(worker, "out", connector_class="files-sink", topics=TOPIC, path=str(out), rotate_interval_ms="1")
        wait_for_rows(out, 200, worker)
        assert worker.stop() == 0
    second = WorkerProcess(tmp_path / "second", "serve", "-b", target.bootstrap, *settings)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        wait_until(lambda: len([1 for each in admin.list_topics() if each.name.startswith(TOPIC)]) == 4, WAIT_S)
    with pytest.raises(AssertionError, match="is read-only: mirror dr copies it from another cluster"), second:
        pass
    assert main(["mirror", "promote", "dr", "--yes", "-b", target.bootstrap]) == 0
    assert committed(target) == committed(source) != {}
    write(200)
    with second:
        wait_for_rows(out, 300, second)
        assert task(second, "in")["state"] == task(second, "out")["state"] == "RUNNING"
        assert second.stop() == 0
    assert sorted(ids(target)) == rows(out) == list(range(300))


def committed(cluster: OttlaProcess) -> dict[TopicPartition, int]:
    """The offsets of the sink's group."""
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return {key: each.offset for key, each in admin.list_group_offsets("connect-out").items()}


def ids(cluster: OttlaProcess) -> list[int]:
    """The rows in the topic."""
    keys = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(keys)
        ends = consumer.end_offsets(keys)
        found: list[int] = []

        def is_at_end() -> bool:
            found.extend(json.loads(each.value or b"")["id"] for each in consumer.poll(0.2))
            return all(consumer.position(key) >= ends[key] for key in keys)

        wait_until(is_at_end, WAIT_S, what="the end of the topic")
        return found
