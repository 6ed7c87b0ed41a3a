"""AssignReplicasToDirs and ControllerRegistration."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import NO_LEADER
from ottla.protocol import metadata_records as m
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from .test_heartbeats import Brokers

UNKNOWN = b"u" * 16
FIRST, SECOND, LOST = b"1" * 16, b"2" * 16, b"3" * 16


def cluster_with_directories() -> Brokers:
    """Broker 1 has two log directories; t-0 is on brokers 1 and 2."""
    cluster = Brokers(2)
    cluster.start(1, log_dirs=[FIRST, SECOND])
    cluster.beat(1)
    cluster.create(1, 2)
    return cluster


def assign(cluster: Brokers, *wanted: tuple[bytes, bytes | None, int], epoch: int | None = None) -> list[int]:
    """Assign (directory, topic id or None for t, partition); return the error codes."""
    topic_id = cluster.controller.image.topics_by_name["t"].topic_id
    directories = [
        RequestDirectoryData(directory, [RequestTopicData(topic or topic_id, [RequestPartitionData(index)])])
        for directory, topic, index in wanted
    ]
    request = AssignReplicasToDirsRequest(1, cluster.epochs[1] if epoch is None else epoch, directories)
    response = cluster.do(cluster.controller.assign_replicas_to_dirs(request))
    assert [each.id for each in response.directories] == [directory for directory, _, _ in wanted]
    return [each.topics[0].partitions[0].error_code for each in response.directories]


def test_replica_is_in_the_reported_directory() -> None:
    cluster = cluster_with_directories()
    epoch = cluster.partition.leader_epoch
    assert assign(cluster, (SECOND, None, 0)) == [0]
    assert cluster.partition.directories[0] == SECOND
    assert (cluster.partition.leader, cluster.partition.leader_epoch) == (1, epoch)


def test_replica_in_an_offline_directory_leaves_leadership_and_isr() -> None:
    cluster = cluster_with_directories()
    assert assign(cluster, (LOST, None, 0)) == [0]
    assert cluster.partition.directories[0] == LOST
    assert (cluster.partition.leader, cluster.partition.isr) == (2, (2,))


def test_unknown_partitions_and_a_second_assignment_of_one_are_refused_each() -> None:
    cluster = cluster_with_directories()
    codes = assign(cluster, (FIRST, UNKNOWN, 0), (FIRST, None, 7), (FIRST, None, 0), (SECOND, None, 0))
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.INVALID_REQUEST]
    assert cluster.partition.directories[0] == FIRST


def test_broker_without_a_replica_assigns_nothing() -> None:
    cluster = Brokers(2)
    cluster.create(2)
    assert assign(cluster, (FIRST, None, 0)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_old_broker_epoch_assigns_nothing() -> None:
    cluster = cluster_with_directories()
    with pytest.raises(KafkaError) as error:
        assign(cluster, (SECOND, None, 0), epoch=cluster.epochs[1] - 1)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def leaderless() -> Brokers:
    """t-0 has only replica 1, whose broker has another disk since its last start."""
    cluster = Brokers(2)
    cluster.start(1, log_dirs=[LOST])
    cluster.beat(1)
    cluster.create(1)
    cluster.now_ms += 10_000
    cluster.beat(2)
    cluster.start(1, incarnation=2, log_dirs=[FIRST])
    cluster.beat(1)
    assert cluster.partition.leader == NO_LEADER
    return cluster


def test_replica_leads_when_its_broker_reports_a_directory_that_it_has() -> None:
    cluster = leaderless()
    assert assign(cluster, (FIRST, None, 0)) == [0]
    assert (cluster.partition.leader, cluster.partition.directories) == (1, (FIRST,))


def test_unclean_election_takes_a_replica_in_a_lost_directory_only_without_another_one() -> None:
    for others, leader in (((), 1), ((2,), 2)):
        cluster = Brokers(2)
        cluster.start(1, log_dirs=[LOST])
        cluster.beat(1)
        cluster.create(1, *others)
        for each in others:
            cluster.now_ms += 5_000
            cluster.beat(1)
            cluster.now_ms += 5_000
            cluster.expire()
            assert cluster.partition.isr == (1,), each
        cluster.now_ms += 10_000
        cluster.start(1, incarnation=2, log_dirs=[FIRST])
        cluster.beat(1)
        for each in others:
            cluster.beat(each)
        assert cluster.partition.leader == NO_LEADER
        request = ElectLeadersRequest(1, [TopicPartitions("t", [0])], timeout_ms=1000)
        cluster.do(cluster.controller.elect_leaders(request))
        assert (cluster.partition.leader, cluster.partition.isr) == (leader, (leader,))
        assert cluster.partition.directories[0] == (FIRST if leader == 1 else LOST)


# -- controllers -----------------------------------------------------------------------------------------------------


def test_controller_registers_its_listeners_and_features() -> None:
    cluster = Brokers(1)
    request = ControllerRegistrationRequest(
        3, b"i" * 16, False, [Listener("CONTROLLER", "host", 9093, 0)], [Feature("metadata.version", 7, 30)]
    )
    assert cluster.do(cluster.controller.register_controller(request)).error_code == 0
    [registered] = cluster.controller.image.controllers.values()
    assert (registered.controller_id, registered.incarnation_id) == (3, b"i" * 16)
    assert registered.end_points == [m.ControllerEndpoint("CONTROLLER", "host", 9093, 0)]
    assert registered.features == [m.ControllerFeature("metadata.version", 7, 30)]


def test_controllers_do_not_register_at_an_old_metadata_version() -> None:
    cluster = Brokers(1)
    level = features.CONTROLLERS_FROM - 1
    cluster.offset += 1
    record = m.FeatureLevelRecord(name="metadata.version", feature_level=level)
    cluster.controller.replay([record], cluster.offset - 1, 1)
    with pytest.raises(KafkaError) as error:
        cluster.controller.register_controller(ControllerRegistrationRequest(controller_id=3))
    assert error.value.code == ErrorCode.UNSUPPORTED_VERSION
