"""BrokerHeartbeat (63), versions 0-2: a broker extends its session. KIP-631, KIP-858, KIP-1066.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster.control.requests import decide

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import BrokerSessionPorts
    from ottla.common.completion import Completion
    from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest


def handle(broker: BrokerSessionPorts, context: RequestContext, request: BrokerHeartbeatRequest) -> Completion[Any]:
    """Extend the session; unfence, fence or shut down the broker as it wants and the controller decides."""

    def note(response: Any) -> Any:
        if not response.error_code:
            broker.connections.heartbeats.note(request.broker_id, context.connection)
        return response

    return decide(broker.metadata, broker.clock, request, context.api_version).then(note)
