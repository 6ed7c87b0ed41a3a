"""Producers of several clients and a topic with schema validation."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.cli.main import main
from ottla.clients import Admin, Consumer, Producer
from ottla.clients.errors import InvalidRecord
from tests.interop.conftest import Tools
from tests.ottla_process import BrokerDied, ForkedOttla, OttlaProcess
from tests.peers.cache import in_ci, missing_for_jvm

from .registry import HttpRegistry

WAIT_S = 30.0
SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
SUBJECT = "orders-value"
INVALID_RECORD = confluent_kafka.KafkaError.INVALID_RECORD


def create(broker: OttlaProcess, topic: str = "orders", **configs: str) -> None:
    validation = {"confluent.value.schema.validation": "true"} if topic == "orders" else {}
    settings = validation | {name.replace("_", "."): value for name, value in configs.items()}
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=1, config=settings)


def framed(schema_id: int, number: int = 1) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + bytes([2 * number])


def read(broker: OttlaProcess, topic: str, count: int, **settings: Any) -> list[Any]:
    """The first records of a topic; waits for `count`."""
    found: list[Any] = []
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([(topic, 0)])
        while len(found) < count:
            records = consumer.poll(WAIT_S)
            assert records, f"only {len(found)} of {count} records"
            found += records
    return found


def delivered(producer: confluent_kafka.Producer, topic: str, value: bytes | None) -> Any:
    """Send one record; returns the error of its delivery report, or None."""
    reports: list[Any] = []
    producer.produce(topic, value=value, on_delivery=lambda error, _message: reports.append(error))
    assert producer.flush(WAIT_S) == 0
    (error,) = reports
    return error


def test_confluents_serializer_is_accepted_and_plain_bytes_are_not(
    validating: OttlaProcess, registry: HttpRegistry
) -> None:
    create(validating, ottla_schema_validation_depth="record")
    serializer = AvroSerializer(SchemaRegistryClient({"url": registry.url}), SCHEMA)
    producer = confluent_kafka.Producer({"bootstrap.servers": validating.bootstrap})
    value = serializer({"id": 7}, SerializationContext("orders", MessageField.VALUE))
    assert delivered(producer, "orders", value) is None
    assert delivered(producer, "orders", None) is None
    error = delivered(producer, "orders", b"plain")
    assert error.code() == INVALID_RECORD
    error = delivered(producer, "orders", value + b"more")
    assert error.code() == INVALID_RECORD
    assert [record.value for record in read(validating, "orders", 2)] == [value, None]
    credentials = base64.b64encode(b"broker:secret").decode()
    assert f"Basic {credentials}" in registry.authorizations  # the broker's


def test_ottlas_producer_has_the_message_of_the_record(validating: OttlaProcess, registry: HttpRegistry) -> None:
    create(validating)
    message = "The value does not begin with a zero byte and a schema id"
    with Producer(bootstrap_servers=validating.bootstrap) as producer, pytest.raises(InvalidRecord, match=message):
        producer.send("orders", b"plain").result(WAIT_S)


@pytest.mark.jvm
def test_javas_console_producer_has_the_message_of_the_record(validating: OttlaProcess) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    create(validating)
    done = Tools(validating.bootstrap).run("console-producer", "--topic", "orders", stdin="plain\n")
    output = done.stdout + done.stderr
    assert "InvalidRecordException" in output
    assert "The value does not begin with a zero byte and a schema id" in output


def test_other_clients_are_served_while_a_request_waits_for_the_registry(
    validating: OttlaProcess, registry: HttpRegistry
) -> None:
    create(validating)
    create(validating, "free")
    schema_id = registry.register(SUBJECT, {"schema": SCHEMA})["id"]
    registry.passes.clear()
    with Producer(bootstrap_servers=validating.bootstrap) as waiting:
        first = waiting.send("orders", framed(schema_id))
        with Producer(bootstrap_servers=validating.bootstrap) as other:
            other.send("free", b"x").result(WAIT_S)
        assert not first.done()
        registry.passes.set()
        assert first.result(WAIT_S).offset == 0


def test_pipelined_requests_keep_their_order_while_one_waits(validating: OttlaProcess, registry: HttpRegistry) -> None:
    create(validating)
    schema_id = registry.register(SUBJECT, {"schema": SCHEMA})["id"]
    registry.passes.clear()
    with Producer(bootstrap_servers=validating.bootstrap, linger_ms=0) as producer:
        futures = [producer.send("orders", framed(schema_id, number)) for number in range(5)]
        threading.Timer(0.3, registry.passes.set).start()
        assert [future.result(WAIT_S).offset for future in futures] == list(range(5))
    assert [record.value for record in read(validating, "orders", 5)] == [framed(schema_id, n) for n in range(5)]


def test_registry_that_is_down_refuses_only_unknown_ids_and_producers_retry(
    validating: OttlaProcess, registry: HttpRegistry
) -> None:
    create(validating)
    known = registry.register(SUBJECT, {"schema": SCHEMA})["id"]
    unknown = registry.register(SUBJECT, {"schema": '"string"'})["id"]
    with Producer(bootstrap_servers=validating.bootstrap) as producer:
        producer.send("orders", framed(known)).result(WAIT_S)
        registry.refuses = True
        producer.send("orders", framed(known)).result(WAIT_S)
        asked = len(registry.asked)
        waiting = producer.send("orders", framed(unknown))
        while len(registry.asked) < asked + 3:  # the producer has retried
            assert not waiting.done()
            threading.Event().wait(0.05)
        registry.refuses = False
        assert waiting.result(WAIT_S).offset == 2


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_commits_or_aborts_its_valid_records_only(
    validating: OttlaProcess, registry: HttpRegistry, commit: bool
) -> None:
    create(validating, "bad")
    create(validating, ottla_schema_validation_mode="dlq", ottla_schema_validation_dlq_topic="bad")
    schema_id = registry.register(SUBJECT, {"schema": SCHEMA})["id"]
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": validating.bootstrap, "transactional.id": "t", "linger.ms": 50}
    )
    producer.init_transactions(WAIT_S)
    for commits in (commit, True):
        producer.begin_transaction()
        for number in range(10):
            producer.produce("orders", framed(schema_id, number) if number % 2 else b"plain")
        assert producer.flush(WAIT_S) == 0
        producer.commit_transaction(WAIT_S) if commits else producer.abort_transaction(WAIT_S)
    expected = [framed(schema_id, number) for number in (1, 3, 5, 7, 9)] * (2 if commit else 1)
    found = read(validating, "orders", len(expected), isolation_level="read_committed")
    assert [record.value for record in found] == expected
    assert [record.value for record in read(validating, "bad", 10)] == [b"plain"] * 10  # dead letters do not abort


def test_dead_letters_have_headers_and_the_producer_is_acknowledged(
    validating: OttlaProcess, registry: HttpRegistry
) -> None:
    create(validating, "bad")
    create(validating, ottla_schema_validation_mode="dlq", ottla_schema_validation_dlq_topic="bad")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": validating.bootstrap, "enable.idempotence": True, "compression.type": "zstd"}
    )
    assert delivered(producer, "orders", b"plain") is None
    (letter,) = read(validating, "bad", 1)
    headers = dict(letter.headers)
    assert headers["__connect.errors.topic"] == b"orders"
    assert b"does not begin with a zero byte" in headers["__connect.errors.exception.message"]


def test_broker_with_a_wrong_setting_of_the_registry_does_not_start(tmp_path: Any) -> None:

    process = ForkedOttla(tmp_path / "wrong", {"confluent.schema.registry.url": "registry:8081"})
    with pytest.raises(BrokerDied, match="confluent"):
        process.start()


def test_dead_letter_of_the_broker_is_redriven(validating: OttlaProcess, registry: HttpRegistry) -> None:
    create(validating, "bad")
    create(validating, ottla_schema_validation_mode="dlq", ottla_schema_validation_dlq_topic="bad")
    with Producer(bootstrap_servers=validating.bootstrap) as producer:
        producer.send("orders", b"plain").result(WAIT_S)
    with Admin(bootstrap_servers=validating.bootstrap) as admin:
        admin.create_topic("repaired", partitions=1)
    assert main(["dlq", "redrive", "bad", "--to", "repaired", "-b", validating.bootstrap]) == 0
    (record,) = read(validating, "repaired", 1, isolation_level="read_committed")
    assert (record.value, record.headers) == (b"plain", [("ottla.redrive.count", b"1")])
