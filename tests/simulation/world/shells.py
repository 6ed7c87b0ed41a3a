"""Nodes that run the real shells of the quorum, the controller and the broker's session, on simulated parts.

Each node has its disk, its clock and its messages, which are passed as Kafka's bytes. A closed connection is reported
to the other nodes, or not. The images that the nodes publish are checked by `MetadataHistory`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from ottla.cluster.control.connections import BrokerConnections
from ottla.cluster.control.duties import ControllerDuties, DutySettings
from ottla.cluster.control.lifecycle import BrokerLifecycle, LifecyclePorts, LifecycleSettings
from ottla.cluster.control.requests import OPERATIONS, decide
from ottla.cluster.controller_channel import ControllerChannel
from ottla.cluster.formatting import NodeFormat, format_node
from ottla.cluster.metadata.log import MetadataShell
from ottla.cluster.metadata.options import MetadataOptions, NodeIdentity
from ottla.cluster.metadata.snapshotting import MetadataLogSettings
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.slices import Slices
from ottla.controller import ControllerSettings
from ottla.metadata.image import MetadataImage
from ottla.network.errors import ConnectFailed, ConnectionClosed, NetworkError, NoAnswer
from ottla.protocol.message import Message
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.registry import response_class
from ottla.raft import Endpoint, QuorumConfig, ReplicaKey, Voter, VoterSet
from ottla.raft.values import Node
from ottla.raft.voters import VersionRange
from tests.simulation.world.clock import SimulatedClock
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.simulation.world.metadata_history import MetadataHistory
from tests.unit.controller.support import Rules, registration

FIRST_PORT = 9000
LISTENER = "CONTROLLER"
PATH = "/node"
SESSION_MS = 900
TICK_MS = 150
IDLE_MS = 500


class Handle:
    """A timer."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ShellNode:
    """One run of a node: from its start to its crash."""

    def __init__(self, world: ShellWorld, node_id: int, disk: SimulatedDisk) -> None:
        self.world, self.node_id, self.disk = world, node_id, disk
        self.offset_ms = world.random.randint(0, 100_000)
        self.paused_until_ms = 0
        self.channels: list[SimulatedChannels] = []
        self.failure: object = None

    def start(self) -> None:
        """Open the metadata log, and register the broker."""
        world = self.world
        self.transport = Transport(self)
        options = MetadataOptions(
            settings=MetadataLogSettings(segment_bytes=20_000, bytes_between_snapshots=3_000, retention_bytes=1_000),
            controller_settings=ControllerSettings(broker_session_timeout_ms=SESSION_MS),
            files=self.disk,
            random=world.random,
            run_in_thread=self.run_in_thread,
            on_failure=self.failed,
            quorum=world.config(self.node_id),
            transport=self.transport,
            call_later=self.call_later,
            worker=SlicingWorker(self),  # type: ignore[arg-type]
        )
        identity = NodeIdentity(self.node_id, "cluster", world.directory(self.node_id))
        self.shell = MetadataShell.open(PATH, identity, Rules(), self, options)
        self.shell.subscribe(self.published)
        self.channel = ControllerChannel(self.shell, self, self.call_later, self.open_channels())
        settings = LifecycleSettings(
            heartbeat_interval_ms=150, session_timeout_ms=SESSION_MS, registration_timeout_ms=1 << 30
        )
        ports = LifecyclePorts(self.channel, lambda: self.shell.image, self.call_later, self.failed)
        self.lifecycle = BrokerLifecycle(self.registration(), ports, settings)
        self.shell.subscribe(lambda _, image: self.lifecycle.metadata_published(image))
        self.shell.on_leader_change(self.lifecycle.controller_changed)
        self.duties = ControllerDuties(
            self.shell,
            self,
            self.call_later,
            DutySettings(SESSION_MS, balance_interval_ms=1_000, idle_interval_ms=IDLE_MS),
            BrokerConnections(),
            lambda _: Completion.of(False),
        )
        self.shell.on_leader_change(self.check_leader)
        self.lifecycle.start()
        self.lifecycle.allow_unfencing()
        self.call_later(TICK_MS / 1000, self.tick)

    def registration(self) -> BrokerRegistrationRequest:
        request = registration(self.node_id)
        request.incarnation_id = self.world.random.randbytes(16)
        return request

    def open_channels(self) -> SimulatedChannels:
        self.channels.append(SimulatedChannels(self))
        return self.channels[-1]

    # -- what the shells use -----------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.world.running.get(self.node_id) is self

    def monotonic_ms(self) -> int:
        return self.offset_ms + self.world.clock.now_ms

    def wall_ms(self) -> int:
        return self.world.clock.wall_ms()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Handle:
        handle = Handle()
        self.after(max(0, round(delay_s * 1000)), lambda: None if handle.cancelled else callback())
        return handle

    def after(self, delay_ms: int, work: Callable[[], object]) -> None:
        """Do work of this process later, if it still runs; a paused process does it when it goes on."""
        self.world.clock.plan(delay_ms, partial(self._do, work))

    def _do(self, work: Callable[[], object]) -> None:
        left_ms = self.paused_until_ms - self.world.clock.now_ms
        if left_ms > 0:
            self.after(left_ms, work)
        elif self.is_running:
            try:
                work()
            except Crash:
                self.world.crash(self.node_id)
            if self.failure is not None and self.is_running:
                self.world.crash(self.node_id)

    def run_in_thread(self, work: Callable[[], object]) -> Completion[None]:
        done: Completion[None] = Completion()
        random = self.world.random
        begins_ms, takes_ms = random.randint(0, 10), random.choice([1, 5, 100])

        def finish() -> None:
            try:
                work()
            except (KafkaError, OSError) as error:
                done.fail(error)
            else:
                self.after(takes_ms, lambda: done.complete(None))

        self.after(begins_ms, finish)
        return done

    def failed(self, problem: object) -> None:
        """The node stops: its disk has failed, or it gives up."""
        self.failure = problem

    def tick(self) -> None:
        """The periodic work of a node."""
        self.check_published()
        self.shell.tick()
        self.call_later(TICK_MS / 1000, self.tick)

    # -- checks ------------------------------------------------------------------------------------------------------

    def check_leader(self) -> None:
        """An epoch has one active controller."""
        if self.shell.is_active_controller:
            epoch = self.shell.raft.epoch
            leader = self.world.leaders.setdefault(epoch, self.node_id)
            assert leader == self.node_id, self.world.fail(f"{leader} and {self.node_id} lead epoch {epoch}")

    def check_published(self) -> None:
        """The image of the active controller is published as soon as its records are committed."""
        decided, published = self.shell._controller.image, self.shell.image
        if self.shell.is_active_controller and decided.offset < self.shell.raft.high_watermark:
            assert decided is published, self.world.fail(
                f"node {self.node_id} has published {published.offset} of the committed {decided.offset}"
            )

    def published(self, _old: MetadataImage | None, image: MetadataImage) -> None:
        """Check that all nodes have this image at its offset."""
        history = self.world.history
        end = image.offset + 1
        if end > history.end:
            history.committed(history.end, history.entries(self.shell.log, end), image)
        elif end > 0 and end in history.images:
            assert history.images[end] == image, self.world.fail(f"node {self.node_id} has another image at {end}")


