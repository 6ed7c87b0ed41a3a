"""Stock Kafka Connect on this machine: distributed workers and MirrorMaker 2, as processes of their own.

    with StockWorker(directory, bootstrap, "connect-cluster") as worker:
        worker.request("POST", "/connectors", {"name": ..., "config": ...})

Every wait has a deadline. The log of a worker is `directory`/worker.log.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ottla.testing.ports import ReservedPort

from .cache import CONNECT, KAFKA
from .kafka import java, stop_process

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


class RestError(Exception):
    """An answer with an error: `status`, and the message of the worker."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def request(url: str, method: str, body: object = None, *, timeout_s: float = 60.0) -> Any:
    """Send one request to a worker of any kind; returns the parsed body. Raises RestError, OSError."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data=data, method=method, headers=headers), timeout=timeout_s
        ) as response:
            text = response.read()
    except urllib.error.HTTPError as error:
        with error:
            raise RestError(error.code, error.read().decode(errors="replace")) from None
    return json.loads(text) if text else None


def worker_settings(bootstrap: str, group_id: str, topics: str) -> dict[str, object]:
    """The settings of a worker of either kind, for clusters with one broker; `topics` begins the topics' names."""
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "key.converter": json_converter,
        "key.converter.schemas.enable": "false",
        "value.converter": json_converter,
        "value.converter.schemas.enable": "false",
        "config.storage.topic": f"{topics}-configs",
        "offset.storage.topic": f"{topics}-offsets",
        "status.storage.topic": f"{topics}-status",
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "offset.storage.partitions": 3,
        "status.storage.replication.factor": 1,
        "status.storage.partitions": 2,
        "offset.flush.interval.ms": 500,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 0,
    }


class JvmProcess:
    """A Java program with Kafka's jars and Connect's plugins, run in `directory`."""

    def __init__(self, directory: Path, main: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._main = main
        self._process: subprocess.Popen[str] | None = None

    def launch(self, settings: Mapping[str, object]) -> None:
        """Start the program with a properties file."""
        properties = self.directory / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = java(self._main, str(properties))
        command[command.index("-cp") + 1] = f"{KAFKA}/*:{CONNECT}/*"
        with (self.directory / "worker.log").open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                cwd=self.directory,
                env=os.environ | {"LC_ALL": "C.UTF-8"},
            )

    def log(self) -> str:
        """The log so far."""
        return (self.directory / "worker.log").read_text()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after 30 s."""
        if self._process is not None:
            stop_process(self._process, STOP_TIMEOUT_S)


class StockWorker(JvmProcess):
    """One distributed worker; `settings` extend or replace `worker_settings`."""

    def __init__(
        self, directory: Path, bootstrap: str, group_id: str, topics: str = "connect", **settings: object
    ) -> None:
        super().__init__(directory, "org.apache.kafka.connect.cli.ConnectDistributed")
        self._port = ReservedPort()
        self.url = f"http://127.0.0.1:{self._port.number}"
        more = {name.replace("_", "."): value for name, value in settings.items()}
        self._settings = worker_settings(bootstrap, group_id, topics) | {"listeners": self.url} | more

    def start(self) -> None:
        """Start, and wait until the worker is in its group."""
        self.launch(self._settings)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert not self.has_ended, f"the worker has ended:\n{self.log()[-4000:]}"
            assert time.monotonic() < deadline, f"the worker does not answer:\n{self.log()[-4000:]}"
            try:
                request(f"{self.url}/connectors", "GET", timeout_s=5.0)
            except (OSError, RestError):
                time.sleep(0.1)
            else:
                return

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Send one request; returns the parsed body. Raises RestError."""
        return request(self.url + path, method, body)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
