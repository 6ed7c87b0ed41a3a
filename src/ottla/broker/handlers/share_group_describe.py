"""ShareGroupDescribe (77), version 1: share groups with their members and assignments. KIP-932."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import Kind, describe_modern
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


def _topics(group: DescribedGroup) -> Iterable[str]:
    """The topics that members read."""
    return (topic.topic_name for member in group.members for topic in member.assignment.topic_partitions)


_KIND = Kind(DescribedGroup, ShareGroupDescribeResponse, _topics)


def handle(
    broker: ShareGroupPorts, context: RequestContext, request: ShareGroupDescribeRequest
) -> Slices[ShareGroupDescribeResponse]:
    """Describe each group in its shard; the results are in the order of the request."""
    groups = broker.groups if broker.settings.serves_share_groups() else None
    rows = yield from describe_modern(broker, context, request, groups, DescribeShareGroup, _KIND)
    return ShareGroupDescribeResponse(groups=rows)
