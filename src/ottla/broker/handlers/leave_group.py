"""LeaveGroup (13), versions 0-5. KIP-345 (several members, static ones by instance id), KIP-800.

The reasons (since version 5) are ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.request_batches import MOST_ROWS
from ottla.common.completion import Completion
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasGroups


def handle(
    broker: HasGroups, context: RequestContext, request: LeaveGroupRequest
) -> Completion[LeaveGroupResponse] | Slices[LeaveGroupResponse]:
    """Pass the request to the group's shard; a request with thousands of members is split."""
    if len(request.members) <= MOST_ROWS:
        return broker.groups.submit(request.group_id, request, api_version=context.api_version)
    return _leave_in_parts(broker, context, request)


def _leave_in_parts(
    broker: HasGroups, context: RequestContext, request: LeaveGroupRequest
) -> Slices[LeaveGroupResponse]:
    response = LeaveGroupResponse()
    for start in range(0, len(request.members), MOST_ROWS):
        yield
        part = LeaveGroupRequest(group_id=request.group_id, members=request.members[start : start + MOST_ROWS])
        left = broker.groups.submit(request.group_id, part, api_version=context.api_version)
        answer: LeaveGroupResponse = yield from result_of(left)
        if answer.error_code:
            return answer
        response.members += answer.members
    return response
