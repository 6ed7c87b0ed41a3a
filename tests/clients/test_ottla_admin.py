"""Ottla's admin client: every call against a real broker, and many of them against stock Kafka too."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from ottla.clients import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    BrokerUnavailable,
    Closed,
    ConfigurationError,
    GroupNotFound,
    Producer,
    RequestTimedOut,
    TopicPartition,
    UnknownTopicOrPartition,
)
from ottla.clients import Consumer as OttlaConsumer
from ottla.clients import errors as clients_errors
from ottla.clients.admin import (
    Append,
    ConfigResource,
    ConfigSource,
    ConfigType,
    GroupOffset,
    GroupState,
    GroupType,
    NewTopic,
    OffsetSpec,
    PartialFailure,
    ResourceType,
    Subtract,
)
from ottla.common.errors import ErrorCode
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .support import FIRST_TIMESTAMP, WAIT_S, sample_records, unique, wait_until
from .test_confluent import consumer, producer, send
from .test_confluent_groups import ConfluentMember

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def ours(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(broker.bootstrap, request_timeout_ms=10_000, default_api_timeout_ms=20_000) as admin:
        yield admin


@pytest.fixture
def make(ours: Admin, topic: str) -> Callable[..., str]:
    """Create the test's topic and wait until it has leaders."""

    def create(partitions: int = 1, **config: object) -> str:
        ours.create_topic(topic, partitions=partitions, config={k.replace("_", "."): v for k, v in config.items()})
        wait_until(lambda: _has_leaders(ours, topic), f"leaders of {topic}")
        return topic

    return create


def _has_leaders(admin: Admin, topic: str) -> bool:
    try:
        return all(p.leader is not None for p in admin.describe_topic(topic).partitions)
    except clients_errors.UnknownTopicOrPartition:
        return False


@pytest.mark.both
def test_topic_is_created_described_grown_and_deleted(ours: Admin, topic: str) -> None:
    created = ours.create_topic(topic, partitions=2, config={"retention.ms": 123456, "preallocate": False})
    assert (created.name, created.partitions, created.replication_factor) == (topic, 2, 1)
    assert created.config["retention.ms"] == "123456"
    wait_until(lambda: topic in [t.name for t in ours.list_topics()], "the topic is listed")
    described = ours.describe_topic(topic)
    assert described.topic_id == created.topic_id != ""
    assert [p.partition for p in described.partitions] == [0, 1]
    assert all(p.replicas == p.isr == (p.leader,) for p in described.partitions)
    assert described.replication_factor == 1
    ours.create_partitions({topic: 5})
    wait_until(lambda: len(ours.describe_topic(topic).partitions) == 5, "five partitions")
    ours.delete_topic(topic)
    wait_until(lambda: topic not in [t.name for t in ours.list_topics()], "the topic is deleted")
    with pytest.raises(clients_errors.UnknownTopicOrPartition, match=topic):
        ours.describe_topic(topic)


@pytest.mark.both
@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"name": "with space"}, clients_errors.InvalidTopic),
        ({"partitions": 0}, clients_errors.InvalidPartitions),
        ({"replication_factor": 9}, clients_errors.InvalidReplicationFactor),
        ({"config": {"no.such": 1}}, clients_errors.InvalidConfig),
        ({"config": {"retention.ms": "soon"}}, clients_errors.InvalidConfig),
    ],
    ids=["name", "partitions", "replicas", "config", "value"],
)
def test_invalid_topic_raises_its_own_exception(
    ours: Admin, topic: str, options: dict[str, Any], kind: type[clients_errors.BrokerError]
) -> None:
    with pytest.raises(kind) as caught:
        ours.create_topic(**{"name": topic, **options})
    assert not caught.value.retriable
    assert len(str(caught.value)) > 10


@pytest.mark.both
def test_valid_topics_are_created_and_invalid_ones_reported(ours: Admin, make: Callable[..., str]) -> None:
    there, fine = make(), unique("fine")
    with pytest.raises(PartialFailure) as caught:
        ours.create_topics([there, NewTopic(fine, partitions=3), NewTopic(unique("bad"), replication_factor=7)])
    assert list(caught.value.results) == [fine]
    assert type(caught.value.errors[there]) is clients_errors.TopicAlreadyExists
    assert caught.value.subgroup(clients_errors.InvalidReplicationFactor) is not None
    ours.delete_topics([fine])


