"""Helpers for tests of mirrors between two clusters: write, wait for the copy, promote, compare bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ottla.clients import Consumer, Producer
from ottla.clients.admin import Admin, ConfigResource, OffsetSpec, ResourceType
from ottla.clients.errors import PolicyViolation
from ottla.common.ids import TopicPartition
from tests.cluster.processes import wait_until

TOPIC = "orders"
GROUP = "billing"
WAIT_S = 60.0
PARTITIONS = 2
SETTINGS = {"refresh.interval.ms": 300}


def mirror(source: str, target: str, name: str = "dr", login: Mapping[str, object] | None = None) -> None:
    with Admin(bootstrap_servers=target) as admin:
        settings = {"bootstrap.servers": source, "topics": "orders.*", "groups": ".*", **SETTINGS, **(login or {})}
        admin.alter_config(ConfigResource(ResourceType.MIRROR, name), settings)


def partitions(admin: Admin, name: str = "dr") -> list[dict[str, Any]]:
    return [row for each in admin.mirror_status(name).values() for row in each["partitions"]]


def move(admin: Admin, state: str, name: str = "dr") -> None:
    admin.alter_config(ConfigResource(ResourceType.TOPIC, TOPIC), {"ottla.mirror": name, "ottla.mirror.state": state})


def wait_until_copied(source: str, target: str, name: str = "dr") -> None:
    """Wait until the copy ends where the source ends now."""
    keys = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]

    def ends(admin: Admin) -> list[int]:
        return [found.offset for _, found in sorted(admin.list_offsets(dict.fromkeys(keys, OffsetSpec.LATEST)).items())]

    with Admin(bootstrap_servers=source) as of_source, Admin(bootstrap_servers=target) as of_target:
        wanted = ends(of_source)
        wait_until(lambda: ends(of_target) == wanted, WAIT_S)


def promote(admin: Admin, name: str = "dr") -> None:
    move(admin, "STOPPING", name)

    def is_ready() -> bool:
        rows = partitions(admin, name)
        ready = [row for row in rows if not row["producers"] and row["committed"] == row["end"]]
        return len(rows) == len(ready) == PARTITIONS and all(row["state"] == "STOPPING" for row in rows)

    wait_until(is_ready, WAIT_S)
    move(admin, "STOPPED", name)


def data(directory: Path, partition: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((directory / f"{TOPIC}-{partition}").glob("*.log")))


def assert_equal(source: Path, target: Path) -> None:
    """Compare the segments in two log directories."""
    for index in range(PARTITIONS):
        assert data(source, index) == data(target, index)


def produce(bootstrap: str, first: int, count: int, codec: str = "none") -> None:
    with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        sent = [producer.send(TOPIC, b"%d" % i, partition=i % PARTITIONS) for i in range(first, first + count)]
        for each in sent:
            each.result(WAIT_S)


def transaction(bootstrap: str, name: str, values: list[bytes], end: Callable[[Producer], None] | None) -> Producer:
    """Write a transaction into both partitions; without `end` it stays open, and the caller closes the producer."""
    producer = Producer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        for index in range(PARTITIONS):
            producer.send(TOPIC, value, partition=index)
    producer.flush()
    if end is not None:
        end(producer)
        producer.close()
    return producer


def values(bootstrap: str, isolation: str = "read_committed") -> list[bytes | None]:
    """The values of partition 0."""
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        key = TopicPartition(TOPIC, 0)
        consumer.assign([key])
        end = consumer.end_offsets([key])[key]
        found: list[bytes | None] = []

        def is_at_end() -> bool:
            found.extend(each.value for each in consumer.poll(0.2))
            return consumer.position(key) >= end

        wait_until(is_at_end, WAIT_S)
        return found


def committed(bootstrap: str) -> dict[int, int]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return {key.partition: each.offset for key, each in admin.list_group_offsets(GROUP).items()}


def is_open_to_producers(bootstrap: str, first: int, count: int) -> bool:
    """Whether the topic is open; its leader applies the state a moment after the metadata has it."""
    try:
        produce(bootstrap, first, count)
    except PolicyViolation:
        return False
    return True
