"""How a node takes part in its cluster: the session of its broker, and the duties of its controller.

A node that is a quorum of its own without a listener of the controller has no other nodes, and needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
    from ottla.broker.broker import Broker
    from ottla.common.timers import CallLater
    from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest


class Membership:
    """The parts of one node that other nodes depend on. Use it on the event loop."""

    def __init__(self, broker: Broker, call_later: CallLater, give_up: Callable[[str], None]) -> None:
        config = broker.static_config
        self._broker = broker
        self._call_later = call_later
        self._give_up = give_up
        self._channels = NodeChannels(f"broker-{config.node_id}-heartbeat")
        # Heartbeats must not wait behind other requests to the controller.
        self._heartbeats = ControllerChannel(broker.metadata, broker.clock, call_later, self._channels)
        self._prober = Prober()
        self._duties: ControllerDuties | None = None
        self._registrar: ControllerRegistrar | None = None
        if config.roles.is_controller:
            registrar = ControllerRegistrar(
                controller_registration(config.node_id, broker.controller_endpoints), self._heartbeats, call_later
            )
            self._registrar = registrar
            broker.metadata.subscribe(lambda _, image: registrar.metadata_published(image))
            self._duties = ControllerDuties(
                broker.metadata,
                broker.clock,
                call_later,
                DutySettings.from_config(config),
                broker.broker_connections,
                self._prober,
            )
        self.lifecycle: BrokerLifecycle | None = None
        self.assignments: DirectoryAssignments | None = None

    def begin(self, registration: BrokerRegistrationRequest) -> BrokerLifecycle:
        """Create the session of this node's broker; the caller starts it."""
        broker = self._broker
        ports = LifecyclePorts(
            self._heartbeats,
            lambda: broker.metadata.image,
            self._call_later,
            self._give_up,
            lambda: cordoned_ids(broker),
        )
        settings = LifecycleSettings.from_config(self._broker.static_config)
        self.lifecycle = lifecycle = BrokerLifecycle(registration, ports, settings)
        self._broker.metadata.subscribe(lambda _, image: lifecycle.metadata_published(image))
        self._broker.metadata.on_leader_change(lifecycle.controller_changed)
        self.assignments = assignments = DirectoryAssignments(
            registration.broker_id,
            AssignmentPorts(
                self._broker.controller,
                self._call_later,
                lambda: self._broker.metadata.image,
                lambda: lifecycle.broker_epoch,
                self._broker.directory_moves.directory_of,
            ),
        )
        self._broker.metadata.subscribe(assignments.metadata_published)
        self._broker.directory_moves.report = assignments.changed
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
