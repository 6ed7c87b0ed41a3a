"""BrokerRegistration (62), versions 0-4: a broker registers with the active controller. KIP-631, KIP-858.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster.control.requests import decide

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import BrokerSessionPorts
    from ottla.common.completion import Completion
    from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest


def handle(broker: BrokerSessionPorts, context: RequestContext, request: BrokerRegistrationRequest) -> Completion[Any]:
    """Register the broker as fenced; respond with its epoch when the registration is committed."""

    def note(response: Any) -> Any:
        if not response.error_code:
            broker.connections.heartbeats.note(request.broker_id, context.connection)
        return response

    return decide(broker.metadata, broker.clock, request, context.api_version).then(note)
