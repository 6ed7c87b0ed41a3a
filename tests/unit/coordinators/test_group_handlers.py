"""The handlers of the group APIs: every version works, and unknown names are rejected as in Kafka."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from ottla.broker.request_batches import MOST_ROWS
from ottla.broker.security import Security
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.work import Worker
from ottla.coordination.internal_topic import partition_of
from ottla.coordinators.group.consumer.records import epoch_record
from ottla.coordinators.group.offsets import MOST_TOMBSTONES
from ottla.coordinators.group.share import records as share_records
from ottla.coordinators.group.streams import records as streams_records
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.metadata.image import NO_LEADER, Endpoint
from ottla.protocol.message import Message
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.records import encode_batch

from .test_group_runtime import Node

TOPIC_ID = b"t" * 16
HANDLERS = {
    module.__name__.rpartition(".")[2]: module.handle
    for module in (
        delete_groups,
        describe_groups,
        find_coordinator,
        heartbeat,
        join_group,
        leave_group,
        list_groups,
        offset_commit,
        offset_delete,
        offset_fetch,
        sync_group,
    )
}


class Client:
    """Sends requests to the handlers as a connection does: encoded and decoded in their version."""

    def __init__(self, node: Node) -> None:
        self.node = node
        topic = SimpleNamespace(name="t", topic_id=TOPIC_ID, partitions={0: None, 1: None})
        self.broker: Any = SimpleNamespace(
            security=Security(),
            groups=node.runtime,
            node_id=1,
            metadata=SimpleNamespace(
                image=SimpleNamespace(topics_by_name={"t": topic}, topics_by_id={TOPIC_ID: topic})
            ),
            endpoints=SimpleNamespace(
                live=lambda node_id, name: (
                    Endpoint(name, f"{name.lower()}{node_id}.host", 9092, 0) if node_id in (1, 2) else None
                )
            ),
        )

    def start(self, name: str, request: Message, version: int) -> Any:
        context: Any = SimpleNamespace(
            api_version=version, client_id="app", client_host="127.0.0.1", listener="PLAINTEXT"
        )
        sent = type(request).decode(request.encode(version), version)
        answer = HANDLERS[name](self.broker, context, sent)
        return Worker(self.node.loop).run(answer) if isinstance(answer, Generator) else answer

    def ask(self, name: str, request: Message, version: int) -> Any:
        answer = self.start(name, request, version)
        response = answer.result() if isinstance(answer, Completion) else answer
        return type(response).decode(response.encode(version), version)


@pytest.fixture
def client() -> Client:
    return Client(Node())


def commit(*partitions: tuple[str, bytes, int]) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            topic_id=topic_id,
            partitions=[OffsetCommitRequestPartition(partition_index=index, committed_offset=5)],
        )
        for name, topic_id, index in partitions
    ]
    return OffsetCommitRequest(group_id="g", topics=topics)


@pytest.mark.parametrize("version", range(10))
def test_member_lifecycle_works_in_every_version(client: Client, version: int) -> None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    if version >= 4:
        answer = client.ask("join_group", request, version)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = answer.member_id
    parked = client.start("join_group", request, version)
    client.node.loop.run(3_000)
    joined = parked.result()
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.encode(version)
    ids = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    synced = client.ask("sync_group", SyncGroupRequest(**ids, **protocol), min(version, 5))
    assert synced.error_code == ErrorCode.NONE
    assert client.ask("heartbeat", HeartbeatRequest(**ids), min(version, 4)).error_code == ErrorCode.NONE
    described = client.ask("describe_groups", DescribeGroupsRequest(groups=["g"]), min(version, 6)).groups[0]
    assert (described.group_state, described.members[0].client_host) == ("Stable", "/127.0.0.1")
    left = client.ask(
        "leave_group",
        LeaveGroupRequest(
            group_id="g", member_id=joined.member_id, members=[MemberIdentity(member_id=joined.member_id)]
        ),
        min(version, 5),
    )
    assert left.error_code == ErrorCode.NONE
    listed = client.ask("list_groups", ListGroupsRequest(), min(version, 5))
    assert [group.group_id for group in listed.groups] == ["g"]
    deleted = client.ask("delete_groups", DeleteGroupsRequest(groups_names=["g", "x"]), min(version, 2))
    assert [row.error_code for row in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]


def test_groups_of_every_kind_and_state_are_found_by_it(client: Client) -> None:
    values = {"modern": epoch_record("modern", 1, 0)[1], "sharers": share_records.epoch_record("sharers", 1, 0)[1]}
    values["flow"] = streams_records.epoch_record(StreamsGroup("flow"), 2, 0, 0, {})[1]
    for record_type, group in ((3, "modern"), (11, "sharers"), (17, "flow"), (99, "later")):
        key = record_type.to_bytes(2, "big") + len(group).to_bytes(2, "big") + group.encode()
        value = values.get(group, b"")
        client.node.of(group).append(memoryview(encode_batch([(0, key, value, [])])), origin="coordinator")
    client.node.commit(group="old").result()
    client.broker.groups = client.node.start()
    client.broker.groups.shards.start()
    client.node.loop.run(1_000)

    def listed(**filters: list[str]) -> set[str]:
        answer = client.ask("list_groups", ListGroupsRequest(**filters), 5)
        return {group.group_id for group in answer.groups}

    kinds = {"Classic": "old", "Consumer": "modern", "Share": "sharers", "Streams": "flow", "Unknown": "later"}
    assert listed() == set(kinds.values())
    for kind, group in kinds.items():
        assert listed(types_filter=[kind, "none such"]) == {group}
    states = {group.group_state for group in client.ask("list_groups", ListGroupsRequest(), 5).groups}
    assert set().union(*(listed(states_filter=[state]) for state in states)) == set(kinds.values())
    assert listed(types_filter=["none such"]) == listed(states_filter=["none such"]) == set()


@pytest.mark.parametrize("named", [{}, {"protocol_type": "consumer"}, {"protocol_name": "range"}])
def test_sync_must_name_the_protocol_since_version_5(client: Client, named: dict[str, str]) -> None:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", **named)
    assert client.ask("sync_group", request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request.protocol_type, request.protocol_name = "consumer", "range"
    assert client.ask("sync_group", request, 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert client.ask("sync_group", request, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_rejects_unknown_partitions_and_accepts_the_rest(client: Client, version: int) -> None:
    request = commit(("t", TOPIC_ID, 0), ("t", TOPIC_ID, 9), ("x", b"x" * 16, 0))
    answer = client.ask("offset_commit", request, version)
    rows = {
        (topic.name or topic.topic_id, p.partition_index): p.error_code
        for topic in answer.topics
        for p in topic.partitions
    }
    by_id = version >= 10
    name, missing = (TOPIC_ID, b"x" * 16) if by_id else ("t", "x")
    assert rows == {
        (name, 0): ErrorCode.NONE,
        (name, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (missing, 0): ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_commit_of_only_unknown_partitions_writes_no_record(client: Client) -> None:
    client.ask("offset_commit", commit(("x", bytes(16), 0)), 9)
    assert not any(partition.batches for partition in client.node.partitions.values())


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_of_one_group_in_every_version(client: Client, version: int) -> None:
    client.ask("offset_commit", commit(("t", TOPIC_ID, 0)), 9)
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
    answer = client.ask("offset_fetch", request, version)
    assert [(row.partition_index, row.committed_offset) for row in answer.topics[0].partitions] == [(0, 5), (1, -1)]
    if version >= 2:
        request.topics = None
        answer = client.ask("offset_fetch", request, version)
        assert [row.committed_offset for topic in answer.topics for row in topic.partitions] == [5]


@pytest.mark.parametrize("version", [8, 9, 10])
def test_fetch_of_several_groups(client: Client, version: int) -> None:
    client.ask("offset_commit", commit(("t", TOPIC_ID, 0)), 9)
    named = [
        OffsetFetchRequestTopics(name="t", topic_id=TOPIC_ID, partition_indexes=[0]),
        OffsetFetchRequestTopics(name="x", topic_id=b"x" * 16, partition_indexes=[0]),
    ]
    groups = [
        OffsetFetchRequestGroup(group_id="g", topics=named),
        OffsetFetchRequestGroup(group_id="g", topics=None),
        OffsetFetchRequestGroup(group_id="unknown", topics=None),
    ]
    answer = client.ask("offset_fetch", OffsetFetchRequest(groups=groups), version)
    found = [
        [(t.topic_id, p.committed_offset, p.error_code) for t in g.topics for p in t.partitions] for g in answer.groups
    ]
    if version == 10:
        missing = (b"x" * 16, -1, ErrorCode.UNKNOWN_TOPIC_ID)
        assert found == [[(TOPIC_ID, 5, 0), missing], [(TOPIC_ID, 5, 0)], []]
    else:
        assert [[row[1:] for row in group] for group in found] == [[(5, 0), (-1, 0)], [(5, 0)], []]


def test_offset_fetch_error_is_at_the_level_of_its_version() -> None:
    client = Client(Node(created=False))
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    error = ErrorCode.NOT_COORDINATOR
    assert client.ask("offset_fetch", request, 1).topics[0].partitions[0].error_code == error
    assert client.ask("offset_fetch", request, 7).error_code == error
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert client.ask("offset_fetch", request, 8).groups[0].error_code == error


def test_offset_delete_rejects_unknown_partitions(client: Client) -> None:
    client.ask("offset_commit", commit(("t", TOPIC_ID, 0)), 9)
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=rows)])
    answer = client.ask("offset_delete", request, 0)
    errors = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
    assert errors == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert client.node.committed() == -1


@pytest.mark.parametrize("version", range(7))
def test_this_node_coordinates_every_group(client: Client, version: int) -> None:
    answer = client.ask("find_coordinator", FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]), version)
    rows = answer.coordinators if version >= 4 else [answer]
    assert {(row.error_code, row.node_id, row.host, row.port) for row in rows} == {(0, 1, "plaintext1.host", 9092)}
    assert version < 4 or [row.key for row in rows] == ["g", "h"]


def test_other_coordinator_types_are_not_available(client: Client) -> None:
    request = FindCoordinatorRequest(key="k", coordinator_keys=["k"], key_type=9)
    for version, row in ((3, None), (6, 0)):
        answer = client.ask("find_coordinator", request, version)
        answer = answer if row is None else answer.coordinators[row]
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message


def test_first_find_coordinator_waits_for_the_offsets_topic() -> None:
    client = Client(Node(created=False))
    waiting = client.start("find_coordinator", FindCoordinatorRequest(key="g"), 3)
    assert not waiting.done
    client.node.count = 4
    client.node.creation.complete(None)
    assert waiting.result().error_code == ErrorCode.NONE


def test_coordinator_is_the_leader_of_the_partition_of_the_key(client: Client) -> None:
    client.node.leaders = {0: (1, 3), 1: (2, 3), 2: (NO_LEADER, 4), 3: (3, 1)}
    keys = [f"g{number}" for number in range(20)]
    rows = client.ask("find_coordinator", FindCoordinatorRequest(coordinator_keys=keys), 6).coordinators
    for row in rows:
        leader = client.node.leaders[partition_of(row.key, 4)][0]
        if leader in (1, 2):
            expected = (ErrorCode.NONE, leader, f"plaintext{leader}.host", 9092)
        else:  # no leader, or one that is fenced
            expected = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        assert (row.error_code, row.node_id, row.host, row.port) == expected
    assert {row.error_code for row in rows} == {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_find_coordinator_reports_why_the_topic_cannot_be_created() -> None:
    client = Client(Node(created=False))
    client.node.creation.fail(KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 replicas on one broker"))
    answer = client.ask("find_coordinator", FindCoordinatorRequest(key="g"), 3)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert answer.error_message == "3 replicas on one broker"


def test_describe_returns_authorized_operations_on_request(client: Client) -> None:
    client.ask("offset_commit", commit(("t", TOPIC_ID, 0)), 9)
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    assert client.ask("describe_groups", request, 5).groups[0].authorized_operations == 0b110101001000
    request.include_authorized_operations = False
    assert client.ask("describe_groups", request, 5).groups[0].authorized_operations == -(2**31)


MANY = 4_500


@pytest.fixture
def wide(client: Client) -> Client:
    """A topic with thousands of partitions."""
    client.broker.metadata.image.topics_by_name["t"].partitions = dict.fromkeys(range(MANY))
    return client


@pytest.mark.parametrize("version", [2, 9, 10])
def test_offsets_of_thousands_of_partitions_are_handled_in_parts(wide: Client, version: int) -> None:
    indexes = list(range(MANY + 10))
    rows = [OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in indexes]
    topic = OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=rows)
    answer = wide.ask("offset_commit", OffsetCommitRequest(group_id="g", topics=[topic]), version)
    assert len(answer.topics) == 1
    errors = {row.partition_index: row.error_code for row in answer.topics[0].partitions}
    missing = dict.fromkeys(range(MANY, MANY + 10), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert errors == dict.fromkeys(range(MANY), 0) | missing
    assert max(partition.largest for partition in wide.node.partitions.values()) == MOST_ROWS
    asked = OffsetFetchRequestTopics(name="t", topic_id=TOPIC_ID, partition_indexes=indexes)
    group = OffsetFetchRequestGroup(group_id="g", topics=[asked])
    for topics in ([asked], None):
        group.topics = topics
        [found] = wide.ask("offset_fetch", OffsetFetchRequest(groups=[group, group]), 9).groups[1].topics
        offsets = {row.partition_index: row.committed_offset for row in found.partitions}
        assert {index: offset for index, offset in offsets.items() if offset >= 0} == {i: i for i in range(MANY)}


@pytest.mark.parametrize("deleted", ["offsets", "group", "topic"])
def test_thousands_of_offsets_are_deleted_in_bounded_batches(wide: Client, deleted: str) -> None:
    rows = [OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in range(MANY)]
    wide.ask(
        "offset_commit",
        OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=rows)]),
        9,
    )
    before = sum(partition.log_end_offset for partition in wide.node.partitions.values())
    if deleted == "offsets":
        asked = [OffsetDeleteRequestPartition(partition_index=index) for index in range(MANY)]
        request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=asked)])
        answer = wide.ask("offset_delete", request, 0)
        assert [row.error_code for row in answer.topics[0].partitions] == [0] * MANY
    elif deleted == "group":
        assert wide.ask("delete_groups", DeleteGroupsRequest(groups_names=["g"]), 2).results[0].error_code == 0
    else:
        Worker(wide.node.loop).run(wide.node.runtime.topics_deleted(["t"]))
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert wide.ask("offset_fetch", everything, 9).groups[0].topics == []
    assert sum(partition.log_end_offset for partition in wide.node.partitions.values()) - before >= MANY
    assert max(partition.largest for partition in wide.node.partitions.values()) <= MOST_TOMBSTONES + 1


def test_thousands_of_members_leave_in_parts(client: Client) -> None:
    client.ask("offset_commit", commit(("t", TOPIC_ID, 0)), 9)
    leavers = [MemberIdentity(member_id=f"m{number}") for number in range(2 * MOST_ROWS + 1)]
    answer = client.ask("leave_group", LeaveGroupRequest(group_id="g", members=leavers), 5)
    assert [row.member_id for row in answer.members] == [leaver.member_id for leaver in leavers]
    assert {row.error_code for row in answer.members} == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_too_many_protocols_are_rejected(client: Client) -> None:
    protocols = [JoinGroupRequestProtocol(name=f"p{number}") for number in range(1_001)]
    request = JoinGroupRequest(group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=protocols)
    assert client.ask("join_group", request, 9).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("include", [False, True])
def test_group_that_is_named_twice_is_described_twice(client: Client, *, include: bool) -> None:
    client.ask("offset_commit", commit(("t", TOPIC_ID, 0)), 9)
    request = DescribeGroupsRequest(groups=["g", "x", "g"], include_authorized_operations=include)
    first, unknown, second = client.ask("describe_groups", request, 6).groups
    assert (first.group_id, unknown.group_id) == ("g", "x")
    assert first == second
