"""Distributed workers as processes of their own (forked: see tests/forked.py), killed or paused without mercy.

Every wait has a deadline; the standard error of a process is kept in its log.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottla.clients import Consumer
from ottla.clients.errors import UnknownTopicOrPartition
from ottla.testing.ports import ReservedPort
from tests import forked
from tests.peers.stock_connect import RestError, request, worker_settings

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 40.0
ANNOUNCEMENT = "connect="
COUNTING = "tests.connect.cluster.counting:CountingConnector"
BROKER = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500}
"""Settings of a broker, so that a failed worker leaves its group soon."""
QUICK = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 300, "exactly.once.source.support": "enabled"}


class WorkerProcess:
    """One worker in `directory`, on a loopback port that stays reserved for it. Settings have Kafka's names."""

    def __init__(
        self, directory: Path, bootstrap: str, group_id: str = "cluster", topics: str = "connect", **settings: object
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log_path = directory / "stderr.log"
        self._stdout_path = directory / "stdout.log"
        self._port = ReservedPort()
        self.url = f"http://127.0.0.1:{self._port.number}"
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self._settings = worker_settings(bootstrap, group_id, topics) | QUICK | more
        self._process: forked.Process | None = None

    @property
    def worker_id(self) -> str:
        """The name of the worker in statuses."""
        return f"127.0.0.1:{self._port.number}"

    def launch(self) -> None:
        """Start the process, and return at once."""
        command = [sys.executable, "-m", "ottla.cli.main", "connect", "serve", "--listen", self.worker_id]
        for name, value in self._settings.items():
            command += ["-X", f"{name}={value}"]
        with self._stdout_path.open("wb") as out, self.log_path.open("ab") as log:
            self._process = forked.start(command, out, log, Path.cwd())

    def start(self) -> None:
        """Start the process, and wait until it has an assignment."""
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the worker has an assignment."""
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._stdout_path.read_text().startswith(ANNOUNCEMENT):
            assert self._process.poll() is None, f"ended with {self._process.returncode}:\n{self.log()}"
            assert time.monotonic() < deadline, f"not ready in time:\n{self.log()}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code. Raises subprocess.TimeoutExpired, after SIGKILL."""
        assert self._process is not None
        self.signal(signal.SIGCONT)
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def log(self) -> str:
        """The log so far."""
        return self.log_path.read_text()

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send one request; returns the parsed body. Raises RestError."""
        return request(self.url + path, method, body)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()


@contextlib.contextmanager
def workers(directory: Path, bootstrap: str, count: int, **settings: object) -> Iterator[list[WorkerProcess]]:
    """Several workers of one group."""
    every = [WorkerProcess(directory / f"worker-{i}", bootstrap, **settings) for i in range(count)]
    with contextlib.ExitStack() as stack:
        for each in every:
            each.launch()
            stack.callback(each.__exit__, None, None, None)
        for each in every:
            each.wait_until_ready()
        yield every


def until(condition: Callable[[], Any], about: str, timeout_s: float = 120.0) -> Any:
    """Return the first true result. Answers with errors count as false: the group may rebalance."""
    deadline = time.monotonic() + timeout_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            if found := condition():
                return found
            last = found
        except (RestError, OSError) as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not in time: {about}; last: {last!r}")


def put(worker: WorkerProcess, name: str, config: dict[str, str]) -> None:
    """Create or configure a connector, again while the group rebalances."""

    def done() -> bool:
        worker.request("PUT", f"/connectors/{name}/config", config)
        return True

    until(done, f"configuring {name}")


def states(worker: WorkerProcess, name: str) -> list[tuple[str, str]]:
    """The state and the worker of a connector, then of its tasks."""
    status = worker.request("GET", f"/connectors/{name}/status")
    return [(each["state"], each["worker_id"]) for each in (status["connector"], *status["tasks"])]


def running(worker: WorkerProcess, name: str, tasks: int, *, on: set[str] | None = None) -> bool:
    """Whether a connector and all of its tasks run, on these workers."""
    found = states(worker, name)
    here = on is None or {worker_id for _, worker_id in found} <= on
    return here and len(found) == tasks + 1 and all(state == "RUNNING" for state, _ in found)


def committed(bootstrap: str, topic: str) -> list[Any]:
    """The committed values of a topic, by partition and offset; none if it does not exist."""
    values: list[Any] = []
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        try:
            partitions = [(topic, each) for each in consumer.partitions_of(topic)]
        except UnknownTopicOrPartition:
            return values
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + 30.0
        while any(consumer.position(each) < end for each, end in ends.items()):
            assert time.monotonic() < deadline, "the topic was not read in time"
            values += [json.loads(record.value) for record in consumer.poll(0.2) if record.value is not None]
    return values
