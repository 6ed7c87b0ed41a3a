"""Restarts of connectors and tasks: the answer comes when they have started again, as in Kafka Connect (KIP-745)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.testing import Ottla
from tests.connect.rest.worker_process import WorkerProcess

DEADLINE_S = 40.0
SLOW = "tests.connect.rest.slow_connector:SlowConnector"


@pytest.fixture
def worker(ottla: Ottla, tmp_path: Path) -> Iterator[WorkerProcess]:
    words = ("serve", "-b", ottla.bootstrap, "--group", "restarts", "--listen", "127.0.0.1:0")
    with WorkerProcess(tmp_path, *words) as running:
        yield running
        assert running.stop() == 0


def until(holds: Callable[[], bool], about: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, about()
        time.sleep(0.02)


def states(worker: WorkerProcess) -> list[str]:
    body = worker.request("GET", "/connectors/slow/status").body
    return [each["state"] for each in (body["connector"], *body["tasks"])] if "connector" in body else []


def steps(tmp_path: Path) -> list[str]:
    path = tmp_path / "steps.log"
    return path.read_text().splitlines() if path.exists() else []


def created(worker: WorkerProcess, tmp_path: Path) -> None:
    config = {"connector.class": SLOW, "directory": str(tmp_path)}
    assert worker.request("PUT", "/connectors/slow/config", config).status == 201
    until(lambda: states(worker) == ["RUNNING", "RUNNING"], worker.log)


def test_restart_of_a_connector_is_answered_when_it_runs_again(worker: WorkerProcess, tmp_path: Path) -> None:
    created(worker, tmp_path)
    assert worker.request("POST", "/connectors/slow/restart").status == 204
    assert steps(tmp_path).count("connector started") == 2
    assert states(worker) == ["RUNNING", "RUNNING"]
    assert "task stopped" not in steps(tmp_path)


def test_restart_of_a_connector_that_fails_is_an_error_with_kafkas_message(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    created(worker, tmp_path)
    (tmp_path / "broken").touch()
    answer = worker.request("POST", "/connectors/slow/restart")
    assert (answer.status, answer.body["message"]) == (500, "Failed to start connector: slow")
    until(lambda: states(worker)[0] == "FAILED", worker.log)
    (tmp_path / "broken").unlink()
    assert worker.request("POST", "/connectors/slow/restart").status == 204
    until(lambda: states(worker)[0] == "RUNNING", worker.log)


def test_restart_of_a_task_is_answered_when_the_previous_one_has_stopped(worker: WorkerProcess, tmp_path: Path) -> None:
    created(worker, tmp_path)
    assert worker.request("POST", "/connectors/slow/tasks/0/restart").status == 204
    assert steps(tmp_path).count("task stopped") == 1
    until(lambda: steps(tmp_path).count("task started") == 2, worker.log)
    assert steps(tmp_path).count("connector started") == 1


def test_restart_with_tasks_is_answered_at_once_with_the_planned_states(worker: WorkerProcess, tmp_path: Path) -> None:
    created(worker, tmp_path)
    answer = worker.request("POST", "/connectors/slow/restart?includeTasks=true")
    assert answer.status == 202
    planned = [each["state"] for each in (answer.body["connector"], *answer.body["tasks"])]
    assert planned == ["RESTARTING", "RESTARTING"], json.dumps(answer.body)
    until(lambda: steps(tmp_path).count("task started") == 2, worker.log)
    assert worker.request("POST", "/connectors/slow/restart?includeTasks=true&onlyFailed=true").status == 202
    until(lambda: states(worker) == ["RUNNING", "RUNNING"], worker.log)
    assert steps(tmp_path).count("connector started") == 2
