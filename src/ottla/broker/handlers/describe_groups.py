"""DescribeGroups (15), versions 0-6. KIP-345, KIP-430 (authorized operations), KIP-1043 (GROUP_ID_NOT_FOUND since 6).

Before version 6 a group that does not exist is Dead, without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.broker.operations import GROUP_OPERATIONS
from ottla.broker.response_size import check_response_size
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.group import DescribeGroup
from ottla.protocol.elements import encode_element
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import HasGroups


def handle(
    broker: HasGroups, context: RequestContext, request: DescribeGroupsRequest
) -> Slices[DescribeGroupsResponse]:
    """Describe each group in its shard; the results are in the order of the request.

    A group that is named several times is described once, and its encoded description is repeated, as in Kafka.
    """
    version = context.api_version
    described: dict[str, bytes] = {}
    size = 0
    for name in request.groups:
        yield
        if name not in described:
            described[name] = yield from _describe(broker, name, version, request.include_authorized_operations)
        size += len(described[name])
        check_response_size(size)
    groups = [described[name] for name in request.groups]
    return DescribeGroupsResponse(groups=cast("list[DescribedGroup]", groups))


def _describe(broker: HasGroups, name: str, version: int, include_operations: bool) -> Slices[bytes]:
    group: DescribedGroup = yield from result_of(broker.groups.submit(name, DescribeGroup(name), api_version=version))
    if include_operations and group.error_code == ErrorCode.NONE:
        group.authorized_operations = GROUP_OPERATIONS
    return encode_element(DescribeGroupsResponse, version, group)
