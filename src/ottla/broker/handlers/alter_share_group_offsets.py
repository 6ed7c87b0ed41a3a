"""AlterShareGroupOffsets (91), version 0: set where an empty share group starts. KIP-932.

The start offset -1 leaves the choice to share.auto.offset.reset. Unlike Kafka, lower offsets are refused, and the
response has no id of a topic that the client may not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed_names
from ottla.broker.authorization_guard import refused
from ottla.broker.authorization_table import MESSAGES
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.common.slices import Slices, result_of
from ottla.coordinators.group.share.events import AlteredShareOffsets, AlterShareOffsets
from ottla.coordinators.share.events import UNCHOSEN_OFFSET
from ottla.protocol.elements import Elements
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import ShareOffsetPorts
    from ottla.metadata.image import TopicImage

Offsets = dict[Uuid, dict[int, int]]


def handle(
    broker: ShareOffsetPorts, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Slices[AlterShareGroupOffsetsResponse]:
    """Pass the offsets of the partitions that exist to the group's shard. Of duplicates, the last one counts."""
    if not broker.settings.serves_share_groups():
        return AlterShareGroupOffsetsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    refusal: AlterShareGroupOffsetsResponse | None = refused(broker, context, request)
    if refusal is not None:
        return refusal
    if not request.group_id:
        return AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.INVALID_GROUP_ID, error_message="The group id is invalid."
        )
    topics = broker.metadata.image.topics_by_name
    names = (topic.topic_name for topic in request.topics)
    readable = allowed_names(broker, context, Operation.READ, ResourceType.TOPIC, names)
    offsets: Offsets = {}
    for topic in request.topics:
        found = topics.get(topic.topic_name) if topic.topic_name in readable else None
        for partition in topic.partitions:
            if found is not None and _problem(found, partition) is ErrorCode.NONE:
                rows = offsets.setdefault(found.topic_id, {})
                rows[partition.partition_index] = partition.start_offset
            yield
    outcome = yield from result_of(broker.groups.submit(request.group_id, AlterShareOffsets(request.group_id, offsets)))
    if outcome.error is not ErrorCode.NONE:
        message = outcome.message or outcome.error.text
        return AlterShareGroupOffsetsResponse(error_code=outcome.error, error_message=message)
    answers: Elements[AlterShareGroupOffsetsResponseTopic] = Elements(
        AlterShareGroupOffsetsResponse, context.api_version
    )
    for topic in request.topics:
        is_readable = topic.topic_name in readable
        found = topics.get(topic.topic_name) if is_readable else None
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_readable else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=ZERO_UUID if found is None else found.topic_id
        )
        answer.partitions = yield from _rows(found, topic.partitions, outcome, unknown, context.api_version)
        answers.append(answer)
        yield
    return AlterShareGroupOffsetsResponse(responses=answers.as_list())


def _problem(topic: TopicImage | None, partition: AlterShareGroupOffsetsRequestPartition) -> ErrorCode:
    if topic is None or partition.partition_index not in topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.INVALID_REQUEST if partition.start_offset < UNCHOSEN_OFFSET else ErrorCode.NONE


def _rows(
    topic: TopicImage | None,
    partitions: list[AlterShareGroupOffsetsRequestPartition],
    outcome: AlteredShareOffsets,
    unknown: ErrorCode,
    version: int,
) -> Slices[list[AlterShareGroupOffsetsResponsePartition]]:
    rows: Elements[AlterShareGroupOffsetsResponsePartition] = Elements(AlterShareGroupOffsetsResponse, version)
    for partition in partitions:
        index = partition.partition_index
        error = _problem(topic, partition) if topic is not None else unknown
        if topic is not None and error is ErrorCode.NONE:
            error = outcome.failed.get((topic.topic_id, index), ErrorCode.NONE)
        message = None if error is ErrorCode.NONE else MESSAGES.get(error, error.text)
        rows.append(
            AlterShareGroupOffsetsResponsePartition(partition_index=index, error_code=error, error_message=message)
        )
        yield
    return rows.as_list()
