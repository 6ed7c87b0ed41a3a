"""Clients of the target of a mirror: share groups read copies, and quotas of the target do not slow the copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer, ShareConsumer
from ottla.clients.admin import QuotaEntity, QuotaName
from ottla.clients.errors import PolicyViolation
from tests.cluster.processes import wait_until
from tests.mirrors import PARTITIONS, TOPIC, WAIT_S, mirror, wait_until_copied
from tests.ottla_process import ForkedOttla, OttlaProcess

from .test_ottla_share_consumer import poll_some, set_group

RECORDS = 20


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OttlaProcess, OttlaProcess]]:
    """A source with records, and a target whose mirror copies them."""
    path: Path = tmp_path_factory.mktemp("clusters")
    with ForkedOttla(path / "source") as source, ForkedOttla(path / "target") as target:
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        send(source, 0)
        mirror(source.bootstrap, target.bootstrap)
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            wait_until(lambda: TOPIC in {each.name for each in admin.list_topics()}, WAIT_S)
        wait_until_copied(source.bootstrap, target.bootstrap)
        yield source, target


def send(source: OttlaProcess, first: int) -> None:
    with Producer(bootstrap_servers=source.bootstrap) as producer:
        for number in range(first, first + RECORDS):
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        producer.flush(WAIT_S)


def test_share_group_of_the_target_reads_each_copied_record_once(clusters: tuple[OttlaProcess, OttlaProcess]) -> None:
    _, target = clusters
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        set_group(admin, "workers", "share.auto.offset.reset", "earliest")
    with ShareConsumer({"bootstrap.servers": target.bootstrap, "group.id": "workers"}) as consumer:
        consumer.subscribe(TOPIC)
        read = [record.value for record in poll_some(consumer, RECORDS)]
    assert len(set(read)) == len(read) >= RECORDS


def test_quotas_of_the_target_do_not_slow_the_copy(clusters: tuple[OttlaProcess, OttlaProcess]) -> None:
    """With a quota of a byte a second, the copy of 20 records would take minutes."""
    source, target = clusters
    everyone = QuotaEntity(client_id=QuotaName.DEFAULT)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.alter_client_quotas({everyone: {"producer_byte_rate": 1, "consumer_byte_rate": 1}})
        send(source, RECORDS)
        wait_until_copied(source.bootstrap, target.bootstrap)
        admin.alter_client_quotas({everyone: {"producer_byte_rate": None, "consumer_byte_rate": None}})


def test_copy_is_read_only_for_clients_of_the_target(clusters: tuple[OttlaProcess, OttlaProcess]) -> None:
    _, target = clusters
    with Producer(bootstrap_servers=target.bootstrap) as producer, pytest.raises(PolicyViolation, match="read-only"):
        producer.send(TOPIC, b"mine").result(WAIT_S)
