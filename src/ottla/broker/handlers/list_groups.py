"""ListGroups (16), versions 0-5. KIP-518 (filter by state), KIP-848 (filter by type).

The response contains the groups of all shards of this node. While a shard loads, it is COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import FILTERED, allowed, allowed_on_cluster
from ottla.common.slices import Slices
from ottla.coordinators.group.admin import STATES, TYPES
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import GroupPorts
    from ottla.protocol.messages.list_groups import ListedGroup


# A filter that matches no group.
_NONE = "none"


def handle(broker: GroupPorts, context: RequestContext, request: ListGroupsRequest) -> Slices[ListGroupsResponse]:
    """List the groups of all shards, one shard after the other: those that the client may describe."""
    sees_all = allowed_on_cluster(broker, context, Operation.DESCRIBE, FILTERED)
    states = yield from _known(request.states_filter, STATES)
    types = yield from _known(request.types_filter, TYPES)
    error, groups = yield from broker.groups.list_groups(states, types)
    if not sees_all:
        groups = yield from _described(broker, context, groups)
    return ListGroupsResponse(error_code=error, groups=groups)


def _described(broker: GroupPorts, context: RequestContext, groups: list[ListedGroup]) -> Slices[list[ListedGroup]]:
    found = []
    for group in groups:
        if allowed(broker, context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id, FILTERED):
            found.append(group)
        yield
    return found


def _known(wanted: list[str], known: frozenset[str]) -> Slices[frozenset[str]]:
    """The requested filters that can match a group, compared without case. Without filters all groups match."""
    found = set()
    for name in wanted:
        if name.strip().lower() in known:
            found.add(name.strip().lower())
        yield
    return frozenset(found or ({_NONE} if wanted else ()))
