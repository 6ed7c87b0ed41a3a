"""The requests of share groups on one broker, from the first heartbeat to the deletion of the group. KIP-932."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.common.ids import uuid_to_text
from ottla.coordinators.share.events import ReadSummary, ShareKey
from ottla.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .harness import BrokerHarness, open_harness, records_of

ACCEPT = 1
GROUP = 32
STATE_TOPIC = "__share_group_state"


class Member:
    """A member of the group "g", subscribed to the topic "t"."""

    def __init__(self, harness: BrokerHarness, topic_id: bytes, member_id: str) -> None:
        self.harness, self.topic_id, self.member_id = harness, topic_id, member_id
        self.epoch = self.session_epoch = 0
        self.partitions: list[int] = []

    def beat(self, **fields: Any) -> Any:
        request = ShareGroupHeartbeatRequest(group_id="g", member_id=self.member_id, member_epoch=self.epoch)
        if not self.epoch:
            request.subscribed_topic_names = ["t"]
        for name, value in fields.items():
            setattr(request, name, value)
        response = self.harness.ask(request)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.partitions = [index for row in response.assignment.topic_partitions for index in row.partitions]
        return response

    def join(self) -> None:
        """Join, and get the partitions once they have share state."""
        assert not self.beat().error_code
        for _ in range(2):
            self.harness.loop.advance(1_000)
            assert not self.beat().error_code

    def read(self) -> list[tuple[int, int]]:
        """Acquire records: their partitions and offsets."""
        request = ShareFetchRequest(
            group_id="g", member_id=self.member_id, share_session_epoch=self.session_epoch,
            max_wait_ms=0, max_bytes=1 << 20, max_records=500, batch_size=500,
        )  # fmt: skip
        if not self.session_epoch:
            # As in Kafka, a member may fetch from partitions that are not assigned to it.
            wanted = [FetchPartition(partition_index=index) for index in (0, 1)]
            request.topics = [FetchTopic(topic_id=self.topic_id, partitions=wanted)]
        response = self.harness.ask(request)
        assert not response.error_code, response
        self.session_epoch += 1
        found = []
        for row in (row for topic in response.responses for row in topic.partitions):
            assert not row.error_code, row
            owned = [o for piece in row.acquired_records for o in range(piece.first_offset, piece.last_offset + 1)]
            assert {offset for offset, _ in records_of(row.records)}.issuperset(owned)
            found += [(row.partition_index, offset) for offset in owned]
        return sorted(found)

    def acknowledge(self, first: int, last: int, partition: int = 0) -> ErrorCode:
        """Accept records; the error of the partition, otherwise of the request."""
        rows = [AcknowledgePartition(partition, [AcknowledgementBatch(first, last, [ACCEPT])])]
        response = self.harness.ask(
            ShareAcknowledgeRequest(
                group_id="g",
                member_id=self.member_id,
                share_session_epoch=self.session_epoch,
                topics=[AcknowledgeTopic(self.topic_id, rows)],
            )
        )
        if response.error_code:
            return ErrorCode(response.error_code)
        self.session_epoch += 1
        return ErrorCode(response.responses[0].partitions[0].error_code)


class World:
    """A broker with the topic "t" of two partitions, which the group "g" reads from the start."""

    def __init__(self, harness: BrokerHarness) -> None:
        self.harness = harness
        self.topic_id = harness.create("t", partitions=2)
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
        assert not harness.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
        harness.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))

    def member(self, name: str = "m") -> Member:
        member = Member(self.harness, self.topic_id, name)
        member.join()
        return member

    def groups(self) -> list[tuple[str, str, str]]:
        rows = self.harness.ask(ListGroupsRequest()).groups
        return [(row.group_id, row.group_type, row.group_state) for row in rows]

    def disable(self) -> None:
        request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("share.version", 0, False, 3)])
        assert not self.harness.ask(request).error_code


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_harness(tmp_path) as harness:
        yield World(harness)


def test_group_reads_acknowledges_is_described_and_deleted(world: World) -> None:
    m = world.member()
    assert m.partitions == [0, 1]
    world.harness.append("t", b"a", b"b", b"c")
    world.harness.append("t", b"d", index=1)
    assert m.read() == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert m.acknowledge(0, 1) is ErrorCode.NONE
    assert world.groups() == [("g", "share", "Stable")]
    (described,) = world.harness.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    (row,) = described.members
    assert (row.member_id, row.subscribed_topic_names, row.client_id) == ("m", ["t"], "test")
    (classic,) = world.harness.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    delete = DeleteGroupsRequest(groups_names=["g"])
    assert world.harness.ask(delete).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert not m.beat(member_epoch=-1).error_code
    assert world.groups() == [("g", "share", "Empty")]
    assert world.harness.ask(delete).results[0].error_code == 0
    assert world.groups() == []
    summary = world.harness.broker.shares.coordinator.submit(ReadSummary(ShareKey("g", world.topic_id, 0)))
    assert summary.result().start_offset == -1, "its state is deleted"
    assert world.harness.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups[0].error_code == 69


def test_group_with_the_id_of_a_deleted_one_starts_again(world: World) -> None:
    m = world.member()
    world.harness.append("t", b"a", b"b")
    assert m.read() == [(0, 0), (0, 1)]
    assert m.acknowledge(0, 1) is ErrorCode.NONE
    assert Member(world.harness, world.topic_id, "not a member").read() == [], "its session remains"
    m.beat(member_epoch=-1)
    assert world.harness.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
    assert world.member("n").read() == [(0, 0), (0, 1)]


def test_member_that_left_can_acknowledge_its_records(world: World) -> None:
    m, n = world.member("m"), world.member("n")
    world.harness.append("t", b"a", b"b", b"c")
    assert len(m.read()) == 3
    assert n.read() == []
    assert not m.beat(member_epoch=-1).error_code
    assert n.read() == []
    assert m.acknowledge(0, 0) is ErrorCode.NONE
    m.session_epoch = -1
    assert m.acknowledge(1, 1) is ErrorCode.NONE
    assert n.read() == [(0, 2)]
    assert n.acknowledge(2, 2) is ErrorCode.NONE


def test_records_of_a_member_without_heartbeats_are_released_at_once(tmp_path: Path) -> None:
    settings = {"group.share.record.lock.duration.ms": "3600000", "group.share.max.record.lock.duration.ms": "3600000"}
    with open_harness(tmp_path, settings) as harness:
        world = World(harness)
        m, n = world.member("m"), world.member("n")
        harness.append("t", b"a", b"b")
        assert len(m.read()) == 2
        for _ in range(9):
            assert n.read() == []
            harness.loop.advance(5_000)
            n.beat()
        assert n.read() == [(0, 0), (0, 1)]
        assert m.acknowledge(0, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
        assert m.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
        m.epoch = m.session_epoch = 0
        m.join()
        assert m.read() == []
        assert m.acknowledge(0, 1) is ErrorCode.INVALID_RECORD_STATE


def test_acknowledged_records_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    with open_harness(tmp_path) as harness:
        world = World(harness)
        m = world.member()
        harness.append("t", b"a", b"b", b"c")
        assert m.read() == [(0, 0), (0, 1), (0, 2)]
        assert m.acknowledge(0, 1) is ErrorCode.NONE
    with open_harness(tmp_path) as harness:
        harness.broker.coordinators.start()
        harness.loop.advance(1_000)
        m.harness, m.session_epoch = harness, 0
        assert not m.beat().error_code, "the member continues with its epoch"
        assert m.read() == [(0, 2)]


def test_nothing_is_served_without_the_feature(world: World) -> None:
    m = world.member()
    world.disable()
    assert m.beat().error_code == ErrorCode.UNSUPPORTED_VERSION
    fetch = ShareFetchRequest(group_id="g", member_id="m")
    for request in (fetch, ShareAcknowledgeRequest(group_id="g", member_id="m")):
        assert world.harness.ask(request).error_code == ErrorCode.UNSUPPORTED_VERSION
    (described,) = world.harness.ask(ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert coordinators(world, key(world)) == [ErrorCode.INVALID_REQUEST]
    for change in (AlterShareGroupOffsetsRequest(group_id="g"), DeleteShareGroupOffsetsRequest(group_id="g")):
        assert world.harness.ask(change).error_code == ErrorCode.UNSUPPORTED_VERSION
    offsets = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup("g", None)])
    assert world.harness.ask(offsets).groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def key(world: World, group: str = "g", partition: object = 0) -> str:
    return f"{group}:{uuid_to_text(world.topic_id)}:{partition}"


def coordinators(world: World, *keys: str, version: int = 6) -> list[int]:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=list(keys))
    rows = world.harness.ask(request, version).coordinators
    assert [row.key for row in rows] == list(keys)
    assert all((row.node_id == 1) is (row.error_code == 0) for row in rows)
    return [row.error_code for row in rows]


def test_share_coordinator_is_found_by_the_keys_of_share_partitions(world: World) -> None:
    topics = world.harness.broker.metadata.image.topics_by_name
    wrong = ["g", "", ":", "g:x:0", key(world, ""), key(world, partition="x"), key(world, partition=-1),
             key(world, partition="9" * 5_000), key(world).replace(":0", "=:0")]  # fmt: skip
    assert coordinators(world, *wrong) == [ErrorCode.INVALID_REQUEST] * len(wrong)
    assert STATE_TOPIC not in topics, "a wrong key creates no topic"
    assert coordinators(world, key(world), "g", key(world, "a:b:", 7)) == [0, ErrorCode.INVALID_REQUEST, 0]
    assert len(world.harness.broker.metadata.image.topics_by_name[STATE_TOPIC].partitions) == 50
    assert coordinators(world, key(world), version=5) == [ErrorCode.INVALID_REQUEST]
