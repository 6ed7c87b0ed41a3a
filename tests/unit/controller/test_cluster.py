"""The controller's operations on settings, features, brokers, leaders and reassignments."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import finish
from ottla.controller import Outcome
from ottla.metadata.features import default_levels
from ottla.metadata.image import BROKER, GROUP, TOPIC
from ottla.protocol import metadata_records as m
from ottla.protocol.message import Message
from ottla.protocol.messages import alter_configs as legacy
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .support import Cluster, registration

SET, DELETE, APPEND, SUBTRACT = range(4)


def with_topic(brokers: int = 1, partitions: int = 1, factor: int = 1) -> Cluster:
    cluster = Cluster(brokers)
    request = CreateTopicsRequest(topics=[CreatableTopic("t", partitions, factor)])
    assert cluster.do(cluster.controller.create_topics(request)).topics[0].error_code == 0
    return cluster


def alter(cluster: Cluster, kind: int, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    configs = [AlterableConfig(key, operation, value) for key, operation, value in changes]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(kind, name, configs)])
    [result] = cluster.do(cluster.controller.incremental_alter_configs(request)).responses
    return result.error_code, result.error_message


# -- settings --------------------------------------------------------------------------------------------------------


def test_single_settings_are_set_and_deleted_and_lists_edited() -> None:
    cluster = with_topic()
    assert alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert cluster.controller.image.config(TOPIC, "t") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert alter(cluster, TOPIC, "t", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"))[0] == 0
    assert cluster.controller.image.config(TOPIC, "t") == {"cleanup.policy": "compact"}
    assert alter(cluster, TOPIC, "t", ("cleanup.policy", DELETE, None))[0] == 0
    assert not cluster.controller.image.configs


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "nope", ("retention.ms", SET, "5"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", 9, "5"), ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ("log.retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        (BROKER, "9", ("log.retention.ms", SET, "5"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (GROUP, "", ("session.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        (99, "t", ("retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_settings_are_rejected(
    kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    cluster = with_topic()
    assert alter(cluster, kind, name, change)[0] == code
    assert not cluster.controller.image.configs


def test_resource_changes_completely_or_not_at_all() -> None:
    cluster = with_topic()
    assert alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "x"))[0] != 0
    assert not cluster.controller.image.configs


def test_replacing_settings_deletes_unnamed_settings() -> None:
    cluster = with_topic()
    alter(cluster, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "7"))
    resource = legacy.AlterConfigsResource(TOPIC, "t", [legacy.AlterableConfig("segment.ms", "8")])
    request = legacy.AlterConfigsRequest(resources=[resource])
    assert cluster.do(cluster.controller.alter_configs(request)).responses[0].error_code == 0
    assert cluster.controller.image.config(TOPIC, "t") == {"segment.ms": "8"}


def test_duplicate_resource_is_rejected_and_dry_run_changes_nothing() -> None:
    cluster = with_topic()
    resource = AlterConfigsResource(TOPIC, "t", [AlterableConfig("retention.ms", SET, "5")])
    twice = IncrementalAlterConfigsRequest(resources=[resource, resource])
    results = cluster.do(cluster.controller.incremental_alter_configs(twice)).responses
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    dry = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    assert cluster.do(cluster.controller.incremental_alter_configs(dry)).responses[0].error_code == 0
    assert not cluster.controller.image.configs


# -- features --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type", "message"),
    [
        ("group.version", 2, 1, "Invalid update version 2 for feature group.version. Local controller 1 only supports"),
        ("nonsense", 1, 1, "Local controller 1 does not support this feature."),
        ("nonsense", 0, 2, "Feature nonsense not found."),
        ("kraft.version", 2, 1, "Local controller 1 only supports versions 0-1"),
        ("kraft.version", 0, 2, "Can't downgrade the version of this feature."),
        ("streams.version", 2, 1, "only supports versions 0-1"),
        ("metadata.version", 31, 1, "only supports versions 7-30"),
        ("metadata.version", 29, 1, "without setting the upgrade type to either safe or unsafe downgrade"),
        ("metadata.version", 22, 2, "Unsupported metadata.version downgrade from 30 to 22. Refusing to perform the"),
        ("metadata.version", 22, 3, "from 30 to 22. Unsafe metadata downgrade is not supported in this version."),
        ("metadata.version", -1, 1, "A feature version cannot be less than 0."),
        ("metadata.version", 30, 9, "does not support the given upgrade type"),
    ],
)
def test_unsupported_feature_levels_are_not_finalized(
    feature: str, level: int, upgrade_type: int, message: str
) -> None:
    cluster = Cluster()
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature, level, False, upgrade_type)])
    response = cluster.do(cluster.controller.update_features(request, kraft_version=1))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert message in (response.error_message or "")
    assert cluster.controller.image.features == default_levels()


def test_older_metadata_version_is_upgraded() -> None:
    cluster = Cluster()
    cluster.do(Outcome([m.FeatureLevelRecord(name="metadata.version", feature_level=25)], None))
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("metadata.version", 30)], validate_only=True)
    assert cluster.do(cluster.controller.update_features(request)).error_code == 0
    assert cluster.controller.image.metadata_version == 25
    request.validate_only = False
    response = cluster.do(cluster.controller.update_features(request, api_version=1))
    assert [(r.feature, r.error_code) for r in response.results] == [("metadata.version", 0)]
    assert cluster.controller.image.metadata_version == 30


def finalize(cluster: Cluster, **levels: int) -> None:
    """Finalize levels as stock Kafka does; names with _ for the dots."""
    rows = [m.FeatureLevelRecord(name.replace("_", "."), level) for name, level in levels.items()]
    cluster.do(Outcome([*rows], None))


KAFKA_LEVELS = {
    "eligible_leader_replicas_version": 1, "group_version": 1, "metadata_version": 28, "share_version": 1,
    "streams_version": 2, "transaction_version": 2,
}  # fmt: skip


def test_levels_finalized_by_stock_kafka_are_retained_and_do_not_bind_brokers() -> None:
    cluster = Cluster()
    finalize(cluster, **KAFKA_LEVELS)
    before = dict(cluster.controller.image.features)
    assert cluster.controller.check_features() == {"streams.version": (2, 1)}
    cluster.register(1, incarnation=2)
    assert dict(cluster.controller.image.features) == before
    ranges = {name: (low, high) for name, low, high in cluster.controller.image.brokers[1].features}
    assert ranges["streams.version"] == (0, 1), "the levels that are served"
    assert (ranges["group.version"], ranges["share.version"], ranges["transaction.version"]) == ((0, 1), (0, 1), (0, 2))


@pytest.mark.parametrize(("level", "how"), [(99, "newer .* downgrade"), (3, "older .* upgrade")])
def test_unreadable_metadata_version_is_rejected_with_the_remedy(level: int, how: str) -> None:
    cluster = Cluster()
    finalize(cluster, metadata_version=level)
    with pytest.raises(KafkaError, match=rf"metadata\.version {level} is not among 7 to 30.*{how} --metadata 4.3-IV0"):
        cluster.controller.check_features()


@pytest.mark.parametrize(
    ("level", "upgrade_type", "message"),
    [
        (2, 1, "Local controller 1 only supports versions 0-1"),
        (2, 2, "Local controller 1 only supports versions 0-1"),
        (1, 1, "without setting the upgrade type to either safe or unsafe downgrade"),
        (0, 1, "without setting the upgrade type to either safe or unsafe downgrade"),
    ],
)
def test_retained_level_can_only_be_downgraded_to_a_served_level(level: int, upgrade_type: int, message: str) -> None:
    cluster = Cluster()
    finalize(cluster, **KAFKA_LEVELS)
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("streams.version", level, False, upgrade_type)])
    response = cluster.do(cluster.controller.update_features(request))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert message in (response.error_message or "")
    assert cluster.controller.image.features["streams.version"] == 2


def test_upgrade_to_a_release_with_an_unsupported_feature_changes_nothing() -> None:
    cluster = Cluster()
    finalize(cluster, metadata_version=28)
    levels = {name.replace("_", "."): level for name, level in (KAFKA_LEVELS | {"metadata_version": 30}).items()}
    updates = [FeatureUpdateKey(name, level, False, 1) for name, level in levels.items()]
    before = dict(cluster.controller.image.features)
    response = cluster.do(cluster.controller.update_features(UpdateFeaturesRequest(feature_updates=updates)))
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Invalid update version 2 for feature streams.version" in (response.error_message or "")
    assert dict(cluster.controller.image.features) == before


def test_transaction_version_is_lowered_and_raised() -> None:
    cluster = Cluster()
    for level, upgrade_type in ((1, 2), (0, 2), (2, 1)):
        update = FeatureUpdateKey("transaction.version", level, False, upgrade_type)
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert cluster.do(cluster.controller.update_features(request)).error_code == 0
        assert cluster.controller.image.features.get("transaction.version", 0) == level


def test_upgrade_to_the_release_of_the_supported_levels_is_finalized() -> None:
    cluster = Cluster()
    finalize(cluster, metadata_version=28)
    levels = default_levels()
    updates = [FeatureUpdateKey(name, level, False, 1) for name, level in levels.items()]
    response = cluster.do(cluster.controller.update_features(UpdateFeaturesRequest(feature_updates=updates)))
    assert response.error_code == 0
    assert {name: cluster.controller.image.features.get(name) for name in levels} == levels
    assert levels["streams.version"] == 1


@pytest.mark.parametrize("lower", [0, 1])
def test_administrator_can_lower_a_retained_level(lower: int) -> None:
    cluster = Cluster()
    finalize(cluster, **KAFKA_LEVELS)
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("streams.version", lower, False, 2)])
    assert cluster.do(cluster.controller.update_features(request)).error_code == 0
    assert cluster.controller.image.features.get("streams.version", 0) == lower
    assert cluster.controller.image.features["group.version"] == 1


def alter_min_isr(cluster: Cluster, kind: int, name: str, value: str | None) -> tuple[int, list[Message]]:
    """Change min.insync.replicas; return (error code, records)."""
    config = AlterableConfig("min.insync.replicas", 1 if value is None else 0, value)
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(kind, name, [config])])
    outcome = finish(cluster.controller.incremental_alter_configs(request))
    cluster.do(outcome)
    return outcome.response.responses[0].error_code, outcome.records


def test_min_insync_replicas_change_clears_eligible_leader_replicas() -> None:
    cluster = with_topic()
    finalize(cluster, eligible_leader_replicas_version=0)
    assert alter_min_isr(cluster, TOPIC, "t", "1")[1] == [m.ConfigRecord(TOPIC, "t", "min.insync.replicas", "1")]
    finalize(cluster, eligible_leader_replicas_version=1)
    assert alter_min_isr(cluster, TOPIC, "t", "2")[1][1:] == [m.ClearElrRecord("t")]
    assert alter_min_isr(cluster, BROKER, "", "1")[1][1:] == [m.ClearElrRecord("")]
    assert alter_min_isr(cluster, BROKER, "", None) == (ErrorCode.INVALID_CONFIG, [])
    assert alter_min_isr(cluster, BROKER, "1", "1") == (ErrorCode.INVALID_CONFIG, [])


def test_enabling_eligible_leader_replicas_fixes_min_insync_replicas_of_the_cluster() -> None:
    cluster = with_topic()
    finalize(cluster, eligible_leader_replicas_version=0)
    alter_min_isr(cluster, BROKER, "1", "3")
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("eligible.leader.replicas.version", 1, False, 1)])
    outcome = cluster.controller.update_features(request)
    cluster.do(outcome)
    assert outcome.records == [
        m.ConfigRecord(BROKER, "1", "min.insync.replicas", None),
        m.ConfigRecord(BROKER, "", "min.insync.replicas", "1"),
        m.FeatureLevelRecord("eligible.leader.replicas.version", 1),
    ]
    assert cluster.controller.update_features(request).records == [], "it is enabled"


@pytest.mark.parametrize(("level", "expected"), [(0, {}), (1, {"min.insync.replicas": "1"})])
def test_new_cluster_with_eligible_leaders_has_min_insync_replicas(level: int, expected: dict[str, str]) -> None:
    cluster = Cluster(0)
    rows: list[Message] = [m.FeatureLevelRecord("eligible.leader.replicas.version", level)]
    cluster.do(cluster.controller.first_records(rows))
    assert cluster.controller.image.config(BROKER, "") == expected


# -- brokers and leaders ---------------------------------------------------------------------------------------------


def test_registration_is_validated_and_its_epoch_increases() -> None:
    cluster = Cluster()
    first = cluster.epochs[1]
    cluster.register(1, incarnation=2)
    assert cluster.epochs[1] > first
    wrong = registration(2)
    wrong.cluster_id = "other"
    with pytest.raises(KafkaError) as error:
        finish(cluster.controller.register_broker(wrong))
    assert error.value.code == ErrorCode.INCONSISTENT_CLUSTER_ID
    taken = registration(2)
    taken.log_dirs = registration(1).log_dirs
    with pytest.raises(KafkaError, match="Broker 1 is already registered"):
        finish(cluster.controller.register_broker(taken))
    old = registration(2)
    old.features = []
    with pytest.raises(KafkaError, match=r"does not support finalized version 30 of metadata\.version"):
        finish(cluster.controller.register_broker(old))


@pytest.mark.parametrize(("clean", "epoch"), [(True, 0), (False, 1)])
def test_crash_starts_new_leader_epochs_but_clean_restart_does_not(clean: bool, epoch: int) -> None:
    cluster = with_topic(partitions=2)
    cluster.register(1, incarnation=2, clean=clean)
    partitions = cluster.controller.image.topics_by_name["t"].partitions.values()
    assert [(p.leader, p.leader_epoch) for p in partitions] == [(1, epoch)] * 2


def test_fenced_broker_loses_leadership_but_last_in_sync_replica_remains_without_elr() -> None:
    cluster = with_topic(brokers=2, factor=2)
    finalize(cluster, eligible_leader_replicas_version=0)
    leader = cluster.controller.image.topics_by_name["t"].partitions[0].leader
    other = 3 - leader
    cluster.do(cluster.controller.fence_broker(leader))
    partition = cluster.controller.image.topics_by_name["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (other, (other,), 1)
    cluster.do(cluster.controller.fence_broker(other))
    partition = cluster.controller.image.topics_by_name["t"].partitions[0]
    assert (partition.leader, partition.isr) == (-1, (other,))
    cluster.do(cluster.controller.unfence_broker(leader, cluster.epochs[leader]))
    assert cluster.controller.image.topics_by_name["t"].partitions[0].leader == -1, "it may lack records"
    cluster.do(cluster.controller.unfence_broker(other, cluster.epochs[other]))
    assert cluster.controller.image.topics_by_name["t"].partitions[0].leader == other
    with pytest.raises(KafkaError) as error:
        finish(cluster.controller.unfence_broker(other, 0))
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_unclean_leader_is_elected_only_on_request() -> None:
    cluster = with_topic(brokers=2, factor=2)
    finalize(cluster, eligible_leader_replicas_version=0)
    leader = cluster.controller.image.topics_by_name["t"].partitions[0].leader
    other = 3 - leader
    for broker_id in (other, leader):
        cluster.do(cluster.controller.fence_broker(broker_id))
    cluster.do(cluster.controller.unfence_broker(other, cluster.epochs[other]))
    request = ElectLeadersRequest(election_type=1, topic_partitions=[TopicPartitions("t", [0])])
    [result] = cluster.do(cluster.controller.elect_leaders(request)).replica_election_results
    assert result.partition_result[0].error_code == 0
    partition = cluster.controller.image.topics_by_name["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (other, (other,), 1)


def test_unneeded_or_impossible_elections_return_kafkas_error() -> None:
    cluster = with_topic(partitions=2)

    def elect(request: ElectLeadersRequest) -> list[tuple[str, list[tuple[int, int]]]]:
        results = cluster.do(cluster.controller.elect_leaders(request)).replica_election_results
        return [(r.topic, [(p.partition_id, p.error_code) for p in r.partition_result]) for r in results]

    asked = [TopicPartitions("t", [0, 7]), TopicPartitions("u", [0])]
    assert elect(ElectLeadersRequest(election_type=0, topic_partitions=asked)) == [
        ("t", [(0, ErrorCode.ELECTION_NOT_NEEDED), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        ("u", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    assert elect(ElectLeadersRequest(election_type=0, topic_partitions=None)) == [("t", [])]
    with pytest.raises(KafkaError, match="Unknown election type 5"):
        cluster.do(cluster.controller.elect_leaders(ElectLeadersRequest(election_type=5)))


def test_broker_is_unregistered_unless_it_is_this_node() -> None:
    cluster = with_topic(brokers=2, factor=2)
    for broker_id, code in ((1, ErrorCode.INVALID_REQUEST), (9, ErrorCode.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(KafkaError) as error:
            finish(cluster.controller.unregister_broker(broker_id))
        assert error.value.code == code
    assert cluster.do(cluster.controller.unregister_broker(2)).error_code == 0
    assert list(cluster.controller.image.brokers) == [1]
    assert cluster.controller.image.topics_by_name["t"].partitions[0].isr == (1,)


def test_producer_id_blocks_never_overlap() -> None:
    cluster = Cluster()
    firsts = [
        cluster.do(cluster.controller.allocate_producer_ids(1, cluster.epochs[1])).producer_id_start for _ in range(3)
    ]
    assert firsts == [0, 1000, 2000]
    with pytest.raises(KafkaError) as error:
        cluster.controller.allocate_producer_ids(1, 12345)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


# -- moves -----------------------------------------------------------------------------------------------------------


def move(cluster: Cluster, replicas: list[int] | None, index: int = 0) -> int:
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic("t", [ReassignablePartition(index, replicas)])]
    )
    return cluster.do(cluster.controller.alter_partition_reassignments(request)).responses[0].partitions[0].error_code


def test_reassignment_with_one_broker_completes_at_once_or_fails() -> None:
    cluster = with_topic()
    before = cluster.controller.image
    assert move(cluster, [1]) == 0
    assert cluster.controller.image is before
    assert move(cluster, [2]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert move(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(cluster, [1], index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = ListPartitionReassignmentsRequest(topics=None)
    assert cluster.do(cluster.controller.list_partition_reassignments(request)).topics == []


def test_reassignment_is_listed_until_it_is_cancelled() -> None:
    cluster = with_topic(brokers=2)
    old = cluster.controller.image.topics_by_name["t"].partitions[0].replicas
    new = 3 - old[0]
    assert move(cluster, [new]) == 0
    listed = cluster.do(cluster.controller.list_partition_reassignments(ListPartitionReassignmentsRequest(topics=None)))
    [partition] = listed.topics[0].partitions
    assert (partition.adding_replicas, partition.removing_replicas) == ([new], list(old))
    assert move(cluster, None) == 0
    after = cluster.controller.image.topics_by_name["t"].partitions[0]
    assert (after.replicas, after.is_reassigning) == (old, False)
