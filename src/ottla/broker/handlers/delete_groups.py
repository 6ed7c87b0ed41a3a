"""DeleteGroups (42), versions 0-2. KIP-229.

A group with members is refused with NON_EMPTY_GROUP; its offsets go with the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import gather
from ottla.common.completion import Completion
from ottla.coordinators.group import DeleteGroup
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, _context: RequestContext, request: DeleteGroupsRequest) -> Completion[DeleteGroupsResponse]:
    """Tell the shard of each group. A name that comes twice counts once."""
    asked = [broker.groups.submit(name, DeleteGroup(name)) for name in dict.fromkeys(request.groups_names)]

    def respond(results: list[DeletableGroupResult]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=results)

    return gather(asked, respond)
