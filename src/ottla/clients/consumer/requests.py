"""Builds the consumer's requests about offsets, and reads their responses.

Versions of OffsetCommit and OffsetFetch newer than NEWEST_OFFSETS_BY_NAME have only the ids of topics, so that no
offset of a deleted topic counts for another topic of the same name. The requests have both, and `newest_version` says
in which version one may be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.clients.cluster import ClusterView
from ottla.clients.errors import error_for
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.common.errors import ErrorCode
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid, by_topic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

NEWEST_OFFSETS_BY_NAME: Final = 9
NEWEST_OFFSETS_BY_ID: Final = 10
CONSUMER: Final = -1
"""The replica id of a client."""
COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""After these errors, the coordinator is looked up again."""


def newest_version(request: OffsetCommitRequest | OffsetFetchRequest) -> int:
    """The newest version in which the request may be sent: by id only if the ids of all topics are known."""
    ids = [topic.topic_id for topic in _topics(request)]
    return NEWEST_OFFSETS_BY_NAME if ZERO_UUID in ids else NEWEST_OFFSETS_BY_ID


def topic_names(request: OffsetCommitRequest | OffsetFetchRequest) -> dict[Uuid, str]:
    return {topic.topic_id: topic.name for topic in _topics(request)}


def _topics(
    request: OffsetCommitRequest | OffsetFetchRequest,
) -> Iterable[OffsetCommitRequestTopic | OffsetFetchRequestTopics]:
    if isinstance(request, OffsetCommitRequest):
        return request.topics
    return [topic for group in request.groups for topic in group.topics or ()]


def commit_request(
    by: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata], view: ClusterView, metadata: str = ""
) -> OffsetCommitRequest:
    """Return the request; `metadata` is for the offsets that have none."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, row in offsets.items():
        topics.setdefault(tp[0], []).append(
            OffsetCommitRequestPartition(
                partition_index=tp[1],
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                committed_metadata=row.metadata or metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=by.group_id,
        generation_id_or_member_epoch=by.generation,
        member_id=by.member_id,
        group_instance_id=by.instance_id,
        topics=[OffsetCommitRequestTopic(name, view.topic_id(name), rows) for name, rows in topics.items()],
    )


def offset_fetch_request(group_id: str, partitions: Iterable[TopicPartition], view: ClusterView) -> OffsetFetchRequest:
    topics = by_topic(partitions)
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=t, partition_indexes=ps) for t, ps in topics.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[OffsetFetchRequestTopics(t, view.topic_id(t), ps) for t, ps in topics.items()],
            )
        ],
        require_stable=True,
    )


def read_offsets(request: OffsetFetchRequest, response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets, without the partitions that have none. Raises BrokerError.

    Topics that were not requested, and that the response names by id, are ignored.
    """
    names = topic_names(request)
    topics: list[tuple[str | None, list[Any]]] = [(topic.name, topic.partitions) for topic in response.topics]
    codes = [response.error_code]
    for group in response.groups:
        codes.append(group.error_code)
        topics += [(topic.name or names.get(topic.topic_id), topic.partitions) for topic in group.topics]
    found = {}
    for name, rows in topics:
        for row in rows:
            codes.append(row.error_code)
            if name is not None and row.committed_offset >= 0:
                tp = TopicPartition(name, row.partition_index)
                found[tp] = OffsetAndMetadata(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
    code = next((code for code in codes if code), 0)
    if code:
        raise error_for(code)
    return found


def list_offsets_request(
    wanted: Mapping[TopicPartition, int], view: ClusterView, isolation: int, timeout_ms: int
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, timestamp in wanted.items():
        epoch = view.leader_epoch(*tp)
        row = ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp)
        topics.setdefault(tp.topic, []).append(row)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=timeout_ms,
    )


def epoch_ends_request(epochs: Mapping[TopicPartition, int], view: ClusterView) -> OffsetForLeaderEpochRequest:
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for tp, epoch in epochs.items():
        row = OffsetForLeaderPartition(tp.partition, view.leader_epoch(*tp), epoch)
        topics.setdefault(tp.topic, []).append(row)
    return OffsetForLeaderEpochRequest(CONSUMER, [OffsetForLeaderTopic(name, rows) for name, rows in topics.items()])
