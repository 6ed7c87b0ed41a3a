"""OffsetDelete (47), version 0. KIP-496.

Each partition that does not exist has its own error. The error of a topic that a member reads is
GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.broker.request_batches import in_parts
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import OffsetPorts

_Missing = dict[tuple[str, ErrorCode], list[int]]
"""Indexes of partitions by topic and error."""


def handle(broker: OffsetPorts, context: RequestContext, request: OffsetDeleteRequest) -> Slices[OffsetDeleteResponse]:
    """Reject partitions that do not exist, and pass the others to the group's shard in parts."""
    by_name: dict[str, OffsetDeleteResponseTopic] = {}
    parts = in_parts(request.topics, lambda topic: topic.partitions, _with_partitions)
    for topics in chain([next(parts, [])], parts):  # also an empty part, to check the group
        yield
        part = OffsetDeleteRequest(group_id=request.group_id, topics=topics)
        missing = _take_missing(broker, context, part)
        deleted = broker.groups.submit(request.group_id, part, api_version=context.api_version)
        response = _merge((yield from result_of(deleted)), missing)
        if response.error_code != ErrorCode.NONE:
            return response
        for topic in response.topics:
            same = by_name.setdefault(topic.name, topic)
            if same is not topic:
                same.partitions += topic.partitions
    return OffsetDeleteResponse(topics=list(by_name.values()))


def _with_partitions(
    topic: OffsetDeleteRequestTopic, partitions: list[OffsetDeleteRequestPartition]
) -> OffsetDeleteRequestTopic:
    return OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)


def _take_missing(broker: OffsetPorts, context: RequestContext, request: OffsetDeleteRequest) -> _Missing:
    """Remove the partitions that do not exist, or whose topic the client may not read, from `request`."""
    image = broker.metadata.image
    missing: _Missing = {}
    topics = []
    for topic in request.topics:
        if not allowed(broker, context, Operation.READ, ResourceType.TOPIC, topic.name):
            indexes_of = missing.setdefault((topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED), [])
            indexes_of += [row.partition_index for row in topic.partitions]
            continue
        found = image.topics_by_name.get(topic.name)
        indexes = found.partitions if found is not None else {}
        fine = [row for row in topic.partitions if row.partition_index in indexes]
        gone = [row.partition_index for row in topic.partitions if row.partition_index not in indexes]
        if gone:
            missing.setdefault((topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), []).extend(gone)
        if fine:
            topics.append(OffsetDeleteRequestTopic(name=topic.name, partitions=fine))
    request.topics = topics
    return missing


def _merge(response: OffsetDeleteResponse, missing: _Missing) -> OffsetDeleteResponse:
    if response.error_code != ErrorCode.NONE:
        return response
    by_name = {topic.name: topic for topic in response.topics}
    for (name, error), indexes in missing.items():
        rows = [OffsetDeleteResponsePartition(partition_index=index, error_code=error) for index in indexes]
        topic = by_name.get(name)
        if topic is None:
            response.topics.append(OffsetDeleteResponseTopic(name=name, partitions=rows))
        else:
            topic.partitions.extend(rows)
    return response
