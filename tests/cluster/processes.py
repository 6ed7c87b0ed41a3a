"""A cluster of real processes on loopback ports, for tests and measurements.

    with Cluster(directory) as cluster:                     # nodes 1, 2, 3: brokers and controllers
        producer = Producer(bootstrap_servers=cluster.bootstrap)
        cluster.kill(cluster.leader("topic", 0))
        ...
        cluster.start_node(1)

`Cluster(directory, brokers=3, controllers=3)` has brokers 1 to 3 and separate controllers 101 to 103. Without
`controllers`, the first three nodes (one, with fewer than three brokers) are both. Each node has a directory with its
server.properties, data and log; it outlives the process. Every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ottla.cli.main import main
from ottla.clients import Admin
from ottla.clients.errors import ClientError
from ottla.common.ids import uuid_to_text
from ottla.testing.ports import ReservedPort
from tests.ottla_process import BrokerDied, ForkedOttla

READY_TIMEOUT_S = 30.0
FIRST_SEPARATE_CONTROLLER = 101
# Small internal topics: a failover of three nodes must be quick on a busy machine.
SMALL = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
}


def wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Poll until the condition is true; clients' errors meanwhile count as false. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    problem: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except ClientError as error:
            problem = error
        time.sleep(0.05)
    raise TimeoutError(f"the condition is not true after {timeout_s} s; last error: {problem}")


class ClusterNode(ForkedOttla):
    """One node: `ottla up --config server.properties` in its directory."""

    def __init__(
        self, node_id: int, directory: Path, settings: Mapping[str, object], prefix: Sequence[str] = ()
    ) -> None:
        """`prefix` are words before the command, such as `ip netns exec NAME`."""
        super().__init__(directory)
        self._prefix = list(prefix)
        self.node_id = node_id
        self.settings: dict[str, object] = dict(settings) | {"node.id": node_id, "log.dirs": self.data}
        self.paused = False

    @property
    def is_broker(self) -> bool:
        """Whether clients can connect to it."""
        return "broker" in str(self.settings["process.roles"])

    @property
    def is_controller(self) -> bool:
        """Whether it is in the metadata quorum."""
        return "controller" in str(self.settings["process.roles"])

    @property
    def properties_path(self) -> Path:
        """The file with its settings."""
        return self.directory / "server.properties"

    def write_settings(self) -> None:
        """Write server.properties; a change has an effect at the next start."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_path.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))

    def format(self, cluster_id: str, *options: str) -> None:
        """`ottla format`; a formatted directory stays as it is. Raises RuntimeError."""
        self.write_settings()
        words = ["format", "--config", str(self.properties_path), "--cluster-id", cluster_id, "-g", *options]
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = main(words)
        if code:
            raise RuntimeError(f"cannot format node {self.node_id}: {errors.getvalue()}")

    def command(self) -> list[str]:
        """The command line that starts it."""
        command = [sys.executable, "-m", "ottla.cli.main", "up", "--config", str(self.properties_path)]
        return [*self._prefix, *command]

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def _end(self, by: signal.Signals) -> int:
        if self.paused and self.is_running:
            self.resume()
        return super()._end(by)


class Place(NamedTuple):
    """Where a node runs: its address, and the words before its command."""

    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