def test_request_that_cannot_be_encoded_is_a_client_error(ours: Admin, topic: str) -> None:
    with pytest.raises(PartialFailure) as failed:
        ours.alter_configs({ConfigResource.topic(topic): {"retention.ms": "\ud800"}})
    (error,) = failed.value.errors.values()
    assert "cannot be encoded" in str(error)


def test_validate_only_creates_nothing(ours: Admin, topic: str) -> None:
    assert ours.create_topic(topic, partitions=4, validate_only=True).partitions == 4
    assert topic not in [t.name for t in ours.list_topics()]


def test_replicas_are_placed_on_the_given_brokers(ours: Admin, topic: str) -> None:
    (broker,) = ours.describe_cluster().brokers
    ours.create_topics([NewTopic(topic, assignments={0: [broker.node_id], 1: [broker.node_id]})])
    assert [p.leader for p in ours.describe_topic(topic).partitions] == [broker.node_id] * 2


@pytest.mark.both
def test_settings_are_set_appended_subtracted_and_deleted(ours: Admin, make: Callable[..., str]) -> None:
    resource = ConfigResource.topic(make())
    ours.alter_config(resource, {"retention.ms": 5000, "cleanup.policy": Append("compact")})

    def now() -> dict[str, tuple[str | None, bool]]:
        entries = ours.describe_config(resource)
        return {name: (entries[name].value, entries[name].is_default) for name in ("retention.ms", "cleanup.policy")}

    expected = {"retention.ms": ("5000", False), "cleanup.policy": ("delete,compact", False)}
    wait_until(lambda: now() == expected, "the settings are altered")
    ours.alter_configs({resource: {"retention.ms": None, "cleanup.policy": Subtract("delete")}})
    expected = {"retention.ms": ("604800000", True), "cleanup.policy": ("compact", False)}
    wait_until(lambda: now() == expected, "one setting has its default again")
    with pytest.raises(clients_errors.InvalidConfig):
        ours.alter_config(resource, {"retention.ms": "soon"})


@pytest.mark.both
def test_setting_has_its_type_source_and_synonyms(ours: Admin, make: Callable[..., str]) -> None:
    entries = ours.describe_config(
        ConfigResource.topic(make(max_message_bytes=77777)), synonyms=True, documentation=True
    )
    entry = entries["max.message.bytes"]
    assert (entry.value, entry.source, entry.type) == ("77777", ConfigSource.TOPIC, ConfigType.INT)
    assert entry.synonyms[0].source is ConfigSource.TOPIC
    assert entry.synonyms[-1].source is ConfigSource.DEFAULT
    assert entry.documentation
    assert list(entries) == sorted(entries)


@pytest.mark.both
def test_broker_and_topic_settings_are_described_in_one_call(ours: Admin, make: Callable[..., str]) -> None:
    (broker,) = ours.describe_cluster().brokers
    own, topic = ConfigResource.broker(broker.node_id), ConfigResource.topic(make())
    described = ours.describe_configs([own, topic])
    assert described[own]["node.id"].value == str(broker.node_id)
    assert "retention.ms" in described[topic]
    missing = ConfigResource.topic(unique("nope"))
    with pytest.raises(PartialFailure) as caught:
        ours.describe_configs([own, missing])
    assert list(caught.value.results) == [own]
    assert list(caught.value.errors) == [missing]


