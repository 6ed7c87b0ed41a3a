"""AllocateProducerIds (67), version 0: a broker gets a block of producer ids. KIP-730.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster.control.requests import decide

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import BrokerRequestPorts
    from ottla.common.completion import Completion
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest


def handle(broker: BrokerRequestPorts, context: RequestContext, request: AllocateProducerIdsRequest) -> Completion[Any]:
    """Allocate the block; respond when no other broker can get it."""
    return decide(broker.metadata, broker.clock, request, context.api_version)
