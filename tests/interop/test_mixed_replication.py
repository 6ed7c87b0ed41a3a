"""An Ottla broker in a cluster of stock Kafka: each follows partitions that the other leads, and takes over.

The stock controller must not finalize features that Ottla's brokers do not support.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer
from tests.cluster.processes import ClusterNode
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import StockKafka, free_ports

pytestmark = [pytest.mark.jvm]

UNSUPPORTED = ("streams.version=0", "eligible.leader.replicas.version=0")
LOG = "00000000000000000000.log"


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def stock_settings(stock: StockKafka) -> dict[str, str]:
    lines = (stock.directory / "node-1" / "server.properties").read_text().split("\n")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_stock_kafka_and_ottla_replicate_each_others_partitions(tmp_path: Path) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    options = [word for feature in UNSUPPORTED for word in ("--feature", feature)]
    overrides = {"broker.session.timeout.ms": 3_000, "offsets.topic.num.partitions": 1}
    with StockKafka(tmp_path / "stock", overrides=overrides, format_options=options) as stock:
        node = ClusterNode(
            2,
            tmp_path / "node-2",
            {
                "process.roles": "broker",
                "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "controller.quorum.voters": stock_settings(stock)["controller.quorum.voters"],
            },
        )
        node.format(stock.cluster_id)
        node.launch()
        try:
            node.wait_until_ready(30)
            replicate(stock, node)
        finally:
            if node.is_running:
                node.kill()


def replicate(stock: StockKafka, node: ClusterNode) -> None:
    def logs(index: int) -> list[bytes]:
        return [(each / f"t-{index}" / LOG).read_bytes() for each in (stock.data(1), node.data)]

    with Admin(bootstrap_servers=stock.bootstrap) as admin:
        admin.create_topic("t", partitions=2, replication_factor=2, config={"min.insync.replicas": 1})

        def partitions() -> list[tuple[int, int]]:
            return [(each.leader, len(each.isr)) for each in admin.describe_topic("t").partitions]

        wait_for(lambda: [size for _, size in partitions()] == [2, 2], "no partition has two replicas in sync")
        assert {leader for leader, _ in partitions()} == {1, 2}
        with Producer(bootstrap_servers=stock.bootstrap, acks="all") as producer:

            def write(count: int) -> None:
                for future in [producer.send("t", value=b"v%d" % i, partition=i % 2) for i in range(count)]:
                    future.result(30)

            write(500)
            wait_for(lambda: all(len(set(logs(index))) == 1 for index in (0, 1)), "the logs differ")
            node.kill()
            wait_for(lambda: partitions() == [(1, 1), (1, 1)], "stock Kafka does not take over")
            write(100)
            node.launch()
            node.wait_until_ready(30)
            wait_for(lambda: partitions() == [(1, 2), (1, 2)], "the restarted node is not in sync")
            write(100)
        wait_for(lambda: all(len(set(logs(index))) == 1 for index in (0, 1)), "the logs differ after the restart")
