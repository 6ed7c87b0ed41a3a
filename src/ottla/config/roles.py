"""The part of a node in its cluster: its roles, and how it finds the metadata quorum. Kafka's rules and messages.

The voters are static (`controller.quorum.voters`, kraft.version 0), or the metadata log names them and the addresses in
`controller.quorum.bootstrap.servers` lead to them (KIP-853). A node of both roles without either setting is a quorum of
its own, which Kafka does not allow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.values import value
from ottla.config.listeners import parse_address

if TYPE_CHECKING:
    from ottla.config.listeners import Listener

BROKER, CONTROLLER = "broker", "controller"
_VOTERS, _SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
_NAMES = "controller.listener.names"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Address(NamedTuple):
    """Where a controller listens."""

    host: str
    port: int


@value
class NodeRoles:
    """The roles of a node, and the addresses of its quorum."""

    node_id: int
    roles: frozenset[str]
    voters: Mapping[int, Address]
    """The static voters by node id; empty if the metadata log names the voters."""
    bootstrap_servers: tuple[Address, ...]

    @property
    def is_broker(self) -> bool:
        """Whether the node serves clients."""
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether the node can be a voter of the metadata quorum."""
        return CONTROLLER in self.roles

    @property
    def has_quorum(self) -> bool:
        """Whether the settings name a quorum. Without one, the node is a quorum of its own."""
        return bool(self.voters or self.bootstrap_servers)

    @property
    def is_single(self) -> bool:
        """Whether the settings describe a cluster of one node, in which no replica has another node to be on."""
        return len(self.roles) == 2 and set(self.voters) <= {self.node_id} and not self.bootstrap_servers

    def leads_only_to(self, own: Iterable[Listener]) -> bool:
        """Whether no setting names another controller than this one, whose listeners are `own`."""
        if not self.is_controller or not set(self.voters) <= {self.node_id}:
            return False
        known = {(each.host, each.port) for each in own}
        ports = {each.port for each in own}
        return all(each in known or (each.host in _LOOPBACK and each.port in ports) for each in self.bootstrap_servers)


def node_roles(node_id: int, roles: Iterable[str], voters: Sequence[str], servers: Sequence[str]) -> NodeRoles:
    """Parse the settings. Raises ValueError with Kafka's message."""
    addresses = tuple(_bootstrap_server(text) for text in servers)
    return NodeRoles(node_id, frozenset(roles), dict(_voter(text) for text in voters), addresses)


def _voter(text: str) -> tuple[int, Address]:
    form = "Each entry should be in the form `{id}@{host}:{port}`."
    node_id, separator, address = text.partition("@")
    if not separator or not address or "@" in address:
        raise ValueError(f"Invalid configuration value for {_VOTERS}. {form}")
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", node_id) or not -(1 << 31) <= int(node_id) < 1 << 31:
        raise ValueError(f"Failed to parse voter ID as an integer from {node_id}")
    try:
        host, port = parse_address(address)
    except ValueError as error:
        raise ValueError(f"Failed to parse host name from entry {text} for the configuration {_VOTERS}. {form}") from (
            error
        )
    return int(node_id), Address(host, port)


def _bootstrap_server(text: str) -> Address:
    try:
        return Address(*parse_address(text))
    except ValueError as error:
        form = 'Each entry should be in the form "{host}:{port}"'
        raise ValueError(f"Failed to parse host name from {text} for the configuration {_SERVERS}. {form}") from error


def violation(node: NodeRoles, controller_names: Sequence[str], listeners: Iterable[Listener]) -> str | None:
    """Return Kafka's message for the first rule about roles, voters and controller listeners that is violated.

    `listeners` are all listeners of the node. A quorum of its own needs no listener of the controller.
    """
    names = {each.name for each in listeners}
    controllers = {name.upper() for name in controller_names}
    if not node.has_quorum and len(node.roles) < 2:
        return (
            f"If using process.roles, either {_SERVERS} must contain the set of bootstrap controllers or {_VOTERS} must"
            " contain a parseable set of controllers."
        )
    if not node.is_controller:
        return _broker_violation(node, controllers, names)
    if not node.is_broker and not names <= controllers:
        return (
            f"requirement failed: The listeners config must only contain KRaft controller listeners from {_NAMES} when"
            " process.roles=controller"
        )
    if node.voters and node.node_id not in node.voters:
        return (
            "requirement failed: If process.roles contains the 'controller' role, the node id"
            f" {node.node_id} must be included in the set of voters {_VOTERS}={_set_of(node.voters)}"
        )
    if node.has_quorum and not controllers & names:
        return (
            f"requirement failed: {_NAMES} must contain at least one value appearing in the 'listeners' configuration"
            " when running the KRaft controller role"
        )
    if node.has_quorum and not controllers <= names:
        return (
            f"requirement failed: {_NAMES} must only contain values appearing in the 'listeners' configuration when"
            " running the KRaft controller role"
        )
    return None


def _broker_violation(node: NodeRoles, controllers: set[str], names: set[str]) -> str | None:
    if node.node_id in node.voters:
        return (
            "requirement failed: If process.roles contains just the 'broker' role, the node id"
            f" {node.node_id} must not be included in the set of voters {_VOTERS}={_set_of(node.voters)}"
        )
    if controllers & names:
        return (
            f"requirement failed: {_NAMES} must not contain a value appearing in the 'listeners' configuration when"
            " running KRaft with just the broker role"
        )
    return None


def _set_of(voters: Mapping[int, Address]) -> str:
    return f"Set({', '.join(map(str, voters))})"
