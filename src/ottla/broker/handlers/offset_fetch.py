"""OffsetFetch (9), versions 1-10. KIP-320, KIP-447 (require stable), KIP-709 (several groups in 8), topic ids in 10.

Null topics request all topics. A partition without a committed offset has the offset -1 and no error, also if its topic
does not exist; a topic id that does not exist is UNKNOWN_TOPIC_ID. The member and epoch of version 9 belong to the
consumer protocol and are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from ottla.broker.authorization import allowed, allowed_names
from ottla.broker.request_batches import MOST_ROWS, in_parts
from ottla.broker.response_size import check_response_size
from ottla.common.errors import ErrorCode
from ottla.common.slices import Slices, result_of
from ottla.coordinators.group import FetchOffsets
from ottla.protocol.elements import as_list, encode_element
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
from ottla.security.acl import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import OffsetPorts
    from ottla.metadata.image import MetadataImage

TOP_LEVEL_ERROR_SINCE = 2
SEVERAL_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10


def handle(broker: OffsetPorts, context: RequestContext, request: OffsetFetchRequest) -> Slices[OffsetFetchResponse]:
    """Query the shard of each group; the results are in the order of the request."""
    version = context.api_version
    if version < SEVERAL_GROUPS_SINCE:
        group = _only_group(request, version)
        answer = yield from _fetch(broker, context, group, request.require_stable)
        return (yield from _old_response(answer, group, version))
    # If all offsets of a group are requested several times, they are encoded once and their bytes are repeated.
    whole: dict[str, bytes] = {}
    size = 0
    answers = []
    for group in request.groups:
        yield
        encoded = whole.get(group.group_id) if group.topics is None else None
        if encoded is None:
            answer = yield from _fetch(broker, context, group, request.require_stable)
            encoded = encode_element(OffsetFetchResponse, version, answer)
            if group.topics is None:
                whole[group.group_id] = encoded
        size += len(encoded)
        check_response_size(size)
        answers.append(encoded)
    return OffsetFetchResponse(groups=as_list(answers))


def _fetch(
    broker: OffsetPorts, context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> Slices[OffsetFetchResponseGroup]:
    """The committed offsets of one group, of the topics that the client may describe."""
    if not allowed(broker, context, Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    image = broker.metadata.image
    by_id = context.api_version >= TOPIC_IDS_SINCE
    wants_all = group.topics is None
    refused = (yield from _resolve_ids(image, group)) if by_id else []
    if broker.security.authorizer is not None:
        refused += yield from _take_hidden(broker, context, group)
    answer = yield from _ask(broker, context, group, require_stable)
    if isinstance(answer, list):
        # Very many topics are requested by name, in parts. A topic that was deleted meanwhile is missing.
        named = OffsetFetchRequestGroup(group_id=group.group_id, topics=answer)
        answer = yield from _ask(broker, context, named, require_stable)
        assert not isinstance(answer, list), "only a request for all offsets is divided"
        for topic in answer.topics:
            topic.partitions = [row for row in topic.partitions if row.committed_offset >= 0 or row.error_code]
            yield
    if answer.error_code != ErrorCode.NONE:
        return answer
    if wants_all and broker.security.authorizer is not None:
        names = (topic.name for topic in answer.topics)
        visible = allowed_names(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, names)
        answer.topics = [topic for topic in answer.topics if topic.name in visible]
    if by_id:
        _fill_ids(image, answer)
    answer.topics += refused
    return answer


def _ask(
    broker: OffsetPorts, context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> Slices[OffsetFetchResponseGroup | list[OffsetFetchRequestTopics]]:
    """Query the group's shard in parts; the topics to request, if all are requested and there are too many."""
    topics: list[OffsetFetchResponseTopics] = []
    for part in _parts(group):
        yield
        question = OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=part
        )
        fetch = FetchOffsets(question, require_stable, MOST_ROWS)
        asked = broker.groups.submit(group.group_id, fetch, api_version=context.api_version)
        answer: OffsetFetchResponseGroup | list[OffsetFetchRequestTopics] = yield from result_of(asked)
        if isinstance(answer, list) or answer.error_code != ErrorCode.NONE:
            return answer
        for topic in answer.topics:
            if topics and topics[-1].name == topic.name and topics[-1].topic_id == topic.topic_id:
                topics[-1].partitions += topic.partitions
            else:
                topics.append(topic)
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _parts(group: OffsetFetchRequestGroup) -> Iterator[list[OffsetFetchRequestTopics] | None]:
    """The topics of the group in parts: at least one, also for an empty request, to check the group."""
    if group.topics is None:
        yield None
        return
    parts = in_parts(group.topics, lambda topic: topic.partition_indexes, _with_indexes)
    yield from chain([next(parts, [])], parts)


