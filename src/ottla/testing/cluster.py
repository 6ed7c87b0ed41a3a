"""A cluster of brokers in processes, for tests: any of them can be killed, stopped, paused and started again.

The processes end with the tests, even if they are killed: each stops when its standard input is closed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from ottla.clients import Admin
from ottla.config import format_properties
from ottla.launch.local_nodes import CONTROLLERS, LocalNode, format_nodes, node_settings
from ottla.launch.stopping import SUPERVISED
from ottla.testing.base import BrokerError
from ottla.testing.ports import ReservedPort
from ottla.testing.waiting import wait_until

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_LOG_TAIL = 4_000


class ClusterBroker:
    """One broker of a cluster, in a process of its own."""

    def __init__(self, node_id: int, directory: Path, settings: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.directory = directory
        self.paused = False
        self.node = LocalNode(node_id, directory / "server.properties", directory / "data")
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        self.node.properties_file.write_text(format_properties({**settings, "log.dirs": self.data}), encoding="utf-8")

    @property
    def data(self) -> str:
        """The log directory."""
        return str(self.node.data)

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError if the broker does not run."""
        if self._process is None or not self.running:
            raise BrokerError(f"Broker {self.node_id} does not run")
        return self._process.pid

    def log(self, characters: int = _LOG_TAIL) -> str:
        """The end of its log."""
        path = self.directory / "log"
        return path.read_text(errors="replace")[-characters:] if path.exists() else ""

    def launch(self) -> None:
        """Start the process, and return at once."""
        with (self.directory / "out").open("wb") as out, (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-m", "ottla.cli.main", "up", "--config", str(self.node.properties_file)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=log,
                env=os.environ | {SUPERVISED: "1"},
                process_group=0,  # Ctrl-C is for the tests
            )

    def wait_until_ready(self, deadline_s: float) -> None:
        """Wait until it serves clients. Raises BrokerError."""
        while b"\n" not in (self.directory / "out").read_bytes():
            if not self.running or time.monotonic() > deadline_s:
                raise BrokerError(f"Broker {self.node_id} does not start:\n{self.log()}")
            time.sleep(0.01)

    def end(self, by: signal.Signals) -> None:
        """Send the signal, and wait for the end of the process."""
        if self._process is None:
            return
        self.resume()
        if self.running:
            self._process.send_signal(by)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        pipe: IO[bytes] | None = self._process.stdin
        if pipe is not None:
            pipe.close()

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Send SIGCONT."""
        if self.paused and self.running:
            os.kill(self.pid, signal.SIGCONT)
        self.paused = False


class OttlaCluster:
    """Brokers 1 to N of one cluster; the first three (one, with fewer than three) are controllers, too.

    Topics have three replicas and `min.insync.replicas=2` (with fewer than three brokers: a replica on each, and 1).
    """

    def __init__(self, brokers: int = 3, properties: Mapping[str, object] | None = None) -> None:
        """`properties` are settings of every broker. The cluster does not run before `start_all`."""
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-test-"))
        # Records of tests often have fixed, old timestamps.
        given = {"log.retention.hours": "-1"} | {name: str(value) for name, value in (properties or {}).items()}
        self._reserved = [ReservedPort() for _ in range(brokers + CONTROLLERS)]
        ports = [each.number for each in self._reserved]
        self.brokers: dict[int, ClusterBroker] = {}
        for settings, port in zip(
            node_settings(brokers, "127.0.0.1", 0, given, ports[brokers:]), ports[:brokers], strict=True
        ):
            node_id = int(settings["node.id"])
            # A broker that is started again has the same port.
            listeners = settings["listeners"].replace(":0", f":{port}", 1)
            own = given | settings | {"listeners": listeners}
            self.brokers[node_id] = ClusterBroker(node_id, self._directory / f"node-{node_id}", own)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[:brokers])

    def start_all(self) -> None:
        """Start all brokers with empty directories, and wait until they serve clients. Raises BrokerError."""
        format_nodes([broker.node for broker in self.brokers.values()])
        for broker in self.brokers.values():
            broker.launch()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        for broker in self.brokers.values():
            broker.wait_until_ready(deadline_s)

    def start(self, node_id: int) -> None:
        """Start a broker again with its data, and wait until it serves clients. Raises BrokerError."""
        if not self.brokers[node_id].running:
            self.brokers[node_id].launch()
            self.brokers[node_id].wait_until_ready(time.monotonic() + START_TIMEOUT_S)

    def kill(self, node_id: int) -> None:
        """Kill a broker with SIGKILL; others lead its partitions."""
        self.brokers[node_id].end(signal.SIGKILL)

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly: it moves its leaderships first."""
        self.brokers[node_id].end(signal.SIGTERM)

    def pause(self, node_id: int) -> None:
        """Send SIGSTOP to a broker: only timeouts show the others that it does not answer."""
        self.brokers[node_id].pause()

    def resume(self, node_id: int) -> None:
        """Send SIGCONT to a broker."""
        self.brokers[node_id].resume()

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The id of the broker that leads a partition; None without one."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            return admin.describe_topic(topic).partitions[partition].leader

    def wait_until_in_sync(self, topic: str, timeout_s: float = 30.0) -> None:
        """Wait until all replicas of a topic are in sync, after a broker was started again. Raises NotInTime."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            wait_until(
                lambda: all(len(each.isr) == len(each.replicas) for each in admin.describe_topic(topic).partitions),
                timeout_s,
                what=f"all replicas of {topic} are in sync",
            )

    def close(self) -> None:
        """Kill all brokers, and delete their data."""
        for broker in self.brokers.values():
            broker.end(signal.SIGKILL)
        for reserved in self._reserved:
            reserved.release()
        shutil.rmtree(self._directory, ignore_errors=True)
