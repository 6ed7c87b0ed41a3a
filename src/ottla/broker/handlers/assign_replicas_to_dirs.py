"""AssignReplicasToDirs (73), version 0: a broker reports the directories of its replicas. KIP-858.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster.control.requests import decide

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import BrokerRequestPorts
    from ottla.common.completion import Completion
    from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest


def handle(
    broker: BrokerRequestPorts, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Completion[Any]:
    """Change the directories; each replica has its own error."""
    return decide(broker.metadata, broker.clock, request, context.api_version)
