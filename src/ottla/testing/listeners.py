"""Listeners for single tests on a shared broker. All methods run on the broker's event loop.

Each test connects to its own port. The port tells the broker which connections and group members belong to which test,
for any client, and a client that outlives its test cannot reconnect.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.config import Listener
from ottla.coordinators.group import DescribeGroup
from ottla.metadata.image import Endpoint
from ottla.network.connection import SOFTWARE_NAME
from ottla.network.sockets import bind
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

if TYPE_CHECKING:
    from ottla.broker.server import Node
    from ottla.common.request import Request
    from ottla.network.connection import Connection
    from ottla.network.server import Server

T = TypeVar("T")
CLIENT_ID = "ottla.testing.client_id"
LEAVE_GROUP_VERSION = 5
LOADING_S = 5.0


class Unclosed(NamedTuple):
    """A client that a test left open, with its connections and group memberships."""

    client_id: str
    software: str
    """The name of its library from ApiVersions, or empty."""
    connections: int
    groups: tuple[str, ...]


class Listeners:
    """Ports by listener name, and the members that joined groups through each listener."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        # Listeners by (group, member id), also the broker's own listener: a test must not remove its members.
        self.members: dict[tuple[str, str], str] = {}
        self.groups: dict[str, set[str]] = {}
        # By listener: (group, member id) of members that completed a join.
        self.assigned: dict[str, set[tuple[str, str]]] = {}

    # -- listening ---------------------------------------------------------------------------------------------

    async def open(self, node: Node, name: str, port: int) -> str:
        """Listen on a port; HOST:PORT for clients."""
        first = node.config.listeners[0]
        for sock in bind(Listener(name, first.host, port), node.config):
            self.ports[name] = port
            _network(node).listen(name, sock)
        host, _ = node.broker.endpoints.advertised(first.name)
        node.broker.endpoints.unregistered[name] = Endpoint(name, host, port, 0)
        return f"{host}:{port}"

    async def reopen(self, node: Node) -> None:
        """Open the listeners that a node had before its restart."""
        for name in self.ports.keys() - node.broker.endpoints.unregistered.keys():
            await self.open(node, name, self.ports[name])

    async def close(self, node: Node, name: str) -> None:
        """Stop listening, close the connections, and remove the members that joined through them."""
        _network(node).stop_listening(name)
        node.broker.endpoints.unregistered.pop(name, None)
        # Connections first: a removed member would rejoin while it is connected.
        node.drop_connections(lambda connection: connection.listener == name)
        members = {member for member, owner in self.members.items() if owner == name}
        members |= {(group_id, member.member_id) for group_id, member in await self._members(node, name)}
        self.forget(name)
        for group_id, member_id in sorted(members):
            order = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)])
            await _ask(node, group_id, order)

    def forget(self, name: str) -> None:
        """Do not open the listener again, and do not attribute members to it."""
        self.ports.pop(name, None)
        self.groups.pop(name, None)
        self.assigned.pop(name, None)
        self.members = {member: owner for member, owner in self.members.items() if owner != name}

    # -- members -----------------------------------------------------------------------------------------------

    def joining(self, listener: str, group_id: str, member_id: str) -> None:
        """A client of the listener wants to join; `member_id` is empty before the broker has assigned one."""
        self.groups.setdefault(listener, set()).add(group_id)
        if member_id:
            self.members[group_id, member_id] = listener

    def joined(self, listener: str, group_id: str, member_id: str) -> None:
        """The member has received its assignment."""
        self.assigned.setdefault(listener, set()).add((group_id, member_id))

    async def _members(self, node: Node, name: str) -> list[tuple[str, Any]]:
        """(group, member) of those that joined through the listener.

        Before version 4 of JoinGroup a client does not know its member id before its join is answered: such a member
        belongs to the listener unless it is known to have joined through another one.
        """
        found: list[tuple[str, Any]] = []
        for group_id in sorted(self.groups.get(name, ())):
            group = await _ask(node, group_id, DescribeGroup(group_id))
            found += [
                (group_id, member)
                for member in group.members or ()
                if self.members.get((group_id, member.member_id), name) == name
            ]
        return found

    async def unclosed(self, node: Node, name: str) -> list[Unclosed]:
        """Clients of the listener that are connected, or that disconnected without leaving their groups.

        A member without connections is not reported where `close()` may not have left the group: a static member's
        does not (KIP-345), nor does librdkafka's while the member joins.
        """
        members = await self._members(node, name)
        assigned = self.assigned.get(name, set())
        connections: dict[str, list[Connection]] = {}
        for connection in _network(node).connections:
            if connection.listener == name and not connection.closed:
                connections.setdefault(str(connection.state.get(CLIENT_ID) or ""), []).append(connection)
        groups: dict[str, set[str]] = {}
        for group_id, member in members:
            dropped = member.group_instance_id is None and (group_id, member.member_id) in assigned
            if dropped or member.client_id in connections:
                groups.setdefault(member.client_id, set()).add(group_id)
        return [
            Unclosed(
                client_id,
                _software_name(connections.get(client_id, ())),
                len(connections.get(client_id, ())),
                tuple(sorted(groups.get(client_id, ()))),
            )
            for client_id in sorted(connections.keys() | groups.keys())
        ]


def _network(node: Node) -> Server:
    """Listeners and connections of a node that has started."""
    assert node.network is not None
    return node.network


async def _ask(node: Node, group_id: str, question: Request[Any]) -> Any:
    """The coordinator's response; waits while the coordinator loads groups after a restart."""
    deadline_s = time.monotonic() + LOADING_S
    while True:
        answer = await completed(node.broker.groups.submit(group_id, question, api_version=LEAVE_GROUP_VERSION))
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline_s:
            return answer
        await asyncio.sleep(0.005)


async def completed(completion: Completion[T]) -> T:
    """The result of a completion, once it is done."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def finish(done: Completion[T]) -> None:
        if future.done():
            return
        if done.error is not None:
            future.set_exception(done.error)
        else:
            future.set_result(done.result())

    completion.on_done(finish)
    return await future


def _software_name(connections: Iterable[Connection]) -> str:
    """The first name that a client library gave on one of the connections, or empty."""
    names = (str(each.state.get(SOFTWARE_NAME) or "") for each in connections)
    return next(filter(None, names), "")
