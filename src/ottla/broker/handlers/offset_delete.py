"""OffsetDelete (47), version 0. KIP-496.

Partitions that do not exist are refused one by one, topics that a member reads with GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.metadata.image import MetadataImage


def handle(broker: Broker, context: RequestContext, request: OffsetDeleteRequest) -> Completion[OffsetDeleteResponse]:
    """Check the partitions against those there are, and hand the rest to the group's shard."""
    missing = _take_missing(broker.metadata.image, request)
    deleted = broker.groups.submit(request.group_id, request, api_version=context.api_version)
    return deleted.then(lambda response: _merge(response, missing))


def _take_missing(image: MetadataImage, request: OffsetDeleteRequest) -> dict[str, list[int]]:
    """The partitions by topic that do not exist; they are taken out of `request`."""
    missing: dict[str, list[int]] = {}
    topics = []
    for topic in request.topics:
        found = image.topics_by_name.get(topic.name)
        indexes = found.partitions if found is not None else {}
        fine = [row for row in topic.partitions if row.partition_index in indexes]
        gone = [row.partition_index for row in topic.partitions if row.partition_index not in indexes]
        if gone:
            missing.setdefault(topic.name, []).extend(gone)
        if fine:
            topics.append(OffsetDeleteRequestTopic(name=topic.name, partitions=fine))
    request.topics = topics
    return missing


def _merge(response: OffsetDeleteResponse, missing: dict[str, list[int]]) -> OffsetDeleteResponse:
    if response.error_code != ErrorCode.NONE:
        return response
    by_name = {topic.name: topic for topic in response.topics}
    for name, indexes in missing.items():
        rows = [
            OffsetDeleteResponsePartition(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for index in indexes
        ]
        topic = by_name.get(name)
        if topic is None:
            response.topics.append(OffsetDeleteResponseTopic(name=name, partitions=rows))
        else:
            topic.partitions.extend(rows)
    return response
