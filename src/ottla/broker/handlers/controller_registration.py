"""ControllerRegistration (70), version 0: a controller registers with the active one. KIP-919.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster.control.requests import decide

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import BrokerRequestPorts
    from ottla.common.completion import Completion
    from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest


def handle(
    broker: BrokerRequestPorts, context: RequestContext, request: ControllerRegistrationRequest
) -> Completion[Any]:
    """Register the controller's listeners and features."""
    return decide(broker.metadata, broker.clock, request, context.api_version)
