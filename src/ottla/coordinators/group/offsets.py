"""OffsetCommit, OffsetFetch and OffsetDelete. The caller resolves topic ids and checks that topics exist."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from typing import Protocol

from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, Uuid
from ottla.coordinators.events import Call, Effects, Moment, RecordBytes, Reply, log_line
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.errors import commit_response
from ottla.coordinators.group.events import DeleteGroup, FetchOffsets, TopicsDeleted
from ottla.coordinators.group.follow_ups import AnswerCall
from ottla.coordinators.group.membership import Committer, check_fetch, check_member
from ottla.coordinators.group.offset_store import Committed
from ottla.coordinators.group.records import offset_record, offset_tombstone
from ottla.coordinators.group.states import State
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

# The most tombstones that one step writes and replays, in about 20 ms.
MOST_TOMBSTONES = 2_000


def commit(core: Core, call: Call[OffsetCommitRequest], request: OffsetCommitRequest, now: Moment) -> Effects:
    """Write committed offsets. A commit of a member counts as a heartbeat."""
    group = core.groups.get(request.group_id)
    committer = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        call.api_version,
    )
    partitions = ((topic.topic_id, row.partition_index) for topic in request.topics for row in topic.partitions)
    error = check_member(core, committer, partitions)
    if error is not ErrorCode.NONE:
        return [Reply(call, commit_response(request, error))]
    if group is not None and group.state in {State.STABLE, State.PREPARING}:
        core.expect_heartbeat(group, group.members[request.member_id], now)
    retention_ms = request.retention_time_ms
    expires_ms = None if retention_ms == -1 else now.wall_ms + retention_ms
    records: list[RecordBytes] = []
    topics = []
    for topic in request.topics:
        rows = []
        for partition in topic.partitions:
            error = _check_metadata(core, partition)
            rows.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error))
            if error is ErrorCode.NONE:
                committed = Committed(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now.wall_ms,
                    expires_ms,
                    topic.topic_id,
                )
                records.append(offset_record(request.group_id, topic.name, partition.partition_index, committed))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows))
    return core.reply_after_append(call, records, OffsetCommitResponse(topics=topics))


def _check_metadata(core: Core, partition: OffsetCommitRequestPartition) -> ErrorCode:
    metadata = partition.committed_metadata
    if metadata is not None and len(metadata) > core.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def fetch(core: Core, call: Call[FetchOffsets], question: FetchOffsets, _now: Moment) -> Effects:
    """Return committed offsets: of the given partitions, or all (null topics). A missing offset is -1."""
    group = question.group
    error = check_fetch(core, group.group_id, group.member_id, group.member_epoch)
    if error is not ErrorCode.NONE:
        return [Reply(call, OffsetFetchResponseGroup(group_id=group.group_id, error_code=error))]
    stored = core.offsets.of_group(group.group_id)
    stable = question.require_stable
    if group.topics is None:
        if question.most is not None and sum(map(len, stored.values())) > question.most:
            named = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=list(rows)) for topic, rows in stored.items()
            ]
            return [Reply(call, named)]
        wanted = {topic: (ZERO_UUID, list(partitions)) for topic, partitions in stored.items()}
        topics = [_topic(core, group, name, *row, stable=stable) for name, row in wanted.items()]
    else:
        topics = [_topic(core, group, t.name, t.topic_id, t.partition_indexes, stable=stable) for t in group.topics]
    return [Reply(call, OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))]


def _topic(
    core: Core, group: OffsetFetchRequestGroup, name: str, topic_id: Uuid, indexes: list[int], *, stable: bool
) -> OffsetFetchResponseTopics:
    stored = core.offsets.of_group(group.group_id).get(name, {})
    rows = []
    for index in indexes:
        committed = stored.get(index)
        if stable and core.offsets.is_pending(group.group_id, name, index):
            row = OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                committed_leader_epoch=-1,
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
            )
        elif committed is None or _is_of_previous_topic(committed, topic_id):
            row = OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, committed_leader_epoch=-1)
        else:
            row = OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
            )
        rows.append(row)
    return OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=rows)


def _is_of_previous_topic(committed: Committed, topic_id: Uuid) -> bool:
    """Whether the offset was committed for a deleted topic of the same name."""
    known = committed.topic_id != ZERO_UUID != topic_id
    return known and committed.topic_id != topic_id


def delete(core: Core, call: Call[OffsetDeleteRequest], request: OffsetDeleteRequest, now: Moment) -> Effects:
    """Delete offsets of topics to which the group does not subscribe (KIP-496)."""
    if not request.group_id:
        return [Reply(call, OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID))]
    group = core.groups.get(request.group_id)
    if group is None:
        return [Reply(call, OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND))]
    if not group.is_empty and not group.is_consumer_group:
        return [Reply(call, OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP))]
    return delete_unsubscribed(core, call, request, group, now)


class Subscriber(Protocol):
    """A group of any type."""

    @property
    def group_id(self) -> str: ...

    def is_subscribed(self, topic: str) -> bool: ...


def delete_unsubscribed(
    core: Core, call: Call[OffsetDeleteRequest], request: OffsetDeleteRequest, group: Subscriber, _now: Moment
) -> Effects:
    """Delete offsets of topics that `group` does not subscribe to."""
    records: list[RecordBytes] = []
    topics = []
    for topic in request.topics:
        subscribed = group.is_subscribed(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        rows = []
        for partition in topic.partitions:
            index = partition.partition_index
            rows.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
            if not subscribed and _has_offset(core, group.group_id, topic.name, index):
                records.append(offset_tombstone(group.group_id, topic.name, index))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
    return core.reply_after_append(call, records, OffsetDeleteResponse(topics=topics))


def _has_offset(core: Core, group_id: str, topic: str, partition: int) -> bool:
    offsets = core.offsets
    return offsets.get(group_id, topic, partition) is not None or offsets.is_pending(group_id, topic, partition)


def delete_group(core: Core, call: Call[DeleteGroup], tombstones: list[RecordBytes]) -> Effects:
    """Delete a group with its committed and pending offsets, or some of them; `tombstones` delete the group."""
    group_id = call.request.group_id
    partitions = ((topic, index) for topic, rows in core.offsets.of_group(group_id).items() for index in rows)
    some = dict.fromkeys(islice(chain(partitions, core.offsets.pending_of(group_id)), MOST_TOMBSTONES))
    records = [offset_tombstone(group_id, topic, index) for topic, index in sorted(some)]
    if len(records) == MOST_TOMBSTONES:
        return core.reply_after_append(call, records, None)
    text = "The following groups were deleted: %s. The last %d of its offsets were removed."
    line = log_line(text, group_id, len(records))
    result = DeletableGroupResult(group_id=group_id)
    return [line, *core.reply_after_append(call, [*records, *tombstones], result)]


def topics_deleted(core: Core, call: Call[TopicsDeleted], event: TopicsDeleted, _now: Moment) -> Effects:
    """Delete the offsets of deleted topics."""
    tombstones = (
        offset_tombstone(group_id, topic, index)
        for group_id in core.offsets.groups()
        for topic in event.names & core.offsets.of_group(group_id).keys()
        for index in core.offsets.of_group(group_id)[topic]
    )
    records = list(islice(tombstones, MOST_TOMBSTONES))
    if not records:
        return [Reply(call, False)]
    names = ", ".join(sorted(event.names))
    line = log_line("Generated %d tombstone records while deleting offsets for topics [%s].", len(records), names)
    return [line, *core.append_split(records, AnswerCall(call, len(records) == MOST_TOMBSTONES))]


def delete_outdated(core: Core, topic_id: Callable[[str], Uuid | None]) -> Effects:
    """Delete the offsets of topics that were deleted, or deleted and recreated, while the shard was not loaded."""
    records = []
    for group_id in core.offsets.groups():
        for topic, by_partition in core.offsets.of_group(group_id).items():
            current_id = topic_id(topic)
            records += [
                offset_tombstone(group_id, topic, index)
                for index, committed in by_partition.items()
                if current_id is None or _is_of_previous_topic(committed, current_id)
            ]
    return core.append_split(records)