@pytest.mark.both
def test_offsets_are_listed_by_position_and_by_timestamp(
    broker: RunningBroker, ours: Admin, make: Callable[..., str]
) -> None:
    topic = make(2)
    send(producer(broker), topic, sample_records(20), partition=1)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def at(spec: int) -> int:
        return ours.list_offsets({p1: spec})[p1].offset

    assert {p: found.offset for p, found in ours.list_offsets(dict.fromkeys([p0, p1], -1)).items()} == {p0: 0, p1: 20}
    assert [at(OffsetSpec.EARLIEST), at(OffsetSpec.LATEST), at(OffsetSpec.MAX_TIMESTAMP)] == [0, 20, 19]
    assert [at(FIRST_TIMESTAMP), at(FIRST_TIMESTAMP + 51), at(FIRST_TIMESTAMP + 10_000)] == [0, 6, -1]
    found = ours.list_offsets({p1: FIRST_TIMESTAMP + 51})[p1]
    assert (found.timestamp_ms, found.leader_epoch) == (FIRST_TIMESTAMP + 60, 0)
    with pytest.raises(PartialFailure) as caught:
        ours.list_offsets({p1: OffsetSpec.LATEST, TopicPartition(topic, 7): OffsetSpec.LATEST})
    assert [type(error) for error in caught.value.exceptions] == [clients_errors.UnknownTopicOrPartition]
    assert "it has 2" in str(caught.value)


@pytest.mark.both
def test_records_are_deleted_up_to_an_offset(broker: RunningBroker, ours: Admin, make: Callable[..., str]) -> None:
    p0 = TopicPartition(make(), 0)
    send(producer(broker), p0.topic, sample_records(10), partition=0)
    assert ours.delete_records({p0: 4}) == {p0: 4}
    assert ours.list_offsets({p0: OffsetSpec.EARLIEST})[p0].offset == 4
    with pytest.raises(PartialFailure) as caught:
        ours.delete_records({p0: 99})
    assert isinstance(caught.value.errors[p0], clients_errors.OffsetOutOfRange)
    assert ours.delete_records({p0: -1}) == {p0: 10}


@pytest.mark.both
def test_group_offsets_and_lag_are_described_altered_and_deleted(
    broker: RunningBroker, ours: Admin, make: Callable[..., str]
) -> None:
    topic, group = make(2), unique("group")
    send(producer(broker), topic, sample_records(10), partition=0)
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert ours.list_group_offsets(group) == {}
    assert ours.group_lag(group) == {}
    ours.alter_group_offsets(group, {p0: 4, p1: GroupOffset(0, metadata="by hand")})
    offsets = ours.list_group_offsets(group)
    assert {p: o.offset for p, o in offsets.items()} == {p0: 4, p1: 0}
    assert offsets[p1].metadata == "by hand"
    assert list(ours.list_group_offsets(group, [p0], require_stable=True)) == [p0]
    assert ours.list_offsets_of_groups([group, "absent", group]) == {group: offsets, "absent": {}}
    assert {p: lag.lag for p, lag in ours.group_lag(group).items()} == {p0: 6, p1: 0}
    listed = {g.group_id: g for g in ours.list_groups(states=[GroupState.EMPTY])}
    assert listed[group].type is GroupType.CLASSIC
    assert ours.list_groups(states=[GroupState.STABLE], types=[GroupType.CONSUMER]) == []
    ours.delete_group_offsets(group, [p0])
    assert list(ours.list_group_offsets(group)) == [p1]
    ours.delete_group(group)
    with pytest.raises(clients_errors.GroupNotFound):
        ours.delete_group(group)
    with pytest.raises(clients_errors.GroupNotFound):
        ours.describe_group(group)


@pytest.mark.both
def test_described_group_has_the_assignment_of_each_member(
    broker: RunningBroker, ours: Admin, make: Callable[..., str]
) -> None:
    topic, group = make(2), unique("group")
    member = ConfluentMember(consumer(broker, group_id=group, group_instance_id="i-1"), topic).start()
    try:
        wait_until(lambda: member.owned() == {0, 1}, "the member has both partitions")
        wait_until(lambda: ours.describe_group(group).state is GroupState.STABLE, "the group is stable")
        described = ours.describe_group(group)
        (one,) = described.members
        assert (described.protocol_type, described.type) == ("consumer", GroupType.CLASSIC)
        assert one.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert one.topics == (topic,)
        with pytest.raises(clients_errors.NonEmptyGroup):
            ours.delete_group(group)
        with pytest.raises(PartialFailure) as caught:
            ours.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
        (error,) = caught.value.errors.values()
        assert error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)  # type: ignore[attr-defined]
        with pytest.raises(PartialFailure) as caught:
            ours.describe_groups([group, unique("nope")])
        assert list(caught.value.results) == [group]
    finally:
        member.stop()
    # A static member does not leave the group when it stops, so it must be removed.
    assert [m.instance_id for m in ours.describe_group(group).members] == ["i-1"]
    ours.remove_group_members(group, ["i-1"])
    assert ours.describe_group(group).state is GroupState.EMPTY


