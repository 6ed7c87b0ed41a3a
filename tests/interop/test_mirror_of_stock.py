"""A mirror whose source is stock Kafka: same bytes after a kill, DeleteRecords and transactions, then a promotion."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.clients import Producer
from ottla.clients.admin import Admin
from ottla.common.ids import TopicPartition
from tests.cluster.processes import wait_until
from tests.mirrors import (
    GROUP,
    PARTITIONS,
    TOPIC,
    WAIT_S,
    assert_equal,
    committed,
    is_open_to_producers,
    mirror,
    produce,
    promote,
    transaction,
    values,
    wait_until_copied,
)
from tests.ottla_process import OttlaProcess
from tests.peers.kafka import StockKafka

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("mirror-of-stock")]


def test_mirror_of_stock_kafka_has_its_bytes_and_is_promoted(tmp_path: Path) -> None:
    with StockKafka(tmp_path / "stock") as source, OttlaProcess(tmp_path / "ottla") as target:
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS, config={"retention.ms": "123456789"})
            topic_id = admin.describe_topic(TOPIC).topic_id
        for position, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
            produce(source.bootstrap, 100 * position, 100, codec)
        transaction(source.bootstrap, "kept", [b"kept"], Producer.commit_transaction)
        transaction(source.bootstrap, "aborted", [b"aborted"], Producer.abort_transaction)
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.alter_group_offsets(GROUP, {TopicPartition(TOPIC, 0): 42, TopicPartition(TOPIC, 1): 7})
        mirror(source.bootstrap, target.bootstrap)
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert_equal(source.data(), target.data)
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            assert admin.describe_topic(TOPIC).topic_id == topic_id
        wait_until(lambda: committed(target.bootstrap) == {0: 42, 1: 7}, WAIT_S)

        source.kill_node(1)
        source.start_node(1)
        wait_until(lambda: is_open_to_producers(source.bootstrap, 1000, 40), WAIT_S)
        hanging = transaction(source.bootstrap, "open", [b"open"], None)
        produce(source.bootstrap, 2000, 4)
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert_equal(source.data(), target.data)
        with Admin(bootstrap_servers=source.bootstrap) as admin:
            admin.delete_records({TopicPartition(TOPIC, 0): 30})
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            key = TopicPartition(TOPIC, 0)
            wait_until(lambda: admin.list_offsets({key: -2})[key].offset == 30, WAIT_S)
            promote(admin)
        assert values(target.bootstrap)[-1] == b"2002"
        assert b"open" not in values(target.bootstrap)
        wait_until(lambda: is_open_to_producers(target.bootstrap, 3000, 2), WAIT_S)
        hanging.abort_transaction()
        hanging.close()
        target.assert_no_traceback()
