"""Spark's Python processes as forks: what they inherit from their launcher, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.spark import forked_workers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux only")
WAIT_S = 30.0
SHOWN = """
import os, sys
threads = len(os.listdir("/proc/self/task"))
print(__name__, sys.argv[1:], os.environ["COLOUR"], os.getcwd(), sys.stdin.read(), threads)
print("preloaded", "pyarrow" in sys.modules, file=sys.stderr)
sys.exit(3)
"""
SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
LASTING = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.fixture
def launcher() -> Path:
    """The launcher of this process."""
    found = forked_workers.start()
    assert found is not None
    return found


def _module(directory: Path, text: str) -> dict[str, str]:
    """Write the module `shown`, and return the environment in which it is found."""
    (directory / "shown.py").write_text(text, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(directory), "COLOUR": "green", "PYTHONDONTWRITEBYTECODE": "1"}


def test_a_fork_has_what_its_launcher_has(launcher: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [launcher, "-m", "shown", "a", "b"], input="given", capture_output=True, text=True, timeout=WAIT_S, check=False,
        cwd=tmp_path, env=_module(tmp_path, SHOWN),
    )  # fmt: skip
    assert ended.stdout == f"__main__ ['a', 'b'] green {tmp_path} given 1\n"
    assert ended.stderr == "preloaded True\n"


def test_forks_do_not_share_what_they_change(launcher: Path, tmp_path: Path) -> None:
    text = "import sys, random; print(hasattr(sys, 'mine'), random.random()); sys.mine = 1"
    seen = {
        subprocess.run(
            [launcher, "-m", "shown"], capture_output=True, text=True, timeout=WAIT_S, check=True,
            env=_module(tmp_path, text),
        ).stdout
        for _ in range(2)
    }  # fmt: skip
    assert len(seen) == 2
    assert all(each.startswith("False ") for each in seen)


def test_a_fork_ends_with_its_launcher(launcher: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [launcher, "-m", "shown"], stdout=subprocess.PIPE, text=True, env=_module(tmp_path, LASTING)
    ) as started:
        assert started.stdout is not None
        fork = int(started.stdout.readline())
        assert fork != started.pid
        started.send_signal(signal.SIGKILL)
        _wait_until_ended(fork)


def test_a_launcher_ends_with_its_fork(launcher: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        [launcher, "-m", "shown"], stdout=subprocess.PIPE, text=True, env=_module(tmp_path, LASTING)
    ) as started:
        assert started.stdout is not None
        os.kill(int(started.stdout.readline()), signal.SIGKILL)
        assert started.wait(WAIT_S) == 0


def test_reader_of_a_source_ends_with_java_although_its_launcher_lives(launcher: Path) -> None:
    """Java holds the other end of the standard input. A killed Java ends neither its launchers nor their calls."""
    with socket.create_server(("127.0.0.1", 0)) as java:
        java.settimeout(WAIT_S)
        environment = {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(java.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
        }
        with subprocess.Popen([launcher, "-m", SOURCE_RUNNER], stdin=subprocess.PIPE, env=environment) as started:
            connection, _ = java.accept()
            with connection:
                assert started.stdin is not None
                began_s = time.monotonic()
                started.stdin.close()
                assert started.wait(WAIT_S) == 0
                assert time.monotonic() - began_s < 5, "it did not wait for the response to its first message"


@pytest.mark.parametrize("arguments", [["-m", "shown"], ["-c", "import shown"]])
def test_without_a_server_the_launcher_becomes_the_interpreter(tmp_path: Path, arguments: list[str]) -> None:
    launcher = forked_workers._write_launcher(tmp_path)
    text = "import os, sys; print(os.getpid(), 'pyarrow' in sys.modules)"
    with subprocess.Popen(
        [launcher, *arguments], stdout=subprocess.PIPE, text=True, env=_module(tmp_path, text)
    ) as started:
        assert started.stdout is not None
        assert started.stdout.read() == f"{started.pid} False\n"


def test_the_server_ends_with_its_owner(tmp_path: Path) -> None:
    program = (
        "from ottla.spark import forked_workers as f; f.start(); print(*(each[1].pid for each in f._running.values()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import os; {program}; import sys; sys.stdout.flush(); os._exit(0)"],
        capture_output=True, text=True, timeout=WAIT_S, check=True,
    )  # fmt: skip
    _wait_until_ended(int(done.stdout))


def _wait_until_ended(pid: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still runs")
