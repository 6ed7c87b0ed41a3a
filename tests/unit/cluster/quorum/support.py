"""Nodes of a metadata quorum in one event loop: real shells, disks, sockets and requests, without brokers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Self, cast

from ottla.broker.dispatch import Dispatcher
from ottla.broker.response_cache import ResponseCache
from ottla.broker.security import Security
from ottla.broker.served import CONTROLLER_HANDLERS, CONTROLLER_SERVED
from ottla.cluster.formatting import NodeFormat, format_node, voter
from ottla.cluster.metadata.log import MetadataShell, Phase
from ottla.cluster.metadata.options import MetadataOptions, NodeIdentity
from ottla.cluster.metadata.snapshotting import MetadataLogSettings
from ottla.cluster.quorum.transport import ChannelTransport
from ottla.common.clock import SystemClock
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.work import Worker
from ottla.log.files import Files
from ottla.network.node_channel import ChannelOptions
from ottla.network.server import Server
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.raft import Endpoint, QuorumConfig, Voter, VoterSet
from ottla.raft.values import Node
from tests.unit.controller.support import Rules, registration

PATIENCE_S = 20.0
HOST = "127.0.0.1"
LISTENER = "CONTROLLER"
CLUSTER_ID = "cluster"
OPTIONS = ChannelOptions(backoff_s=0.02, backoff_max_s=0.05)


def directory_id(node_id: int) -> bytes:
    return bytes([node_id]) * 16


class QuorumNode:
    """One controller, or an observer. Its disk and its port outlive its process."""

    def __init__(self, quorum: Quorum, node_id: int, *, is_controller: bool = True) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.is_controller = is_controller
        self.cluster_id = CLUSTER_ID
        self.directory = directory_id(node_id)
        self.path = quorum.path / str(node_id)
        self.path.mkdir()
        self.port = _free_port()
        self.failures: list[KafkaError] = []
        self.settings = MetadataLogSettings()
        self.shell: MetadataShell | None = None
        self._server: Server | None = None
        self._transport: ChannelTransport | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(LISTENER, HOST, self.port)

    @property
    def voter(self) -> Voter:
        return voter(self.node_id, directory_id(self.node_id), self.endpoint)

    @property
    def running(self) -> MetadataShell:
        assert self.shell is not None, f"node {self.node_id} does not run"
        return self.shell

    def config(self) -> QuorumConfig:
        config = QuorumConfig(
            node_id=self.node_id,
            directory_id=self.directory,
            cluster_id=self.cluster_id,
            static_voters=self.quorum.static_voters,
            bootstrap=tuple(Node(-2 - i, HOST, each.port) for i, each in enumerate(self.quorum.controllers)),
            endpoints=(self.endpoint,) if self.is_controller else (),
            can_become_voter=self.is_controller,
            election_timeout_ms=200,
            fetch_timeout_ms=400,
            election_backoff_max_ms=200,
            request_timeout_ms=500,
            fetch_max_wait_ms=100,
            fetch_max_bytes=4096,
            fetch_snapshot_max_bytes=500,
        )
        return replace(config, **self.quorum.timeouts)

    def start(self) -> None:
        """Open the metadata log and accept connections."""
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        worker = Worker(clock, loop.call_soon)
        self._transport = ChannelTransport(self.node_id, OPTIONS)
        shell = self.shell = MetadataShell.open(
            str(self.path),
            NodeIdentity(self.node_id, self.cluster_id, self.directory),
            Rules(),
            clock,
            MetadataOptions(
                settings=self.settings,
                random=Random(self.node_id),
                on_failure=self.failures.append,
                quorum=self.config(),
                transport=self._transport,
                call_later=loop.call_later,
                worker=worker,
            ),
        )
        broker = SimpleNamespace(
            schedulers=SimpleNamespace(worker=worker),
            clock=clock,
            metadata=shell,
            node_id=self.node_id,
            response_cache=ResponseCache(),
            security=Security(),
            telemetry=None,
            endpoints=SimpleNamespace(is_controller_listener=lambda _: True, controllers=()),
        )
        dispatcher = Dispatcher(cast("Any", broker), CONTROLLER_SERVED, CONTROLLER_HANDLERS)
        self._server = Server(dispatcher, None)
        if self.is_controller:
            self._server.listen(LISTENER, socket.create_server((HOST, self.port), reuse_port=False))

    async def kill(self) -> None:
        """Stop at once: connections are reset, nothing is flushed or answered."""
        assert self._server is not None
        assert self._transport is not None
        shell, self.shell = self.running, None
        for connection in list(self._server.connections):
            connection.abort()
        shell.quorum.close()
        shell._phase = Phase.CLOSED
        await self._transport.aclose(1.0)
        await self._server.close(0.0)
        shell.log.abandon()

    async def stop(self) -> None:
        """Stop cleanly, without resigning."""
        assert self._server is not None
        assert self._transport is not None
        shell, self.shell = self.running, None
        shell.close()
        await self._transport.aclose(1.0)
        await self._server.close(0.1)


class Quorum:
    """Nodes by id. `static`: the voters are configured (kraft.version 0); otherwise they are in the first snapshot."""

    def __init__(self, path: Path, voters: int = 3, observers: int = 0, *, static: bool = False) -> None:
        self.path = path
        self.static_voters = VoterSet()
        self.timeouts: dict[str, Any] = {}
        self.nodes: dict[int, QuorumNode] = {}
        for node_id in range(1, voters + 1):
            self.nodes[node_id] = QuorumNode(self, node_id)
        first = [node.voter for node in self.nodes.values()]
        if static:
            places = {node.node_id: (HOST, node.port) for node in self.nodes.values()}
            self.static_voters = VoterSet.of_addresses(LISTENER, places)
        for node in self.nodes.values():
            self.format(node, None if static else VoterSet.of(first))
        for node_id in range(voters + 1, voters + observers + 1):
            self.add(node_id, is_controller=False)

    @property
    def controllers(self) -> list[QuorumNode]:
        return [node for node in self.nodes.values() if node.is_controller]

    def format(self, node: QuorumNode, voters: VoterSet | None) -> None:
        how = NodeFormat(node.node_id, CLUSTER_ID, [str(node.path)], str(node.path), voters=voters)
        format_node(Files(), how, lambda: directory_id(node.node_id), 0)

    def add(self, node_id: int, *, is_controller: bool = True) -> QuorumNode:
        """A node that does not vote."""
        node = self.nodes[node_id] = QuorumNode(self, node_id, is_controller=is_controller)
        self.format(node, None)
        return node

    async def __aenter__(self) -> Self:
        for node in self.nodes.values():
            node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.shell is not None:
                await node.kill()

    def active(self) -> QuorumNode | None:
        """The active controller with the latest epoch."""
        found = [node for node in self.nodes.values() if node.shell is not None and node.shell.is_active_controller]
        return max(found, key=lambda node: node.running.raft.epoch, default=None)

    async def leader(self, *, after: int = 0) -> QuorumNode:
        """The active controller, in an epoch above `after`, when one is elected."""
        found: list[QuorumNode] = []

        def elected() -> bool:
            node = self.active()
            if node is not None and node.running.raft.epoch > after and node.running.raft.high_watermark > 0:
                found.append(node)
            return bool(found)

        await until(elected, "no active controller")
        return found[0]

    async def create(self, *names: str) -> None:
        """Create topics at the active controller."""
        for name in names:
            leader = await self.leader()
            await outcome(create(leader.running, name))

    async def published(self, *names: str) -> None:
        """Wait until all running nodes have published the topics."""
        for node in self.nodes.values():
            shell = node.shell
            if shell is not None:
                text = f"node {node.node_id} lacks {names}"
                await until(lambda shell=shell: set(names) <= shell.image.topics_by_name.keys(), text)  # type: ignore[misc]


def create(shell: MetadataShell, name: str) -> Completion[Any]:
    """Create a topic with the only replica on broker 100."""

    def operation(controller: Any) -> Any:
        if 100 not in controller.image.brokers:
            return controller.register_broker(registration(100, None, 1), clean_shutdown=True, fenced=False)
        return controller.create_topics(CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1)]))

    if 100 not in shell._controller.image.brokers:
        shell.submit(operation)
    return shell.submit(operation)


async def until(condition: Callable[[], object], problem: str = "it does not happen") -> None:
    """Wait until the condition is true."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, problem
        await asyncio.sleep(0.005)


async def outcome(completion: Completion[Any]) -> Any:
    await until(lambda: completion.done, "no answer")
    return completion.result()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as sock:
        return int(sock.getsockname()[1])
