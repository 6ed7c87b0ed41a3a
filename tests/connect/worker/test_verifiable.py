"""Kafka's verifiable connectors in a worker's process: the lines of JSON on its stdout, also across a kill."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.connectors.verifiable import VerifiableSourceTask
from ottla.testing import Ottla
from ottla.testing.waiting import wait_until
from tests.connect.rest.worker_process import WorkerProcess
from tests.connect.tasks import Source

TOOLS = "org.apache.kafka.connect.tools"


def rows_of(output: str) -> list[dict[str, Any]]:
    """Return the complete lines of JSON among other lines."""
    return [json.loads(line) for line in output.splitlines(keepends=True) if line[0] == "{" and line[-1] == "\n"]


def test_source_and_sink_print_each_record(ottla: Ottla, tmp_path: Path) -> None:
    topic = ottla.topic()
    words = ("serve", "-b", ottla.bootstrap, "--group", topic, "--listen", "127.0.0.1:0")
    words += ("-X", "offset.flush.interval.ms=200", "-X", "consumer.session.timeout.ms=6000")
    words += ("-X", "exactly.once.source.support=enabled")
    source = {"connector.class": f"{TOOLS}.VerifiableSourceConnector", "topic": topic, "throughput": "200"}
    source |= {"tasks.max": "2"}
    sink = {"connector.class": "VerifiableSink", "topics": topic, "consumer.override.isolation.level": "read_committed"}
    outputs: list[str] = []
    with WorkerProcess(tmp_path, *words) as worker:
        stdout = tmp_path / "stdout.log"
        for name, config in (("source", source), ("sink", sink)):
            assert worker.request("POST", "/connectors", {"name": name, "config": config}).status == 201
        for number in (signal.SIGKILL, signal.SIGTERM):
            wait_until(
                lambda: sum(each.get("flushed", False) for each in rows_of(stdout.read_text())) > 200, 60, what="rows"
            )
            worker.stop(number)
            outputs.append(stdout.read_text())
            if number is signal.SIGKILL:
                worker.start()
    rows = [row for each in outputs for row in rows_of(each)]
    sent = [row for row in rows if row["name"] == "source"]
    assert {tuple(row) for row in sent} == {
        ("name", "task", "topic", "time_ms", "seqno"),
        ("name", "task", "topic", "time_ms", "seqno", "committed"),
    }
    received = [row for row in rows if row["name"] == "sink"]
    assert {tuple(row) for row in received} == {
        ("name", "task", "sinkTask", "topic", "time_ms", "seqno", "offset"),
        ("name", "task", "sinkTask", "topic", "time_ms", "seqno", "offset", "flushed"),
    }
    by_offset = {row["offset"]: (row["task"], row["seqno"]) for row in received}
    assert len(set(by_offset.values())) == len(by_offset), "a record is in the topic twice"
    arrived = set(by_offset.values())
    assert {task for task, _ in arrived} == {0, 1}
    for task in (0, 1):
        numbers = sorted(seqno for each, seqno in arrived if each == task)
        assert numbers == list(range(len(numbers)))
    assert {row["task"] for row in sent if row.get("committed")} == {0, 1}


def test_a_throughput_of_zero_sends_nothing(ottla: Ottla, tmp_path: Path) -> None:
    topic = ottla.topic()
    config = f'name = "none"\n"connector.class" = "verifiable-source"\ntopic = "{topic}"\nthroughput = "0"\n'
    (tmp_path / "none.toml").write_text(config)
    words = ("run", str(tmp_path / "none.toml"), "-b", ottla.bootstrap, "--listen", "127.0.0.1:0")
    words += ("-X", f"group.id={topic}", "-X", f"offset.storage.topic={topic}-offsets")
    with WorkerProcess(tmp_path / "w", *words) as worker:

        def states() -> list[str]:
            return [each["state"] for each in worker.request("GET", "/connectors/none/status").body["tasks"]]

        wait_until(lambda: states() == ["RUNNING"], 30, what="the task")
        assert worker.stop() == 0
        assert rows_of((tmp_path / "w" / "stdout.log").read_text()) == []


def test_complete_values_and_acknowledged_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = Source(VerifiableSourceTask, {"topic": "t", "id": "3", "complete.record.data": "true"})
    records = source.poll()
    sent = rows_of(capsys.readouterr().out)
    assert [each.value for each in records] == sent
    assert [(each.key, each.topic) for each in records] == [(3, "t")] * len(sent)
    assert all(
        each.value_schema is not None and set(each.value_schema.fields_by_name) == set(sent[0]) for each in records
    )
    source.commit(records[:2])
    assert [(row["seqno"], row["committed"]) for row in rows_of(capsys.readouterr().out)] == [(0, True), (1, True)]
    source.start()
    assert source.poll()[0].value["seqno"] == 2
