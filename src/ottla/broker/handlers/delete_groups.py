"""DeleteGroups (42), versions 0-2. KIP-229.

A group with members is rejected with NON_EMPTY_GROUP. Deleting a group deletes its offsets.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.group import DeleteGroup
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import GroupPorts


def handle(broker: GroupPorts, context: RequestContext, request: DeleteGroupsRequest) -> Slices[DeleteGroupsResponse]:
    """Delete each group in its shard. A duplicate name counts once."""
    results = []
    asked: deque[Completion[DeletableGroupResult | None]] = deque()
    names = list(dict.fromkeys(request.groups_names))
    for name in names:
        if allowed(broker, context, Operation.DELETE, ResourceType.GROUP, name):
            asked.append(broker.groups.submit(name, DeleteGroup(name)))
        else:
            refusal = DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            asked.append(Completion.of(refusal))
        yield
    for name in names:
        result = yield from result_of(asked.popleft())
        while result is None:  # only a part of its offsets was deleted
            result = yield from result_of(broker.groups.submit(name, DeleteGroup(name)))
            yield
        results.append(result)
        yield
    return DeleteGroupsResponse(results=results)
