"""AlterPartition: which changes of the ISR the controller accepts from a leader."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

from .test_heartbeats import Brokers


def cluster_with_topic() -> Brokers:
    """Brokers 1 to 4; partition t-0 on 1, 2 and 3, of which 3 is not in sync."""
    cluster = Brokers(4)
    cluster.create(1, 2, 3)
    assert alter(cluster, (1, 2)).error_code == 0
    return cluster


def alter(cluster: Brokers, isr: tuple[int, ...], *, sender: int = 1, **changes: Any) -> ResponsePartitionData:
    partition = cluster.partition
    members = [BrokerState(replica, cluster.epochs[replica]) for replica in isr]
    data = RequestPartitionData(0, partition.leader_epoch, [], members, 0, partition.partition_epoch)
    for name, value in changes.items():
        setattr(data, name, value)
    topic_id = cluster.controller.image.topics_by_name["t"].topic_id
    request = AlterPartitionRequest(sender, cluster.epochs[sender], [RequestTopicData(topic_id, [data])])
    [topic] = cluster.do(cluster.controller.alter_partition(request)).topics
    return topic.partitions[0]


def test_leader_shrinks_and_expands_the_isr_in_its_epoch() -> None:
    cluster = cluster_with_topic()
    before = cluster.partition
    answer = alter(cluster, (1, 2, 3))
    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [1, 2, 3], 1)
    assert (answer.leader_epoch, answer.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)
    assert cluster.partition.isr == (1, 2, 3)


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ((1, 2, 3), {"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ((1, 2, 3), {"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ((1, 2, 3), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1, 2, 3), {"sender": 2}, ErrorCode.INVALID_REQUEST),
        ((1, 2, 3), {"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 2, 2), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2, 4), {}, ErrorCode.INVALID_REQUEST),
        ((2, 3), {}, ErrorCode.INVALID_REQUEST),
        ((), {}, ErrorCode.INVALID_REQUEST),
        ((1, 2), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        ((1, 2, 3), {"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_invalid_changes_of_the_isr_change_nothing(
    isr: tuple[int, ...], changes: dict[str, Any], code: ErrorCode
) -> None:
    cluster = cluster_with_topic()
    before = cluster.partition
    assert alter(cluster, isr, **changes).error_code == code
    assert cluster.partition is before


@pytest.mark.parametrize("event", ["fenced", "restarted", "shutting down", "unregistered"])
def test_replica_that_may_lack_records_does_not_join_the_isr(event: str) -> None:
    cluster = cluster_with_topic()
    seen = [BrokerState(replica, cluster.epochs[replica]) for replica in (1, 2, 3)]
    if event == "fenced":
        cluster.do(cluster.controller.fence_broker(3))
    elif event == "restarted":
        cluster.now_ms += 20_000
        cluster.start(3, incarnation=2)
        cluster.beat(3)
    elif event == "shutting down":
        cluster.beat(3, want_shut_down=True)
    else:
        cluster.do(cluster.controller.unregister_broker(3))
    answer = alter(cluster, (1, 2), new_isr_with_epochs=seen)
    assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert cluster.partition.isr == (1, 2)


def test_request_of_an_old_incarnation_is_rejected() -> None:
    cluster = cluster_with_topic()
    cluster.epochs[1] -= 1
    with pytest.raises(KafkaError) as error:
        alter(cluster, (1, 2))
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_reassignment_completes_when_the_new_replicas_are_in_sync() -> None:
    cluster = cluster_with_topic()
    move = ReassignableTopic("t", [ReassignablePartition(0, [4, 2])])
    request = AlterPartitionReassignmentsRequest(topics=[move])
    [answer] = cluster.do(cluster.controller.alter_partition_reassignments(request)).responses
    assert answer.partitions[0].error_code == 0
    assert cluster.partition.replicas == (4, 2, 1, 3)
    assert (cluster.partition.adding_replicas, cluster.partition.removing_replicas) == ((4,), (1, 3))
    epoch = cluster.partition.leader_epoch
    assert alter(cluster, (1, 2, 4)).error_code == ErrorCode.NEW_LEADER_ELECTED
    after = cluster.partition
    assert (after.replicas, after.isr, after.leader, after.is_reassigning) == ((4, 2), (2, 4), 4, False)
    assert after.leader_epoch == epoch + 1
