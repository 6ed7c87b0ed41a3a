"""LeaveGroup (13), versions 0-5. KIP-345 (several members, static ones by instance id), KIP-800.

The reasons of version 5 are not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> Completion[LeaveGroupResponse]:
    """Hand it to the group's shard."""
    return broker.groups.submit(request.group_id, request, api_version=context.api_version)
