"""The headers of each program that writes dead letters, as its source writes them, and the redriven records."""

from __future__ import annotations

from struct import pack

import pytest

from ottla.clients.consumer.record import record_class
from ottla.tools.dead_letters import COUNT_HEADER, Left, Plan, Redriven, decide, is_name_of_dead_letters, read_letter

CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"41"),
    ("__connect.errors.connector.name", b"jdbc-sink"),
    ("__connect.errors.task.id", b"0"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"Converting byte[] to Kafka Connect data failed"),
    ("__connect.errors.exception.stacktrace", b"org.apache.kafka.connect.errors.DataException: ..."),
]
PIPELINE = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"41"),
    ("__connect.errors.connector.name", b"billing"),
    ("__connect.errors.task.id", b"3"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"ottla.streams"),
    ("__connect.errors.exception.class.name", b"ottla.spark.formats.FormatError"),
    ("__connect.errors.exception.message", b"not JSON"),
]
# Schema validation writes no offset: the record has none.
VALIDATION = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.connector.name", b"ottla.schema.validation"),
    ("__connect.errors.task.id", b"1"),
    ("__connect.errors.stage", b"VALUE_CONVERTER"),
    ("__connect.errors.class.name", b"ottla.broker.contracts"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.common.InvalidRecordException"),
    ("__connect.errors.exception.message", b"The value does not begin with a zero byte and a schema id"),
]
STREAMS = [
    ("__streams.errors.exception", b"java.lang.IllegalStateException: no rate"),
    ("__streams.errors.message", b"no rate"),
    ("__streams.errors.stacktrace", b"java.lang.IllegalStateException: no rate\n\tat X"),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"2"),
    ("__streams.errors.offset", b"41"),
]
SHARE = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"2"),
    ("__dlq.errors.offset", b"41"),
    ("__dlq.errors.group", b"workers"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
]


