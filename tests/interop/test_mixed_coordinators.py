"""Groups, transactions and share groups whose coordinators and partitions are on an Ottla broker and on stock Kafka."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla.clients import Admin, Consumer, Producer, ShareConsumer, TopicPartition
from ottla.clients.admin import ConfigResource, NewTopic
from ottla.common.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from tests.cluster.processes import ClusterNode
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import StockKafka, free_ports

from .test_mixed_replication import UNSUPPORTED, stock_settings, wait_for

pytestmark = [pytest.mark.jvm]

TOPIC, PARTITIONS = "t", 4
NAMES = [f"name-{number}" for number in range(6)]
WAIT_S = 60.0
COORDINATORS = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 4,
    "share.coordinator.state.topic.min.isr": 1,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
    "share.coordinator.state.topic.replication.factor": 2,
    "group.initial.rebalance.delay.ms": 0,
}


def test_coordinators_of_ottla_and_stock_kafka_work_together(tmp_path: Path) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    options = [word for feature in UNSUPPORTED for word in ("--feature", feature)]
    overrides = {"broker.session.timeout.ms": 3_000, **COORDINATORS}
    with StockKafka(tmp_path / "stock", overrides=overrides, format_options=options) as stock:
        port = free_ports(1)[0]
        settings = {
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": stock_settings(stock)["controller.quorum.voters"],
            **COORDINATORS,
        }
        node = ClusterNode(2, tmp_path / "node-2", settings)
        node.format(stock.cluster_id)
        node.launch()
        try:
            node.wait_until_ready(30)
            bootstrap = f"{stock.bootstrap},127.0.0.1:{port}"
            with Admin(bootstrap_servers=bootstrap) as admin:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2)])
                committed = transactions(bootstrap)
                groups(bootstrap, committed)
                share_groups(bootstrap, admin)
                for topic in (TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC):
                    described = admin.describe_topic(topic)
                    assert {each.leader for each in described.partitions} == {1, 2}, f"{topic} has one leader"
            node.assert_no_traceback()
        finally:
            if node.is_running:
                node.kill()


def transactions(bootstrap: str) -> list[bytes]:
    """Commit and abort transactions in all partitions, with coordinators on both brokers."""
    committed: list[bytes] = []
    for name in NAMES:
        with Producer(bootstrap_servers=bootstrap, transactional_id=name, acks="all") as producer:
            producer.init_transactions()
            for number in range(3):
                values = [f"{name}-{number}-{index}".encode() for index in range(PARTITIONS)]
                producer.begin_transaction()
                for index, value in enumerate(values):
                    producer.send(TOPIC, value, partition=index)
                if number == 1:
                    producer.flush()
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    committed += values
    return committed


def groups(bootstrap: str, committed: list[bytes]) -> None:
    """Read what was committed in groups of both protocols, with coordinators on both brokers."""
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    for name in NAMES:
        for protocol in ("classic", "consumer"):
            with Consumer(
                bootstrap_servers=bootstrap,
                group_id=f"{name}-{protocol}",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                enable_auto_commit=False,
            ) as consumer:
                consumer.subscribe(TOPIC)
                values: list[bytes] = []
                deadline = time.monotonic() + WAIT_S
                while len(values) < len(committed):
                    assert time.monotonic() < deadline, f"{name} {protocol}: {len(values)} of {len(committed)} records"
                    values += [record.value or b"" for record in consumer.poll(0.5)]
                assert sorted(values) == sorted(committed)
                consumer.commit()
                assert all(consumer.committed(partitions).values())


def share_groups(bootstrap: str, admin: Admin) -> None:
    """Share the records of all partitions, which both brokers lead, with share state on both brokers."""
    with ShareConsumer(bootstrap_servers=bootstrap, group_id="shared") as consumer:
        admin.alter_config(
            ConfigResource.group("shared"),
            {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"},
        )
        consumer.subscribe([TOPIC])

        def is_done() -> bool:
            consumer.poll(0.5)
            lags = [row.lag for row in admin.list_share_group_offsets("shared").values()]
            return lags == [0] * PARTITIONS

        wait_for(is_done, "some records are not acknowledged", WAIT_S)
