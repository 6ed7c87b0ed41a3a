"""ShareGroupHeartbeat (76), version 1: a member of a share group joins, stays in the group or leaves. KIP-932."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization_guard import refused
from ottla.broker.member_requests import submit
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.coordination.shares.acknowledging import is_valid_member_id
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareGroupPorts


def handle(
    broker: ShareGroupPorts, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Completion[ShareGroupHeartbeatResponse]:
    """Pass the request to the group's shard; UNSUPPORTED_VERSION without the finalized feature share.version."""
    if not broker.settings.serves_share_groups():
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    refusal: ShareGroupHeartbeatResponse | None = refused(broker, context, request)
    if refusal is not None:
        return refusal
    if not is_valid_member_id(request.member_id):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST)
    return submit(broker.groups, context, request.group_id, request)
