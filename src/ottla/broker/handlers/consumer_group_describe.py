"""ConsumerGroupDescribe (69), versions 0-1: consumer groups with their members and assignments. KIP-848."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import describe_each
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices
from ottla.coordinators.group import DescribeConsumerGroup
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
    """Describe each group in its shard; the results are in the order of the request."""
    version = context.api_version
    is_served = broker.serves_consumer_groups()

    def describe(name: str) -> Completion[DescribedGroup]:
        if not is_served:
            return Completion.of(DescribedGroup(group_id=name, error_code=ErrorCode.UNSUPPORTED_VERSION))
        if not name:
            return Completion.of(DescribedGroup(group_id=name, error_code=ErrorCode.INVALID_GROUP_ID))
        return broker.groups.submit(name, DescribeConsumerGroup(name), api_version=version)

    groups = yield from describe_each(
        request.group_ids,
        describe,
        ConsumerGroupDescribeResponse,
        version,
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=groups)
