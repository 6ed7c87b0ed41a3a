"""JoinGroup (11), versions 0-9. KIP-62, KIP-134, KIP-345, KIP-394, KIP-559, KIP-800, KIP-814.

The response waits until the join phase ends, at most for the longest rebalance timeout of the members. The reason
(since version 8) is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.member_requests import submit
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasGroups


# Each rebalance counts the protocols of every member. Clients send one for each of their assignors.
MOST_PROTOCOLS = 1_000


def handle(
    broker: HasGroups, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Completion[JoinGroupResponse]:
    """Pass the request to the group's shard. Too many protocols are an INCONSISTENT_GROUP_PROTOCOL error."""
    if len(request.protocols) > MOST_PROTOCOLS:
        return JoinGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
    return submit(broker.groups, context, request.group_id, request)
