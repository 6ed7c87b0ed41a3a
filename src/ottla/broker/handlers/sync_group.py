"""SyncGroup (14), versions 0-5. KIP-345, KIP-559.

The leader's request contains the assignment; the responses wait until it is written to `__consumer_offsets`. From
version 5 on a request without a protocol is an INCONSISTENT_GROUP_PROTOCOL error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization_guard import refused
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import GroupPorts

PROTOCOL_SINCE_VERSION = 5


def handle(
    broker: GroupPorts, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Completion[SyncGroupResponse]:
    """Pass the request to the group's shard."""
    if context.api_version >= PROTOCOL_SINCE_VERSION and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    refusal: SyncGroupResponse | None = refused(broker, context, request)
    if refusal is not None:
        return refusal
    return broker.groups.submit(request.group_id, request, api_version=context.api_version)
