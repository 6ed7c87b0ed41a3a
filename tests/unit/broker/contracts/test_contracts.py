"""Topics with schema validation: records without a registered schema are refused, logged or diverted."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.broker.contracts.contracts import MOST_RECORD_ERRORS
from ottla.broker.contracts.schemas import MISSING_MS
from ottla.common.errors import ErrorCode
from ottla.records import BatchProducer, Codec, encode_batch
from ottla.records.checksum import crc32c
from tests.unit.broker.harness import START_MS, BrokerHarness, batch

from .support import (
    ORDER_ID,
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

CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD]


@pytest.fixture
def registry(harness: BrokerHarness) -> StubRegistry:
    return use_registry(harness)


# -- the schema id -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [1, -1])
def test_registered_id_is_appended_unchanged(
    harness: BrokerHarness, registry: StubRegistry, codec: Codec, acks: int
) -> None:
    create_orders(harness)
    response = send(harness, order(1), None, order(2), codec=codec, acks=acks)
    assert (response.error_code, response.base_offset, response.log_start_offset) == (0, 0, 0)
    assert values_of(stored(harness)) == [(0, order(1)), (1, None), (2, order(2))]
    assert registry.asked == [ORDER_ID]


@pytest.mark.parametrize("codec", CODECS)
def test_batch_with_an_invalid_record_is_refused_as_a_whole(
    harness: BrokerHarness, registry: StubRegistry, codec: Codec
) -> None:
    create_orders(harness)
    response = send(harness, order(), b"plain", order(), framed(8), codec=codec)
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert [(each.batch_index, each.batch_index_error_message) for each in response.record_errors] == [
        (1, "The value does not begin with a zero byte and a schema id"),
        (3, "Schema id 8 of the value does not exist in the schema registry"),
    ]
    assert response.error_message.startswith("2 records of the batch for orders-0 violate the schemas of the topic: ")
    assert response.base_offset == -1
    assert stored(harness) == []


def test_id_must_be_registered_under_the_subject_of_the_topic(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    registry.register(9, "payments-value")
    response = send(harness, framed(9))
    assert response.record_errors[0].batch_index_error_message == (
        "Schema id 9 of the value is not registered under the subject orders-value"
    )


def test_keys_and_values_are_checked_independently(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness, confluent_key_schema_validation="true", confluent_value_schema_validation="false")
    registry.register(3, "orders-key")
    assert send(harness, b"plain", key=framed(3)).error_code == 0
    assert send(harness, b"plain", key=None).error_code == 0
    response = send(harness, order(), key=framed(ORDER_ID))
    assert response.record_errors[0].batch_index_error_message == (
        f"Schema id {ORDER_ID} of the key is not registered under the subject orders-key"
    )


@pytest.mark.parametrize(
    ("strategy", "subject"), [("RecordNameStrategy", "shop.Order"), ("TopicRecordNameStrategy", "orders-shop.Order")]
)
def test_subject_can_depend_on_the_name_of_the_record(
    harness: BrokerHarness, registry: StubRegistry, strategy: str, subject: str
) -> None:
    name = f"io.confluent.kafka.serializers.subject.{strategy}"
    create_orders(harness, confluent_value_subject_name_strategy=name)
    response = send(harness, order())
    assert f"is not registered under the subject {subject}" in response.error_message
    registry.register(ORDER_ID, subject)
    harness.loop.advance(MISSING_MS)
    assert send(harness, order()).error_code == 0


def test_schema_without_a_record_name_is_refused_by_the_strategies_that_need_it(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    name = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    create_orders(harness, confluent_value_subject_name_strategy=name)
    registry.register(4, "string", "string")
    assert "has no record name, which RecordNameStrategy needs" in send(harness, framed(4)).error_message


def test_other_topics_are_not_checked(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    harness.create("free")
    response = harness.produce(("orders", {0: batch(b"plain")}), ("free", {0: batch(b"plain")}))
    codes = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert codes == {"orders": ErrorCode.INVALID_RECORD, "free": 0}


def test_setting_has_an_effect_while_the_broker_runs(harness: BrokerHarness, registry: StubRegistry) -> None:
    harness.create("orders")
    assert send(harness, b"plain").error_code == 0
    alter(harness, "orders", **{"confluent.value.schema.validation": "true"})
    assert send(harness, b"plain").error_code == ErrorCode.INVALID_RECORD
    alter(harness, "orders", **{"confluent.value.schema.validation": "false"})
    assert send(harness, b"plain").error_code == 0


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
def test_every_version_of_produce_is_checked(harness: BrokerHarness, registry: StubRegistry, version: int) -> None:
    create_orders(harness)
    assert send(harness, order(), version=version).error_code == 0
    response = send(harness, b"plain", version=version)
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert bool(response.record_errors) == (version >= 8)


def test_acks_0_closes_the_connection_if_a_record_is_invalid(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    assert send(harness, order(), acks=0) is None
    assert (len(stored(harness)), harness.client.closed) == (1, False)
    assert send(harness, b"plain", acks=0) is None
    assert (len(stored(harness)), harness.client.closed) == (1, True)


def test_batch_is_validated_before_its_schemas(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness, max_message_bytes="300")
    corrupt = batch(b"plain")
    corrupt[-1] ^= 1
    response = row_of(harness.produce(("orders", {0: corrupt})))
    assert response.error_code == ErrorCode.CORRUPT_MESSAGE
    assert send(harness, bytes(400)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert registry.asked == []


def test_compressed_batch_with_malformed_records_is_refused(harness: BrokerHarness, registry: StubRegistry) -> None:
    """Without a contract such a batch is not decompressed."""
    create_orders(harness)
    data = encode_batch([(START_MS, b"k", order(), ())], codec=Codec.GZIP)
    header = bytearray(data[:61])
    header[57:61] = (2).to_bytes(4, "big")
    header[23:27] = (1).to_bytes(4, "big")
    resealed = seal_again(bytes(header) + bytes(data[61:]))
    response = row_of(harness.produce(("orders", {0: resealed})))
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert stored(harness) == []


def seal_again(data: bytes) -> bytearray:

    out = bytearray(data)
    out[17:21] = crc32c(memoryview(out)[21:]).to_bytes(4, "big")
    return out


def test_log_append_time_and_compaction_are_kept(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness, message_timestamp_type="LogAppendTime", cleanup_policy="compact")
    harness.loop.advance(500)
    response = send(harness, order(), None)
    assert (response.error_code, response.log_append_time_ms) == (0, START_MS + 500)
    assert [record.timestamp for record in stored(harness)] == [START_MS + 500] * 2
    response = send(harness, order(), key=None)
    assert "accepts no record without a key" in response.error_message


def test_number_of_record_errors_is_limited(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    response = send(harness, *[b"plain"] * 500)
    assert len(response.record_errors) == MOST_RECORD_ERRORS
    assert response.error_message.startswith("500 records of the batch")


def test_topic_with_validation_needs_a_registry(harness: BrokerHarness) -> None:
    create_orders(harness)
    response = send(harness, order())
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert response.error_message == ("orders has schema validation, but broker 1 has no confluent.schema.registry.url")


# -- waiting for the registry --------------------------------------------------------------------------------------


def test_request_with_an_unknown_id_waits_and_the_others_do_not(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    assert send(harness, order()).error_code == 0
    registry.holds = True
    registry.register(8, "orders-value")
    first, second = send(harness, framed(8)), send(harness, framed(8))
    assert not first.done
    assert not second.done
    assert send(harness, order()).error_code == 0
    registry.answer()
    harness.loop.run()
    assert [row_of(each.result()).error_code for each in (first, second)] == [0, 0]
    assert registry.asked == [ORDER_ID, 8]  # both requests shared one
    assert values_of(stored(harness)) == [(0, order()), (1, order()), (2, framed(8)), (3, framed(8))]


def test_frame_of_a_waiting_request_may_be_overwritten(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    registry.holds = True
    frames: list[memoryview] = []
    dispatch = harness.dispatch

    def keep(connection: Any, frame: memoryview) -> Any:
        frames.append(frame)
        return dispatch(connection, frame)

    harness.dispatch = keep  # type: ignore[assignment]
    waiting = send(harness, order(5))
    frames[0][:] = bytes(len(frames[0]))
    registry.answer()
    harness.loop.run()
    assert row_of(waiting.result()).error_code == 0
    assert values_of(stored(harness)) == [(0, order(5))]


def test_known_ids_outlast_the_registry(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    assert send(harness, order()).error_code == 0
    registry.is_down = True
    harness.loop.advance(3_600_000)
    assert send(harness, order()).error_code == 0
    response = send(harness, framed(8))
    assert (response.error_code, response.error_message) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "The schema registry cannot be asked",
    )
    registry.is_down = False
    registry.register(8, "orders-value")
    assert send(harness, framed(8)).error_code == 0


def test_missing_id_is_asked_for_once_in_a_while(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    for _ in range(3):
        assert send(harness, framed(8)).error_code == ErrorCode.INVALID_RECORD
    assert registry.asked == [8]
    registry.register(8, "orders-value")
    harness.loop.advance(MISSING_MS)
    assert send(harness, framed(8)).error_code == 0


def test_batch_with_many_unknown_ids_has_a_deadline(harness: BrokerHarness, registry: StubRegistry) -> None:
    create_orders(harness)
    registry.holds = True
    waiting = send(harness, framed(20), framed(21), framed(22))
    for _ in range(2):
        harness.loop.advance(TIMEOUT_MS // 2)
        registry.answer()
        harness.loop.run()
    response = row_of(waiting.result())
    assert (response.error_code, registry.asked) == (ErrorCode.REQUEST_TIMED_OUT, [20, 21])


def test_partition_that_was_deleted_while_a_request_waited_is_an_error(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    create_orders(harness)
    registry.holds = True
    waiting = send(harness, order())
    harness.delete("orders")
    registry.answer()
    harness.loop.run()
    assert row_of(waiting.result()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_broker_that_stops_closes_the_registry(harness: BrokerHarness, registry: StubRegistry) -> None:
    harness.broker.contracts.close()
    assert registry.closed


# -- warn ------------------------------------------------------------------------------------------------------------


def test_mode_warn_appends_and_logs(
    harness: BrokerHarness, registry: StubRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    create_orders(harness, ottla_schema_validation_mode="warn")
    with caplog.at_level(logging.WARNING):
        for _ in range(30):
            assert send(harness, b"plain", order()).error_code == 0
    assert len(stored(harness)) == 60
    assert harness.broker.contracts.invalid_records == {"orders": 30}
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warnings[0] == (
        "Appending 1 invalid records to orders-0, 1 to this topic since the start: record 0: The value does not begin "
        "with a zero byte and a schema id"
    )
    assert len(warnings) < 30  # the rate is limited


def test_mode_warn_appends_while_the_registry_is_down(
    harness: BrokerHarness, registry: StubRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    create_orders(harness, ottla_schema_validation_mode="warn")
    registry.is_down = True
    with caplog.at_level(logging.WARNING):
        assert send(harness, framed(8)).error_code == 0
    assert "Appending a batch to orders-0 without schema validation" in caplog.text


# -- idempotent producers --------------------------------------------------------------------------------------------


def test_refused_batch_leaves_the_sequence_of_its_producer_unchanged(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    create_orders(harness)
    assert send(harness, order(), producer=BatchProducer(1, 0, 0)).error_code == 0
    assert send(harness, b"plain", producer=BatchProducer(1, 0, 1)).error_code == ErrorCode.INVALID_RECORD
    assert send(harness, order(), producer=BatchProducer(1, 0, 1)).error_code == 0


def test_resent_batch_is_acknowledged_even_if_its_schema_was_deleted(
    harness: BrokerHarness, registry: StubRegistry
) -> None:
    create_orders(harness)
    producer = BatchProducer(1, 0, 0)
    assert send(harness, order(), producer=producer).error_code == 0
    use_registry(harness).schemas.clear()
    response = send(harness, order(), producer=producer)
    assert (response.error_code, response.base_offset) == (0, 0)
    assert len(stored(harness)) == 1
