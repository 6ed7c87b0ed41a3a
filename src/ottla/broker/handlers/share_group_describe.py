"""ShareGroupDescribe (77), version 1: share groups with their members and assignments. KIP-932."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.broker.operations import GROUP_OPERATIONS
from ottla.broker.response_size import check_response_size
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.group.share.events import DescribeShareGroup
from ottla.protocol.elements import encode_element
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareGroupPorts


def handle(
    broker: ShareGroupPorts, context: RequestContext, request: ShareGroupDescribeRequest
) -> Slices[ShareGroupDescribeResponse]:
    """Describe each group in its shard; the results are in the order of the request.

    A group that is named several times is described once, and its encoded description is repeated.
    """
    version = context.api_version
    is_served = broker.serves_share_groups()
    described: dict[str, bytes] = {}
    size = 0
    for name in request.group_ids:
        yield
        if name not in described:
            row = DescribedGroup(group_id=name, error_code=ErrorCode.UNSUPPORTED_VERSION)
            if is_served:
                asked = broker.groups.submit(name, DescribeShareGroup(name), api_version=version)
                row = yield from result_of(asked)
            if request.include_authorized_operations and row.error_code == ErrorCode.NONE:
                row.authorized_operations = GROUP_OPERATIONS
            described[name] = encode_element(ShareGroupDescribeResponse, version, row)
        size += len(described[name])
        check_response_size(size)
    groups = [described[name] for name in request.group_ids]
    return ShareGroupDescribeResponse(groups=cast("list[DescribedGroup]", groups))