class SlicingWorker:
    """Runs work in slices of a few steps, with time and messages between them."""

    def __init__(self, node: ShellNode) -> None:
        self.node = node

    def run(self, work: Slices[None]) -> None:
        random = self.node.world.random
        try:
            for _ in range(random.choice((1, 3, 100))):
                next(work)
        except StopIteration:
            return
        self.node.after(random.choice((0, 1, 5, 60)), lambda: self.run(work))


class SimulatedChannels:
    """The connections of one user of a node."""

    def __init__(self, node: ShellNode) -> None:
        self.node = node

    def to(self, node_id: int, host: str, port: int) -> SimulatedChannel:
        return SimulatedChannel(self.node, port - FIRST_PORT)

    def close(self) -> None:
        """Nothing is left to close."""


class SimulatedChannel:
    """A connection to another node."""

    def __init__(self, source: ShellNode, target: int) -> None:
        self.source, self.target = source, target

    def send(
        self, request: Message, *, timeout_s: float, version: int | None = None, least_version: int = 0
    ) -> Completion[Message]:
        world, source = self.source.world, self.source
        done: Completion[Message] = Completion()
        version = request.MAX_VERSION if version is None else version
        data = bytes(request.encode(version))
        source.after(round(timeout_s * 1000), lambda: done.fail(NoAnswer("no answer")))
        world.deliver(source, self.target, done, type(request), data, version)
        return done


class Transport(SimulatedChannels):
    """The quorum's connections."""

    def __init__(self, node: ShellNode) -> None:
        super().__init__(node)
        self.on_lost: Callable[[int], None] = lambda _: None

    def start(self, on_lost: Callable[[int], None]) -> None:
        self.on_lost = on_lost

    def send(self, to: Node, request: Message, *, least_version: int, timeout_s: float) -> Completion[Message]:
        return self.to(to.node_id, to.host, to.port).send(request, timeout_s=timeout_s)


