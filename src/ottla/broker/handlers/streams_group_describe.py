"""StreamsGroupDescribe (89), version 0: streams groups with their topology, members and tasks. KIP-1071."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import describe_modern
from ottla.common.slices import Slices
from ottla.coordinators.group.streams.events import DescribeStreamsGroup
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import StreamsGroupPorts


def handle(
    broker: StreamsGroupPorts, context: RequestContext, request: StreamsGroupDescribeRequest
) -> Slices[StreamsGroupDescribeResponse]:
    """Describe each group in its shard; the results are in the order of the request."""
    groups = broker.groups if broker.settings.serves_streams_groups() else None
    kind = (DescribeStreamsGroup, DescribedGroup, StreamsGroupDescribeResponse)
    rows = yield from describe_modern(groups, context.api_version, request, *kind)
    return StreamsGroupDescribeResponse(groups=rows)
