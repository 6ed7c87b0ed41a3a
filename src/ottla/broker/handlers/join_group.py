"""JoinGroup (11), versions 0-9. KIP-62, KIP-134, KIP-345, KIP-394, KIP-559, KIP-800, KIP-814.

Parked until the join phase ends, at most for the longest rebalance timeout of the members. The reason of version 8 is
not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, context: RequestContext, request: JoinGroupRequest) -> Completion[JoinGroupResponse]:
    """Hand it to the group's shard."""
    return broker.groups.submit(
        request.group_id,
        request,
        api_version=context.api_version,
        client_id=context.client_id or "",
        # With a slash, as Java prints an address: tools show it as it is.
        client_host=f"/{context.client_host}",
    )
