"""Schema validation in a cluster: dead letters on another broker, and the failure of a leader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import NewTopic
from tests.cluster.processes import Cluster

from .registry import HttpRegistry

WAIT_S = 60.0
SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
VALIDATION = {
    "confluent.value.schema.validation": "true",
    "ottla.schema.validation.depth": "record",
    "ottla.schema.validation.mode": "dlq",
    "ottla.schema.validation.dlq.topic": "bad",
    "min.insync.replicas": "2",
}


@pytest.fixture
def cluster(tmp_path: Path, registry: HttpRegistry) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", properties={"confluent.schema.registry.url": registry.url}) as running:
        yield running


def create(admin: Admin, topic: str, replicas: list[int], **configs: object) -> None:
    """Create a topic whose only partition is on these brokers; the first one leads it."""
    admin.create_topics([NewTopic(topic, assignments={0: replicas}, config=configs)])


def read(cluster: Cluster, topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while len(found) < count:
            records = consumer.poll(WAIT_S)
            assert records, f"only {len(found)} of {count} records"
            found += records
    return found


def test_dead_letters_reach_the_broker_that_leads_their_topic(cluster: Cluster, registry: HttpRegistry) -> None:
    schema_id = registry.register("orders-value", {"schema": SCHEMA})["id"]
    with cluster.admin() as admin:
        create(admin, "bad", [2, 3], **{"min.insync.replicas": "2"})
        create(admin, "orders", [1, 3], **VALIDATION)
    valid = b"\0" + schema_id.to_bytes(4, "big") + b"\2"
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        futures = [producer.send("orders", valid if number % 3 else b"plain") for number in range(30)]
        assert [future.result(WAIT_S).offset for future in futures] == list(range(30))
    assert [record.offset for record in read(cluster, "orders", 20)] == [n for n in range(30) if n % 3]
    letters = read(cluster, "bad", 10)
    assert {dict(letter.headers)["__connect.errors.task.id"] for letter in letters} == {b"1"}
    cluster.assert_no_traceback()


@pytest.mark.parametrize("killed", ["orders", "bad"])
def test_acknowledged_records_outlast_the_leader(cluster: Cluster, registry: HttpRegistry, killed: str) -> None:
    """Each acknowledged record is in its topic or in the dead letter topic; valid ones are there once."""
    schema_id = registry.register("orders-value", {"schema": SCHEMA})["id"]
    with cluster.admin() as admin:
        create(admin, "bad", [2, 3, 1], **{"min.insync.replicas": "2"})
        create(admin, "orders", [1, 2, 3], **VALIDATION)

    def value(number: int) -> bytes:
        return b"%06d" % number if number % 5 == 0 else b"\0" + schema_id.to_bytes(4, "big") + _long(number)

    count = 2_000
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=2, delivery_timeout_ms=60_000) as producer:
        futures = []
        for number in range(count):
            futures.append(producer.send("orders", value(number)))
            if number % 100 == 0:
                time.sleep(0.02)
            if number == count // 2:
                cluster.kill(cluster.leader(killed))
        for future in futures:
            future.result(WAIT_S)
    valid = [value(number) for number in range(count) if number % 5]
    assert [record.value for record in read(cluster, "orders", len(valid))] == valid
    invalid = {value(number) for number in range(0, count, 5)}
    letters: set[bytes] = set()
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([("bad", 0)])
        while letters < invalid:
            records = consumer.poll(WAIT_S)
            assert records, f"{len(invalid - letters)} dead letters are lost"
            letters |= {record.value for record in records}
    assert letters == invalid


def _long(number: int) -> bytes:
    """Avro's encoding of a positive number."""
    rest, out = 2 * number, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)
