"""ConsumerGroupDescribe (69), versions 0-1: consumer groups with their members and assignments. KIP-848."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import Kind, describe_modern
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


def _topics(group: DescribedGroup) -> Iterable[str]:
    """The topics that members read, or will read."""
    return (
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )


_KIND = Kind(DescribedGroup, ConsumerGroupDescribeResponse, _topics)


def handle(
    broker: ConsumerGroupPorts, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Slices[ConsumerGroupDescribeResponse]:
    """Describe each group in its shard; the results are in the order of the request."""
    groups = broker.groups if broker.settings.serves_consumer_groups() else None
    rows = yield from describe_modern(broker, context, request, groups, DescribeConsumerGroup, _KIND)
    return ConsumerGroupDescribeResponse(groups=rows)
