"""Clients of the target of a mirror: share groups, quotas, writes, and what is said of transactions of the source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Producer, ShareConsumer, TopicPartition
from ottla.clients.admin import QuotaEntity, QuotaName
from ottla.clients.errors import PolicyViolation
from ottla.streams.observing import gather_facts
from tests.cluster.processes import wait_until
from tests.mirrors import PARTITIONS, TOPIC, WAIT_S, mirror, transaction, wait_until_copied
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


def test_open_transaction_of_the_source_does_not_hang_in_the_copy(
    clusters: tuple[OttlaProcess, OttlaProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    """The target's producer has the same id: what is shown must not abort its transaction."""
    source, target = clusters
    to_target, to_partition = ["-b", target.bootstrap], f"{TOPIC}/0"
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.create_topic("own", partitions=1)
        producer = transaction(source.bootstrap, "theirs", [b"open"], None)
        wait_until_copied(source.bootstrap, target.bootstrap)
        key = TopicPartition(TOPIC, 0)
        (theirs,) = [each for each in admin.describe_producers([key])[key] if each.transaction_start_offset is not None]
        start = theirs.transaction_start_offset
        admin.alter_group_offsets("readers", {key: start})
        own = namesake(target, theirs.producer_id)
        capsys.readouterr()
        assert main(["txn", "find-hanging", TOPIC, "--max-transaction-timeout", "0", *to_target]) == 0
        assert "No transaction hangs." in capsys.readouterr().err
        assert main(["txn", "abort", to_partition, "--start-offset", str(start), "--yes", *to_target]) == 1
        assert "mirror dr copies it, with its transactions" in capsys.readouterr().err
        main(["group", "why", "readers", "--watch", "0.2", *to_target])
        shown = capsys.readouterr().out
        assert "It belongs to the source of mirror dr" in shown
        assert "ottla txn abort" not in shown
        pipeline: Any = SimpleNamespace(run=SimpleNamespace(streams={"rows": TOPIC}, exactly_once=True))
        held = [each for each in gather_facts(admin, pipeline, 0).transactions if each.partition == key]
        assert [(each.transactional_id, each.mirror) for each in held] == [(None, "dr")]
        own.commit_transaction()
        own.close()
        producer.abort_transaction()
        producer.close()
        wait_until_copied(source.bootstrap, target.bootstrap)


def namesake(target: OttlaProcess, producer_id: int) -> Producer:
    """A producer of the target with this id, and an open transaction."""
    for number in range(producer_id + 10):
        own = Producer(bootstrap_servers=target.bootstrap, transactional_id=f"ours-{number}")
        own.init_transactions()
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            found = admin.describe_transactions([f"ours-{number}"])[f"ours-{number}"].producer_id
        if found == producer_id:
            own.begin_transaction()
            own.send("own", b"a").result(WAIT_S)
            return own
        own.close()
    raise AssertionError(f"no producer has the id {producer_id}")


def test_copy_is_read_only_for_clients_of_the_target(clusters: tuple[OttlaProcess, OttlaProcess]) -> None:
    _, target = clusters
    with Producer(bootstrap_servers=target.bootstrap) as producer, pytest.raises(PolicyViolation, match="read-only"):
        producer.send(TOPIC, b"mine").result(WAIT_S)
