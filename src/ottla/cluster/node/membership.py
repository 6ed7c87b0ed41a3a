"""How a node takes part in its cluster: the session of its broker, and the duties of its controller.

A node that is a quorum of its own without a listener of the controller has no other nodes, and needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.cluster.control.assignments import AssignmentPorts, DirectoryAssignments
from ottla.cluster.control.duties import ControllerDuties, DutySettings
from ottla.cluster.control.lifecycle import BrokerLifecycle, LifecyclePorts, LifecycleSettings
from ottla.cluster.control.probe import Prober
from ottla.cluster.control.registrar import ControllerRegistrar
from ottla.cluster.controller_channel import ControllerChannel
from ottla.cluster.node.cordoning import cordoned_ids
from ottla.cluster.node.registration import controller_registration
from ottla.network.node_channel import NodeChannels

if TYPE_CHECKING:
    from ottla.cluster.control.connections import BrokerConnections
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.node.endpoints import NodeEndpoints
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.clock import Clock
    from ottla.common.ids import TopicPartition, Uuid
    from ottla.common.timers import CallLater
    from ottla.log import LogManager
    from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest


class Placements(Protocol):
    """The log directories of this node's replicas; `report` is called when the directory of one may have changed."""

    report: Callable[[TopicPartition], None] | None

    def directory_of(self, topic_partition: TopicPartition) -> Uuid | None:
        """The directory that the metadata shall show for a replica; None if it has no log."""
        ...


@dataclass(frozen=True, slots=True)
class MemberPorts:
    """The parts of the node that its membership uses; `channel` is for requests that may take long."""

    settings: NodeSettings
    metadata: MetadataShell
    endpoints: NodeEndpoints
    clock: Clock
    call_later: CallLater
    channel: ControllerChannel
    heartbeats: BrokerConnections
    logs: LogManager
    placements: Placements
    give_up: Callable[[str], None]


class Membership:
    """The parts of one node that other nodes depend on. Use it on the event loop."""

    def __init__(self, ports: MemberPorts) -> None:
        config, metadata, call_later = ports.settings.static, ports.metadata, ports.call_later
        self._ports = ports
        self._channels = NodeChannels(f"broker-{config.node_id}-heartbeat", options=ports.settings.peers.controllers)
        # Heartbeats must not wait behind other requests to the controller.
        self._heartbeats = ControllerChannel(metadata, ports.clock, call_later, self._channels)
        self._prober = Prober()
        self._duties: ControllerDuties | None = None
        self._registrar: ControllerRegistrar | None = None
        if config.roles.is_controller:
            registrar = ControllerRegistrar(
                controller_registration(config.node_id, ports.endpoints.controllers), self._heartbeats, call_later
            )
            self._registrar = registrar
            metadata.subscribe(lambda _, image: registrar.metadata_published(image))
            self._duties = ControllerDuties(
                metadata,
                ports.clock,
                call_later,
                DutySettings.from_config(config),
                ports.heartbeats,
                self._prober,
            )
        self.lifecycle: BrokerLifecycle | None = None
        self.assignments: DirectoryAssignments | None = None

    def begin(self, registration: BrokerRegistrationRequest) -> BrokerLifecycle:
        """Create the session of this node's broker; the caller starts it."""
        ports, metadata = self._ports, self._ports.metadata
        session = LifecyclePorts(
            self._heartbeats,
            lambda: metadata.image,
            ports.call_later,
            ports.give_up,
            lambda: cordoned_ids(metadata.image, ports.logs),
        )
        settings = LifecycleSettings.from_config(ports.settings.static)
        self.lifecycle = lifecycle = BrokerLifecycle(registration, session, settings)
        metadata.subscribe(lambda _, image: lifecycle.metadata_published(image))
        metadata.on_leader_change(lifecycle.controller_changed)
        self.assignments = assignments = DirectoryAssignments(
            registration.broker_id,
            AssignmentPorts(
                ports.channel,
                ports.call_later,
                lambda: metadata.image,
                lambda: lifecycle.broker_epoch,
                ports.placements.directory_of,
            ),
        )
        metadata.subscribe(assignments.metadata_published)
        ports.placements.report = assignments.changed
        return lifecycle

    async def close(self, timeout_s: float) -> None:
        """End the session, and close the connections to the controller."""
        if self.lifecycle is not None:
            self.lifecycle.close()
        if self.assignments is not None:
            self.assignments.close()
        if self._duties is not None:
            self._duties.close()
        if self._registrar is not None:
            self._registrar.close()
        self._prober.close()
        self._heartbeats.close()
        await self._channels.aclose(timeout_s)