@pytest.mark.both
def test_group_of_the_consumer_protocol_is_described_like_a_classic_group(
    broker: RunningBroker, ours: Admin, make: Callable[..., str]
) -> None:
    topic, group = make(2), unique("group")
    settings = {"group.protocol": "consumer", "group.id": group, "bootstrap.servers": broker.bootstrap}
    member = ConfluentMember(Consumer(settings), topic).start()
    try:
        wait_until(lambda: member.owned() == {0, 1}, "the member has both partitions")
        wait_until(lambda: ours.describe_group(group).state is GroupState.STABLE, "the group is stable")
        described = ours.describe_group(group)
        assert described.type is GroupType.CONSUMER
        assert described.members[0].assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert described.members[0].topics == (topic,)
        assert {g.group_id for g in ours.list_groups(types=[GroupType.CONSUMER])} >= {group}
    finally:
        member.stop()


@pytest.mark.both
def test_cluster_quorum_features_and_log_directories_are_described(
    broker: RunningBroker, ours: Admin, make: Callable[..., str]
) -> None:
    topic = make()
    cluster = ours.describe_cluster()
    (node,) = cluster.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert len(cluster.cluster_id) == 22
    quorum = ours.describe_quorum()
    assert quorum.leader == node.node_id == quorum.voters[0].node_id
    assert quorum.voters[0].log_end_offset >= quorum.high_watermark > 0
    features = ours.describe_features()
    assert features.finalized["metadata.version"].highest <= features.supported["metadata.version"].highest
    place = TopicPartition(topic, 0)
    # Stock Kafka creates the files a moment after its response.
    wait_until(lambda: place in ours.describe_log_dirs()[node.node_id][0].replicas, "the log of the topic")
    (directory,) = ours.describe_log_dirs()[node.node_id]
    assert directory.replicas[place].size == 0
    assert directory.total_bytes >= directory.usable_bytes > 0
    (only,) = ours.describe_log_dirs([node.node_id], partitions=[place])[node.node_id]
    assert list(only.replicas) == [place]


@pytest.mark.both
def test_unsupported_feature_level_is_rejected(ours: Admin) -> None:
    with pytest.raises(PartialFailure) as caught:
        ours.update_features({"metadata.version": 9999}, validate_only=True)
    (error,) = caught.value.errors.values()
    assert "9999" in str(error)


@pytest.mark.both
def test_electing_the_current_leader_changes_nothing(ours: Admin, make: Callable[..., str]) -> None:
    p0 = TopicPartition(make(), 0)
    assert ours.elect_leaders([p0]) == {p0: False}
    with pytest.raises(PartialFailure):
        ours.elect_leaders([TopicPartition(unique("nope"), 0)])
    assert ours.list_partition_reassignments() == {}


@pytest.mark.both
def test_reassignment_to_an_unknown_broker_is_rejected(ours: Admin, make: Callable[..., str]) -> None:
    p0 = TopicPartition(make(), 0)
    with pytest.raises(PartialFailure) as caught:
        ours.alter_partition_reassignments({p0: [99]})
    assert caught.value.errors[p0].code == ErrorCode.INVALID_REPLICA_ASSIGNMENT  # type: ignore[attr-defined]


@pytest.mark.both
def test_idempotent_producers_are_listed(broker: RunningBroker, ours: Admin, make: Callable[..., str]) -> None:
    p0 = TopicPartition(make(), 0)
    assert ours.describe_producers([p0]) == {p0: ()}
    send(producer(broker, **{"enable.idempotence": True}), p0.topic, sample_records(3), partition=0)
    (one,) = ours.describe_producers([p0])[p0]
    assert (one.last_sequence, one.transaction_start_offset) == (2, None)


def test_config_resources_are_listed(ours: Admin, make: Callable[..., str]) -> None:
    assert ConfigResource.topic(make()) in ours.list_config_resources([ResourceType.TOPIC])


