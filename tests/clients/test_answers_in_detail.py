"""Single fields of responses, and requests that only careless clients send.

The requests are declared messages, sent over a raw socket. Stock Kafka defines the expected responses.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    delete_records,
    delete_topics,
    describe_configs,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from tests.conftest import RunningBroker

from .conftest import MakeTopic
from .support import unique, wait_until
from .wire import Connection, batch

pytestmark = pytest.mark.both

OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, MESSAGE_TOO_LARGE, INVALID_REQUEST = 1, 2, 3, 10, 42
OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, UNKNOWN_LEADER_EPOCH, INVALID_RECORD = 45, 47, 75, 87
INVALID_TOPIC, INVALID_REQUIRED_ACKS, INVALID_GROUP_ID = 17, 21, 24
TOPIC, BROKER = 2, 4
SET = 0
STATIC_BROKER = 4
NOT_REQUESTED = -(2**31)


class Asking(Connection):
    """A connection that sends and receives whole messages."""

    client_id = "detail"

    def send_message(self, message: Message, version: int) -> Any:
        """Send `message` and return its response."""
        self.send(b"".join(encode_request(message, version, 7, self.client_id)))
        answer = self.receive()
        correlation_id, position = decode_response_header(answer, message.API_KEY, version)
        assert correlation_id == 7
        kind = type(message)
        response = getattr(importlib.import_module(kind.__module__), kind.__name__.replace("Request", "Response"))
        return response.decode(answer[position:], version)


def topic_id_of(connection: Asking, name: str) -> bytes:
    """Wait until the broker knows the topic, and return its id."""
    found: list[bytes] = []

    def has_id() -> bool:
        topics = [metadata.MetadataRequestTopic(name=name)]
        request = metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = connection.send_message(request, 12)
        found[:] = [bytes(topic.topic_id) for topic in answer.topics if not topic.error_code]
        return bool(found)

    wait_until(has_id, f"the id of {name}")
    return found[0]


def send_batch(
    connection: Asking, topic: str, records: bytes, version: int = 12, partition: int = 0, acks: int = -1
) -> Any:
    """Send one batch, and return the response's only partition."""
    data = [produce.PartitionProduceData(index=partition, records=records)]
    topics = [produce.TopicProduceData(name=topic, partition_data=data)]
    request = produce.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)
    return connection.send_message(request, version).responses[0].partition_responses[0]