def spring(prefix: str, topic: bytes = b"orders") -> list[tuple[str, bytes | None]]:
    """The headers of a DeadLetterPublishingRecoverer: numbers are big-endian."""
    return [
        (f"{prefix}original-topic", topic),
        (f"{prefix}original-partition", pack(">i", 2)),
        (f"{prefix}original-offset", pack(">q", 41)),
        (f"{prefix}original-timestamp", pack(">q", 1_700_000_000_123)),
        (f"{prefix}original-timestamp-type", b"CreateTime"),
        (f"{prefix}original-consumer-group", b"billing"),
        (f"{prefix}exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        (f"{prefix}exception-cause-fqcn", b"java.lang.NullPointerException"),
        (f"{prefix}exception-message", b"Listener failed; no customer"),
        (f"{prefix}exception-stacktrace", b"..."),
    ]


CLOUD_STREAM = [
    ("x-original-topic", b"orders"),
    ("x-original-partition", pack(">i", 2)),
    ("x-original-offset", pack(">q", 41)),
    ("x-original-timestamp", pack(">q", 1_700_000_000_123)),
    ("x-original-timestamp-type", b"CreateTime"),
    ("x-exception-fqcn", b"java.lang.NullPointerException"),
    ("x-exception-message", b"no customer"),
    ("x-exception-stacktrace", b"..."),
]
SMALLRYE = [
    ("dead-letter-exception-class-name", b"java.lang.NullPointerException"),
    ("dead-letter-cause-class-name", b"java.io.IOException"),
    ("dead-letter-reason", b"no customer"),
    ("dead-letter-cause", b"closed"),
    ("dead-letter-topic", b"orders"),
    ("dead-letter-partition", b"2"),
    ("dead-letter-offset", b"41"),
]
KNOWN = {
    "Kafka Connect": (CONNECT, "DataException: Converting byte[] to Kafka Connect data failed"),
    "Ottla pipeline": (PIPELINE, "FormatError: not JSON"),
    "Kafka Streams": (STREAMS, "IllegalStateException: no rate"),
    "share group": (SHARE, "Offset delivery count exceeded the threshold."),
    "Spring Kafka": (spring("kafka_dlt-"), "NullPointerException: Listener failed; no customer"),
    "Spring Kafka retries": (spring("kafka_"), "NullPointerException: Listener failed; no customer"),
    "Spring Cloud Stream": (CLOUD_STREAM, "NullPointerException: no customer"),
    "SmallRye": (SMALLRYE, "NullPointerException: no customer"),
}
OWN = [("trace", b"1"), ("trace", None)]


def letter(headers, key=b"k\x00", value=b"v\xff", topic="orders.dlq"):
    return record_class(topic, 0)(7, 1_600_000_000_000, key, value, list(headers))


def decided(record, plan=Plan(), partitions=None):  # noqa: B008 - a Plan is frozen
    return decide(record, read_letter(record.headers), plan, {"orders": 3} if partitions is None else partitions)


@pytest.mark.parametrize("writer", KNOWN)
def test_origin_and_reason_are_read(writer: str) -> None:
    headers, reason = KNOWN[writer]
    found = read_letter([*OWN, *headers])
    assert (found.writer, found.origin, found.reason) == (writer, "orders-2@41", reason)
    assert found.redrives == 0


@pytest.mark.parametrize("writer", KNOWN)
def test_redriven_record_equals_the_original_one(writer: str) -> None:
    new = decided(letter([*OWN, *KNOWN[writer][0]]))
    assert new == Redriven("orders", None, None, b"k\x00", b"v\xff", [*OWN, (COUNT_HEADER, b"1")])


def test_schema_validation_has_no_offset() -> None:
    found = read_letter(VALIDATION)
    assert (found.writer, found.origin, found.offset) == ("Ottla schema validation", "orders-2", None)


def test_spring_appends_origins_and_the_first_one_counts() -> None:
    found = read_letter([*spring("kafka_dlt-"), *spring("kafka_dlt-", b"orders-retry")])
    assert found.topic == "orders"


def test_last_failure_of_connect_counts() -> None:
    assert read_letter([*CONNECT, ("__connect.errors.topic", b"payments")]).topic == "payments"


def test_writer_whose_headers_are_the_last_counts_and_all_are_removed() -> None:
    record = letter([*CONNECT, *spring("kafka_dlt-", b"payments")])
    assert read_letter(record.headers).topic == "payments"
    new = decided(record, Plan(to="orders"))
    assert new.headers == [(COUNT_HEADER, b"1")]


@pytest.mark.parametrize(
    ("headers", "partition", "offset"),
    [
        ([("__connect.errors.topic", b"t"), ("__connect.errors.partition", b"-1")], None, None),
        ([("__connect.errors.topic", b"t"), ("__connect.errors.offset", b"\xff\xfe")], None, None),
        ([("__connect.errors.topic", b"t"), ("__connect.errors.offset", b"9" * 5000)], None, None),
        ([("kafka_dlt-original-topic", b"t"), ("kafka_dlt-original-partition", b"\xff" * 4)], None, None),
        ([("kafka_dlt-original-topic", b"t"), ("kafka_dlt-original-offset", None)], None, None),
        ([("kafka_dlt-original-topic", b"t"), ("kafka_dlt-original-partition", b"7")], 7, None),
    ],
)
def test_wrong_numbers_are_unknown(headers, partition, offset) -> None:
    found = read_letter(headers)
    assert (found.topic, found.partition, found.offset) == ("t", partition, offset)


def test_headers_of_the_user_stay_when_no_writer_has_them() -> None:
    headers = [("x-exception-message", b"mine"), ("kafka_original-key", b"mine")]
    new = decided(letter([*headers, *CONNECT]))
    assert new.headers == [*headers, (COUNT_HEADER, b"1")]


def test_count_is_raised_and_other_options_are_followed() -> None:
    record = letter([*OWN, *KNOWN["Spring Kafka"][0], (COUNT_HEADER, b"1")])
    plan = Plan(same_partition=True, original_timestamp=True, keep_headers=True, set_headers=(("trace", b"2"),))
    new = decided(record, plan)
    assert (new.partition, new.timestamp_ms) == (2, 1_700_000_000_123)
    assert new.headers == [*KNOWN["Spring Kafka"][0], ("trace", b"2"), (COUNT_HEADER, b"2")]
    assert decided(letter(CONNECT), plan).timestamp_ms == 1_600_000_000_000


def test_letter_is_left_with_the_reason() -> None:
    assert decided(letter(OWN)) is Left.NO_ORIGIN
    assert decided(letter(CONNECT), partitions={}) is Left.NO_TOPIC
    assert decided(letter(CONNECT, topic="orders")) is Left.TO_ITSELF
    assert decided(letter([*CONNECT, (COUNT_HEADER, b"3")])) is Left.REPLAYS
    assert isinstance(decided(letter([*CONNECT, (COUNT_HEADER, b"2")])), Redriven)
    assert decided(letter(CONNECT), Plan(same_partition=True), {"orders": 2}) is Left.NO_PARTITION
    assert decided(letter(SHARE, None, None)) is Left.NO_RECORD
    assert isinstance(decided(letter(CONNECT, None, None)), Redriven)
    assert isinstance(decided(letter(OWN), Plan(to="orders")), Redriven)


def test_names() -> None:
    for name in ("orders.dlq", "orders-dlq", "orders.DLT", "orders-dlt", "dlq.orders", "orders_dlq"):
        assert is_name_of_dead_letters(name)
    for name in ("orders", "dlq", "dlqueue", "my.dlq.copy", "addlt"):
        assert not is_name_of_dead_letters(name)
