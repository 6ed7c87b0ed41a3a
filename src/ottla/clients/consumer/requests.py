"""The requests about offsets that a consumer sends, and what their answers say: objects in, objects out.

Newer versions than NEWEST_OFFSETS_BY_NAME of OffsetCommit and OffsetFetch name topics by id only: not to be used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.clients.cluster import ClusterView
from ottla.clients.errors import error_for
from ottla.clients.values import as_offset
from ottla.common.ids import TopicPartition, by_topic
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

NEWEST_OFFSETS_BY_NAME = 9
CONSUMER = -1


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position to commit: the offset of the next record to read, and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""

    def checked(self) -> OffsetAndMetadata:
        """The same with plain ints. Raises ValueError, TypeError for what no broker takes."""
        if not isinstance(self.metadata, str):
            raise TypeError(f"The metadata of an offset must be a str, not {self.metadata!r}")
        if self.leader_epoch == -1:
            return OffsetAndMetadata(as_offset(self.offset), -1, self.metadata)
        return OffsetAndMetadata(as_offset(self.offset), as_offset(self.leader_epoch, "A leader epoch"), self.metadata)


class GroupMetadata(NamedTuple):
    """A consumer's place in its group: generation -1 and an empty member id while it is not a member."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Committer:
    """As whom to commit; the defaults are those of a consumer that is no member of the group."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


def commit_request(by: Committer, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
    """The request that commits."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for tp, row in offsets.items():
        topics.setdefault(tp[0], []).append(
            OffsetCommitRequestPartition(
                partition_index=tp[1],
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                committed_metadata=row.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=by.group_id,
        generation_id_or_member_epoch=by.generation,
        member_id=by.member_id,
        group_instance_id=by.instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )


def offset_fetch_request(group_id: str, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
    """The request for the group's committed offsets."""
    topics = by_topic(partitions)
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=t, partition_indexes=ps) for t, ps in topics.items()],
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[OffsetFetchRequestTopics(name=t, partition_indexes=ps) for t, ps in topics.items()],
            )
        ],
        require_stable=True,
    )


def read_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets, without the partitions that have none. Raises BrokerError."""
    topics: list[Any] = list(response.topics)
    codes = [response.error_code]
    for group in response.groups:
        codes.append(group.error_code)
        topics += group.topics
    found = {}
    for topic in topics:
        for row in topic.partitions:
            codes.append(row.error_code)
            if row.committed_offset >= 0:
                tp = TopicPartition(topic.name, row.partition_index)
                found[tp] = OffsetAndMetadata(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
    code = next((code for code in codes if code), 0)
    if code:
        raise error_for(code)
    return found


def list_offsets_request(
    wanted: Mapping[TopicPartition, int], view: ClusterView, isolation: int, timeout_ms: int
) -> ListOffsetsRequest:
    """The request for the offsets of timestamps, to one leader."""
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
    """The request for where these leader epochs ended, to one leader (KIP-320)."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for tp, epoch in epochs.items():
        row = OffsetForLeaderPartition(tp.partition, view.leader_epoch(*tp), epoch)
        topics.setdefault(tp.topic, []).append(row)
    return OffsetForLeaderEpochRequest(CONSUMER, [OffsetForLeaderTopic(name, rows) for name, rows in topics.items()])