class Problems(logging.Handler):
    """Collects logged exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and not isinstance(record.exc_info[1], Crash):
            self.found.append(record.exc_info[1])


class ShellWorld:
    """Nodes 1 to `count`, all of which vote and have a broker."""

    def __init__(self, seed: int, count: int = 3) -> None:
        self.random = Random(seed)
        self.name = f"seed {seed}"
        self.clock = SimulatedClock()
        self.history = MetadataHistory(self.name)
        self.leaders: dict[int, int] = {}
        self.problems = Problems()
        """Exceptions in callbacks, which the shells log."""
        self.loss = 0.03
        self.blocked: set[tuple[int, int]] = set()
        self.nodes = range(1, count + 1)
        self.running: dict[int, ShellNode] = {}
        self.disks: dict[int, SimulatedDisk] = {}
        voters = VoterSet.of(self.voter(node) for node in self.nodes)
        for node in self.nodes:
            disk = self.disks[node] = SimulatedDisk(self.random.randrange(1 << 30))
            how = NodeFormat(node, "cluster", [PATH], PATH, voters=voters)
            format_node(disk, how, partial(self.directory, node), 0)
            self.start(node)

    def fail(self, problem: str) -> str:
        return f"{problem} ({self.name})"

    @staticmethod
    def directory(node: int) -> bytes:
        return bytes([node]) * 16

    def voter(self, node: int) -> Voter:
        endpoint = Endpoint(LISTENER, f"node{node}", FIRST_PORT + node)
        return Voter(ReplicaKey(node, self.directory(node)), (endpoint,), VersionRange(0, 1))

    def config(self, node: int) -> QuorumConfig:
        return QuorumConfig(
            node_id=node,
            directory_id=self.directory(node),
            cluster_id="cluster",
            bootstrap=tuple(Node(-1 - each, f"node{each}", FIRST_PORT + each) for each in self.nodes),
            endpoints=self.voter(node).endpoints,
            election_timeout_ms=80,
            fetch_timeout_ms=160,
            election_backoff_max_ms=80,
            request_timeout_ms=120,
            fetch_max_wait_ms=50,
            fetch_max_bytes=2_000,
            fetch_snapshot_max_bytes=500,
        )

    # -- actions -----------------------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Start a node from its disk."""
        run = self.running[node] = ShellNode(self, node, self.disks[node])
        try:
            run.start()
        except Crash:
            self.crash(node)

    def start_all(self) -> None:
        """Start the nodes that do not run."""
        for node in self.nodes:
            if node not in self.running:
                self.start(node)

    def crash(self, node: int, *, power_cut: bool | None = None) -> None:
        """End the process of a node, or cut its power."""
        del self.running[node]
        disk = self.disks[node]
        if self.random.random() < 0.5 if power_cut is None else power_cut:
            self.disks[node] = disk.crash()
        else:
            disk.revive().descriptors.clear()
            disk.fail_writes = None
        for other in list(self.running.values()):
            if self.random.random() < 0.5 and (node, other.node_id) not in self.blocked:
                other.after(self.random.randint(1, 20), partial(other.transport.on_lost, node))

    def pause(self, node: int, duration_ms: int) -> None:
        """Stop a process for a while."""
        self.running[node].paused_until_ms = self.clock.now_ms + duration_ms

    def active(self) -> ShellNode | None:
        """The active controller of the latest epoch."""
        found = [each for each in self.running.values() if each.shell.is_active_controller]
        return max(found, key=lambda each: each.shell.raft.epoch, default=None)

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.clock.now_ms + duration_ms
        while (next_ms := self.clock.next_ms()) is not None and next_ms <= end_ms:
            self.clock.advance_to(next_ms)
            while (event := self.clock.take_due()) is not None:
                event()
                if self.problems.found:
                    raise self.problems.found[0]
        self.clock.advance_to(end_ms)

    def heal(self) -> None:
        """End all faults, and start all nodes."""
        self.loss, self.blocked = 0.0, set()
        for disk in self.disks.values():
            disk.revive().fail_writes = None
        self.start_all()

    # -- messages ----------------------------------------------------------------------------------------------------

    def deliver(
        self, source: ShellNode, target: int, done: Completion[Message], kind: type[Message], data: bytes, version: int
    ) -> None:
        """Pass a request, and later its response; a lost message closes the connection."""

        def fail(error: NetworkError) -> None:
            source.after(self.random.randint(1, 20), lambda: done.fail(error))

        def respond(answered: Completion[Message]) -> None:
            try:
                encoded = bytes(answered.result().encode(version))
            except KafkaError:
                fail(ConnectionClosed("closed by the other node"))
                return
            if (target, source.node_id) in self.blocked:
                return
            if self.random.random() < self.loss:
                fail(ConnectionClosed("lost"))
                return
            response = response_class(kind.API_KEY).decode(encoded, version)
            source.after(self.random.randint(1, 20), lambda: done.complete(response))

        def arrive() -> None:
            run = self.running.get(target)
            if (source.node_id, target) in self.blocked:
                return
            if run is None:
                fail(ConnectFailed("refused"))
            else:
                run.after(0, lambda: self._serve(run, kind.decode(data, version), version).on_done(respond))

        if self.random.random() < self.loss:
            fail(ConnectionClosed("lost"))
        else:
            self.clock.plan(self.random.randint(1, 20), arrive)

    @staticmethod
    def _serve(run: ShellNode, request: Message, version: int) -> Completion[Any]:
        if request.API_KEY in OPERATIONS:
            return decide(run.shell, run, request, version)
        return run.shell.quorum.receive(request, LISTENER)
