"""ListGroups (16), versions 0-5. KIP-518 (filter by state), KIP-848 (filter by type).

The groups of all shards of this node; while one of them loads, the whole answer is COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext


def handle(broker: Broker, _context: RequestContext, request: ListGroupsRequest) -> Completion[ListGroupsResponse]:
    """Ask all shards."""
    listed = broker.groups.list_groups(frozenset(request.states_filter), frozenset(request.types_filter))
    return listed.then(lambda found: ListGroupsResponse(error_code=found[0], groups=found[1]))
