"""DescribeGroups (15), versions 0-6. KIP-345, KIP-430 (authorized operations), KIP-1043 (GROUP_ID_NOT_FOUND since 6).

Before version 6 a group that does not exist is Dead, without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import Kind, describe_each
from ottla.common.slices import Slices
from ottla.coordinators.group import DescribeGroup
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import GroupPorts

# Descriptions of classic groups have the topics only in the bytes of their members.
_KIND = Kind(DescribedGroup, DescribeGroupsResponse, lambda _: ())


def handle(
    broker: GroupPorts, context: RequestContext, request: DescribeGroupsRequest
) -> Slices[DescribeGroupsResponse]:
    """Describe each group in its shard; the results are in the order of the request."""
    version = context.api_version
    groups = yield from describe_each(
        broker,
        context,
        request.groups,
        lambda name: broker.groups.submit(name, DescribeGroup(name), api_version=version),
        _KIND,
        with_operations=request.include_authorized_operations,
    )
    return DescribeGroupsResponse(groups=groups)
