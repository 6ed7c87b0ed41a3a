"""Spark formats through the REST API and the commands of a worker process."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ottla.spark.session import use_java
from ottla.testing.waiting import wait_until
from tests.cli.commands import run_with_pipes
from tests.connect.rest.worker_process import WorkerProcess
from tests.spark.cluster import quick_java


def faults(answer: Any) -> dict[str, list[str]]:
    """Return the messages of a validation by the names of their settings."""
    values = [each["value"] for each in answer.body["configs"]]
    return {each["name"]: each["errors"] for each in values if each["errors"]}


@pytest.mark.long
def test_a_format_is_listed_validated_created_and_controlled(
    ottla: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, out = ottla.topic(), tmp_path / "rows"
    config = {
        "connector.class": "spark:json", "topics": topic, "spark.option.path": str(out),
        "spark.checkpoint.dir": str(tmp_path / "checkpoints"), "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false", "spark.value.schema": "id BIGINT", "spark.master": "local[1]",
    }  # fmt: skip
    words = ("serve", "-b", ottla.bootstrap, "--group", topic, "--listen", "127.0.0.1:0")
    # For the Spark session of the worker.
    use_java()
    for name, value in quick_java().items():
        monkeypatch.setenv(name, value)
    with WorkerProcess(tmp_path / "worker", *words) as worker:
        monkeypatch.setenv("OTTLA_CONNECT", f"http://{worker.host}:{worker.port}")

        def cli(line: str, code: int = 0) -> str:
            done = run_with_pipes(*shlex.split(f"connect {line}"))
            assert done.code == code, done
            return done.out.decode() + done.err

        def rows() -> list[int]:
            files = out.glob("*.json") if out.exists() else ()
            return sorted(json.loads(line)["id"] for file in files for line in file.read_text().splitlines())

        def states(name: str = "lake") -> list[str]:
            status = worker.request("GET", f"/connectors/{name}/status").body
            return [each["state"] for each in (status["connector"], *status["tasks"])] if "connector" in status else []

        listed = {(row["class"], row["type"]) for row in worker.request("GET", "/connector-plugins").body}
        assert {("spark:json", "source"), ("spark:json", "sink"), ("spark:rate", "source")} <= listed
        assert ("spark:rate", "sink") not in listed
        assert "spark:json" in cli("plugins")
        assert "spark.checkpoint.dir" in cli("plugins spark:json")
        for name, own in (("spark:json", "topics"), ("spark:json#source", "topic"), ("spark:rate", "topic")):
            answer = worker.request("GET", f"/connector-plugins/{quote(name, safe='')}/config")
            assert own in [each["name"] for each in answer.body], (name, answer)
        path = "/connector-plugins/spark%3Ajson/config/validate"
        given = {**config, "name": "lake"}
        assert faults(worker.request("PUT", path, given)) == {}
        wrong = {name: value for name, value in given.items() if name != "spark.checkpoint.dir"} | {"spark.mode": "x"}
        found = faults(worker.request("PUT", path, wrong))
        assert set(found) == {"spark.checkpoint.dir", "spark.mode"}
        other = worker.request("PUT", path, {**given, "connector.class": "spark:csv"})
        assert (other.status, "does not match" in other.body["message"]) == (400, True)
        for number, each in enumerate((given, wrong)):
            (tmp_path / f"{number}.json").write_text(json.dumps(each))
        assert cli(f"validate {tmp_path}/1.json --json", code=1).count("spark.mode") >= 1
        cli(f"create {tmp_path}/0.json")
        wait_until(lambda: states() == ["RUNNING", "RUNNING"], 90.0, what=worker.log)
        ottla.produce(topic, *(b'{"id": %d}' % each for each in range(5)))
        wait_until(lambda: rows() == list(range(5)), 60.0, what=worker.log)
        cli("pause lake")
        wait_until(lambda: states() == ["PAUSED", "PAUSED"], 30.0)
        ottla.produce(topic, b'{"id": 5}')
        cli("resume lake")
        wait_until(lambda: rows() == list(range(6)), 60.0, what=worker.log)
        cli("restart lake --tasks")
        ottla.produce(topic, b'{"id": 6}')
        wait_until(lambda: rows() == list(range(7)), 60.0, what=worker.log)
        assert "lake runs: 1 task" in cli("why lake")
        wait_until(
            lambda: '"kafka_offset": 7' in json.dumps(worker.request("GET", "/connectors/lake/offsets").body), 30.0
        )
        cli("stop lake")
        wait_until(lambda: states() == ["STOPPED"], 30.0)
        refused = worker.request("DELETE", "/connectors/lake/offsets")
        assert (refused.status, "log of another query" in refused.body["message"]) == (400, True)
        cli("delete lake --yes")
        assert worker.request("GET", "/connectors").body == []
        assert worker.stop() == 0
        assert "Traceback" not in worker.log()