class Cluster:
    """Nodes by id, and the operations that tests need."""

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        controllers: int = 0,
        properties: Mapping[str, object] | None = None,
        *,
        dynamic: bool = False,
        place: Callable[[int], Place] = lambda _: Place(),
    ) -> None:
        """`properties` are settings of every node. `dynamic`: the voters are in the log (kraft.version 1, KIP-853).

        `place(node_id)` is where a node runs; by default all are on the loopback interface.
        """
        self.directory = directory.resolve()
        self.cluster_id = uuid_to_text(b"o" + os.urandom(15))
        combined = 0 if controllers else (3 if brokers >= 3 else 1)
        voters = [FIRST_SEPARATE_CONTROLLER + i for i in range(controllers)] or list(range(1, combined + 1))
        ids = [*range(1, brokers + 1), *(each for each in voters if each > brokers)]
        self._reserved = [ReservedPort() for _ in range(brokers + len(voters))]
        ports = iter([each.number for each in self._reserved])
        self._place = place
        self._client_ports = {node_id: next(ports) for node_id in ids if node_id <= brokers}
        self._controller_ports = {node_id: next(ports) for node_id in voters}
        self._format_options: list[str] = []
        if dynamic:
            directories = {each: uuid_to_text(b"o" + os.urandom(15)) for each in voters}
            addresses = (f"{each}@{self._controller_address(each)}:{directories[each]}" for each in voters)
            self._format_options = ["--initial-controllers", ",".join(addresses)]
        replicas = min(3, brokers)
        common = {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": max(1, replicas - 1),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": max(1, replicas - 1),
            **SMALL,
            **(properties or {}),
        }
        self.nodes = {
            node_id: ClusterNode(
                node_id,
                self.directory / f"node-{node_id}",
                self._roles(node_id, dynamic=dynamic) | common,
                place(node_id).prefix,
            )
            for node_id in ids
        }

    def _roles(self, node_id: int, *, dynamic: bool) -> dict[str, object]:
        listeners = []
        if node_id in self._client_ports:
            listeners.append(f"PLAINTEXT://{self._client_address(node_id)}")
        if node_id in self._controller_ports:
            listeners.append(f"CONTROLLER://{self._controller_address(node_id)}")
        is_broker, is_controller = node_id in self._client_ports, node_id in self._controller_ports
        roles = ["broker"] * is_broker + ["controller"] * is_controller
        voters = ",".join(f"{each}@{self._controller_address(each)}" for each in self._controller_ports)
        quorum = (
            {"controller.quorum.bootstrap.servers": self.controller_bootstrap}
            if dynamic
            else {"controller.quorum.voters": voters}
        )
        return {
            "process.roles": ",".join(roles),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            # Tests of network failures give each node an address in a network namespace of its own.
            "ottla.insecure": "true",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            **quorum,
        }

    def _client_address(self, node_id: int) -> str:
        return f"{self._place(node_id).host}:{self._client_ports[node_id]}"

    def _controller_address(self, node_id: int) -> str:
        return f"{self._place(node_id).host}:{self._controller_ports[node_id]}"

    # -- all nodes -------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(map(self._client_address, self._client_ports))

    @property
    def controller_bootstrap(self) -> str:
        """The addresses of all controllers, for tools with --bootstrap-controller."""
        return ",".join(map(self._controller_address, self._controller_ports))

    @property
    def running(self) -> list[int]:
        """The ids of the nodes whose processes run."""
        return [node_id for node_id, node in self.nodes.items() if node.is_running]

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Format the nodes that are not, start all, and wait until each serves."""
        for node in self.nodes.values():
            node.format(self.cluster_id, *(self._format_options if node.is_controller else ()))
        deadline = time.monotonic() + timeout_s
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready(max(0.1, deadline - time.monotonic()))

    def stop(self) -> dict[int, int]:
        """Stop all running nodes cleanly, brokers first; returns the exit codes. Raises BrokerDied."""
        order = sorted(self.running, key=lambda node_id: self.nodes[node_id].is_controller)
        return {node_id: self.nodes[node_id].stop() for node_id in order}

    def close(self) -> None:
        """Kill all processes."""
        for node in self.nodes.values():
            if node.is_running:
                with contextlib.suppress(BrokerDied):
                    node.kill()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- one node ----------------------------------------------------------------------------------------------------

    def start_node(self, node_id: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start a node again, and wait until it serves."""
        self.nodes[node_id].launch()
        self.nodes[node_id].wait_until_ready(timeout_s)

    def stop_node(self, node_id: int) -> int:
        """Stop a node cleanly; returns its exit code."""
        return self.nodes[node_id].stop()

    def kill(self, node_id: int) -> None:
        """Kill -9."""
        self.nodes[node_id].kill()

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self.nodes[node_id].resume()

    # -- what the cluster says ---------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        """A client for administration."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            yield admin

    def active_controller(self) -> int:
        """The id of the node that leads the metadata quorum."""
        with self.admin() as admin:
            return admin.describe_quorum().leader

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of a partition's leader; -1 without one."""
        with self.admin() as admin:
            leader = admin.describe_topics([topic])[topic].partitions[partition].leader
        return -1 if leader is None else leader

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The ids of the in-sync replicas, sorted."""
        with self.admin() as admin:
            return sorted(admin.describe_topics([topic])[topic].partitions[partition].isr)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        """The function of this name, with the time that a cluster needs to be ready."""
        wait_until(condition, timeout_s)

    def assert_no_traceback(self) -> None:
        """A traceback in the log of any node is a bug."""
        for node in self.nodes.values():
            node.assert_no_traceback()
