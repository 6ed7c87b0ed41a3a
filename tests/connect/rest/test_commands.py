"""The verbs of `ottla connect` against a worker in memory, and the examples of their help pages."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Done, all_commands, help_page, run_with_pipes
from tests.connect.rest.serving import Serving, serving

CONFIG = {"connector.class": "FileStreamSource", "file": "/tmp/in.txt", "topic": "orders", "password": "hunter2"}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serving]:
    """A worker in memory, as $OTTLA_CONNECT, with files for the examples in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.json").write_text(json.dumps({"name": "orders", "config": CONFIG}))
    (tmp_path / "source.json").write_text(json.dumps({**CONFIG, "name": "more"}))
    (tmp_path / "orders.properties").write_text("".join(f"{name}={value}\n" for name, value in CONFIG.items()))
    toml = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in CONFIG.items())
    (tmp_path / "orders.toml").write_text(f'name = "orders"\n{toml}')
    with serving() as running:
        monkeypatch.setenv("OTTLA_CONNECT", f"http://{running.host}:{running.port}")
        yield running


def ottla(words: str) -> Done:
    return run_with_pipes(*shlex.split(words))


def test_a_connector_is_created_observed_and_deleted(worker: Serving) -> None:
    assert ottla("connect create orders.json").code == 0
    listed = ottla("connect list --json")
    row = json.loads(listed.out)
    assert (row["name"], row["type"], row["class"]) == ("orders", "source", "FileStreamSource")
    described = ottla("connect describe orders")
    assert b"file = /tmp/in.txt" in described.out
    assert b"hunter2" not in described.out + ottla("connect describe orders --json").out
    assert ottla("connect create orders.json").err.startswith("ottla: Connector orders already exists")
    assert ottla("connect create orders.toml --replace").code == 0
    assert ottla("connect delete orders --yes").code == 0
    assert "Connector orders not found" in ottla("connect describe orders").err


def test_faults_of_a_configuration_are_listed(worker: Serving, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(json.dumps({**CONFIG, "tasks.max": "0", "topic": ""}))
    done = ottla("connect validate bad.json --json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 1
    assert {row["setting"] for row in found} == {"tasks.max", "topic"}
    created = ottla("connect create bad.json")
    assert created.code == 1
    assert "the following 2 error(s)" in created.err
    assert "Value must be at least 1" in created.err


def test_the_state_is_explained_in_sentences(worker: Serving) -> None:
    assert ottla("connect create orders.json --state stopped").code == 0
    assert b"an operator asked for it" in ottla("connect why orders").out
    assert ottla("connect resume orders").code == 0
    wait(lambda: b"orders runs: 1 task" in ottla("connect why orders").out)
    assert ottla("connect pause orders").code == 0
    wait(lambda: b"is paused" in ottla("connect why orders").out)


def wait(holds: object) -> None:
    """Repeat until something holds, at most 200 times."""
    assert callable(holds)
    assert any(holds() for _ in range(200))


def test_offsets_are_saved_reset_and_restored(worker: Serving, tmp_path: Path) -> None:
    ottla("connect create orders.json")
    wait(lambda: b"position" in ottla("connect offsets orders").out)
    saved = ottla("connect offsets orders --json").out
    (tmp_path / "saved.json").write_bytes(saved)
    assert "must be in the STOPPED state" in ottla("connect offsets orders --reset --yes").err
    ottla("connect stop orders")
    assert ottla("connect offsets orders --reset --yes").code == 0
    assert b"position" not in ottla("connect offsets orders").out
    assert ottla("connect offsets orders --set saved.json").code == 0
    assert ottla("connect offsets orders --json").out == saved


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("connect list -C http://127.0.0.1:1", "no Connect worker can be reached at http://127.0.0.1:1"),
        ("connect list -C ftp://x", "is not of the form http://HOST:PORT"),
        ("connect create nothing.json", "nothing.json"),
        ("connect why nothing", "No status found for connector nothing"),
        ("connect offsets x --set a --reset", "exclude each other"),
        ("connect plugins Nothing", "Unknown plugin Nothing."),
        ("connect logs root --level LOUD", "invalid log level 'LOUD'."),
        ("connect run", "FILE"),
        ("connect verify orders", "cannot compare its system"),
    ],
)
def test_mistakes_are_explained(worker: Serving, words: str, text: str) -> None:
    if "verify" in words:
        ottla("connect create orders.json")
    done = ottla(words)
    assert done.code in (1, 2)
    assert text in done.err
    assert "Traceback" not in done.err


def test_the_examples_of_all_help_pages_work(worker: Serving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    count = 0
    for path, command in all_commands():
        if path.split()[0] != "connect" or path in ("connect", "connect run", "connect serve", "connect verify"):
            continue
        for line in help_page(path, command).partition("examples:\n")[2].splitlines():
            words = line.strip().removeprefix("ottla ").partition("  ")[0].partition(" | ")[0].partition(" > ")[0]
            if not words or "http://worker" in words:
                continue
            ottla("connect create orders.json")
            if "--set" in words or "--reset" in words:
                ottla("connect stop orders")
                (tmp_path / "orders-offsets.json").write_bytes(ottla("connect offsets orders --json").out)
            if "--task 0" in words:
                ottla("connect resume orders")
                wait(lambda: b"orders runs: 1 task" in ottla("connect why orders").out)
            if words.startswith("connect create") and "--replace" not in words:
                ottla("connect delete orders --yes")
            done = ottla(words)
            # `why` ends with 1 if tasks do not run yet.
            assert done.code == 0 or words.startswith("connect why"), f"{words}\n{done.err}"
            count += 1
    assert count > 20


def test_names_of_connectors_are_completed(worker: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    ottla("connect create orders.json")
    monkeypatch.setenv("_OTTLA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "ottla connect why or")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert b"plain,orders" in run_with_pipes().out
