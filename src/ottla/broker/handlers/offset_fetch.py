"""OffsetFetch (9), versions 1-10. KIP-320, KIP-447 (require stable), KIP-709 (several groups in 8), topic ids in 10.

Null topics ask for all. A partition without a committed offset is at -1, without an error, as is one of a topic that
does not exist; by id such a topic is UNKNOWN_TOPIC_ID. The member and epoch of version 9 belong to the consumer
protocol and are not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.answers import gather
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode
from ottla.coordinators.group import FetchOffsets
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.metadata.image import MetadataImage

TOP_LEVEL_ERROR_SINCE = 2
SEVERAL_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10


def handle(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> Completion[OffsetFetchResponse]:
    """Ask the shard of each group; the answers are in the order of the questions."""
    version, image = context.api_version, broker.metadata.image
    groups = request.groups if version >= SEVERAL_GROUPS_SINCE else [_only_group(request, version)]
    by_id = version >= TOPIC_IDS_SINCE
    unknown = [_resolve_ids(image, group) if by_id else [] for group in groups]
    asked = [
        broker.groups.submit(group.group_id, FetchOffsets(group, request.require_stable), api_version=version)
        for group in groups
    ]

    def respond(answers: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
        if version < SEVERAL_GROUPS_SINCE:
            return _old_response(answers[0], groups[0], version)
        if by_id:
            for answer, missing in zip(answers, unknown, strict=True):
                _fill_ids(image, answer, missing)
        return OffsetFetchResponse(groups=answers)

    return gather(asked, respond)


def _only_group(request: OffsetFetchRequest, version: int) -> OffsetFetchRequestGroup:
    """The question of the older versions as that of one group."""
    topics = None
    # Before version 2 there is no null: all topics cannot be asked for.
    if request.topics is not None or version < TOP_LEVEL_ERROR_SINCE:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics or []
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _old_response(
    answer: OffsetFetchResponseGroup, question: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    topics = answer.topics
    if answer.error_code != ErrorCode.NONE and version < TOP_LEVEL_ERROR_SINCE:
        # The error has no other place than with each partition.
        topics = [_refuse(topic, ErrorCode(answer.error_code)) for topic in question.topics or []]
    rows = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=row.partition_index,
                    committed_offset=row.committed_offset,
                    committed_leader_epoch=row.committed_leader_epoch,
                    metadata=row.metadata,
                    error_code=row.error_code,
                )
                for row in topic.partitions
            ],
        )
        for topic in topics
    ]
    return OffsetFetchResponse(topics=rows, error_code=answer.error_code)


def _resolve_ids(image: MetadataImage, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Name the topics that `group` asks about by id; those that are unknown are taken out and returned as errors."""
    if group.topics is None:
        return []
    known, unknown = [], []
    for topic in group.topics:
        found = image.topics_by_id.get(topic.topic_id)
        if found is None:
            unknown.append(_refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = found.name
            known.append(topic)
    group.topics = known
    return unknown


def _fill_ids(image: MetadataImage, answer: OffsetFetchResponseGroup, unknown: list[OffsetFetchResponseTopics]) -> None:
    """Give each topic its id; one that was deleted meanwhile has none and cannot be told of."""
    if answer.error_code != ErrorCode.NONE:
        return
    rows = []
    for topic in answer.topics:
        found = image.topics_by_name.get(topic.name)
        if found is not None:
            topic.topic_id = found.topic_id
            rows.append(topic)
    answer.topics = rows + unknown


def _refuse(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    rows = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=-1, committed_leader_epoch=-1, error_code=error
        )
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows)
