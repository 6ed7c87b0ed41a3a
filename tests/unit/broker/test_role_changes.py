"""Thousands of partitions that change their leaders take their roles in slices, or when a request needs one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller import Outcome
from ottla.partitions import partitions as module
from ottla.partitions.partition import Partition
from ottla.partitions.replication.followed import FollowedPartition
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.metadata_records import PartitionChangeRecord
from tests.unit.broker.test_opening import Later, on_disk
from tests.unit.controller.support import registration

from .harness import BrokerHarness

PARTITIONS, AT_ONCE = 100, 16


class Roles:
    """Counts the notifications of a `RoleListener`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def leading(self, partition: Partition) -> None:
        assert not partition.closed
        self.counts["leading"] += 1

    def resigned(self, partition: Partition) -> None:
        assert partition.closed
        self.counts["resigned"] += 1

    def following(self, _: FollowedPartition) -> None:
        self.counts["following"] += 1

    def unfollowed(self, _: FollowedPartition) -> None:
        self.counts["unfollowed"] += 1


@pytest.fixture
def cluster(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> BrokerHarness:
    """Node 1 follows all partitions of t, which node 2 leads."""
    monkeypatch.setattr(module, "_CHANGED_AT_ONCE", AT_ONCE)
    metadata = harness.broker.metadata
    epoch = metadata.submit(lambda c: c.register_broker(registration(2))).result().broker_epoch
    metadata.submit(lambda c: c.heartbeat(BrokerHeartbeatRequest(2, epoch, 10_000), 0)).result()
    assignments = [CreatableReplicaAssignment(index, [2, 1]) for index in range(PARTITIONS)]
    request = CreateTopicsRequest(topics=[CreatableTopic("t", -1, -1, assignments)])
    assert not harness.ask(request).topics[0].error_code
    assert len(harness.broker.partitions.followed()) == PARTITIONS
    return harness


def lead(cluster: BrokerHarness, leader: int) -> None:
    topic_id = cluster.broker.metadata.image.topics_by_name["t"].topic_id
    assert topic_id is not None
    records = [
        PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader) for index in range(PARTITIONS)
    ]
    cluster.broker.metadata.submit(lambda _: Outcome(list(records), None)).result()


def led(cluster: BrokerHarness) -> int:
    return sum(partition.topic_partition.topic == "t" for partition in cluster.broker.partitions)


def test_changed_roles_are_taken_in_slices(cluster: BrokerHarness) -> None:
    later, roles = Later(cluster), Roles()
    cluster.broker.partitions.listen(roles)
    roles.counts.clear()
    lead(cluster, 1)
    seen = [led(cluster)]
    while later.work:
        later.step()
        seen.append(led(cluster))
    assert seen[-1] == PARTITIONS
    assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= AT_ONCE
    assert roles.counts == {"leading": PARTITIONS, "unfollowed": PARTITIONS}
    assert not cluster.broker.partitions.followed()


def test_requested_partition_takes_its_newest_role_at_once(cluster: BrokerHarness) -> None:
    later = Later(cluster)
    topic_id = cluster.broker.metadata.image.topics_by_name["t"].topic_id
    assert topic_id is not None
    lead(cluster, 1)
    last = PARTITIONS - 1
    assert cluster.append("t", b"x", index=last) == 0
    assert cluster.broker.partitions.get_by_id(topic_id, last - 1).leader_epoch == 1
    while later.work:
        later.step()
    partition = cluster.partition("t", last)
    assert (partition.leader_epoch, partition.log.log_end_offset) == (1, 1)
    lead(cluster, 2)
    assert led(cluster) > 0
    with pytest.raises(KafkaError) as info:
        cluster.partition("t", last)
    assert info.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.closed
    assert cluster.broker.partitions.readable("t", last - 1).leader_epoch == 2


def test_new_follower_syncs_a_truncation_before_it_appends(cluster: BrokerHarness) -> None:
    lead(cluster, 1)
    cluster.append("t", b"x")
    cluster.partition("t").cut(0)
    lead(cluster, 2)
    followed = cluster.broker.partitions.readable("t", 0)
    assert isinstance(followed, FollowedPartition)
    assert not followed.is_truncation_synced


def test_waiting_role_is_skipped_if_a_newer_one_replaces_it(cluster: BrokerHarness) -> None:
    later, roles = Later(cluster), Roles()
    cluster.broker.partitions.listen(roles)
    roles.counts.clear()
    lead(cluster, 1)
    lead(cluster, 2)
    while later.work:
        later.step()
    assert led(cluster) == 0
    epochs = {followed.leader_epoch for followed in cluster.broker.partitions.followed()}
    assert (len(cluster.broker.partitions.followed()), epochs) == (PARTITIONS, {2})
    # The first slice of each image was taken when it was published.
    assert roles.counts["leading"] == roles.counts["resigned"] <= AT_ONCE


def test_deleted_topic_takes_no_roles(cluster: BrokerHarness, tmp_path: Path) -> None:
    later = Later(cluster)
    lead(cluster, 1)
    cluster.delete("t")
    while later.work:
        later.step()
    assert led(cluster) == len(cluster.broker.partitions.followed()) == 0
    assert on_disk(tmp_path) == set()


@pytest.mark.parametrize("leader", [1, 2])
def test_replica_in_a_failed_directory_takes_no_role(cluster: BrokerHarness, leader: int) -> None:
    """A follower that fetches and cannot append would be in sync again, and delay the high watermark of the others."""
    [directory] = cluster.broker.logs.log_directories()
    directory.take_offline(OSError("test"))
    cluster.broker.directory_failed(directory.path)
    roles = Roles()
    cluster.broker.partitions.listen(roles)
    lead(cluster, leader)
    cluster.loop.advance(1_000)
    assert (roles.counts, led(cluster), len(cluster.broker.partitions.followed())) == (Counter(), 0, 0)
