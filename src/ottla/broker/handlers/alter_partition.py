"""AlterPartition (56), versions 2-3: a leader changes the ISR of its partitions. KIP-497, KIP-841, KIP-903.

Served on the controller's listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.cluster.control.requests import decide

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import BrokerRequestPorts
    from ottla.common.completion import Completion
    from ottla.protocol.messages.alter_partition import AlterPartitionRequest


def handle(broker: BrokerRequestPorts, context: RequestContext, request: AlterPartitionRequest) -> Completion[Any]:
    """Change the partitions; respond when the changes are committed."""
    return decide(broker.metadata, broker.clock, request, context.api_version)
