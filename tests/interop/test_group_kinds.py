"""Each request about groups, for each kind of group: Ottla must answer as stock Kafka does.

Each cell of the matrix has a group of its own, since many requests change or delete it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from ottla.protocol.message import Message, Struct
from ottla.protocol.messages import (
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_topics,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from tests.clients.support import unique, wait_until
from tests.clients.test_answers_in_detail import Asking, topic_id_of
from tests.conftest import KAFKA, OTTLA, Brokers
from tests.peers.cache import in_ci, missing_for_jvm

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

STRANGER = "stranger"
KINDS = (
    "nonexistent", "without a name", "simple", "classic", "classic, empty", "consumer", "consumer, empty",
    "share", "share, empty", "streams", "streams, empty",
)  # fmt: skip
SUBSCRIPTION = bytes.fromhex("0000 00000000 ffffffff")
VOLATILE = frozenset({"throttle_time_ms", "heartbeat_interval_ms", "client_host"})
# In Kafka 4.3 the first epoch of a group of KIP-848 or KIP-932 is 2.
EPOCHS = frozenset({"assignment_epoch", "group_epoch", "member_epoch", "generation_id"})
# Kafka returns no rows if the group has never had share state, otherwise the error of each topic.
ROWS_WITHOUT_STATE = ("DeleteShareGroupOffsets", "share, empty")


class Group(NamedTuple):
    """A group, and its member if it has one."""

    name: str
    topic: str
    topic_id: bytes
    member: str = STRANGER
    epoch: int = 1


class Groups(Asking):
    """Creates groups at one broker, and sends requests about them."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, timeout_s=60.0)
        self.topic = unique("kinds")
        topic = create_topics.CreatableTopic(
            name=self.topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        assert [each.error_code for each in self.send_message(request, 5).topics] == [0]
        self.topic_id = topic_id_of(self, self.topic)

    def make(self, kind: str) -> Group:
        """A new group of this kind. Those that can have committed the offset 3 of partition 0."""
        group = Group("" if kind == "without a name" else unique("kind"), self.topic, self.topic_id)
        self._find_coordinator(group.name)
        if kind == "simple":
            self.commit(group._replace(member="", epoch=-1))
        elif kind.startswith("classic"):
            group = self._classic(group)
        elif kind.startswith("consumer"):
            group = self._consumer(group)
        elif kind.startswith("share"):
            group = self._share(group)
        elif kind.startswith("streams"):
            group = self._streams(group)
        if kind.endswith(", empty"):
            self._leave(kind, group)
        return group

    def _find_coordinator(self, name: str) -> None:
        request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[name])
        wait_until(lambda: self.send_message(request, 6).coordinators[0].error_code in (0, 24), "the coordinator")
        # A coordinator answers before its partition has been loaded.
        describe = describe_groups.DescribeGroupsRequest([name])
        loading = (14, 15, 16)
        wait_until(lambda: self.send_message(describe, 5).groups[0].error_code not in loading, "the loaded coordinator")

    def commit(self, group: Group) -> None:
        request, version = commit(group)
        wait_until(
            lambda: not self.send_message(request, version).topics[0].partitions[0].error_code, "a committed offset"
        )

    def _classic(self, group: Group) -> Group:
        request = joining(group)
        joined = self.send_message(request, 9)
        assert joined.error_code == 79, "MEMBER_ID_REQUIRED"
        request.member_id = joined.member_id
        joined = self.send_message(request, 9)
        assert joined.error_code == 0
        group = group._replace(member=joined.member_id, epoch=joined.generation_id)
        given = [sync_group.SyncGroupRequestAssignment(group.member, b"")]
        request = sync_group.SyncGroupRequest(group.name, group.epoch, group.member, None, "consumer", "range", given)
        assert self.send_message(request, 5).error_code == 0
        self.commit(group)
        return group

    def _consumer(self, group: Group) -> Group:
        group = group._replace(member=unique("member"))
        joined = self.send_message(consumer_beat(group._replace(epoch=0)), 1)
        assert joined.error_code == 0
        group = group._replace(epoch=joined.member_epoch)
        self.commit(group)
        return group

    def _share(self, group: Group) -> Group:
        group = group._replace(member=unique("member")[-36:])
        joined = self.send_message(share_beat(group._replace(epoch=0)), 1)
        assert joined.error_code == 0
        return group._replace(epoch=joined.member_epoch)

    def _streams(self, group: Group) -> Group:
        group = group._replace(member=unique("member"))
        joined = self.send_message(streams_beat(group._replace(epoch=0)), 0)
        assert joined.error_code == 0
        group = group._replace(epoch=joined.member_epoch)
        self.commit(group)
        return group

    def _leave(self, kind: str, group: Group) -> None:
        if kind.startswith("classic"):
            answer = self.send_message(leaving(group), 5).members[0]
        elif kind.startswith("consumer"):
            answer = self.send_message(consumer_beat(group._replace(epoch=-1)), 1)
        elif kind.startswith("share"):
            answer = self.send_message(share_beat(group._replace(epoch=-1)), 1)
        else:
            answer = self.send_message(streams_beat(group._replace(epoch=-1)), 0)
        assert answer.error_code == 0

    def answer(self, kind: str, ask: Ask) -> dict[str, object]:
        """Return the broker's answer, with neutral names."""
        group = self.make(kind)
        request, version = ask(group)
        if isinstance(request, txn_offset_commit.TxnOffsetCommitRequest):
            request.producer_id, request.producer_epoch = self._producer(request.transactional_id)
        response = self.send_message(request, version)
        if isinstance(response, list_groups.ListGroupsResponse):
            response.groups = [row for row in response.groups if row.group_id == group.name]
        return plain(response, {group.name: "group", group.member: "member", group.topic: "topic"})

    def _producer(self, transactional_id: str) -> tuple[int, int]:
        request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        wait_until(lambda: not self.send_message(request, 6).coordinators[0].error_code, "the coordinator")
        made: list[Any] = []

        def has_id() -> bool:
            made.append(self.send_message(init_producer_id.InitProducerIdRequest(transactional_id, 10_000), 4))
            return not made[-1].error_code

        wait_until(has_id, "a producer id")
        return made[-1].producer_id, made[-1].producer_epoch


