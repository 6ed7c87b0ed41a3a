"""ConsumerGroupDescribe (69), versions 0-1: consumer groups with their members and assignments. KIP-848."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import describe_modern
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
    groups = broker.groups if broker.settings.serves_consumer_groups() else None
    kind = (DescribeConsumerGroup, DescribedGroup, ConsumerGroupDescribeResponse)
    rows = yield from describe_modern(groups, context.api_version, request, *kind)
    return ConsumerGroupDescribeResponse(groups=rows)