@pytest.mark.parametrize("version", [5, 12])
def test_error_inside_a_batch_is_returned_with_the_log_start_offset(
    broker: RunningBroker, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(max_message_bytes=400)
    with Asking(broker.bootstrap) as connection:
        for sequence in (0, 1, 2):
            sent = send_batch(connection, topic, batch([b"a"], producer_id=7, epoch=3, sequence=sequence))
            assert (sent.error_code, sent.base_offset, sent.log_start_offset) == (0, sequence, 0)
        gone = [delete_records.DeleteRecordsPartition(partition_index=0, offset=2)]
        topics = [delete_records.DeleteRecordsTopic(name=topic, partitions=gone)]
        connection.send_message(delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2)
        cases = {
            "sequence": (batch([b"a"], producer_id=7, epoch=3, sequence=9), OUT_OF_ORDER_SEQUENCE, 2),
            "epoch": (batch([b"a"], producer_id=7, epoch=2, sequence=3), INVALID_PRODUCER_EPOCH, 2),
            "count": (batch([b"a", b"b"], count=3), INVALID_RECORD, 2),
            "control": (batch([b"a"], attributes=0x20), INVALID_RECORD, 2),
            "two batches": (batch([b"a"]) + batch([b"b"]), INVALID_RECORD, -1),
            "nothing": (b"", INVALID_RECORD, -1),
            "checksum": (batch([b"a"], crc_error=1), CORRUPT_MESSAGE, -1),
            "size": (batch([b"a" * 500]), MESSAGE_TOO_LARGE, -1),
        }
        for name, (records, error, log_start) in cases.items():
            refused = send_batch(connection, topic, records, version)
            assert (name, refused.error_code, refused.log_start_offset) == (name, error, log_start)
            assert (refused.base_offset, refused.log_append_time_ms) == (-1, -1)
        elsewhere = send_batch(connection, topic, batch([b"a"]), version, partition=5)
        assert (elsewhere.error_code, elsewhere.log_start_offset) == (UNKNOWN_TOPIC, -1)
        assert send_batch(connection, topic, batch([b"a"])).base_offset == 3


def test_unknown_partition_is_reported_before_invalid_acks(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Asking(broker.bootstrap) as connection:
        for partition, error in ((0, INVALID_REQUIRED_ACKS), (5, UNKNOWN_TOPIC)):
            assert send_batch(connection, topic, batch([b"a"]), partition=partition, acks=2).error_code == error
        assert send_batch(connection, topic, batch([b"a"])).base_offset == 0


def test_group_with_an_empty_name_stores_offsets_but_has_no_members(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    row = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    topics = [offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[row])]
    commit = offset_commit.OffsetCommitRequest(generation_id_or_member_epoch=-1, topics=topics)
    with Asking(broker.bootstrap) as connection:

        def committed() -> bool:
            connection.send_message(find_coordinator.FindCoordinatorRequest(key="g"), 1)
            answer = connection.send_message(commit, 8)
            return [part.error_code for each in answer.topics for part in each.partitions] == [0]

        wait_until(committed, "the committed offset of the group with an empty name")
        for generation in (-1, 1):
            beat = heartbeat.HeartbeatRequest(generation_id=generation, member_id="x")
            assert connection.send_message(beat, 4).error_code == INVALID_GROUP_ID


@pytest.mark.parametrize("version", [4, 7, 12])
def test_aborted_transactions_are_empty_for_an_unknown_partition_and_null_for_other_errors(
    broker: RunningBroker, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    request = fetch_request(topic, [0, 9])
    request.topics[0].partitions[0].fetch_offset = 77
    with Asking(broker.bootstrap) as connection:
        (answer,) = connection.send_message(request, version).responses
        told = {part.partition_index: (part.error_code, part.aborted_transactions) for part in answer.partitions}
        assert told == {0: (OFFSET_OUT_OF_RANGE, None), 9: (UNKNOWN_TOPIC, [])}


def test_fetch_without_a_leader_epoch_is_not_fenced(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Asking(broker.bootstrap) as connection:
        assert send_batch(connection, topic, batch([b"a"])).error_code == 0
        for epoch, error in ((-1, 0), (-2, 0), (-(2**31), 0), (0, 0), (1, UNKNOWN_LEADER_EPOCH)):
            request = fetch_request(topic, [0])
            request.topics[0].partitions[0].current_leader_epoch = epoch
            part = connection.send_message(request, 12).responses[0].partitions[0]
            assert (epoch, part.error_code, part.high_watermark) == (epoch, error, -1 if error else 1)


def fetch_request(
    topic: str, partitions: list[int], *, session: int = 0, epoch: int = -1, forget: tuple[int, ...] = ()
) -> fetch.FetchRequest:
    """Build a fetch from offset 0 that does not wait."""
    wanted = [fetch.FetchPartition(partition=index, partition_max_bytes=1_000) for index in partitions]
    return fetch.FetchRequest(
        session_id=session,
        session_epoch=epoch,
        topics=[fetch.FetchTopic(topic=topic, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[fetch.ForgottenTopic(topic=topic, partitions=list(forget))] if forget else [],
    )


def test_fetch_session_forgets_a_partition_that_is_also_requested(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with Asking(broker.bootstrap) as connection:
        for index in (0, 1):
            assert send_batch(connection, topic, batch([b"a"]), partition=index).error_code == 0
        session = connection.send_message(fetch_request(topic, [0, 1], epoch=0), 12).session_id
        request = fetch_request(topic, [1], session=session, epoch=1, forget=(1,))
        answer = connection.send_message(request, 12)
        assert answer.error_code == 0
        assert [part.partition_index for each in answer.responses for part in each.partitions] == [0]


def test_duplicate_partition_of_list_offsets_is_rejected_once(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    wanted = [list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    topics = [list_offsets.ListOffsetsTopic(name=topic, partitions=wanted)]
    request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics)
    with Asking(broker.bootstrap) as connection:
        answer = connection.send_message(request, 5)
        parts = [part for each in answer.topics for part in each.partitions]
        assert sorted((part.partition_index, part.error_code) for part in parts) == [(0, INVALID_REQUEST), (1, 0)]


def test_topic_given_by_name_and_by_id_is_not_deleted(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Asking(broker.bootstrap) as connection:
        topic_id = topic_id_of(connection, topic)
        asked = [
            delete_topics.DeleteTopicState(name=topic),
            delete_topics.DeleteTopicState(topic_id=topic_id, name=None),
        ]
        answer = connection.send_message(delete_topics.DeleteTopicsRequest(topics=asked, timeout_ms=10_000), 6)
        assert [(each.name, bytes(each.topic_id), each.error_code) for each in answer.responses] == [
            (topic, topic_id, INVALID_REQUEST)
        ]
        assert topic_id_of(connection, topic) == topic_id


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_topic_id_is_rejected_before_version_12(
    broker: RunningBroker, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic()
    with Asking(broker.bootstrap) as connection:
        topic_id = topic_id_of(connection, topic)
        wanted = [metadata.MetadataRequestTopic(topic_id=topic_id, name=None)]
        answer = connection.send_message(metadata.MetadataRequest(topics=wanted), version)
        assert [(bytes(each.topic_id), each.name, each.error_code) for each in answer.topics] == [
            (topic_id, "", INVALID_REQUEST)
        ]


@pytest.mark.parametrize("version", [0, 1, 4, 9, 13])
def test_metadata_reports_a_topic_as_unknown_while_it_is_auto_created(broker: RunningBroker, version: int) -> None:
    topic = unique("created")
    with Asking(broker.bootstrap) as connection:

        def ask(*names: str) -> dict[str, tuple[int, int]]:
            topics = [metadata.MetadataRequestTopic(name=name) for name in names]
            response = connection.send_message(metadata.MetadataRequest(topics=topics), version)
            return {each.name: (each.error_code, len(each.partitions)) for each in response.topics}

        assert ask(topic, topic, "bad name") == {topic: (UNKNOWN_TOPIC, 0), "bad name": (INVALID_TOPIC, 0)}
        wait_until(lambda: ask(topic)[topic][0] == 0, "the topic is created")
        assert ask(topic)[topic][1] > 0


def test_describe_quorum_of_several_partitions_reports_all_as_unknown(broker: RunningBroker) -> None:
    def ask(connection: Asking, *topics: tuple[str, list[int]]) -> tuple[list[int], int]:
        data = [
            describe_quorum.RequestTopicData(
                topic_name=name,
                partitions=[describe_quorum.RequestPartitionData(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ]
        answer = connection.send_message(describe_quorum.DescribeQuorumRequest(topics=data), 2)
        return [part.error_code for each in answer.topics for part in each.partitions], len(answer.nodes)

    with Asking(broker.bootstrap) as connection:
        assert ask(connection, ("__cluster_metadata", [0])) == ([0], 1)
        assert ask(connection, ("__cluster_metadata", [0, 1])) == ([UNKNOWN_TOPIC] * 2, 0)
        assert ask(connection, ("__cluster_metadata", [0]), ("t", [0])) == ([UNKNOWN_TOPIC] * 2, 0)
        assert ask(connection) == ([], 0)


def test_cursor_at_a_topic_that_is_not_requested_returns_no_authorized_operations(
    broker: RunningBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    asked = [describe_topic_partitions.TopicRequest(name=topic)]
    cursor = describe_topic_partitions.RequestCursor(topic_name=unique("other"), partition_index=0)
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=asked, response_partition_limit=10, cursor=cursor
    )
    with Asking(broker.bootstrap) as connection:
        (answer,) = connection.send_message(request, 0).topics
        assert (answer.error_code, answer.topic_authorized_operations) == (INVALID_REQUEST, NOT_REQUESTED)


def describe(connection: Asking, kind: int, resource: str, *names: str) -> dict[str, tuple[str | None, int]]:
    """Return (value, source) of each setting."""
    wanted = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=resource, configuration_keys=list(names)
    )
    answer = connection.send_message(describe_configs.DescribeConfigsRequest(resources=[wanted]), 4)
    return {entry.name: (entry.value, entry.config_source) for entry in answer.results[0].configs}


def test_duplicate_item_of_a_list_setting_is_stored_once(broker: RunningBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    change = incremental_alter_configs.AlterableConfig(
        name="cleanup.policy", config_operation=SET, value="compact,delete,compact"
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[change]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    with Asking(broker.bootstrap) as connection:
        assert [each.error_code for each in connection.send_message(request, 1).responses] == [0]
        wait_until(
            lambda: (
                describe(connection, TOPIC, topic, "cleanup.policy")["cleanup.policy"] == ("compact,delete", TOPIC - 1)
            ),
            "the new policy",
        )


def test_broker_id_setting_equals_node_id(broker: RunningBroker) -> None:
    with Asking(broker.bootstrap) as connection:
        node = connection.send_message(metadata.MetadataRequest(topics=[]), 12).brokers[0].node_id
        told = describe(connection, BROKER, str(node), "broker.id", "node.id")
        assert told["broker.id"][0] == told["node.id"][0] == str(node)