def plain(value: Any, names: Mapping[str, str]) -> dict[str, object]:
    """The fields of a message by their paths, without what differs from one broker or run to another."""
    if isinstance(value, list):
        fields = {f"[{index}]": each for index, each in enumerate(value)} | {"[]": len(value)}
    elif isinstance(value, Struct | Message):
        fields = {f".{name}": getattr(value, name) for name in value.FIELDS if name not in VOLATILE | EPOCHS}
    else:
        if isinstance(value, str):
            for name, neutral in names.items():
                value = value.replace(name, neutral) if name else value
        return {"": "some id" if isinstance(value, bytes | memoryview) and len(value) == 16 and any(value) else value}
    found = {name + path: leaf for name, each in fields.items() for path, leaf in plain(each, names).items()}
    return {
        path: "some id" if path.endswith((".member_id", ".leader")) and leaf not in ("", None, "member") else leaf
        for path, leaf in found.items()
    }


# -- requests ------------------------------------------------------------------------------------------------------

Ask = Callable[[Group], tuple[Any, int]]


def commit(group: Group, version: int = 9) -> tuple[Any, int]:
    partition = offset_commit.OffsetCommitRequestPartition(0, 3)
    topic = offset_commit.OffsetCommitRequestTopic(group.topic, group.topic_id, [partition])
    return offset_commit.OffsetCommitRequest(group.name, group.epoch, group.member, topics=[topic]), version


def joining(group: Group, member: str = "", kind: str = "consumer") -> Any:
    protocols = [join_group.JoinGroupRequestProtocol("range", SUBSCRIPTION)]
    return join_group.JoinGroupRequest(group.name, 30_000, 30_000, member, None, kind, protocols)


def leaving(group: Group) -> Any:
    return leave_group.LeaveGroupRequest(group.name, members=[leave_group.MemberIdentity(group.member)])


def consumer_beat(group: Group) -> Any:
    """Subscribed to a topic that does not exist, so that no response depends on the time of an assignment."""
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group.name, group.member, group.epoch)
    if group.epoch == 0:
        request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 30_000, ["none"], []
    return request


def share_beat(group: Group) -> Any:
    topics = None if group.epoch else ["none"]
    return share_group_heartbeat.ShareGroupHeartbeatRequest(group.name, group.member, group.epoch, None, topics)


