"""Offsets of groups that a mirror copies: an offset that a group has committed here is not moved back."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.mirrors import groups as module
from ottla.broker.mirrors.groups import REPEAT_MS, GroupOffsets, GroupPorts
from ottla.broker.mirrors.source import Source
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinators.group import FetchOffsets
from ottla.metadata.mirrors import MIRRORING, STATE_SETTING, STOPPED, TopicNames
from ottla.network.errors import ConnectFailed
from ottla.partitions.replication.mirrored import UNKNOWN
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.storage.helpers import ManualClock

TOPIC = "orders"
TOPIC_ID = bytes(range(16))
GROUP = "billing"
END = 1000


class Target:
    """A node with one group whose offsets are copied, and the source of its mirror."""

    def __init__(self, *groups: str, prefix: str = "") -> None:
        self.names, self.topic = TopicNames(prefix), prefix + TOPIC
        self.clock = ManualClock()
        self.source: dict[int, int] = {}
        self.here: dict[tuple[str, int], int] = {}
        self.commits: list[dict[int, int]] = []
        self.groups = groups or (GROUP,)
        self.state = MIRRORING
        self.epoch = 5
        self.pending: set[int] = set()
        self.unreadable: set[int] = set()
        self.has_names = True
        self.down: set[int] = set()
        self.fetched: list[int] = []
        self.refuses: dict[str, ErrorCode] = {}
        self.rejects: set[str] = set()
        self.commit_error = ErrorCode.NONE
        self.kind = ""
        self.copier = self.new()

    def new(self) -> GroupOffsets:
        """Return a copier without known copies, as after a restart."""
        partitions = {index: SimpleNamespace(leader=1) for index in range(3)}
        topic = SimpleNamespace(name=self.topic, partitions=partitions)
        image = SimpleNamespace(
            topics_by_name={self.topic: topic},
            topics_by_id={TOPIC_ID: topic},
            config=lambda *_: {STATE_SETTING: self.state},
        )
        internal = SimpleNamespace(
            ensure=lambda: Completion.of(None),
            leader_of=lambda _: 1,
            leader_epoch=lambda _: self.epoch,
            partition_count=lambda: 1,
        )
        groups = SimpleNamespace(shards=SimpleNamespace(topic=internal), submit=self._submit)
        node = SimpleNamespace(
            node_id=1,
            clock=self.clock,
            metadata=SimpleNamespace(image=image),
            partitions=SimpleNamespace(get=self._partition),
            coordinators=SimpleNamespace(groups=groups),
        )
        source = SimpleNamespace(nodes={8: ("source", 9091), 9: ("source", 9092)}, ask=self._ask)
        return GroupOffsets(cast("GroupPorts", node), cast("Source", source), re.compile(".*"), self.names)

    def copy(self) -> list[dict[int, int]]:
        """The commits of one copy."""
        self.commits = []
        asyncio.run(self.copier.copy({self.topic: MIRRORING}))
        return self.commits

    def _partition(self, _: str, index: int) -> Any:
        if index in self.unreadable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline")
        return SimpleNamespace(high_watermark=END)

    async def _ask(self, request: Any, node_id: int = 9, *, least_version: int = 0) -> Any:
        if node_id in self.down:
            raise ConnectFailed(f"node {node_id} is down")
        if isinstance(request, ListGroupsRequest):
            return ListGroupsResponse(groups=[ListedGroup(name, group_type=self.kind) for name in self.groups])
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(coordinators=[self._coordinator(name) for name in self.groups])
        self.clock.now += 50
        self.fetched.append(len(request.groups))
        rows = [OffsetFetchResponsePartitions(index, offset, 3, "") for index, offset in self.source.items()]
        topics = [OffsetFetchResponseTopics(name="", topic_id=TOPIC_ID, partitions=rows)]
        if self.has_names:
            topics = [OffsetFetchResponseTopics(name=TOPIC, partitions=rows)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(each.group_id, topics) for each in request.groups])

    def _coordinator(self, name: str) -> Coordinator:
        return Coordinator(key=name, node_id=8 if name == "far" else 9, error_code=self.refuses.get(name, 0))

    def _submit(self, name: str, request: Any, *, api_version: int) -> Completion[Any]:
        if isinstance(request, FetchOffsets):
            topics = [
                OffsetFetchResponseTopics(
                    name=each.name,
                    partitions=[self._row(name, index, request.require_stable) for index in each.partition_indexes],
                )
                for each in request.group.topics or []
            ]
            return Completion.of(OffsetFetchResponseGroup(name, topics))
        assert isinstance(request, OffsetCommitRequest)
        if name in self.rejects:
            return Completion.failed(KafkaError(ErrorCode.NOT_COORDINATOR, "moved"))
        [topic] = request.topics
        assert topic.name == self.topic
        changes = {row.partition_index: row.committed_offset for row in topic.partitions}
        self.here |= {(name, index): offset for index, offset in changes.items()}
        self.commits.append(changes)
        answers = [OffsetCommitResponsePartition(index, self.commit_error) for index in changes]
        return Completion.of(
            OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name=self.topic, partitions=answers)])
        )

    def _row(self, name: str, index: int, is_stable: bool) -> OffsetFetchResponsePartitions:
        if is_stable and index in self.pending:
            return OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        offset = self.here.get((name, index), -1)
        return OffsetFetchResponsePartitions(index, offset, -1 if offset in (-1, END) else 3, "")


def test_offsets_follow_the_source_in_both_directions_up_to_the_high_watermark() -> None:
    target = Target()
    target.source = {0: 40, 1: END + 5}
    assert target.copy() == [{0: 40, 1: END}]
    assert target.copy() == []
    target.source = {0: 30}
    assert target.copy() == [{0: 30}]


@pytest.mark.parametrize("has_names", [True, False])
def test_offsets_are_committed_for_the_name_with_the_prefix(has_names: bool) -> None:
    target = Target(prefix="us.")
    target.has_names = has_names
    target.source = {0: 40}
    assert target.copy() == [{0: 40}]
    target.source = {0: 41}
    assert target.copy() == [{0: 41}]


@pytest.mark.parametrize(
    ("kind", "is_copied"), [("Classic", True), ("Consumer", True), ("Streams", True), ("Share", False)]
)
def test_offsets_of_all_groups_that_commit_offsets_are_copied(kind: str, is_copied: bool) -> None:
    target = Target()
    target.source, target.kind = {0: 42}, kind
    assert target.copier.found == UNKNOWN
    assert target.copy() == ([{0: 42}] if is_copied else [])
    assert target.copier.found == int(is_copied)


def test_offset_that_the_group_committed_here_is_not_moved_back() -> None:
    target = Target()
    target.source = {0: 40}
    target.copy()
    target.here[GROUP, 0] = 70
    target.source = {0: 41}
    assert target.copy() == []
    target.clock.now += REPEAT_MS
    assert target.copy() == []
    target.copier = target.new()
    assert target.copy() == [], "nor after a restart"
    target.source = {0: 71}
    assert target.copy() == [{0: 71}]


def test_known_copy_of_another_coordinator_is_continued() -> None:
    target = Target()
    target.source = {0: 40}
    target.copy()
    # Another coordinator has copied 50 before this node leads again.
    target.here[GROUP, 0], target.epoch = 50, target.epoch + 2
    target.source = {0: 55}
    assert target.copy() == [{0: 55}]


def test_copy_that_is_unchanged_is_repeated_against_expiry() -> None:
    target = Target()
    target.source = {0: 40}
    target.here[GROUP, 0] = 40
    assert target.copy() == []
    target.clock.now += REPEAT_MS
    assert target.copy() == [{0: 40}]
    assert target.copy() == []


def test_topic_that_was_opened_meanwhile_and_pending_offsets_are_not_committed() -> None:
    target = Target()
    target.source = {0: 40, 1: 41}
    target.pending = {1}
    assert target.copy() == [{0: 40}]
    target.source = {0: 42}
    target.state = STOPPED
    assert target.copy() == []


def test_unreadable_partition_delays_only_its_own_offsets() -> None:
    target = Target("a", "b")
    target.source = {0: 40, 1: 41}
    target.unreadable = {0}
    assert target.copy() == [{1: 41}, {1: 41}]
    assert sorted(target.copier.errors) == ["a", "b"]
    assert target.copier.copied_ms == -1, "a promotion waits for the missing offset"
    target.unreadable = set()
    begun_ms = target.clock.monotonic_ms()
    assert target.copy() == [{0: 40}, {0: 40}]
    assert (target.copier.copied_ms, target.copier.errors) == (begun_ms, {})


def test_node_of_the_source_that_is_down_delays_only_its_own_groups() -> None:
    target = Target("far", GROUP)
    target.source, target.down = {0: 40}, {8}
    with pytest.raises(ConnectFailed):
        target.copy()
    assert target.here == {(GROUP, 0): 40}
    assert target.copier.copied_ms == -1, "a planned promotion waits"
    target.down = set()
    assert target.copy() == [{0: 40}]
    assert target.copier.copied_ms > 0


def test_planned_promotion_waits_for_a_group_whose_coordinator_loads_but_not_for_a_forbidden_one() -> None:
    target = Target("far", GROUP)
    target.source, target.refuses = {0: 40}, {"far": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert target.copy() == [{0: 40}]
    assert target.copier.errors == {"far": "the source answers COORDINATOR_NOT_AVAILABLE; it is retried"}
    assert target.copier.copied_ms == -1
    target.refuses = {"far": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    target.copy()
    assert target.copier.copied_ms > 0
    assert target.copier.errors["far"].endswith("_FAILED; give the mirror's user DESCRIBE on the group")


def test_group_whose_coordinator_moves_here_delays_no_other_group() -> None:
    target = Target(GROUP, "other")
    target.source, target.rejects = {0: 40}, {GROUP}
    assert target.copy() == [{0: 40}]
    assert list(target.copier.errors) == [GROUP]
    assert (target.here, target.copier.copied_ms) == ({("other", 0): 40}, -1)
    asyncio.run(target.copier.copy({}))
    assert target.copier.errors == {}, "nothing is copied any more"


def test_groups_are_fetched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FETCHED_AT_ONCE", 2)
    target = Target(*"abcde")
    target.source = {0: 40}
    target.copy()
    assert sorted(name for name, _ in target.here) == list("abcde")
    assert target.fetched == [2, 2, 1]


def test_planned_promotion_waits_for_a_moving_coordinator_here_but_not_for_a_group_with_members() -> None:
    target = Target()
    target.source, target.commit_error = {0: 40}, ErrorCode.NOT_COORDINATOR
    target.copy()
    assert target.copier.copied_ms == -1
    target.source, target.commit_error = {0: 41}, ErrorCode.UNKNOWN_MEMBER_ID
    target.copy()
    assert (target.copier.errors, target.copier.copied_ms > 0) == ({GROUP: "UNKNOWN_MEMBER_ID"}, True)
