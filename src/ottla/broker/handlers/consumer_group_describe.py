"""ConsumerGroupDescribe (69), versions 0-1: consumer groups with their members and assignments. KIP-848."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.broker.operations import GROUP_OPERATIONS
from ottla.broker.response_size import check_response_size
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.group import DescribeConsumerGroup
from ottla.protocol.elements import encode_element
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ConsumerGroupPorts


def handle(
    broker: ConsumerGroupPorts, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Slices[ConsumerGroupDescribeResponse]:
    """Describe each group in its shard; the results are in the order of the request.

    A group that is named several times is described once, and its encoded description is repeated.
    """
    version = context.api_version
    is_served = broker.serves_consumer_groups()
    described: dict[str, bytes] = {}
    size = 0
    for name in request.group_ids:
        yield
        if name not in described:
            row = DescribedGroup(group_id=name, error_code=ErrorCode.UNSUPPORTED_VERSION)
            if is_served:
                asked = broker.groups.submit(name, DescribeConsumerGroup(name), api_version=version)
                row = yield from result_of(asked)
            if request.include_authorized_operations and row.error_code == ErrorCode.NONE:
                row.authorized_operations = GROUP_OPERATIONS
            described[name] = encode_element(ConsumerGroupDescribeResponse, version, row)
        size += len(described[name])
        check_response_size(size)
    groups = [described[name] for name in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=cast("list[DescribedGroup]", groups))