def streams_beat(group: Group, source: str = "none", topology_epoch: int = 3) -> Any:
    """A member of an application that reads a topic, which does not exist by default."""
    request = streams_group_heartbeat.StreamsGroupHeartbeatRequest(group.name, group.member, group.epoch)
    if group.epoch == 0:
        request.rebalance_timeout_ms, request.process_id = 30_000, "process"
        request.active_tasks = request.standby_tasks = request.warmup_tasks = []
        subtopology = streams_group_heartbeat.Subtopology("0", [source])
        request.topology = streams_group_heartbeat.Topology(topology_epoch, [subtopology])
    return request


def joining_streams(group: Group, **options: Any) -> Any:
    return streams_beat(group._replace(member=unique("new"), epoch=0), **options), 0


def fetch(group: Group, version: int, member: str | None = None, epoch: int = -1, *, every: bool = False) -> Any:
    if version < 8:
        topic = offset_fetch.OffsetFetchRequestTopic(group.topic, [0, 1])
        return offset_fetch.OffsetFetchRequest(group.name, None if every else [topic]), version
    rows = [offset_fetch.OffsetFetchRequestTopics(group.topic, group.topic_id, [0, 1])]
    asked = offset_fetch.OffsetFetchRequestGroup(group.name, member, epoch, None if every else rows)
    return offset_fetch.OffsetFetchRequest(groups=[asked]), version


def forget(group: Group) -> Any:
    partitions = [offset_delete.OffsetDeleteRequestPartition(0)]
    topic = offset_delete.OffsetDeleteRequestTopic(group.topic, partitions)
    return offset_delete.OffsetDeleteRequest(group.name, [topic]), 0


def commit_in_transaction(group: Group) -> Any:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 3)
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(group.topic, [partition])
    return txn_offset_commit.TxnOffsetCommitRequest(unique("txn"), group.name, topics=[topic]), 3


def synced(group: Group) -> Any:
    return sync_group.SyncGroupRequest(group.name, group.epoch, group.member, None, "consumer", "range", []), 5


def altered(group: Group) -> Any:
    row = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)
    topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(group.topic, [row])
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(group.name, [topic]), 0


def described(group: Group) -> Any:
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
        [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group.name, None)]
    ), 1


def stranger(group: Group) -> Group:
    return group._replace(member=STRANGER, epoch=1)


def nobody(group: Group) -> Group:
    return group._replace(member="", epoch=-1)


