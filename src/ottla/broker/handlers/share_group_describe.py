"""ShareGroupDescribe (77), version 1: share groups with their members and assignments. KIP-932."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import describe_each
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.coordinators.group.share.events import DescribeShareGroup
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
    """Describe each group in its shard; the results are in the order of the request."""
    version = context.api_version
    is_served = broker.serves_share_groups()

    def describe(name: str) -> Completion[DescribedGroup]:
        if not is_served:
            return Completion.of(DescribedGroup(group_id=name, error_code=ErrorCode.UNSUPPORTED_VERSION))
        if not name:
            return Completion.of(DescribedGroup(group_id=name, error_code=ErrorCode.INVALID_GROUP_ID))
        return broker.groups.submit(name, DescribeShareGroup(name), api_version=version)

    groups = yield from describe_each(
        request.group_ids,
        describe,
        ShareGroupDescribeResponse,
        version,
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=groups)
