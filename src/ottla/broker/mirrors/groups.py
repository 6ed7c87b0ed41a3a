"""Copies the committed offsets of groups from the source of a mirror.

Each group is copied by its coordinator here, as a client without members commits. A group that has members rejects
that, so that the offsets of a group that is active here are never overwritten. An offset beyond the high watermark of
the local partition is limited to it: the group would otherwise skip records that arrive later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.broker.mirrors.source import Source, awaited
from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.common.ids import TopicPartition
from ottla.metadata.mirrors import is_read_only_state
from ottla.partitions.replication.mirrored import UNKNOWN
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.common.clock import Clock
    from ottla.coordination.coordinators import Coordinators
    from ottla.partitions.partitions import Partitions
    from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
    from ottla.protocol.messages.list_groups import ListGroupsResponse
    from ottla.protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

GROUP: Final = 0
# Offsets that have not changed are committed again after this time, so that they do not expire.
REPEAT_MS: Final = 3_600_000
# Share groups and streams groups have other offsets.
_KINDS: Final = ("", "classic", "consumer")


class GroupPorts(Protocol):
    """The parts of the node that copy offsets."""

    metadata: MetadataShell
    clock: Clock
    partitions: Partitions
    coordinators: Coordinators

    @property
    def node_id(self) -> int: ...


class _Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class GroupOffsets:
    """The copied offsets of the groups that this node coordinates."""

    def __init__(self, node: GroupPorts, source: Source, pattern: re.Pattern[str] | None) -> None:
        self._node = node
        self._source = source
        self._pattern = pattern
        self._known: dict[tuple[str, TopicPartition], _Committed] = {}
        self._repeat_ms = 0
        self.copied_ms = UNKNOWN
        """When all groups were copied last, by the monotonic clock; -1 before."""
        self.errors: dict[str, str] = {}
        """The groups whose offsets were not accepted, and why."""

    async def copy(self, states: Mapping[str, str]) -> None:
        """Copy the offsets in topics that are read-only here. Raises NetworkError, KafkaError."""
        pattern, now_ms = self._pattern, self._node.clock.monotonic_ms()
        topics = {name for name, state in states.items() if is_read_only_state(state)}
        if pattern is None or not topics:
            return
        if now_ms >= self._repeat_ms:
            self._known.clear()
            self._repeat_ms = now_ms + REPEAT_MS
        groups = [name for name in await self._list() if pattern.fullmatch(name)]
        if groups:
            internal = self._node.coordinators.groups.shards.topic
            await awaited(internal.ensure())
            groups = [name for name in groups if internal.leader_of(name) == self._node.node_id]
        self.errors = {}
        for node_id, names in (await self._coordinators(groups)).items():
            asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
            # Version 8 has several groups.
            response: OffsetFetchResponse = await self._source.ask(
                OffsetFetchRequest(groups=asked), node_id, least_version=8
            )
            for group in response.groups:
                await self._commit(group, topics)
        self.copied_ms = self._node.clock.monotonic_ms()

    async def _list(self) -> list[str]:
        names: dict[str, None] = {}
        for node_id in list(self._source.nodes):
            response: ListGroupsResponse = await self._source.ask(ListGroupsRequest(), node_id)
            if response.error_code:
                raise KafkaError(error_code(response.error_code), f"Node {node_id} of the source lists no groups")
            names |= {group.group_id: None for group in response.groups if group.group_type.lower() in _KINDS}
        return list(names)

    async def _coordinators(self, groups: Collection[str]) -> dict[int, list[str]]:
        """The groups by their coordinator in the source."""
        found: dict[int, list[str]] = {}
        if not groups:
            return found
        response: FindCoordinatorResponse = await self._source.ask(
            FindCoordinatorRequest(key_type=GROUP, coordinator_keys=list(groups)), least_version=4
        )
        for row in response.coordinators:
            if row.error_code:
                self.errors[row.key] = error_code(row.error_code).name
            else:
                found.setdefault(row.node_id, []).append(row.key)
        return found

    async def _commit(self, group: OffsetFetchResponseGroup, topics: Collection[str]) -> None:
        """Commit the offsets of a group that have changed."""
        if group.error_code:
            self.errors[group.group_id] = error_code(group.error_code).name
            return
        wanted: dict[TopicPartition, _Committed] = {}
        for partition, committed in self._offsets(group, topics):
            if self._known.get((group.group_id, partition)) != committed:
                end = await self._end(partition)
                wanted[partition] = committed if committed.offset <= end else _Committed(end, -1, committed.metadata)
        if not wanted:
            return
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, each in wanted.items():
            row = OffsetCommitRequestPartition(partition.partition, each.offset, each.leader_epoch, each.metadata)
            by_topic.setdefault(partition.topic, []).append(row)
        rows = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()]
        request = OffsetCommitRequest(group_id=group.group_id, topics=rows)
        response = await awaited(self._node.coordinators.groups.submit(group.group_id, request, api_version=9))
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    self.errors[group.group_id] = error_code(answer.error_code).name
                else:
                    self._known[group.group_id, partition] = wanted[partition]

    def _offsets(
        self, group: OffsetFetchResponseGroup, topics: Collection[str]
    ) -> Iterable[tuple[TopicPartition, _Committed]]:
        by_id = self._node.metadata.image.topics_by_id
        for topic in group.topics:
            image = by_id.get(topic.topic_id)
            # Version 10 has ids, which are the same here.
            name = topic.name or (image.name if image is not None else "")
            for row in topic.partitions if name in topics else ():
                if not row.error_code and row.committed_offset >= 0:
                    committed = _Committed(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
                    yield TopicPartition(name, row.partition_index), committed

    async def _end(self, partition: TopicPartition) -> int:
        """The high watermark of a partition here. Raises KafkaError."""
        topic = self._node.metadata.image.topics_by_name.get(partition.topic)
        image = None if topic is None else topic.partitions.get(partition.partition)
        if image is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not here yet")
        if image.leader == self._node.node_id:
            return self._node.partitions.get(*partition).high_watermark
        end = await awaited(self._node.coordinators.peers.end_offsets.ask(image.leader, partition))
        if isinstance(end, KafkaError):
            raise end
        return end
