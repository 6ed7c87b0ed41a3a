"""Heartbeat (12), versions 0-4. KIP-62, KIP-345.

The response reflects the state of the group: after REBALANCE_IN_PROGRESS the member joins again. A shard that is still
loading returns no error, as it does not know the members yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasGroups


def handle(broker: HasGroups, context: RequestContext, request: HeartbeatRequest) -> Completion[HeartbeatResponse]:
    """Pass the request to the group's shard."""
    return broker.groups.submit(request.group_id, request, api_version=context.api_version)
