"""OffsetCommit (8), versions 2-10. KIP-211 (no retention time since 5), KIP-320, KIP-345, KIP-848 (topic ids in 10).

Each partition that does not exist has its own error; the others are passed to the group's shard. Not implemented: the
consumer protocol, and so the member epochs of version 9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed
from ottla.broker.request_batches import in_parts
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.common.ids import Uuid
from ottla.common.slices import Slices, result_of
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import OffsetPorts

TOPIC_IDS_SINCE = 10
# A request with more partitions is handled in slices: a client may send hundreds of requests at once.
MOST_AT_ONCE = 50


def handle(
    broker: OffsetPorts, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Completion[OffsetCommitResponse] | Slices[OffsetCommitResponse]:
    """Check that the committed topics exist, and pass the request to the group's shard.

    A commit of more than a thousand partitions is written in parts. Kafka refuses one that does not fit into a batch.
    """
    if sum([len(topic.partitions) for topic in request.topics]) <= MOST_AT_ONCE:
        return _commit(broker, context, request)
    return _commit_in_parts(broker, context, request)


def _commit(
    broker: OffsetPorts, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Completion[OffsetCommitResponse]:
    known, refused = _split(broker, context, request)
    if not known and refused:
        return OffsetCommitResponse(topics=refused)
    request.topics = known
    committed = broker.groups.submit(request.group_id, request, api_version=context.api_version)
    if not refused:
        return committed
    return committed.then(lambda response: _merge(response, refused))


def _commit_in_parts(
    broker: OffsetPorts, context: RequestContext, request: OffsetCommitRequest
) -> Slices[OffsetCommitResponse]:
    by_topic: dict[tuple[str, Uuid], OffsetCommitResponseTopic] = {}
    for topics in in_parts(request.topics, lambda topic: topic.partitions, _with_partitions):
        yield
        part = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=topics,
        )
        committed = _commit(broker, context, part)
        response = (yield from result_of(committed)) if isinstance(committed, Completion) else committed
        for topic in response.topics:
            same = by_topic.setdefault((topic.name, topic.topic_id), topic)
            if same is not topic:
                same.partitions += topic.partitions
    return OffsetCommitResponse(topics=list(by_topic.values()))


def _with_partitions(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition]
) -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _split(
    broker: OffsetPorts, context: RequestContext, request: OffsetCommitRequest
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """Return (the partitions that exist and that the client may read, the errors of the others)."""
    image, by_id = broker.metadata.image, context.api_version >= TOPIC_IDS_SINCE
    known, refused = [], []
    for topic in request.topics:
        found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
        name = found.name if found is not None else topic.name
        if (found is not None or not by_id) and not allowed(broker, context, Operation.READ, ResourceType.TOPIC, name):
            refused.append(_refuse(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if found is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused.append(_refuse(topic, topic.partitions, error))
            continue
        topic.name, topic.topic_id = found.name, found.topic_id
        fine = [partition for partition in topic.partitions if partition.partition_index in found.partitions]
        if len(fine) != len(topic.partitions):
            missing = [partition for partition in topic.partitions if partition.partition_index not in found.partitions]
            refused.append(_refuse(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if fine:
            topic.partitions = fine
            known.append(topic)
    return known, refused


def _refuse(
    topic: OffsetCommitRequestTopic, partitions: Iterable[OffsetCommitRequestPartition], error: ErrorCode
) -> OffsetCommitResponseTopic:
    rows = [OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=error) for row in partitions]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)


def _merge(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    """Add the rejected partitions to the response, with one entry per topic."""
    by_topic = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in refused:
        same = by_topic.get((topic.name, topic.topic_id))
        if same is None:
            response.topics.append(topic)
        else:
            same.partitions.extend(topic.partitions)
    return response