def test_unregistering_an_unknown_broker_is_an_error(ours: Admin) -> None:
    with pytest.raises(clients_errors.BrokerError) as caught:
        ours.unregister_broker(99)
    assert caught.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_async_admin_runs_calls_concurrently(broker: RunningBroker) -> None:
    names = [unique("side") for _ in range(5)]

    async def story() -> list[str]:
        async with AsyncAdmin(broker.bootstrap) as admin:
            await asyncio.gather(*(admin.create_topic(name) for name in names))
            await asyncio.gather(*(admin.describe_topic(name) for name in names))
            listed = [topic.name for topic in await admin.list_topics()]
            await admin.delete_topics(names)
        with pytest.raises(Closed):
            await admin.list_topics()
        return listed

    assert set(names) <= set(asyncio.run(story()))


def test_closed_client_raises_closed(broker: RunningBroker) -> None:
    admin = Admin(config={"bootstrap.servers": broker.bootstrap})
    assert admin.describe_cluster().brokers
    admin.close()
    admin.close()
    with pytest.raises(Closed):
        admin.describe_cluster()


def test_settings_are_checked_before_connecting() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'request_timeout_ms'"):
        Admin("localhost:1", request_timeout=5)


def test_unreachable_broker_is_reported_within_the_deadline() -> None:
    started = time.monotonic()
    admin = Admin("127.0.0.1:1", default_api_timeout_ms=300)
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1: connection refused"):
        admin.list_topics()
    with pytest.raises(BrokerUnavailable, match="connection refused"):
        admin.start(0.5)
    admin.close()
    assert time.monotonic() - started < 20, "the default is 60 s for each call"


def test_call_is_retried_until_its_killed_broker_is_restarted(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path) as process, Admin(process.bootstrap) as admin:
        admin.create_topic("before", partitions=3)
        process.kill()
        with pytest.raises((BrokerUnavailable, RequestTimedOut)):
            admin.describe_topic("before", timeout_s=0.5)
        process.start()
        assert len(admin.describe_topic("before", timeout_s=WAIT_S).partitions) == 3


def test_examples_of_the_admin_page_run(broker: RunningBroker) -> None:
    page = (DOCS / "clients-admin.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert examples
    names: dict[str, Any] = {}
    for example in examples:
        # The examples of other pages create topics of the same names on this broker.
        here = re.sub(r'"(orders|payments|refunds|returns)"', r'"\1-of-the-admin-page"', example)
        here = here.replace("localhost:9092", broker.bootstrap)
        exec(compile(here, "clients-admin.md", "exec"), names)


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.create_topics("abc"),
        lambda admin: admin.delete_topics("abc"),
        lambda admin: admin.describe_topics("abc"),
        lambda admin: admin.describe_groups("abc"),
        lambda admin: admin.delete_groups("abc"),
        lambda admin: admin.remove_group_members("group", "abc"),
        lambda admin: admin.describe_scram_credentials("abc"),
        lambda admin: admin.elect_leaders(TopicPartition("abc", 0)),
        lambda admin: admin.list_group_offsets("group", TopicPartition("abc", 0)),
        lambda admin: admin.describe_producers(TopicPartition("abc", 0)),
        lambda admin: admin.delete_group_offsets("group", TopicPartition("abc", 0)),
        lambda admin: admin.describe_configs(ConfigResource.topic("abc")),
    ],
)
def test_single_item_where_a_list_belongs_is_an_error(ours: Admin, call: Callable[[Admin], object]) -> None:
    with pytest.raises(TypeError, match=r"must be a list or another iterable, not .*abc"):
        call(ours)
    assert {listing.name for listing in ours.list_topics()}.isdisjoint({"a", "b", "c", "abc"})


def test_error_about_one_topic_names_it(ours: Admin) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="no-such-topic"):
        ours.delete_topic("no-such-topic")
    with pytest.raises(GroupNotFound, match="no-such-group"):
        ours.delete_group("no-such-group")


@pytest.mark.parametrize("client", [Producer, OttlaConsumer, AsyncProducer, AsyncConsumer])
def test_address_in_place_of_settings_is_explained(client: type) -> None:
    with pytest.raises(ConfigurationError, match="write bootstrap_servers='localhost:9092'"):
        client("localhost:9092")