def _with_indexes(topic: OffsetFetchRequestTopics, indexes: list[int]) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=indexes)


def _only_group(request: OffsetFetchRequest, version: int) -> OffsetFetchRequestGroup:
    """The request of older versions as the entry of its only group."""
    topics = None
    # Before version 2 there is no null: all topics cannot be requested.
    if request.topics is not None or version < TOP_LEVEL_ERROR_SINCE:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics or []
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _old_response(
    answer: OffsetFetchResponseGroup, question: OffsetFetchRequestGroup, version: int
) -> Slices[OffsetFetchResponse]:
    topics = answer.topics
    if answer.error_code != ErrorCode.NONE and version < TOP_LEVEL_ERROR_SINCE:
        # Version 1 has no error field for the group, so that each partition carries the error.
        topics = []
        for asked in question.topics or ():
            topics.append((yield from _refuse(asked, ErrorCode(answer.error_code))))
    rows = []
    for topic in topics:
        partitions = []
        for row in topic.partitions:
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=row.partition_index,
                    committed_offset=row.committed_offset,
                    committed_leader_epoch=row.committed_leader_epoch,
                    metadata=row.metadata,
                    error_code=row.error_code,
                )
            )
            yield
        rows.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(topics=rows, error_code=answer.error_code)


def _resolve_ids(image: MetadataImage, group: OffsetFetchRequestGroup) -> Slices[list[OffsetFetchResponseTopics]]:
    """Set the names of topics that `group` requests by id; unknown topics are removed and returned as errors."""
    if group.topics is None:
        return []
    known, unknown = [], []
    for topic in group.topics:
        yield
        found = image.topics_by_id.get(topic.topic_id)
        if found is None:
            unknown.append((yield from _refuse(topic, ErrorCode.UNKNOWN_TOPIC_ID)))
        else:
            topic.name = found.name
            known.append(topic)
    group.topics = known
    return unknown


def _take_hidden(
    broker: OffsetPorts, context: RequestContext, group: OffsetFetchRequestGroup
) -> Slices[list[OffsetFetchResponseTopics]]:
    """Remove the topics from `group` that the client may not describe; returns their errors."""
    if group.topics is None:
        return []
    visible, hidden = [], []
    for topic in group.topics:
        yield
        if allowed(broker, context, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            visible.append(topic)
        else:
            hidden.append((yield from _refuse(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
    group.topics = visible
    return hidden


def _fill_ids(image: MetadataImage, answer: OffsetFetchResponseGroup) -> None:
    """Set the id of each topic; a topic that was deleted meanwhile has no id and is omitted."""
    rows = []
    for topic in answer.topics:
        found = image.topics_by_name.get(topic.name)
        if found is not None:
            topic.topic_id = found.topic_id
            rows.append(topic)
    answer.topics = rows


def _refuse(topic: OffsetFetchRequestTopics, error: ErrorCode) -> Slices[OffsetFetchResponseTopics]:
    rows = []
    for index in topic.partition_indexes:
        rows.append(
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, committed_leader_epoch=-1, error_code=error
            )
        )
        yield
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows)
