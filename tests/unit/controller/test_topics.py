"""Creating, extending and deleting topics; each error has Kafka's code and a message."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller import ControllerSettings
from ottla.metadata.image import TOPIC
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from .support import Cluster


def create(cluster: Cluster, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return cluster.do(cluster.controller.create_topics(request)).topics


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


def assigned(name: str, *replicas: list[int], first: int = 0) -> CreatableTopic:
    assignments = [CreatableReplicaAssignment(first + i, brokers) for i, brokers in enumerate(replicas)]
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)


def test_new_topic_has_id_leaders_and_settings() -> None:
    cluster = Cluster()
    [result] = create(cluster, topic("t", 3, retention_ms="1000"))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 3, 1)
    assert [(c.name, c.value) for c in result.configs or ()] == [("retention.ms", "1000")]
    image = cluster.controller.image
    assert image.topics_by_id[result.topic_id].name == "t"
    assert image.config(TOPIC, "t") == {"retention.ms": "1000"}
    for partition in image.topics_by_name["t"].partitions.values():
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 0)
        assert partition.directories == (bytes([1, 7]) * 8,)


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (topic("t"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists."),
        (topic("x", 0), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (topic("x", -2), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to"),
        (topic("x", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1"),
        (
            topic("x", 1, 3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be"
                " reached because only 1 broker(s) are registered or some brokers have"
                " all their log directories cordoned."
            ),
        ),
        (topic("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION, "characters other than"),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "is prohibited"),
        (topic("x", nonsense="1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nonsense"),
        (topic("x", retention_ms=None), ErrorCode.INVALID_CONFIG, "Null value not supported"),
        (assigned("x", [1], [2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 2, but no such broker"),
        (assigned("x", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once"),
        (assigned("x", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        (assigned("x", [1], first=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based integer sequence"),
    ],
)
def test_invalid_topic_is_rejected(asked: CreatableTopic, code: ErrorCode, message: str) -> None:
    cluster = Cluster()
    create(cluster, topic("t"), topic("a.b"))
    before = cluster.controller.image
    [result] = create(cluster, asked)
    assert result.error_code == code
    assert message in (result.error_message or "")
    assert cluster.controller.image is before


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([topic("x", 10_001)], "Excessively large number of partitions per request."),
        ([topic("x", 5_000), topic("y", 5_001)], "Excessively large number of partitions per request."),
        ([topic("x", 10_000)], "Unable to perform excessively large batch operation."),
        ([topic(f"x{i}") for i in range(5_001)], "Unable to perform excessively large batch operation."),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_too_large_request_is_rejected_as_a_whole(
    asked: list[CreatableTopic], message: str, *, validate_only: bool
) -> None:
    cluster = Cluster()
    with pytest.raises(KafkaError, match=message) as raised:
        create(cluster, *asked, validate_only=validate_only)
    assert raised.value.code == ErrorCode.POLICY_VIOLATION


def test_topics_of_one_request_succeed_or_fail_separately() -> None:
    cluster = Cluster()
    results = create(cluster, topic("a"), topic("dup"), topic("b", 0), topic("dup"), topic("x.y"), topic("x_y"))
    assert {result.name: result.error_code for result in results} == {
        "a": ErrorCode.NONE,
        "dup": ErrorCode.INVALID_REQUEST,
        "b": ErrorCode.INVALID_PARTITIONS,
        "x.y": ErrorCode.NONE,
        "x_y": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert set(cluster.controller.image.topics_by_name) == {"a", "x.y"}


def test_dry_run_returns_same_response_and_changes_nothing() -> None:
    cluster = Cluster()
    [result] = create(cluster, topic("t", 2), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert not cluster.controller.image.topics_by_name


def test_new_topic_uses_the_brokers_defaults() -> None:
    cluster = Cluster(3, ControllerSettings(num_partitions=4, default_replication_factor=2))
    [result] = create(cluster, topic("t", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


@pytest.mark.parametrize("factor", [-7, 0])
def test_default_replication_factor_must_be_positive(factor: int) -> None:
    cluster = Cluster(settings=ControllerSettings(default_replication_factor=factor))
    [result] = create(cluster, topic("t", -1, -1))
    problem = f"Invalid replication factor {factor}: the replication factor must be positive."
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message == f"Unable to replicate the partition {factor} time(s): {problem}"


def test_fenced_brokers_are_neither_leaders_nor_in_sync() -> None:
    cluster = Cluster(3)
    cluster.do(cluster.controller.fence_broker(2))
    create(cluster, topic("t", 6, 3))
    for partition in cluster.controller.image.topics_by_name["t"].partitions.values():
        assert partition.leader != 2
        assert set(partition.isr) == {1, 3}


def test_leaders_are_balanced_and_replicas_use_different_racks() -> None:
    cluster = Cluster(6, racks="aabbcc")
    create(cluster, topic("t", 12, 3))
    partitions = cluster.controller.image.topics_by_name["t"].partitions.values()
    leaders = [partition.leader for partition in partitions]
    assert sorted(leaders) == sorted([*range(1, 7)] * 2)
    assert all(len({(replica - 1) // 2 for replica in partition.replicas}) == 3 for partition in partitions)


def test_partitions_are_added_at_the_end() -> None:
    cluster = Cluster()
    create(cluster, topic("t", 2))

    def grow(count: int, assignments: list[CreatePartitionsAssignment] | None = None) -> tuple[int, str | None]:
        request = CreatePartitionsRequest(topics=[CreatePartitionsTopic("t", count, assignments)])
        [result] = cluster.do(cluster.controller.create_partitions(request)).results
        return result.error_code, result.error_message

    assert grow(2) == (ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s).")
    assert grow(1)[1] == "The topic t currently has 2 partition(s); 1 would not be an increase."
    assert grow(4, [CreatePartitionsAssignment([1])])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(3, [CreatePartitionsAssignment([9])])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(5) == (0, None)
    assert list(cluster.controller.image.topics_by_name["t"].partitions) == [0, 1, 2, 3, 4]


def test_deleting_a_topic_deletes_its_settings_and_frees_its_name() -> None:
    cluster = Cluster()
    [first] = create(cluster, topic("a.b", retention_ms="1"))
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=first.topic_id)])
    [result] = cluster.do(cluster.controller.delete_topics(request)).responses
    assert (result.error_code, result.name) == (0, "a.b")
    image = cluster.controller.image
    assert not image.topics_by_name
    assert not image.configs
    [again] = create(cluster, topic("a_b"))
    assert again.error_code == 0
    assert again.topic_id != first.topic_id


def test_invalid_deletions_are_rejected_separately() -> None:
    cluster = Cluster()
    create(cluster, topic("t"))
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState("nope"),
            DeleteTopicState(None, b"x" * 16),
            DeleteTopicState("t", b"x" * 16),
            DeleteTopicState(None),
        ]
    )
    results = cluster.do(cluster.controller.delete_topics(request)).responses
    assert [result.error_code for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert "t" in cluster.controller.image.topics_by_name


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    cluster = Cluster(settings=ControllerSettings(delete_topic_enable=False))
    create(cluster, topic("t"))
    request = DeleteTopicsRequest(topic_names=["t"])
    [result] = cluster.do(cluster.controller.delete_topics(request, version)).responses
    assert result.error_code == code
