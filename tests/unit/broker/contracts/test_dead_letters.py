"""Mode dlq: invalid records go to the dead letter topic, and the rest of their batch is appended."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.contracts import dead_letters
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import OFFSETS_TOPIC
from ottla.coordination.peers.dead_letters import DeadLetterBatch
from ottla.records import BatchProducer, Codec, encode_batch, read_header
from tests.unit.broker.harness import START_MS, BrokerHarness, batch

from .support import (
    TIMEOUT_MS,
    StubRegistry,
    alter,
    create_orders,
    framed,
    order,
    row_of,
    send,
    stored,
    use_registry,
    values_of,
)
from .test_contracts import CODECS

DLQ = {"ottla_schema_validation_mode": "dlq", "ottla_schema_validation_dlq_topic": "bad"}


@pytest.fixture
def registry(harness: BrokerHarness) -> StubRegistry:
    harness.create("bad", 3)
    create_orders(harness, **DLQ)
    return use_registry(harness)


def errors_of(record: Any) -> dict[str, str]:
    return {name: text.decode() for name, text in record.headers if name.startswith("__connect.errors.")}


@pytest.mark.parametrize("codec", CODECS)
def test_invalid_records_are_diverted_and_the_rest_keeps_its_offsets(
    harness: BrokerHarness, registry: StubRegistry, codec: Codec
) -> None:
    response = send(harness, order(1), b"plain", order(2), framed(8), codec=codec)
    assert (response.error_code, response.base_offset) == (0, 0)
    assert values_of(stored(harness)) == [(0, order(1)), (2, order(2))]
    assert harness.partition("orders").high_watermark == 4
    assert values_of(stored(harness, "bad")) == [(0, b"plain"), (1, framed(8))]
    assert send(harness, order(3), codec=codec).base_offset == 4


def test_dead_letter_has_the_record_and_the_headers_of_kafka_connect(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    data = encode_batch([(START_MS - 5, b"the key", b"plain", [("trace", b"1"), ("empty", None)])])
    assert row_of(harness.produce(("orders", {0: data}))).error_code == 0
    (letter,) = stored(harness, "bad")
    assert (letter.timestamp, letter.key, letter.value) == (START_MS - 5, b"the key", b"plain")
    assert letter.headers[:2] == [("trace", b"1"), ("empty", None)]
    assert errors_of(letter) == {
        "__connect.errors.topic": "orders",
        "__connect.errors.partition": "0",
        "__connect.errors.connector.name": "ottla.schema.validation",
        "__connect.errors.task.id": "1",
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.class.name": "ottla.broker.contracts",
        "__connect.errors.exception.class.name": "org.apache.kafka.common.InvalidRecordException",
        "__connect.errors.exception.message": "The value does not begin with a zero byte and a schema id",
    }


def test_invalid_key_and_value_make_one_dead_letter(harness: BrokerHarness, registry: StubRegistry) -> None:
    alter(harness, "orders", **{"confluent.key.schema.validation": "true"})
    assert send(harness, b"plain", key=b"k").error_code == 0
    (letter,) = stored(harness, "bad")
    assert errors_of(letter)["__connect.errors.stage"] == "KEY_CONVERTER"


def test_batch_without_valid_records_is_appended_empty(harness: BrokerHarness, registry: StubRegistry) -> None:
    assert send(harness, b"plain", b"plain", producer=BatchProducer(1, 0, 0)).error_code == 0
    assert stored(harness) == []
    assert harness.partition("orders").high_watermark == 2
    header = read_header(harness.partition("orders").look_up(0, 1000, 0, min_one_batch=True))  # type: ignore[arg-type]
    assert (header.record_count, header.last_offset_delta, header.base_sequence) == (0, 1, 0)


def test_sequence_numbers_of_an_idempotent_producer_have_no_gap(harness: BrokerHarness, registry: StubRegistry) -> None:
    for sequence in (0, 3, 6):
        response = send(harness, order(1), b"plain", b"plain", producer=BatchProducer(1, 0, sequence))
        assert response.error_code == 0
    assert [record.offset for record in stored(harness)] == [0, 3, 6]
    assert send(harness, order(), producer=BatchProducer(1, 0, 8)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_resent_batch_is_not_diverted_twice(harness: BrokerHarness, registry: StubRegistry) -> None:
    for _ in range(3):
        response = send(harness, order(1), b"plain", producer=BatchProducer(1, 0, 0))
        assert (response.error_code, response.base_offset) == (0, 0)
    assert len(stored(harness)) == 1
    assert len(stored(harness, "bad")) == 1


def test_batch_out_of_order_is_not_diverted(harness: BrokerHarness, registry: StubRegistry) -> None:
    assert send(harness, order(), producer=BatchProducer(1, 0, 0)).error_code == 0
    response = send(harness, b"plain", producer=BatchProducer(1, 0, 9))
    assert response.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert stored(harness, "bad") == []


def test_acknowledgement_waits_until_dead_letters_are_committed(harness: BrokerHarness, registry: StubRegistry) -> None:
    alter(harness, "bad", **{"flush.messages": "1"})
    harness.threads.held = True
    waiting = send(harness, order(), b"plain")
    harness.loop.run()
    assert not waiting.done
    assert values_of(stored(harness)) == []  # it is appended after them
    harness.threads.held = False
    harness.threads.finish()
    harness.loop.run()
    assert row_of(waiting.result()).error_code == 0
    assert values_of(stored(harness)) == [(0, order())]


def test_dead_letters_that_are_not_committed_in_time_are_a_retriable_error(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    alter(harness, "bad", **{"flush.messages": "1"})
    harness.threads.held = True
    waiting = send(harness, order(), b"plain")
    harness.loop.advance(TIMEOUT_MS)
    response = row_of(waiting.result())
    assert response.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert response.error_message.startswith(
        "1 invalid records of the batch cannot be written to the dead letter topic bad-0: its leader did not commit"
    )
    assert stored(harness) == []


def test_missing_dead_letter_topic_refuses_the_batch(harness: BrokerHarness, registry: StubRegistry) -> None:
    harness.delete("bad")
    response = send(harness, order(), b"plain")
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert response.error_message.endswith("dead letter topic bad: the topic does not exist: create it")
    assert stored(harness) == []
    assert send(harness, order()).error_code == 0


def test_dead_letter_topic_must_not_validate_schemas(harness: BrokerHarness, registry: StubRegistry) -> None:
    """Two such topics could send each other their dead letters forever."""
    alter(harness, "bad", **{"confluent.value.schema.validation": "true"})
    response = send(harness, b"plain")
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert response.error_message.endswith("the topic has schema validation itself: disable it there")


def test_partition_of_dead_letters_follows_the_partition_of_records(harness: BrokerHarness) -> None:
    harness.create("bad", 2)
    harness.create("orders", 4, confluent_value_schema_validation="true", **DLQ)
    use_registry(harness)
    response = harness.produce(("orders", {index: batch(b"%d" % index) for index in range(4)}))
    assert {row.error_code for row in response.responses[0].partition_responses} == {0}
    assert [record.value for record in stored(harness, "bad", 0)] == [b"0", b"2"]
    assert [record.value for record in stored(harness, "bad", 1)] == [b"1", b"3"]


def test_many_dead_letters_are_several_batches(harness: BrokerHarness, registry: StubRegistry) -> None:
    """The headers make them larger than their batch, which may have the largest size."""
    alter(harness, "bad", **{"max.message.bytes": "300000"})
    assert send(harness, *[b"plain" * 20] * 2_000).error_code == 0
    assert harness.partition("bad").high_watermark == 2_000


class StubLeader:
    """The queue of batches for other brokers."""

    def __init__(self, error: KafkaError | None) -> None:
        self.error = error
        self.sent: list[tuple[int, DeadLetterBatch]] = []

    def ask(self, node_id: int, question: DeadLetterBatch) -> Completion[KafkaError | None]:
        self.sent.append((node_id, question))
        return Completion.of(self.error)


def lead_elsewhere(harness: BrokerHarness, monkeypatch: pytest.MonkeyPatch, error: KafkaError | None) -> StubLeader:
    """Let broker 2 lead the dead letter topic."""
    found = dead_letters._topic

    def moved(node: Any, name: str) -> Any:
        topic = found(node, name)
        return topic._replace(partitions={0: topic.partitions[0]._replace(leader=2)})

    monkeypatch.setattr(dead_letters, "_topic", moved)
    leader = StubLeader(error)
    harness.broker.peers.__dict__["dead_letters"] = leader
    return leader


def test_dead_letters_are_sent_to_their_leader(
    harness: BrokerHarness, registry: StubRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = lead_elsewhere(harness, monkeypatch, None)
    assert send(harness, order(), b"plain").error_code == 0
    ((node_id, question),) = leader.sent
    assert (node_id, question.topic, question.partition, question.timeout_ms) == (2, "bad", 0, TIMEOUT_MS)
    assert read_header(question.records).record_count == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT),  # it has older metadata
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD),
    ],
)
def test_error_of_the_leader_refuses_the_batch(
    harness: BrokerHarness, registry: StubRegistry, monkeypatch: pytest.MonkeyPatch, error: ErrorCode, code: ErrorCode
) -> None:
    lead_elsewhere(harness, monkeypatch, KafkaError(error))
    assert send(harness, order(), b"plain").error_code == code
    assert stored(harness) == []


# -- settings --------------------------------------------------------------------------------------------------------


def test_mode_dlq_needs_a_topic(harness: BrokerHarness) -> None:
    harness.create("orders")
    mode, topic = "ottla.schema.validation.mode", "ottla.schema.validation.dlq.topic"
    assert alter(harness, "orders", **{mode: "dlq"}) == ErrorCode.INVALID_CONFIG
    assert alter(harness, "orders", **{mode: "dlq", topic: "orders"}) == ErrorCode.INVALID_CONFIG
    assert alter(harness, "orders", **{mode: "dlq", topic: OFFSETS_TOPIC}) == ErrorCode.INVALID_CONFIG
    assert alter(harness, "orders", **{mode: "dlq", topic: "bad"}) == 0
    assert alter(harness, "orders", **{mode: "divert"}) == ErrorCode.INVALID_CONFIG


def test_internal_topics_cannot_be_validated(harness: BrokerHarness) -> None:
    harness.create(OFFSETS_TOPIC)
    for name in ("confluent.key.schema.validation", "confluent.value.schema.validation"):
        assert alter(harness, OFFSETS_TOPIC, **{name: "true"}) == ErrorCode.INVALID_CONFIG
