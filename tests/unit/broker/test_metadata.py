"""Metadata: requests for all, no or some topics, by name or id, and the automatic creation of missing topics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.auto_topic_creation import AutoTopicCreation
from ottla.broker.operations import NOT_REQUESTED, TOPIC_OPERATIONS
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import OFFSETS_TOPIC, ZERO_UUID
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.controller.support import registration

from .harness import BrokerHarness, open_harness

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def ask(harness: BrokerHarness, names: Sequence[str] | None, version: int = 13, **fields: Any) -> Any:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return harness.ask(MetadataRequest(topics=topics, **fields), version)


def codes(response: Any) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


def test_all_topics_or_none(harness: BrokerHarness) -> None:
    harness.create("a", 2)
    harness.create(OFFSETS_TOPIC)
    everything = ask(harness, None)
    assert codes(everything) == {"a": 0, OFFSETS_TOPIC: 0}
    assert {topic.name: topic.is_internal for topic in everything.topics} == {"a": False, OFFSETS_TOPIC: True}
    assert ask(harness, []).topics == []
    assert set(codes(ask(harness, [], version=0))) == {"a", OFFSETS_TOPIC}


def test_replica_of_a_broker_that_is_fenced_is_offline_in_both_descriptions(harness: BrokerHarness) -> None:
    harness.broker.metadata.submit(lambda controller: controller.register_broker(registration(2))).result()
    topic = CreatableTopic(name="a", num_partitions=-1, replication_factor=-1)
    topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
    assert not harness.ask(CreateTopicsRequest(topics=[topic])).topics[0].error_code
    for response in (ask(harness, ["a"]), harness.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest("a")]))):
        (partition,) = response.topics[0].partitions
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1, 2], [1], [2])


def test_metadata_response_in_every_version(harness: BrokerHarness) -> None:
    topic_id = harness.create("a", 2)
    for version in range(MetadataRequest.MAX_VERSION + 1):
        response = ask(harness, ["a"], version)
        (topic,) = response.topics
        assert (topic.name, topic.topic_id) == ("a", topic_id if version >= 10 else ZERO_UUID)
        assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
            (0, 1, [1], [1]),
            (1, 1, [1], [1]),
        ]
        assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(1, "localhost", 9092)]
        assert response.controller_id == (1 if version else -1)
        assert response.cluster_id == ("cluster" if version >= 2 else None)


@pytest.mark.parametrize("version", range(MetadataRequest.MAX_VERSION + 1))
def test_missing_topic_is_unknown_first_and_created_after_the_response(harness: BrokerHarness, version: int) -> None:
    response = ask(harness, ["new", "new", "bad name", "also"], version)
    assert codes(response) == {"new": UNKNOWN, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION, "also": UNKNOWN}
    assert [(topic.topic_id, topic.partitions, topic.is_internal) for topic in response.topics] == [
        (ZERO_UUID, [], False)
    ] * 3
    again = ask(harness, ["new", "also"], version)
    assert codes(again) == {"new": 0, "also": 0}
    assert [len(topic.partitions) for topic in again.topics] == [1, 1]
    assert harness.partition("new").high_watermark == 0


def test_auto_created_internal_topics_have_their_own_settings(tmp_path: Path) -> None:
    names = [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"]
    settings = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}
    with open_harness(tmp_path, settings) as harness:
        assert codes(ask(harness, names)) == dict.fromkeys(names, UNKNOWN)
        described = ask(harness, names)
        assert codes(described) == {OFFSETS_TOPIC: 0, "__transaction_state": 0, "__share_group_state": UNKNOWN}
        assert [len(topic.partitions) for topic in described.topics] == [3, 2, 0]
        assert all(topic.is_internal for topic in described.topics)


def test_failed_auto_creation_is_logged_and_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with open_harness(tmp_path) as harness:
        harness.create("a.b")
        for _ in range(2):
            assert codes(ask(harness, ["a_b"])) == {"a_b": UNKNOWN}
    lines = [message for message in caplog.messages if "a_b" in message]
    once = [
        "Sent auto-creation request for a_b to the active controller",
        "Auto topic creation failed for a_b: Topic 'a_b' collides with existing topic: a.b",
    ]
    assert lines == once * 2


def test_creation_in_flight_is_not_requested_again() -> None:
    requested: list[tuple[list[str], Completion[dict[str, KafkaError]]]] = []

    def create(names: list[str]) -> Completion[dict[str, KafkaError]]:
        requested.append((names, Completion()))
        return requested[-1][1]

    creation = AutoTopicCreation(create)
    for names in (["a", "b", "a"], ["b", "c"], ["a"]):
        creation.begin(names)
    assert [names for names, _ in requested] == [["a", "b"], ["c"]]
    requested[0][1].complete({"a": KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)})
    requested[1][1].fail(KafkaError(ErrorCode.NOT_CONTROLLER))
    creation.begin(["a", "b", "c"])
    assert [names for names, _ in requested][2:] == [["a", "b", "c"]]


@pytest.mark.parametrize("version", [4, 13])
def test_cached_response_without_topic_creation_does_not_prevent_creation(harness: BrokerHarness, version: int) -> None:
    for _ in range(2):
        assert codes(ask(harness, ["new"], version, allow_auto_topic_creation=False)) == {"new": UNKNOWN}
    assert codes(ask(harness, ["new"], version)) == {"new": UNKNOWN}
    assert codes(ask(harness, ["new"], version, allow_auto_topic_creation=False)) == {"new": 0}


def test_topics_are_created_only_if_request_and_settings_allow_it(harness: BrokerHarness, tmp_path: Path) -> None:
    assert codes(ask(harness, ["new", "bad name"], allow_auto_topic_creation=False)) == {
        "new": UNKNOWN,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    with open_harness(tmp_path / "other", {"auto.create.topics.enable": "false"}) as other:
        for version in (0, 3, 4, 13):
            assert codes(ask(other, ["new"], version)) == {"new": UNKNOWN}


def test_topics_by_id_and_id_takes_precedence_over_name(harness: BrokerHarness) -> None:
    topic_id = harness.create("a")
    stranger = b"\7" * 16
    topics = [
        MetadataRequestTopic(topic_id=topic_id, name=None),
        MetadataRequestTopic(topic_id=stranger, name=None),
    ]
    response = harness.ask(MetadataRequest(topics=topics), 12)
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
        ("a", topic_id, 0),
        (None, stranger, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    both = harness.ask(MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name="whatever")]), 12)
    assert codes(both) == {"a": 0}


def test_topic_ids_in_versions_10_and_11_are_an_invalid_request(harness: BrokerHarness) -> None:
    topic_id = harness.create("a")
    for topic in (MetadataRequestTopic(topic_id=topic_id, name="a"), MetadataRequestTopic(name=None)):
        for version in (10, 11):
            response = harness.ask(MetadataRequest(topics=[topic, MetadataRequestTopic(name="new")]), version)
            assert {each.error_code for each in response.topics} == {ErrorCode.INVALID_REQUEST}
    assert set(codes(ask(harness, None))) == {"a"}


def test_authorized_operations_only_when_requested(harness: BrokerHarness) -> None:
    harness.create("a")
    unasked = ask(harness, ["a"], 10)
    asked = ask(
        harness, ["a"], 10, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    assert unasked.cluster_authorized_operations == unasked.topics[0].topic_authorized_operations == -(2**31)
    assert asked.cluster_authorized_operations > 0
    assert asked.topics[0].topic_authorized_operations > 0


def test_operations_on_an_unknown_topic_are_returned_if_requested(harness: BrokerHarness) -> None:
    for wanted, told in ((True, TOPIC_OPERATIONS), (False, NOT_REQUESTED)):
        response = ask(
            harness, ["nope"], 12, allow_auto_topic_creation=False, include_topic_authorized_operations=wanted
        )
        (topic,) = response.topics
        assert (topic.error_code, topic.topic_authorized_operations) == (UNKNOWN, told)
