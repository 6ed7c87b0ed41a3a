"""StreamsGroupDescribe (89), version 0: streams groups with their topology, members and tasks. KIP-1071."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.group_descriptions import Kind, describe_modern
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


_HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."


def _topics(group: DescribedGroup) -> Iterator[str]:
    """The topics of the topology."""
    subtopologies = group.topology.subtopologies if group.topology is not None else None
    for row in subtopologies or ():
        yield from row.source_topics
        yield from row.repartition_sink_topics
        for topic in (*row.repartition_source_topics, *row.state_changelog_topics):
            yield topic.name


_KIND = Kind(DescribedGroup, StreamsGroupDescribeResponse, _topics, _HIDDEN_TOPICS)


def handle(
    broker: StreamsGroupPorts, context: RequestContext, request: StreamsGroupDescribeRequest
) -> Slices[StreamsGroupDescribeResponse]:
    """Describe each group in its shard; the results are in the order of the request."""
    groups = broker.groups if broker.settings.serves_streams_groups() else None
    rows = yield from describe_modern(broker, context, request, groups, DescribeStreamsGroup, _KIND)
    return StreamsGroupDescribeResponse(groups=rows)
