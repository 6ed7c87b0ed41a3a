"""SyncGroup (14), versions 0-5. KIP-345, KIP-559.

The leader's brings the assignment; the others' are parked until it is written to `__consumer_offsets`. Since version 5
the protocol must be named: INCONSISTENT_GROUP_PROTOCOL otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasGroups

PROTOCOL_SINCE_VERSION = 5


def handle(
    broker: HasGroups, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Completion[SyncGroupResponse]:
    """Hand it to the group's shard."""
    if context.api_version >= PROTOCOL_SINCE_VERSION and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return broker.groups.submit(request.group_id, request, api_version=context.api_version)
