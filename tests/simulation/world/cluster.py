"""A cluster of real nodes (`broker/server.py`) on simulated machines and disks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ottla.broker.server import Node
from ottla.cluster.formatting import NodeFormat, format_node
from ottla.cluster.node.waiting import NodeStoppedError
from ottla.common.ids import Uuid
from ottla.config import BrokerConfig
from ottla.log import StorageError
from ottla.log.storage import read_meta
from ottla.metadata.features import default_levels
from ottla.raft import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.raft.voters import VersionRange
from tests.simulation.world.disk import SimulatedDisk
from tests.simulation.world.machines import Clock, Machines

CLUSTER_ID = "simulatedSimulatedSimA"
BROKER_PORT, CONTROLLER_PORT = 9092, 9093
LISTENER = "CONTROLLER"
DATA = "/machine/data"
SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": LISTENER,
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "log.dirs": DATA,
    "log.cleaner.enable": "false",  # `CLEANED` enables it
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2500",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "5",
}
CLEANED = {
    "log.dirs": f"{DATA},{DATA}2",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "700",
    "log.initial.task.delay.ms": "500",
}
"""Nodes with two log directories, where compaction and retention run all the time."""


def host_of(node_id: int) -> str:
    return f"node{node_id}"


class NodeRun:
    """One run of a node, from its start to its end."""

    def __init__(self, machine: Machine) -> None:
        cluster = machine.cluster
        random = cluster.machines.random
        self.machine = machine
        self.process = cluster.machines.start_process(host_of(machine.node_id), rate=random.uniform(0.97, 1.03))
        self.process.slowness_us = machine.slowness_us
        self.process.after_event = self._after_event
        self.clock = Clock(self.process)
        self.clock.ahead_ms = machine.ahead_ms
        self.disk = machine.disk
        self.node: Node | None = None
        self.is_ready = False
        self.is_stopping = False
        self.stop: asyncio.Event
        self.process.start(self._serve(), f"node {machine.node_id}")

    async def _serve(self) -> None:
        """As `ottla.broker.server.serve`."""
        self.stop = asyncio.Event()
        self.node = Node(self.machine.config, self.clock, self.stop, files=self.disk)
        error: Exception | None = None
        try:
            await self.node.start()
            self.is_ready = True
            await self.stop.wait()
        except NodeStoppedError:
            pass
        except (OSError, StorageError) as problem:
            error = problem
        # Not in a finally clause: a killed process closes nothing.
        self.is_stopping = True
        await self.node.close()
        self.machine.cluster.ended(self, error or self.node.stopping.failure)

    def _after_event(self) -> None:
        if self.disk.crashed:
            self.machine.kill()
            return
        for check in self.machine.cluster.on_event:
            check(self)

    @property
    def serves(self) -> bool:
        """Whether it accepted clients and was not asked to stop."""
        return self.is_ready and not self.process.dead and not self.is_stopping


class Machine:
    """The machine of one node; its disk outlives the runs."""

    def __init__(self, cluster: SimulatedCluster, node_id: int, config: BrokerConfig) -> None:
        self.cluster, self.node_id, self.config = cluster, node_id, config
        self.disk = SimulatedDisk(cluster.machines.random.getrandbits(30))
        self.slowness_us = 0
        self.ahead_ms = 0
        self.run: NodeRun | None = None

    def start(self) -> None:
        """Start the node if it does not run; a machine without power gets it again."""
        network = self.cluster.machines.network
        if self.run is None:
            if host_of(self.node_id) in network.down:
                network.down.discard(host_of(self.node_id))
                network.released()
            self.run = NodeRun(self)

    def kill(self, *, power: bool = False) -> None:
        """kill -9, or a power cut that loses what was not synced."""
        run, self.run = self.run, None
        if run is None:
            return
        self.cluster.machines.kill(run.process, power=power)
        self.disk = self.disk.crash() if power else self.disk.revive()
        for checks in self.cluster.on_kill:
            checks(self.node_id, power)

    def replace_disk(self) -> None:
        """kill -9, and an empty disk with a new directory id in the place of the old one."""
        self.kill(power=True)
        self.disk = SimulatedDisk(self.cluster.machines.random.getrandbits(30))
        self.cluster.format(self)

    def replace_directory(self) -> None:
        """A power cut, and an empty disk with a new directory id for the last log directory."""
        self.kill(power=True)
        path = self.log_directories[-1]
        self.disk.remove_tree(path)
        self.cluster.format(self)
        self.disk.fsync_directory(path.rpartition("/")[0])

    @property
    def log_directories(self) -> list[str]:
        """The paths of log.dirs."""
        return list(self.config.log_dirs)

    def shut_down(self) -> None:
        """A clean stop, with controlled shutdown."""
        run = self.run
        if run is not None:
            run.process.soon(lambda: hasattr(run, "stop") and run.stop.set())

    @property
    def node(self) -> Node | None:
        """The running node, once it serves."""
        return self.run.node if self.run is not None and self.run.serves else None


class SimulatedCluster:
    """Nodes 1, 2, ...; the first `voters` of them are the voters of the quorum."""

    def __init__(self, seed: int, *, nodes: int = 4, voters: int = 3, settings: dict[str, str] | None = None) -> None:
        self.seed = seed
        self.machines = Machines(seed)
        self.random = self.machines.random
        self.on_kill: list[Callable[[int, bool], None]] = []
        self.on_event: list[Callable[[NodeRun], None]] = []
        self.endings: list[str] = []
        self.nodes: dict[int, Machine] = {}
        self.directories: dict[int, Uuid] = {each: self.random.randbytes(16) for each in range(1, nodes + 1)}
        self.voters = VoterSet.of(
            Voter(
                ReplicaKey(each, self.directories[each]),
                (Endpoint(LISTENER, host_of(each), CONTROLLER_PORT),),
                VersionRange(0, 1),
            )
            for each in range(1, voters + 1)
        )
        self.levels = {**default_levels(), "transaction.version": self.random.choice((1, 2, 2))}
        servers = ",".join(f"{host_of(each)}:{CONTROLLER_PORT}" for each in range(1, voters + 1))
        for each in range(1, nodes + 1):
            listeners = f"PLAINTEXT://{host_of(each)}:{BROKER_PORT},{LISTENER}://{host_of(each)}:{CONTROLLER_PORT}"
            own = {"node.id": str(each), "listeners": listeners, "controller.quorum.bootstrap.servers": servers}
            self.nodes[each] = Machine(self, each, BrokerConfig(SETTINGS | own | (settings or {})))
            self.format(self.nodes[each], self.voters if each <= voters else None)

    def format(self, machine: Machine, voters: VoterSet | None = None) -> None:
        """Format the directories of a machine that are not formatted; each has a new directory id."""
        node_id, disk = machine.node_id, machine.disk
        for path in machine.log_directories:
            if disk.is_directory(path) and read_meta(disk, path) is not None:
                continue
            directory_id = self.directories[node_id]
            if path != DATA or voters is None:
                directory_id = self.random.randbytes(16)
            if path == DATA:
                self.directories[node_id] = directory_id
            node = NodeFormat(node_id, CLUSTER_ID, [path], DATA, self.levels, voters=voters)
            format_node(disk, node, partial(bytes, directory_id), 0)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host_of(each)}:{BROKER_PORT}" for each in self.nodes)

    def fail(self, problem: str) -> str:
        """The text of a failure, with its seed and time."""
        return f"{problem} (seed {self.seed}, {self.machines.schedule.now_us / 1000:.0f} ms)"

    def ended(self, run: NodeRun, error: Exception | str | None) -> None:
        """A node ended by itself, or after a clean stop."""
        self.endings.append(f"{self.machines.schedule.now_us / 1000:.0f} ms: node {run.machine.node_id}: {error}")
        self.machines.kill(run.process)
        if run.machine.run is run:
            run.machine.run = None

    def running(self) -> dict[int, Node]:
        """The nodes that serve."""
        return {each: node for each, machine in self.nodes.items() if (node := machine.node) is not None}

    def run_for(self, ms: int) -> int:
        """Let the simulated time pass; returns the number of events."""
        schedule = self.machines.schedule
        count = schedule.run_until(schedule.now_us + ms * 1000)
        assert not self.machines.problems, self.fail("; ".join(self.machines.problems[:3]))
        return count