ASKED: dict[str, Ask] = {
    "OffsetFetch 1": lambda g: fetch(g, 1),
    "OffsetFetch 7": lambda g: fetch(g, 7),
    "OffsetFetch 7, all": lambda g: fetch(g, 7, every=True),
    "OffsetFetch 8": lambda g: fetch(g, 8),
    "OffsetFetch 8, all": lambda g: fetch(g, 8, every=True),
    "OffsetFetch 9, member": lambda g: fetch(g, 9, g.member, g.epoch),
    "OffsetFetch 9, stranger": lambda g: fetch(g, 9, STRANGER, 1, every=True),
    "OffsetFetch 9, stale": lambda g: fetch(g, 9, g.member, g.epoch + 5),
    "OffsetFetch 10": lambda g: fetch(g, 10),
    "OffsetFetch 10, all": lambda g: fetch(g, 10, every=True),
    "OffsetCommit 2": lambda g: commit(nobody(g), 2),
    "OffsetCommit 8, no member": lambda g: commit(nobody(g), 8),
    "OffsetCommit 9, no member": lambda g: commit(nobody(g), 9),
    "OffsetCommit 8, stranger": lambda g: commit(stranger(g), 8),
    "OffsetCommit 9, stranger": lambda g: commit(stranger(g), 9),
    "OffsetCommit 9, member": lambda g: commit(g, 9),
    "OffsetCommit 9, stale": lambda g: commit(g._replace(epoch=g.epoch + 5), 9),
    "OffsetCommit 10, no member": lambda g: commit(nobody(g), 10),
    "TxnOffsetCommit": commit_in_transaction,
    "OffsetDelete": forget,
    "DeleteGroups": lambda g: (delete_groups.DeleteGroupsRequest([g.name]), 2),
    "DescribeGroups 5": lambda g: (describe_groups.DescribeGroupsRequest([g.name]), 5),
    "DescribeGroups 6": lambda g: (describe_groups.DescribeGroupsRequest([g.name]), 6),
    "ConsumerGroupDescribe": lambda g: (consumer_group_describe.ConsumerGroupDescribeRequest([g.name]), 1),
    "ShareGroupDescribe": lambda g: (share_group_describe.ShareGroupDescribeRequest([g.name]), 1),
    "ConsumerGroupHeartbeat, join": lambda g: (consumer_beat(g._replace(member=unique("new"), epoch=0)), 1),
    "ConsumerGroupHeartbeat, stranger": lambda g: (consumer_beat(stranger(g)), 1),
    "ConsumerGroupHeartbeat, member": lambda g: (consumer_beat(g), 1),
    "ConsumerGroupHeartbeat, leave": lambda g: (consumer_beat(g._replace(epoch=-1)), 1),
    "ShareGroupHeartbeat, join": lambda g: (share_beat(g._replace(member=unique("new")[-36:], epoch=0)), 1),
    "ShareGroupHeartbeat, stranger": lambda g: (share_beat(stranger(g)), 1),
    "ShareGroupHeartbeat, member": lambda g: (share_beat(g), 1),
    "ShareGroupHeartbeat, leave": lambda g: (share_beat(g._replace(epoch=-1)), 1),
    "StreamsGroupDescribe": lambda g: (streams_group_describe.StreamsGroupDescribeRequest([g.name]), 0),
    "StreamsGroupHeartbeat, join": joining_streams,
    "StreamsGroupHeartbeat, join with a source": lambda g: joining_streams(g, source=g.topic),
    "StreamsGroupHeartbeat, stale topology": lambda g: joining_streams(g, topology_epoch=2),
    "StreamsGroupHeartbeat, internal topic": lambda g: joining_streams(g, source="__consumer_offsets"),
    "StreamsGroupHeartbeat, stranger": lambda g: (streams_beat(stranger(g)), 0),
    "StreamsGroupHeartbeat, member": lambda g: (streams_beat(g), 0),
    "StreamsGroupHeartbeat, leave": lambda g: (streams_beat(g._replace(epoch=-1)), 0),
    "JoinGroup": lambda g: (joining(g), 9),
    "JoinGroup, stranger": lambda g: (joining(g, STRANGER), 9),
    "JoinGroup, another type": lambda g: (joining(g, kind="connect"), 9),
    "SyncGroup": synced,
    "SyncGroup, stranger": lambda g: synced(stranger(g)),
    "Heartbeat": lambda g: (heartbeat.HeartbeatRequest(g.name, g.epoch, g.member), 4),
    "Heartbeat, stranger": lambda g: (heartbeat.HeartbeatRequest(g.name, 1, STRANGER), 4),
    "LeaveGroup": lambda g: (leaving(g), 5),
    "LeaveGroup, stranger": lambda g: (leaving(stranger(g)), 5),
    "ListGroups 3": lambda _: (list_groups.ListGroupsRequest(), 3),
    "ListGroups 5": lambda _: (list_groups.ListGroupsRequest(), 5),
    "ListGroups 5, empty": lambda _: (list_groups.ListGroupsRequest(["empty"]), 5),
    "ListGroups 5, share": lambda _: (list_groups.ListGroupsRequest([], ["share"]), 5),
    "ListGroups 5, streams": lambda _: (list_groups.ListGroupsRequest([], ["streams"]), 5),
    "DescribeShareGroupOffsets": described,
    "AlterShareGroupOffsets": altered,
    "DeleteShareGroupOffsets": lambda g: (
        delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            g.name, [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(g.topic)]
        ),
        0,
    ),
}


@pytest.fixture(scope="module")
def both(brokers: Brokers) -> Any:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    with Groups(brokers.get(KAFKA).bootstrap) as stock, Groups(brokers.get(OTTLA).bootstrap) as ottla:
        yield stock, ottla


@pytest.mark.parametrize("name", ASKED)
def test_each_kind_of_group_is_answered_as_by_stock(both: tuple[Groups, Groups], name: str) -> None:
    stock, ottla = both
    differing: list[str] = []
    for kind in KINDS:
        if (name, kind) == ROWS_WITHOUT_STATE:
            continue
        theirs, ours = stock.answer(kind, ASKED[name]), ottla.answer(kind, ASKED[name])
        differing += [
            f"{kind}: {path} is {ours.get(path)!r}, stock: {theirs.get(path)!r}"
            for path in {**theirs, **ours}
            if theirs.get(path) != ours.get(path)
        ]
    assert not differing, "\n".join(differing)
