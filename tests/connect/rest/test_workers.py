"""Workers as processes with a real broker: standalone from files, stops and restarts, and a group of two."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.testing import Ottla
from tests.connect.rest.worker_process import WorkerProcess

DEADLINE_S = 40.0
SOURCE = """
name = "source"
"connector.class" = "FileStreamSource"
topic = "lines"
"key.converter" = "StringConverter"
"value.converter" = "StringConverter"
"""
SINK = "connector.class=FileStreamSink\ntopics=lines\nvalue.converter=StringConverter\n"


@pytest.fixture
def bootstrap(ottla: Ottla) -> str:
    return ottla.bootstrap


def until(holds: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.05)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_standalone_worker_goes_on_where_it_has_committed(
    number: signal.Signals, bootstrap: str, tmp_path: Path
) -> None:
    given, written = tmp_path / "in.txt", tmp_path / "out.txt"
    (tmp_path / "source.toml").write_text(f'{SOURCE}file = "{given}"\n')
    (tmp_path / "sink.properties").write_text(f"{SINK}file={written}\n")
    given.write_text("one\ntwo\n")
    files = (str(tmp_path / "source.toml"), str(tmp_path / "sink.properties"))
    words = ("run", *files, "-b", bootstrap, "--listen", "127.0.0.1:0", "-X", "offset.flush.interval.ms=200",
             "-X", "consumer.session.timeout.ms=6000")  # fmt: skip
    with WorkerProcess(tmp_path / "worker", *words) as worker:
        until(lambda: lines(written) == ["one", "two"], worker.log)
        until(lambda: '"kafka_offset": 2' in json.dumps(worker.request("GET", "/connectors/sink/offsets").body))
        assert worker.request("GET", "/connectors").body == ["sink", "source"]
        code = worker.stop(number)
        assert (code == 0) == (number is signal.SIGTERM), worker.log()
        with given.open("a") as file:
            file.write("three\n")
        worker.start()
        until(lambda: len(lines(written)) >= 3, worker.log)
        assert lines(written) == ["one", "two", "three"]
        assert worker.stop() == 0
        assert "Traceback" not in worker.log()


def test_a_standalone_worker_refuses_an_invalid_connector(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "bad.properties").write_text("connector.class=FileStreamSource\ntasks.max=0\n")
    worker = WorkerProcess(tmp_path / "w", "run", str(tmp_path / "bad.properties"), "-b", bootstrap, "--listen", "0")
    with pytest.raises(AssertionError) as caught:
        worker.start()
    assert "the connector bad cannot be created" in str(caught.value)
    assert "Value must be at least 1" in str(caught.value)
    assert 'Missing required configuration "topic"' in str(caught.value)


def test_a_worker_refuses_extensions_in_java(bootstrap: str, tmp_path: Path) -> None:
    words = ("serve", "-b", bootstrap, "--listen", "0", "-X", "rest.extension.classes=com.example.Extension")
    with pytest.raises(AssertionError, match=r"rest\.extension\.classes: com\.example\.Extension"):
        WorkerProcess(tmp_path, *words).start()


def test_any_worker_of_a_group_accepts_any_request(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    words = ("serve", "-b", bootstrap, "--group", "g", "--listen", "127.0.0.1:0", "-X", "offset.flush.interval.ms=200",
             "-X", "exactly.once.source.support=enabled", "-X", "scheduled.rebalance.max.delay.ms=0")  # fmt: skip
    config = {
        "connector.class": "FileStreamSource", "file": str(tmp_path / "in.txt"), "topic": "lines",
        "key.converter": "StringConverter", "value.converter": "StringConverter",
    }  # fmt: skip
    sink = {"connector.class": "FileStreamSink", "topics": "lines", "file": str(tmp_path / "out.txt"), "tasks.max": "2",
            "value.converter": "StringConverter"}  # fmt: skip
    with WorkerProcess(tmp_path / "a", *words) as first, WorkerProcess(tmp_path / "b", *words) as second:
        workers = (first, second)
        # One of both does not lead, and sends the request to the leader.
        for number, worker in enumerate(workers):
            created = worker.request("PUT", f"/connectors/source{number}/config", {**config, "topic": f"t{number}"})
            assert created.status == 201, created
            assert created.headers["location"] == f"http://{worker.host}:{worker.port}/connectors/source{number}"
        assert first.request("PUT", "/connectors/sink/config", {**sink, "topics": "t0"}).status == 201
        until(lambda: sorted(lines(tmp_path / "out.txt")) == ["one", "two"], first.log)

        def states(worker: WorkerProcess) -> str:
            return json.dumps(worker.request("GET", "/connectors?expand=status").body)

        until(lambda: all(states(each).count("RUNNING") == 7 for each in workers), lambda: states(first))
        assert states(first) == states(second)
        for worker in workers:
            assert worker.request("POST", "/connectors/sink/tasks/1/restart").status == 204
            assert worker.request("POST", "/connectors/sink/restart").status == 204
            assert worker.request("POST", "/connectors/sink/restart?includeTasks=true").status == 202
            assert worker.request("GET", "/health").status == 200
        until(lambda: all(states(each).count("RUNNING") == 7 for each in workers), lambda: states(first))
        assert second.request("PUT", "/connectors/source0/stop").status == 204
        path = "/connectors/source0/offsets"
        until(lambda: first.request("GET", "/connectors/source0/status").body["tasks"] == [])
        assert first.request("DELETE", path).status == 200
        assert second.request("GET", path).body == {"offsets": []}
        assert second.stop() == 0
        until(lambda: f"{second.host}:{second.port}" not in states(first), lambda: states(first))
        until(lambda: states(first).count("RUNNING") == 5, lambda: states(first))
        assert first.stop() == 0
        for worker in workers:
            assert "Traceback" not in worker.log(), worker.log()
