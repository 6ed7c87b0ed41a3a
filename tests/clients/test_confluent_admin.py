"""confluent-kafka's admin client (librdkafka): topics, configs, offsets, groups, and errors of users."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import FIRST_TIMESTAMP, WAIT_S, Sent, sample_records, unique, wait_until
from .test_confluent import consumer, error_code, producer, read, send
from .test_confluent_groups import ConfluentMember

T = TypeVar("T")


def only(futures: dict[Any, Future[T]]) -> T:
    """Return the result of the only future, or raise its error."""
    (future,) = futures.values()
    return future.result(WAIT_S)


def topic_configs(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    return only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))  # type: ignore[return-value]


def group_offsets(admin: AdminClient, group: str, *partitions: TopicPartition) -> dict[int, int]:
    request = ConsumerGroupTopicPartitions(group, list(partitions) or None)
    result = only(admin.list_consumer_group_offsets([request]))
    return {p.partition: p.offset for p in result.topic_partitions}


@pytest.mark.both
def test_topic_is_created_described_grown_and_deleted(broker: RunningBroker, admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "123456"})]))
    wait_until(lambda: topic in admin.list_topics(timeout=WAIT_S).topics, "the topic is listed")
    described = only(admin.describe_topics(TopicCollection([topic]), include_authorized_operations=True))
    assert described.name == topic
    assert not described.is_internal
    assert [p.id for p in described.partitions] == [0, 1]
    assert all(p.leader.id == p.replicas[0].id == p.isr[0].id for p in described.partitions)
    assert str(described.topic_id) != ""
    assert described.authorized_operations
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    wait_until(lambda: len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 5, "five partitions")
    assert send(producer(broker), topic, sample_records(5), partition=4)[-1].offset() == 4
    only(admin.delete_topics([topic]))
    wait_until(lambda: topic not in admin.list_topics(timeout=WAIT_S).topics, "the topic is deleted")


@pytest.mark.both
def test_recreated_topic_is_empty(broker: RunningBroker, admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)]))
    first = only(admin.describe_topics(TopicCollection([topic]))).topic_id
    send(producer(broker), topic, sample_records(7))
    only(admin.delete_topics([topic]))

    def made_again() -> bool:
        error = admin.create_topics([NewTopic(topic, 1, 1)])[topic].exception(WAIT_S)
        assert error is None or error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        return error is None

    wait_until(made_again, "the name is free again")
    assert send(producer(broker), topic, sample_records(1))[0].offset() == 0
    assert only(admin.describe_topics(TopicCollection([topic]))).topic_id != first


CREATE_ERRORS = [
    ("duplicate", {}, KafkaError.TOPIC_ALREADY_EXISTS),
    ("name with space", {}, KafkaError.TOPIC_EXCEPTION),
    ("x" * 250, {}, KafkaError.TOPIC_EXCEPTION),
    ("..", {}, KafkaError.TOPIC_EXCEPTION),
    ("rf", {"replication_factor": 3}, KafkaError.INVALID_REPLICATION_FACTOR),
    ("none", {"num_partitions": 0}, KafkaError.INVALID_PARTITIONS),
    ("config", {"config": {"no.such.config": "1"}}, KafkaError.INVALID_CONFIG),
    ("value", {"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG),
    ("choice", {"config": {"cleanup.policy": "shred"}}, KafkaError.INVALID_CONFIG),
    ("range", {"config": {"segment.bytes": "-5"}}, KafkaError.INVALID_CONFIG),
    ("replicas", {"replica_assignment": [[999]], "replication_factor": -1}, KafkaError.INVALID_REPLICA_ASSIGNMENT),
]


@pytest.mark.both
@pytest.mark.parametrize(
    ("name", "options", "code"), CREATE_ERRORS, ids=[e[0].strip("x.") or "length" for e in CREATE_ERRORS]
)
def test_invalid_topic_is_rejected_with_the_reason(
    admin: AdminClient, make_topic: MakeTopic, topic: str, name: str, options: dict[str, Any], code: int
) -> None:
    if name == "duplicate":
        name = make_topic()
    elif name.isalpha() and len(name) < 20:
        name = topic
    arguments: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1} | options
    if "replica_assignment" in options:
        del arguments["replication_factor"]
    with pytest.raises(KafkaException) as refused:
        only(admin.create_topics([NewTopic(name, **arguments)]))
    assert error_code(refused) == code
    assert refused.value.args[0].str()


@pytest.mark.both
def test_validate_only_creates_no_topic(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True))
    assert topic not in admin.list_topics(timeout=WAIT_S).topics
    with pytest.raises(KafkaException) as refused:
        only(admin.create_topics([NewTopic(topic, 1, 3)], validate_only=True))
    assert error_code(refused) == KafkaError.INVALID_REPLICATION_FACTOR


@pytest.mark.both
def test_unknown_topic_is_an_unknown_topic_error_in_every_call(admin: AdminClient, topic: str) -> None:
    attempts = [
        lambda: admin.delete_topics([topic]),
        lambda: admin.create_partitions([NewPartitions(topic, 5)]),
        lambda: admin.describe_topics(TopicCollection([topic])),
        lambda: admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]),
    ]
    for attempt in attempts:
        with pytest.raises(KafkaException) as unknown:
            only(attempt())  # type: ignore[arg-type]
        assert error_code(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.both
def test_partition_count_can_only_grow(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    for count in (3, 2):
        with pytest.raises(KafkaException) as refused:
            only(admin.create_partitions([NewPartitions(topic, count)]))
        assert error_code(refused) == KafkaError.INVALID_PARTITIONS


@pytest.mark.both
def test_configs_are_described_with_their_sources(admin: AdminClient, make_topic: MakeTopic) -> None:
    configs = topic_configs(admin, make_topic(retention_ms=5000, cleanup_policy="compact,delete"))
    assert configs["retention.ms"].value == "5000"
    assert configs["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not configs["retention.ms"].is_default
    assert configs["cleanup.policy"].value == "compact,delete"
    assert configs["segment.bytes"].value == "1073741824"
    assert configs["segment.bytes"].is_default
    defaults = {
        "compression.type": "producer",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert {name: configs[name].value for name in defaults} == defaults


@pytest.mark.both
def test_topic_configs_are_altered_incrementally_and_take_effect(
    broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=5000)

    def alter(*entries: ConfigEntry) -> None:
        only(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=list(entries))]
            )
        )

    op = AlterConfigOpType
    alter(ConfigEntry("max.message.bytes", "2000", incremental_operation=op.SET))
    alter(ConfigEntry("cleanup.policy", "compact", incremental_operation=op.APPEND))
    wait_until(lambda: topic_configs(admin, topic)["max.message.bytes"].value == "2000", "the new limit")
    assert set(topic_configs(admin, topic)["cleanup.policy"].value.split(",")) == {"delete", "compact"}
    assert topic_configs(admin, topic)["retention.ms"].value == "5000"
    alter(ConfigEntry("cleanup.policy", "compact", incremental_operation=op.SUBTRACT))
    with pytest.raises(KafkaException) as too_large:
        send(producer(broker), topic, [Sent(None, b"x" * 5000, [], FIRST_TIMESTAMP)])
    assert error_code(too_large) == KafkaError.MSG_SIZE_TOO_LARGE
    alter(ConfigEntry("max.message.bytes", None, incremental_operation=op.DELETE))
    wait_until(lambda: topic_configs(admin, topic)["max.message.bytes"].is_default, "the default limit")
    assert topic_configs(admin, topic)["cleanup.policy"].value == "delete"
    send(producer(broker), topic, [Sent(None, b"x" * 5000, [], FIRST_TIMESTAMP)])
    for name, value in (("no.such.config", "1"), ("retention.ms", "soon"), ("min.insync.replicas", "0")):
        with pytest.raises(KafkaException) as refused:
            alter(ConfigEntry(name, value, incremental_operation=op.SET))
        assert error_code(refused) == KafkaError.INVALID_CONFIG


@pytest.mark.both
def test_alter_configs_replaces_all_configs_of_a_topic(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms=5000, max_message_bytes=2000)
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "7000"})]))
    wait_until(lambda: topic_configs(admin, topic)["retention.ms"].value == "7000", "the new retention")
    assert topic_configs(admin, topic)["max.message.bytes"].is_default


@pytest.mark.both
def test_broker_configs_are_described_and_altered(admin: AdminClient) -> None:
    node = str(next(iter(admin.list_topics(timeout=WAIT_S).brokers)))
    resource = ConfigResource(ResourceType.BROKER, node)

    def value(name: str) -> ConfigEntry:
        return only(admin.describe_configs([resource]))[name]  # type: ignore[index]

    assert value("node.id").value == node
    assert value("node.id").is_read_only
    assert value("num.partitions").value == "1"
    assert value("log.segment.bytes").is_default
    entry = ConfigEntry("log.cleaner.backoff.ms", "14000", incremental_operation=AlterConfigOpType.SET)
    only(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])]))
    wait_until(lambda: value("log.cleaner.backoff.ms").value == "14000", "the altered broker config")
    assert value("log.cleaner.backoff.ms").source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    entry = ConfigEntry("log.cleaner.backoff.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    only(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])]))
    wait_until(lambda: value("log.cleaner.backoff.ms").value == "15000", "the default again")
    entry = ConfigEntry("node.id", "77", incremental_operation=AlterConfigOpType.SET)
    with pytest.raises(KafkaException) as refused:
        only(admin.incremental_alter_configs([ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])]))
    assert error_code(refused) == KafkaError.INVALID_REQUEST


@pytest.mark.both
def test_cluster_is_described(broker: RunningBroker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert cluster.controller.id == node.id
    assert cluster.cluster_id == admin.list_topics(timeout=WAIT_S).cluster_id
    assert cluster.authorized_operations


@pytest.mark.both
def test_offsets_are_listed_and_records_deleted(
    broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    send(producer(broker), topic, [Sent(None, b"v", [], FIRST_TIMESTAMP + t) for t in (5, 900, 30, 40, 50)])
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(only(admin.list_offsets({partition: spec}, isolation_level=IsolationLevel.READ_COMMITTED)).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 5
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(FIRST_TIMESTAMP + 6)) == 1
    assert only(admin.delete_records([TopicPartition(topic, 0, 3)])).low_watermark == 3
    assert offset(OffsetSpec.earliest()) == 3
    reader = consumer(broker)
    assert reader.get_watermark_offsets(partition, WAIT_S) == (3, 5)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert [m.offset() for m in read(reader, 2)] == [3, 4]
    reader.close()
    with pytest.raises(KafkaException) as refused:
        only(admin.delete_records([TopicPartition(topic, 0, 99)]))
    assert error_code(refused) == KafkaError.OFFSET_OUT_OF_RANGE
    assert only(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 5


@pytest.mark.both
def test_group_is_listed_described_altered_and_deleted(
    broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2)
    group = unique("group")
    send(producer(broker), topic, sample_records(10))

    def state() -> ConsumerGroupState:
        return only(admin.describe_consumer_groups([group])).state

    member = ConfluentMember(consumer(broker, group_id=group, client_id="the-client"), topic).start()
    try:
        wait_until(lambda: member.owned() == {0, 1} and len(member.read()) == 10, "the member reads all")
        described = only(admin.describe_consumer_groups([group], include_authorized_operations=True))
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == "range"
        (seen,) = described.members
        assert seen.client_id == "the-client"
        assert seen.host.endswith("127.0.0.1")
        assert {p.partition for p in seen.assignment.topic_partitions} == {0, 1}
        stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WAIT_S)
        assert group in {g.group_id for g in stable.valid}
        with pytest.raises(KafkaException) as busy:
            only(admin.delete_consumer_groups([group]))
        assert error_code(busy) == KafkaError.NON_EMPTY_GROUP
        change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1)])
        (refused,) = only(admin.alter_consumer_group_offsets([change])).topic_partitions
        assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    finally:
        member.stop()
    wait_until(lambda: state() == ConsumerGroupState.EMPTY, "the group is empty")
    empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(WAIT_S)
    assert group in {g.group_id for g in empty.valid}
    assert group_offsets(admin, group) == {0: 10}

    reset = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0)])
    only(admin.alter_consumer_group_offsets([reset]))
    assert group_offsets(admin, group) == {0: 4, 1: 0}
    reader = consumer(broker, group_id=group)
    reader.subscribe([topic])
    assert read(reader, 1)[0].offset() == 4
    reader.close()

    only(admin.delete_consumer_groups([group]))
    assert group_offsets(admin, group, TopicPartition(topic, 0)) == {0: -1001}
    assert state() == ConsumerGroupState.DEAD
    with pytest.raises(KafkaException) as unknown:
        only(admin.delete_consumer_groups([group]))
    assert error_code(unknown) == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.both
def test_deleting_a_topic_deletes_its_committed_offsets(
    broker: RunningBroker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    gone, kept, group = make_topic(), make_topic(), unique("group")
    reader = consumer(broker, group_id=group)
    reader.commit(offsets=[TopicPartition(gone, 0, 1), TopicPartition(kept, 0, 2)], asynchronous=False)
    reader.close()
    only(admin.delete_topics([gone]))

    def topics() -> set[str]:
        result = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return {p.topic for p in result.topic_partitions}

    wait_until(lambda: topics() == {kept}, "only the offsets of the other topic")


@pytest.mark.both
def test_electing_the_current_leader_is_election_not_needed(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    partition = TopicPartition(topic, 0)
    result = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(WAIT_S)
    assert result[partition].code() == KafkaError.ELECTION_NOT_NEEDED
