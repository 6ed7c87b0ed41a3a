"""`ottla up --brokers N`: a cluster of processes that one command starts, watches and stops."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.clients import Admin
from ottla.config import load_properties

TIMEOUT_S = 40.0


class Up:
    """The command, and what it prints."""

    def __init__(self, home: Path, *words: str) -> None:
        self.home = home
        self.log = home.parent / "stderr.log"
        self._output = home.parent / "stdout.log"
        command = [sys.executable, "-m", "ottla.cli.main", "up", "--data", str(home), *words]
        with self.log.open("ab") as log, self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log)

    def wait_until_ready(self) -> list[str]:
        """The addresses of the brokers."""
        self.wait_for(lambda: "\n" in self._output.read_text())
        first = self._output.read_text().splitlines()[0]
        assert first.startswith("bootstrap=")
        return first.removeprefix("bootstrap=").split(",")

    def wait_for(self, condition: object) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline, self.log.read_text()[-5000:]
            assert self.process.poll() is None, self.log.read_text()[-5000:]
            time.sleep(0.02)

    def children(self) -> dict[int, int]:
        """The process id of each node."""
        found = {}
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            properties = load_properties(Path(words[words.index("--config") + 1]))
            found[int(properties["node.id"])] = int(pid)
        return found

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)


@contextlib.contextmanager
def up(home: Path, *words: str) -> Iterator[Up]:
    command = Up(home, *words)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait(TIMEOUT_S)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


def test_cluster_starts_stops_and_starts_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with up(home, "--brokers", "3", "--listen", "0") as command:
        addresses = command.wait_until_ready()
        with Admin(bootstrap_servers=addresses[0]) as admin:
            cluster = admin.describe_cluster()
            assert [broker.node_id for broker in cluster.brokers] == [1, 2, 3]
            assert [voter.node_id for voter in admin.describe_quorum().voters] == [1, 2, 3]
        os.kill(command.children()[2], signal.SIGKILL)
        command.wait_for(lambda: "Node 2 was killed by signal 9" in command.log.read_text())
        assert str(home / "node-2" / "server.properties") in command.log.read_text()
        # A terminal, `timeout` and `make` may each repeat one Ctrl-C.
        command.process.send_signal(signal.SIGINT)
        assert command.end(signal.SIGINT) == 1
        assert "a second time" not in command.log.read_text()
    with up(home, "--brokers", "3", "--listen", "0") as command:
        with Admin(bootstrap_servers=command.wait_until_ready()[0]) as admin:
            assert admin.describe_cluster().cluster_id == cluster.cluster_id
        assert command.end(signal.SIGTERM) == 0
    assert "Traceback" not in command.log.read_text()
    assert main(["up", "--data", str(home)]) == 1
    assert "has the data of a cluster" in capsys.readouterr().err
    assert main(["up", "--data", str(home), "--brokers", "2"]) == 1
    assert "has a cluster of 3 brokers" in capsys.readouterr().err


def test_nodes_end_with_the_command_that_runs_them(home: Path) -> None:
    with up(home, "--brokers", "2", "--listen", "0") as command:
        command.wait_until_ready()
        children = command.children().values()
        assert len(children) == 2
        command.end(signal.SIGKILL)
        deadline = time.monotonic() + TIMEOUT_S
        while any(Path(f"/proc/{pid}").exists() for pid in children):
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--brokers", "many"], "is not a number from 1 to 64"),
        (["--brokers", "0"], "is not a number from 1 to 64"),
        (["--brokers", "3", "--node-id", "2"], "--brokers sets node.id of each node itself"),
        (["--brokers", "3", "-X", "log.dirs=/tmp"], "--brokers sets log.dirs of each node itself"),
        (["--brokers", "3", "--listen", "65534"], "are not all below 65536"),
        (["--brokers", "3", "-X", "num.partitions=none"], "num.partitions"),
    ],
)
def test_wrong_options_start_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert main(["up", "--data", str(home), *words]) == 2
    assert problem in capsys.readouterr().err
    assert not home.exists()


def test_directory_of_a_single_broker_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--data", str(home)]) == 0
    assert main(["up", "--data", str(home), "--brokers", "3"]) == 1
    assert "has the data of a single broker" in capsys.readouterr().err


def _server_behind_free_ports(count: int) -> socket.socket:
    """Listen on a port for which the previous `count` ports are free."""
    for _ in range(100):
        server = socket.create_server(("127.0.0.1", 0))
        port = server.getsockname()[1]
        try:
            for free in range(port - count, port):
                socket.create_server(("127.0.0.1", free)).close()
        except OSError:
            server.close()
        else:
            return server
    raise AssertionError("no free ports side by side")


@pytest.mark.parametrize("node", [1, 2])
def test_port_in_use_refuses_the_start_and_leaves_nothing_behind(
    home: Path, capsys: pytest.CaptureFixture[str], node: int
) -> None:
    with _server_behind_free_ports(node - 1) as server:
        port = server.getsockname()[1]
        assert main(["up", "--data", str(home), "--brokers", "2", "--listen", str(port - node + 1)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"ottla: node {node} cannot start: 127.0.0.1:{port} is in use"
    assert second.strip().startswith("Stop the process that uses it, or choose another port")
    assert not home.exists()


def test_second_start_of_a_running_cluster_is_refused_and_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with up(home, "--brokers", "2", "--listen", "0") as command:
        command.wait_until_ready()
        settings = home / "node-1" / "server.properties"
        before = settings.read_text()
        assert main(["up", "--data", str(home), "--brokers", "2", "--listen", "0"]) == 1
        assert f".lock is held by process {command.children()[1]}: " in capsys.readouterr().err
        assert settings.read_text() == before


def test_start_of_a_cluster_that_cannot_write_a_directory_leaves_nothing_new(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.mkdir()
    (home / "node-2").touch()
    assert main(["up", "--data", str(home), "--brokers", "2", "--listen", "0"]) == 1
    assert "cannot be used" in capsys.readouterr().err
    assert [path.name for path in home.rglob("*")] == ["node-2"]


def test_error_of_a_node_is_the_last_line_of_a_failed_start(home: Path) -> None:
    metadata = home / "node-2" / "data" / "__cluster_metadata-0"
    metadata.parent.mkdir(parents=True)
    metadata.touch()
    with up(home, "--brokers", "2", "--listen", "0") as command:
        assert command.process.wait(TIMEOUT_S) == 1
        lines = command.log.read_text().splitlines()
    assert lines[-2].startswith(f"ottla: node 2 did not start: the data directory {metadata.parent} cannot be used")
    assert lines[-1].strip().startswith("Choose another one with --data DIR")
    assert not any("the others go on" in line or "Start it again" in line for line in lines)
