"""Brokers of one cluster that are Ottla and stock Kafka 4.3: each registers with the other's controller.

They replicate from each other with acks=all, and a broker that stops gives its leaderships to the other broker. The
feature levels are stock Kafka's defaults.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer
from ottla.clients.admin import NewTopic
from tests.cluster.processes import Cluster, ClusterNode
from tests.peers.kafka import QUICK_START, StockKafka, free_ports, java, stop_process, tool

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(180)]

TOPIC, PARTITIONS, RECORDS = "mixed", 4, 200
BROKER = {
    "process.roles": "broker",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
}
LIMIT_S = 40.0


def wait_for(admin: Admin, leaders: set[int], isr: set[int]) -> None:
    """Wait until the partitions have these leaders and this ISR."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        partitions = admin.describe_topics([TOPIC])[TOPIC].partitions
        found = {each.leader for each in partitions}, {frozenset(each.isr) for each in partitions}
        if found == (leaders, {frozenset(isr)}):
            return
        assert time.monotonic() < deadline, f"leaders and ISR are {found}"
        time.sleep(0.1)


def wait_for_brokers(admin: Admin, ids: set[int]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while {each.node_id for each in admin.describe_cluster().brokers} != ids:
        assert time.monotonic() < deadline, "the broker did not join"
        time.sleep(0.1)


def replicate(bootstrap: str, brokers: set[int]) -> None:
    """Create the topic and produce to both brokers, which must be in sync."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        wait_for_brokers(admin, brokers)
        settings = {"min.insync.replicas": "2"}
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2, config=settings)])
        with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            sent = [producer.send(TOPIC, b"%d" % i, partition=i % PARTITIONS) for i in range(RECORDS)]
            assert sorted({result.result(LIMIT_S).partition for result in sent}) == list(range(PARTITIONS))
        wait_for(admin, brokers, brokers)


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "ottla", brokers=1) as cluster:
        yield cluster


def test_stock_broker_joins_an_ottla_controller(ottla: Cluster, tmp_path: Path) -> None:
    [port] = free_ports(1)
    home = tmp_path / "stock"
    home.mkdir()
    properties = home / "server.properties"
    settings = BROKER | {
        "node.id": 2,
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": ottla.nodes[1].settings["controller.quorum.voters"],
        "log.dirs": home / "data",
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    formatted = tool("storage", "format", "-t", ottla.cluster_id, "-c", properties)
    assert formatted.returncode == 0, formatted.stderr
    with (home / "server.log").open("w") as log:
        process = subprocess.Popen(
            java("kafka.Kafka", str(properties), heap="512m", options=QUICK_START),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            cwd=home,
        )
    try:
        replicate(ottla.bootstrap, {1, 2})
        process.send_signal(signal.SIGTERM)
        with Admin(bootstrap_servers=ottla.bootstrap) as admin:
            wait_for(admin, {1}, {1})
    finally:
        process.terminate()
        stop_process(process)
    ottla.assert_no_traceback()


def test_ottla_broker_joins_a_stock_controller(tmp_path: Path) -> None:
    with StockKafka(tmp_path / "stock") as stock:
        lines = (tmp_path / "stock/node-1/server.properties").read_text().splitlines()
        [voters] = [line.partition("=")[2] for line in lines if line.startswith("controller.quorum.voters=")]
        [port] = free_ports(1)
        where = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "controller.quorum.voters": voters}
        node = ClusterNode(5, tmp_path / "ottla", BROKER | where)
        node.format(stock.cluster_id)
        node.start()
        try:
            replicate(f"127.0.0.1:{port}", {1, 5})
            with Admin(bootstrap_servers=stock.bootstrap) as admin:
                assert node.stop() == 0
                wait_for(admin, {1}, {1})
        finally:
            if node.is_running:
                node.kill()
        assert "Traceback" not in node.log_tail(limit=1_000_000)
