"""A forked process has what a started one has: whatever it inherits, its streams, its signals and its end."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests import forked
from tests.forking_parent import PRELOADED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems start each process")
PROGRAM = "tests.unit.process_report"
Start = Callable[..., forked.Process]


def really(words: list[str], stdout: int, stderr: int, directory: Path, path: Sequence[str] = ()) -> forked.Process:
    with os.fdopen(stdout, "wb", closefd=False) as out, os.fdopen(stderr, "wb", closefd=False) as errors:
        return forked.start_really([sys.executable, "-m", *words], out, errors, directory, path)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both find the program from any directory."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", forked.preceded([root])["PYTHONPATH"])
    monkeypatch.setattr(forked, "BEGIN", forked.inherited())


@pytest.fixture
def parent(_importable: None) -> Iterator[forked._Parent]:
    parent = forked._Parent()
    yield parent
    parent.close()


@pytest.fixture
def start(parent: forked._Parent) -> Start:
    def start(words: list[str], stdout: int, stderr: int, directory: Path, path: Sequence[str] = ()) -> forked.Process:
        with Path(os.devnull).open("rb") as nothing:
            return parent.fork(words, [nothing.fileno(), stdout, stderr], str(directory), path)

    return start


class Run:
    """One run of the program, with its output in files."""

    def __init__(self, start: Start, directory: Path, *words: str, path: Sequence[str] = ()) -> None:
        directory.mkdir()
        self._out, self._errors = directory / "out", directory / "errors"
        with self._out.open("wb") as out, self._errors.open("wb") as errors:
            self.process = start([PROGRAM, *words], out.fileno(), errors.fileno(), directory.parent, path)

    def report(self) -> dict[str, object]:
        deadline = time.monotonic() + 60
        while not self._out.read_text().endswith("\n"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return dict(json.loads(self._out.read_text()))

    def errors(self) -> str:
        return self._errors.read_text()


@pytest.mark.parametrize("path", [(), ("/one", "/two")])
def test_forked_process_inherits_what_a_started_one_inherits(start: Start, tmp_path: Path, path: Sequence[str]) -> None:
    runs = [Run(each, tmp_path / str(n), "0", "b c", path=path) for n, each in enumerate((really, start))]
    assert [run.process.wait(60) for run in runs] == [0, 0]
    started, forked_one = (run.report() for run in runs)
    assert forked_one == started
    assert [run.errors() for run in runs] == ["an error\n"] * 2


@pytest.mark.parametrize(("word", "code", "error"), [("7", 7, ""), ("fail", 1, "ValueError: it failed\n")])
def test_exit_codes_and_errors_are_its_own(start: Start, tmp_path: Path, word: str, code: int, error: str) -> None:
    run = Run(start, tmp_path / "run", word)
    assert run.process.wait(60) == code
    assert run.process.poll() == code
    assert run.errors().endswith(error)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_signal_ends_one_process_and_no_other(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    first, second = Run(start, tmp_path / "1", "wait"), Run(start, tmp_path / "2", "wait")
    assert first.report()
    assert second.report()
    with pytest.raises(subprocess.TimeoutExpired):
        first.process.wait(0.01)
    first.process.send_signal(number)
    assert first.process.wait(60) == -number
    assert not Path(f"/proc/{first.process.pid}").exists()
    first.process.kill()  # without effect, also on another process with its id
    assert second.process.poll() is None
    third = Run(start, tmp_path / "3", "0")
    assert third.process.wait(60) == 0
    second.process.kill()
    assert second.process.wait(60) == -signal.SIGKILL


def test_interrupt_is_an_exception(start: Start, tmp_path: Path) -> None:
    run = Run(start, tmp_path / "run", "wait")
    assert run.report()
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(60) == -signal.SIGINT
    assert "KeyboardInterrupt" in run.errors()


def test_process_outlives_a_closed_forking_parent(parent: forked._Parent, start: Start, tmp_path: Path) -> None:
    run = Run(start, tmp_path / "run", "wait")
    assert run.report()
    parent.close()
    os.kill(run.process.pid, 0)
    os.kill(run.process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="parent of forked processes ended"):
        run.process.wait(60)


def test_changed_inheritance_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = forked.inherited()
    monkeypatch.setenv(forked.OF_EACH_TEST, "another test")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert forked.inherited() == before
    monkeypatch.setenv("OTTLA_KERNELS", "fallback")
    assert forked.inherited() != before
    monkeypatch.delenv("OTTLA_KERNELS")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert forked.inherited() != before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    mask = os.umask(0o077)
    try:
        assert forked.inherited() != before
    finally:
        os.umask(mask)
    assert forked.inherited() == before


def test_another_command_or_environment_starts_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ottla = [sys.executable, "-m", "ottla.cli.main", "version"]
    with (tmp_path / "out").open("wb") as out:
        processes = [forked.start(ottla, out, out, tmp_path), forked.start(["true"], out, out, tmp_path)]
        monkeypatch.setenv("OTTLA_ANYTHING", "1")
        processes.append(forked.start(ottla, out, out, tmp_path))
        monkeypatch.delenv("OTTLA_ANYTHING")
        processes.append(forked.start(ottla, out, out, tmp_path))
        monkeypatch.delenv(forked.OF_EACH_TEST)  # a measurement
        processes.append(forked.start(ottla, out, out, tmp_path))
    assert [process.wait(60) for process in processes] == [0] * 5
    assert [isinstance(each, forked.ForkedProcess) for each in processes] == [True, False, False, True, False]


@pytest.mark.parametrize("name", sorted({name for names in PRELOADED.values() for name in names}))
def test_module_that_is_imported_ahead_exists(name: str) -> None:
    """The forking parent ends at an import that fails, and the tests that need a server with it."""
    assert importlib.util.find_spec(name) is not None
