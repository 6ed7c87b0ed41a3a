"""Copies the committed offsets of groups from the source of a mirror.

Each group is copied by its coordinator here, as a client without members commits. A group that has members rejects
that. A group can also commit here without members, so the offset that it has here is read first. It is replaced only
if it is the last copy, or if no copy is known and the source's offset is higher. An offset beyond the high watermark
of the local partition is limited to it: the group would otherwise skip records that arrive later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.broker.mirrors.acls import AclPorts
from ottla.broker.mirrors.source import Source, awaited
from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.common.ids import TopicPartition
from ottla.coordination.internal_topic import partition_of
from ottla.coordinators.group import FetchOffsets
from ottla.metadata.image import TOPIC
from ottla.metadata.mirrors import TopicNames, is_read_only, is_read_only_state
from ottla.network.errors import NetworkError
from ottla.partitions.replication.mirrored import UNKNOWN
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

if TYPE_CHECKING:
    from ottla.coordination.coordinators import Coordinators
    from ottla.partitions.partitions import Partitions
    from ottla.protocol.messages.find_coordinator import FindCoordinatorResponse
    from ottla.protocol.messages.list_groups import ListGroupsResponse
    from ottla.protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup

GROUP: Final = 0
# Offsets that have not changed are committed again after this time, so that they do not expire.
REPEAT_MS: Final = 3_600_000
# Share groups have other offsets.
_KINDS: Final = ("", "classic", "consumer", "streams")
# An answer has all offsets of as many groups.
_FETCHED_AT_ONCE: Final = 200


class GroupPorts(AclPorts, Protocol):
    """The parts of the node that copy offsets."""

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

    def __init__(self, node: GroupPorts, source: Source, pattern: re.Pattern[str] | None, names: TopicNames) -> None:
        """`names` are the names of the topics in both clusters."""
        self._node = node
        self._names = names
        self._source = source
        self._pattern = pattern
        self._known: dict[tuple[str, TopicPartition], _Committed] = {}
        self._epochs: dict[str, int | None] = {}
        self._repeat_ms = node.clock.monotonic_ms() + REPEAT_MS
        self._is_complete = False
        self.copied_ms = UNKNOWN
        """When the last copy began that read each offset, by the monotonic clock; -1 before."""
        self.found = UNKNOWN
        """How many groups of the source match the pattern; -1 if they were not listed."""
        self.errors: dict[str, str] = {}
        """The groups whose offsets were not accepted, and why."""

    async def copy(self, states: Mapping[str, str]) -> None:
        """Copy the offsets in topics that are read-only here. Raises NetworkError, KafkaError."""
        pattern, begun_ms = self._pattern, self._node.clock.monotonic_ms()
        topics = {name for name, state in states.items() if is_read_only_state(state)}
        if pattern is None or not topics:
            self.errors, self.found = {}, UNKNOWN
            return
        repeats = begun_ms >= self._repeat_ms
        if repeats:
            self._repeat_ms = begun_ms + REPEAT_MS
        self.errors, self._is_complete = {}, True
        # A node of the source that is down delays only its own groups.
        failed: list[NetworkError | KafkaError] = []
        groups = [name for name in await self._list(failed) if pattern.fullmatch(name)]
        self.found = len(groups)
        if groups:
            internal = self._node.coordinators.groups.shards.topic
            await awaited(internal.ensure())
            groups = [name for name in groups if internal.leader_of(name) == self._node.node_id]
        self._forget_others(groups, topics)
        for node_id, names in (await self._coordinators(groups)).items():
            try:
                for start in range(0, len(names), _FETCHED_AT_ONCE):
                    for group in await self._fetch(node_id, names[start : start + _FETCHED_AT_ONCE]):
                        await self._commit(group, topics, repeats=repeats)
            except NetworkError as error:
                failed.append(error)
        if failed:
            raise failed[0]
        if self._is_complete:
            # An offset that the source has accepted since then may be missing.
            self.copied_ms = begun_ms

    async def _fetch(self, node_id: int, groups: Iterable[str]) -> list[OffsetFetchResponseGroup]:
        """The offsets of groups at their coordinator in the source. Raises NetworkError."""
        asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups]
        # Version 8 has several groups.
        response: OffsetFetchResponse = await self._source.ask(
            OffsetFetchRequest(groups=asked), node_id, least_version=8
        )
        return response.groups

    def _forget_others(self, groups: Iterable[str], topics: Collection[str]) -> None:
        """Forget the copies of groups that another node may have copied meanwhile, and of topics that were opened."""
        epochs = {}
        for name in groups:
            internal = self._node.coordinators.groups.shards.topic
            epochs[name] = internal.leader_epoch(partition_of(name, internal.partition_count()))
        self._known = {
            (name, partition): copied
            for (name, partition), copied in self._known.items()
            if name in epochs and epochs[name] == self._epochs.get(name) and partition.topic in topics
        }
        self._epochs = epochs

    async def _list(self, failed: list[NetworkError | KafkaError]) -> list[str]:
        """The groups of all nodes of the source; the errors of single nodes are added to `failed`."""
        names: dict[str, None] = {}
        for node_id in list(self._source.nodes):
            try:
                response: ListGroupsResponse = await self._source.ask(ListGroupsRequest(), node_id)
            except NetworkError as error:
                failed.append(error)
                continue
            if response.error_code:
                text = f"Node {node_id} of the source lists no groups"
                failed.append(KafkaError(error_code(response.error_code), text))
                continue
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
                self._note_refused_by_source(row.key, row.error_code)
            else:
                found.setdefault(row.node_id, []).append(row.key)
        return found

    async def _commit(self, group: OffsetFetchResponseGroup, topics: Collection[str], *, repeats: bool) -> None:
        """Commit the offsets of a group that have changed, or all that are copies if `repeats`."""
        if group.error_code:
            self._note_refused_by_source(group.group_id, group.error_code)
            return
        wanted = {}
        for partition, committed in self._offsets(group, topics):
            known = self._known.get((group.group_id, partition))
            if known == committed and not repeats:
                continue
            try:
                end = await self._end(partition)
            except KafkaError as error:
                self._note_unread(group.group_id, error)
                continue
            limited = committed if committed.offset <= end else _Committed(end, -1, committed.metadata)
            if known != limited or repeats:
                wanted[partition] = limited
        if not wanted:
            return
        try:
            local = await self._local(group.group_id, wanted)
        except KafkaError as error:
            self._note_unread(group.group_id, error)
            return
        image = self._node.metadata.image
        chosen = {
            partition: each
            for partition, each in wanted.items()
            # The topic may have been opened since the copy began: its groups commit here now.
            if is_read_only(image.config(TOPIC, partition.topic))
            and partition in local
            and self._is_replaced(group.group_id, partition, each, local[partition])
        }
        if not chosen:
            return
        try:
            await self._submit(group.group_id, chosen)
        except KafkaError as error:
            # E.g. the coordinator moves: other groups are not concerned.
            self._note_unread(group.group_id, error)

    def _note_refused(self, group_id: str, code: int) -> None:
        """Report an error for a group. A planned promotion waits for the offsets if they can still come."""
        error = error_code(code)
        self.errors[group_id] = error.name
        self._is_complete &= not error.retriable

    def _note_refused_by_source(self, group_id: str, code: int) -> None:
        """Report that the source does not return the offsets of a group."""
        error = error_code(code)
        self._note_refused(group_id, code)
        is_forbidden = error is ErrorCode.GROUP_AUTHORIZATION_FAILED
        step = "give the mirror's user DESCRIBE on the group" if is_forbidden else "it is retried"
        self.errors[group_id] = f"the source answers {error.name}; {step}"

    def _note_unread(self, group_id: str, error: KafkaError) -> None:
        """Report an offset that could not be read; the next copy reads it again."""
        self.errors[group_id] = str(error)
        self._is_complete = False

    async def _local(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, _Committed | None]:
        """The offsets that the group has here, None if there is none. Raises KafkaError.

        Partitions are missing for which a transaction commits offsets.
        """
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=[each.partition for each in rows])
            for name, rows in groupby(sorted(partitions), key=lambda each: each.topic)
        ]
        fetch = FetchOffsets(OffsetFetchRequestGroup(group_id=group_id, topics=topics), require_stable=True)
        found = await awaited(self._node.coordinators.groups.submit(group_id, fetch, api_version=9))
        assert not isinstance(found, list), "only a request for all offsets is divided"
        if found.error_code:
            raise KafkaError(error_code(found.error_code), f"The offsets of group {group_id} are not readable here")
        return {
            TopicPartition(topic.name, row.partition_index): None
            if row.committed_offset < 0
            else _Committed(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
            for topic in found.topics
            for row in topic.partitions
            if not row.error_code
        }

    def _is_replaced(
        self, group_id: str, partition: TopicPartition, wanted: _Committed, local: _Committed | None
    ) -> bool:
        """Whether a copy replaces the offset that the group has here, and is not one that it has committed itself."""
        if local is None:
            return True
        known = self._known.get((group_id, partition))
        if known is not None:
            return local == known
        if local.offset == wanted.offset:
            self._known[group_id, partition] = local
        # Another node, or this one before a restart, may have copied the local offset.
        return local.offset < wanted.offset

    async def _submit(self, group_id: str, wanted: Mapping[TopicPartition, _Committed]) -> None:
        """Commit as a client without members."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, each in wanted.items():
            row = OffsetCommitRequestPartition(partition.partition, each.offset, each.leader_epoch, each.metadata)
            by_topic.setdefault(partition.topic, []).append(row)
        rows = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()]
        request = OffsetCommitRequest(group_id=group_id, topics=rows)
        response = await awaited(self._node.coordinators.groups.submit(group_id, request, api_version=9))
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                if answer.error_code:
                    self._note_refused(group_id, answer.error_code)
                else:
                    self._known[group_id, partition] = wanted[partition]

    def _offsets(
        self, group: OffsetFetchResponseGroup, topics: Collection[str]
    ) -> Iterable[tuple[TopicPartition, _Committed]]:
        by_id = self._node.metadata.image.topics_by_id
        for topic in group.topics:
            image = by_id.get(topic.topic_id)
            # Version 10 has ids, which are the same here.
            name = self._names.local(topic.name) if topic.name else image.name if image is not None else None
            if name is None or name not in topics:
                continue
            for row in topic.partitions:
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
