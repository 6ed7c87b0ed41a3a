"""Schema validation and share groups, compaction and an authorizer, in a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, Consumer, Producer, ShareConsumer
from ottla.clients.admin import ConfigResource
from ottla.clients.errors import InvalidRecord
from tests.conftest import TEST_PROPERTIES
from tests.ottla_process import ForkedOttla, OttlaProcess

from .registry import HttpRegistry

WAIT_S = 30.0
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
DLQ = {
    "confluent.value.schema.validation": "true",
    "ottla.schema.validation.mode": "dlq",
    "ottla.schema.validation.dlq.topic": "bad",
}
CLEANS = {"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100, "log.retention.check.interval.ms": 200}


@pytest.fixture
def broker(tmp_path: Path, registry: HttpRegistry) -> Iterator[OttlaProcess]:
    settings = TEST_PROPERTIES | CLEANS | {"confluent.schema.registry.url": registry.url}
    process = ForkedOttla(tmp_path / "broker", settings)
    process.start()
    try:
        yield process
        assert process.stop() == 0, process.log_tail()
        process.assert_no_traceback()
    finally:
        process.kill()


def valid(registry: HttpRegistry, number: int) -> bytes:
    schema_id: int = registry.register("orders-value", {"schema": SCHEMA})["id"]
    return b"\0" + schema_id.to_bytes(4, "big") + bytes([2 * number])


def test_share_group_gets_the_valid_records_between_the_gaps(broker: OttlaProcess, registry: HttpRegistry) -> None:
    """Diverted records leave gaps, also whole batches without records."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("bad", partitions=1)
        admin.create_topic("orders", partitions=1, config=DLQ)
        admin.alter_config(ConfigResource.group("queue"), {"share.auto.offset.reset": "earliest"})
    wanted = []
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=5_000) as producer:
        for number in range(20):
            values = [b"plain", valid(registry, number), b"plain"] if number % 3 else [b"plain"] * 3
            wanted += [each for each in values if each != b"plain"]
            for value in values:
                producer.send("orders", value)
            producer.flush(WAIT_S)
    found: list[bytes] = []
    with ShareConsumer(bootstrap_servers=broker.bootstrap, group_id="queue") as consumer:
        consumer.subscribe(["orders"])
        deadline = time.monotonic() + WAIT_S
        while len(found) < len(wanted):
            assert time.monotonic() < deadline, found
            found += [record.value for record in consumer.poll(1)]
        assert consumer.poll(1) == []
    assert found == wanted
    assert len(read(broker, "bad", 60 - len(wanted))) == 60 - len(wanted)


def read(broker: OttlaProcess, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        deadline = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} records"
            found += consumer.poll(1)
    return found


def test_dead_letters_of_programs_are_records_like_others(broker: OttlaProcess, registry: HttpRegistry) -> None:
    """A program, a share group's or a connector's, cannot write dead letters without a schema to a validated topic."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=1, config={"confluent.value.schema.validation": "true"})
    headers = [("__connect.errors.topic", b"source")]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        with pytest.raises(InvalidRecord):
            producer.send("orders", b"plain", headers=headers).result(WAIT_S)
        producer.send("orders", valid(registry, 1), headers=headers).result(WAIT_S)


def test_topic_with_gaps_is_compacted_and_its_producer_goes_on(broker: OttlaProcess, registry: HttpRegistry) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("bad", partitions=1)
        compacted = {"cleanup.policy": "compact", "segment.bytes": 1_048_576, "min.cleanable.dirty.ratio": "0.0001"}
        admin.create_topic("orders", partitions=1, config={**DLQ, **compacted, "segment.ms": 200})
        with Producer(bootstrap_servers=broker.bootstrap, linger_ms=0) as producer:
            for number in range(30):
                producer.send("orders", valid(registry, number), key=b"k%d" % (number % 3)).result(WAIT_S)
                producer.send("orders", b"plain", key=b"k%d" % (number % 3)).result(WAIT_S)
            deadline = time.monotonic() + WAIT_S
            while True:
                time.sleep(0.3)
                assert producer.send("orders", valid(registry, 40), key=b"last").result(WAIT_S).offset >= 60
                with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
                    end = consumer.end_offsets([("orders", 0)]).popitem()[1]
                records = read_to(broker, "orders", end)
                if len(records) < 30:
                    break
                assert time.monotonic() < deadline, "the topic was not compacted"
        by_key = {record.key: record.value for record in records}
        assert {key: by_key[key] for key in (b"k0", b"k1", b"k2")} == {
            b"k%d" % (number % 3): valid(registry, number) for number in (27, 28, 29)
        }
        assert all(record.value != b"plain" for record in records)


def read_to(broker: OttlaProcess, topic: str, end: int) -> list[Any]:
    found: list[Any] = []
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        deadline = time.monotonic() + WAIT_S
        while consumer.position((topic, 0)) < end:
            assert time.monotonic() < deadline, f"{consumer.position((topic, 0))} of {end}"
            found += consumer.poll(1)
    return found
