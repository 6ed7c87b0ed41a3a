"""Failures of records and tasks: dead letters, retries, restarts, traces without secrets."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.connect.errors import ConnectError
from ottla.connect.runtime import State
from ottla.connect.worker.control import PAUSED
from ottla.connect.worker.steps import Step
from ottla.testing.connect import ConnectWorker, KillAt
from ottla.testing.waiting import wait_until
from tests.connect.forked_process import ForkedConnect

HERE = "tests.connect.worker.sources"


def dead_letter_config(topic: str, letters: str, plugin: str, **more: str) -> dict[str, str]:
    queue = "errors.deadletterqueue"
    return {
        "name": f"sink-{topic}",
        "connector.class": plugin,
        "topics": topic,
        "errors.tolerance": "all",
        f"{queue}.topic.name": letters,
        f"{queue}.topic.replication.factor": "1",
        f"{queue}.context.headers.enable": "true",
        **more,
    }


def test_record_that_does_not_convert_becomes_a_dead_letter(ottla: Any, tmp_path: Path) -> None:
    topic, letters, path = ottla.topic(), f"{ottla.topic()}.dlq", tmp_path / "out"
    ottla.produce(topic, b'"good"', b"{bad", b'"also good"', headers={"h": b"1"})
    config = dead_letter_config(
        topic, letters, f"{HERE}:append", file=str(path), **{"value.converter.schemas.enable": "false"}
    )
    config |= {"value.converter": "JsonConverter", "key.converter": "ByteArrayConverter"}
    with ConnectWorker(ottla.bootstrap) as worker:
        (task,) = worker.start(config)
        wait_until(lambda: path.exists() and "also good" in path.read_text(), 30.0)
        assert worker.report(task).facts["records skipped"] == 1
    (letter,) = ottla.records(letters)
    headers = dict(letter.headers)
    prefix = "__connect.errors."
    assert letter.value == b"{bad"
    assert headers["h"] == b"1"
    assert headers[f"{prefix}topic"] == topic.encode()
    assert (headers[f"{prefix}partition"], headers[f"{prefix}offset"]) == (b"0", b"1")
    assert headers[f"{prefix}connector.name"] == config["name"].encode()
    assert (headers[f"{prefix}task.id"], headers[f"{prefix}stage"]) == (b"0", b"VALUE_CONVERTER")
    assert headers[f"{prefix}exception.class.name"] == b"ottla.connect.errors.DataError"
    assert b"serialization error" in headers[f"{prefix}exception.message"]
    assert b"Traceback" in headers[f"{prefix}exception.stacktrace"]


def test_dead_letters_are_listed_shown_and_redriven_by_the_cli(ottla: Any, tmp_path: Path) -> None:
    topic, letters = ottla.topic(), f"{ottla.topic()}.dlq"
    ottla.produce(topic, b"{bad")
    config = dead_letter_config(topic, letters, f"{HERE}:append", file=str(tmp_path / "out"))
    config |= {"value.converter": "JsonConverter", "key.converter": "ByteArrayConverter"}
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        wait_until(lambda: len(ottla.records(letters)) == 1, 30.0)

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "ottla", "dlq", *words, "-b", ottla.bootstrap]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert letters in run("list")
    shown = run("show", letters)
    assert f"{topic}-0@0" in shown
    assert "DataError" in shown
    run("redrive", letters, "--yes")
    wait_until(lambda: len(ottla.records(topic)) == 2, 30.0)
    again = ottla.records(topic)[1]
    assert again.value == b"{bad"
    assert not [name for name, _ in again.headers if name.startswith("__connect.errors.")]


def test_untolerated_record_stops_the_task_and_is_named(ottla: Any, tmp_path: Path) -> None:
    topic = ottla.topic()
    ottla.produce(topic, b"{bad")
    config = {
        "name": f"sink-{topic}",
        "connector.class": f"{HERE}:append",
        "topics": topic,
        "file": str(tmp_path / "out"),
        "value.converter": "JsonConverter",
        "key.converter": "ByteArrayConverter",
    }
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        trace = worker.wait_for(State.FAILED).trace
    assert trace.startswith("ottla.connect.errors.DataError: VALUE_CONVERTER of JsonConverter failed")
    assert f"topic {topic}, partition 0, offset 0" in trace.splitlines()[0]


def test_field_of_a_source_record_is_named(ottla: Any, tmp_path: Path) -> None:
    config = {
        "name": "wrong",
        "connector.class": f"{HERE}:wrong_field",
        "topic": ottla.topic(),
        "value.converter": "JsonConverter",
    }
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        trace = worker.wait_for(State.FAILED).trace
    assert "(field number)" in trace
    assert "source offset {'after': 1}" in trace


def test_retriable_failure_restarts_the_task_after_a_pause(ottla: Any, tmp_path: Path) -> None:
    topic, path = ottla.topic(), tmp_path / "tries"
    config = {
        "name": "flaky",
        "connector.class": f"{HERE}:flaky",
        "topic": topic,
        "file": str(path),
        "value.converter": "JsonConverter",
    }
    with ConnectWorker(ottla.bootstrap) as worker:
        (task,) = worker.start(config)
        change = worker.wait_for(State.RESTARTING)
        assert "the other system is not up" in change.trace
        report = worker.report(task)
        assert report.tried >= 1
        assert report.next_try_ms is not None
        assert "The task starts again in" in report.waits_for
        ottla.consume(topic, 1, 30.0)
        wait_until(lambda: worker.report(task).tried == 0, 30.0)
    assert [each.state for each in worker.listener.changes if each.task == 0].count(State.RESTARTING) == 2


def test_put_is_repeated_with_the_same_records(ottla: Any, tmp_path: Path) -> None:
    topic, path = ottla.topic(), tmp_path / "calls"
    ottla.produce(topic, b"1", b"2", b"3")
    config = {
        "name": f"sink-{topic}",
        "connector.class": f"{HERE}:busy",
        "topics": topic,
        "file": str(path),
        "failures": "2",
        "value.converter": "StringConverter",
    }
    with ConnectWorker(ottla.bootstrap) as worker:
        (task,) = worker.start(config)
        wait_until(lambda: "puts 3 records again" in worker.report(task).waits_for, 30.0)
        wait_until(lambda: path.exists() and len(path.read_text().splitlines()) == 3, 30.0)
        wait_until(lambda: ottla.group(f"connect-sink-{topic}").positions, 30.0)
    assert path.read_text().splitlines() == [f"{topic}-0@0-2"] * 3


def test_secrets_are_in_no_trace(ottla: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("CONNECT_TEST_USER", "agent-47")
    (tmp_path / "secrets.properties").write_text("login = hunter2!\n")
    config = {
        "name": "secretive",
        "connector.class": f"{HERE}:secretive",
        "password": f"${{file:{tmp_path}/secrets.properties:login}}",
        "user": "${env:CONNECT_TEST_USER}",
    }
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        trace = worker.wait_for(State.FAILED).trace
    assert "login of [hidden] with [hidden] failed" in trace
    assert "hunter2" not in trace
    assert "agent-47" not in trace


def test_missing_variable_fails_the_task_with_its_name(ottla: Any) -> None:
    config = {"name": "x", "connector.class": f"{HERE}:secretive", "password": "${env:NO_SUCH_VARIABLE}", "user": "u"}
    with ConnectWorker(ottla.bootstrap) as worker, pytest.raises(ConnectError, match="NO_SUCH_VARIABLE"):
        worker.start(config)


def test_rejected_record_goes_to_the_dead_letters(ottla: Any) -> None:
    topic, letters = ottla.topic(), f"{ottla.topic()}.dlq"
    ottla.produce(topic, b"good", b"bad", b"good")
    config = dead_letter_config(topic, letters, f"{HERE}:RejectingConnector", **{"value.converter": "StringConverter"})
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        wait_until(lambda: len(ottla.records(letters)) == 1, 30.0)
        wait_until(lambda: ottla.group(f"connect-sink-{topic}").positions, 30.0)
    (letter,) = ottla.records(letters)
    assert letter.value == b"bad"
    assert dict(letter.headers)["__connect.errors.stage"] == b"TASK_PUT"


def test_paused_tasks_process_nothing(ottla: Any, tmp_path: Path) -> None:
    topic, path = ottla.topic(), tmp_path / "out"
    config = {
        "name": f"sink-{topic}",
        "connector.class": f"{HERE}:append",
        "topics": topic,
        "file": str(path),
        "value.converter": "StringConverter",
    }
    with ConnectWorker(ottla.bootstrap) as worker:
        tasks = worker.start(config)
        ottla.produce(topic, b"1")
        wait_until(lambda: path.exists() and len(path.read_text().splitlines()) == 1, 30.0)
        worker.pause(tasks)
        wait_until(lambda: worker.listener.changes[-1].state is State.PAUSED, 30.0)
        wait_until(lambda: "paused" in worker.report(tasks[0]).waits_for, 30.0)
        ottla.produce(topic, b"2")
        worker.pause(tasks, paused=False)
        wait_until(lambda: len(path.read_text().splitlines()) == 2, 30.0)
    assert [json.loads(line)[2] for line in path.read_text().splitlines()] == ["1", "2"]


def test_paused_sink_puts_nothing_after_its_state_says_so(ottla: Any, tmp_path: Path) -> None:
    """Records arrive all the time, and each put takes a while: the state must follow the last put."""
    topic, path, done = ottla.topic(), tmp_path / "out", threading.Event()
    path.touch()
    config = {
        "name": f"sink-{topic}",
        "connector.class": f"{HERE}:unhurried",
        "topics": topic,
        "file": str(path),
        "value.converter": "StringConverter",
    }

    def produce() -> None:
        for number in itertools.count():
            if done.wait(0.01):
                return
            ottla.produce(topic, b"%d" % number)

    producing = threading.Thread(target=produce)
    with ConnectWorker(ottla.bootstrap) as worker:
        tasks = worker.start(config)
        producing.start()
        try:
            for _ in range(3):
                worker.wait_for(State.RUNNING)
                size = path.stat().st_size
                wait_until(lambda size=size: path.stat().st_size > size, 30.0)
                worker.pause(tasks)
                wait_until(lambda: worker.listener.changes[-1].state is State.PAUSED, 30.0)
                size = path.stat().st_size
                lines = len(path.read_text().splitlines())
                assert ottla.group(f"connect-sink-{topic}").positions == {(topic, 0): lines}
                time.sleep(1.0)
                assert path.stat().st_size == size
                worker.pause(tasks, paused=False)
                wait_until(lambda: worker.listener.changes[-1].state is State.RUNNING, 30.0)
        finally:
            done.set()
            producing.join()


def test_target_state_does_not_hide_a_failure(ottla: Any, tmp_path: Path) -> None:
    """A task that has failed stays FAILED when it is paused and resumed, as in Kafka Connect."""
    config = {"name": "x", "connector.class": f"{HERE}:secretive", "password": "p", "user": "u"}
    with ConnectWorker(ottla.bootstrap) as worker:
        tasks = worker.start(config)
        worker.wait_for(State.FAILED)
        worker.pause(tasks)
        worker.pause(tasks, paused=False)
        time.sleep(0.2)
        assert [each.state for each in worker.listener.changes][-1] is State.FAILED


def test_task_that_is_paused_between_two_tries_waits_for_resume(ottla: Any, tmp_path: Path) -> None:
    path, lock = tmp_path / "tries", tmp_path / "lock"
    lock.touch()
    config = {"name": "u", "connector.class": f"{HERE}:UnstartableConnector", "directory": str(tmp_path)}
    config |= {"topics": ottla.topic(), "value.converter": "StringConverter"}
    with ConnectWorker(ottla.bootstrap) as worker:
        tasks = worker.start(config)
        wait_until(lambda: path.exists() and len(path.read_text()) >= 2, 30.0)
        worker.pause(tasks)
        wait_until(lambda: worker.listener.changes[-1].state is State.PAUSED, 30.0)
        tries = path.read_text()
        time.sleep(1.0)
        assert path.read_text() == tries
        assert worker.report(tasks[0]).waits_for == PAUSED
        lock.unlink()
        worker.pause(tasks, paused=False)
        wait_until(lambda: worker.listener.changes[-1].state is State.RUNNING, 30.0)


def test_put_that_waits_says_so_again_after_a_pause(ottla: Any, tmp_path: Path) -> None:
    topic = ottla.topic()
    ottla.produce(topic, b"1", b"2", b"3")
    config = {
        "name": f"sink-{topic}",
        "connector.class": f"{HERE}:busy",
        "topics": topic,
        "file": str(tmp_path / "calls"),
        "failures": "5",
        "value.converter": "StringConverter",
    }
    with ConnectWorker(ottla.bootstrap) as worker:
        (task,) = worker.start(config)
        wait_until(lambda: "puts 3 records again in 8000 ms" in worker.report(task).waits_for, 30.0)
        worker.pause([task])
        wait_until(lambda: worker.listener.changes[-1].state is State.PAUSED, 30.0)
        assert worker.report(task).waits_for == PAUSED
        worker.pause([task], paused=False)
        wait_until(lambda: worker.listener.changes[-1].state is State.RUNNING, 30.0)
        assert "puts 3 records again in 8000 ms" in worker.report(task).waits_for


def test_topics_are_created_by_groups(ottla: Any) -> None:
    name = ottla.topic()
    config = {
        "name": "groups",
        "connector.class": f"{HERE}:numbers",
        "topic": f"{name}-wide",
        "topic.creation.groups": "wide",
        "topic.creation.wide.include": ".*-wide",
        "topic.creation.wide.partitions": "3",
        "topic.creation.wide.retention.ms": "12345678",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "value.converter": "JsonConverter",
    }
    with ConnectWorker(ottla.bootstrap) as worker, Admin(ottla.bootstrap) as admin:
        worker.start(config)
        wait_until(lambda: f"{name}-wide" in worker.listener.topics, 30.0)
        assert len(admin.describe_topic(f"{name}-wide").partitions) == 3


def test_failure_that_passes_skips_no_record(ottla: Any, tmp_path: Path) -> None:
    """Also with errors.tolerance=all: the record is fine, the registry is not."""
    topic, letters, path = ottla.topic(), f"{ottla.topic()}.dlq", tmp_path / "out"
    ottla.produce(topic, b"a", b"slow", b"b")
    config = dead_letter_config(topic, letters, f"{HERE}:append", file=str(path))
    config |= {"value.converter": f"{HERE}:UnreachableConverter", "errors.retry.timeout": "400"}
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        wait_until(lambda: path.exists() and '"b"' in path.read_text(), 30.0)
    assert [json.loads(line)[2] for line in path.read_text().splitlines()] == ["a", "slow", "b"]
    assert not ottla.records(letters)


def test_dead_letter_is_durable_before_its_offset_is_committed(ottla: Any, tmp_path: Path) -> None:
    topic, letters = ottla.topic(), f"{ottla.topic()}.dlq"
    ottla.produce(topic, b"{bad")
    config = dead_letter_config(topic, letters, f"{HERE}:append", file=str(tmp_path / "out"))
    config |= {"value.converter": "JsonConverter", "key.converter": "ByteArrayConverter"}
    # Without a flush the producer would wait for more records.
    config |= {"producer.override.linger.ms": "20000", "consumer.override.group.instance.id": "one"}
    with ForkedConnect(ottla.bootstrap, config, kill_at=KillAt(Step.AFTER_COMMIT)) as process:
        process.wait_until_killed()
    assert len(ottla.records(letters)) == 1
