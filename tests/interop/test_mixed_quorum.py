"""Metadata quorums of Ottla's and stock Kafka's controllers: either joins the other's quorum, votes and leads."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ottla.clients import Admin, Consumer, Producer
from tests.cluster.processes import Cluster, ClusterNode
from tests.peers import kafka
from tests.peers.quorum import Quorum

pytestmark = [pytest.mark.jvm]

STOCK = 104
PATIENCE_S = 60.0
MAP = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


class StockController:
    """A stock node with only the controller role."""

    def __init__(
        self,
        directory: Path,
        cluster_id: str,
        bootstrap: Callable[[int], str],
        *how: str,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`settings` replace the settings of a dynamic quorum."""
        (self.port,) = kafka.free_ports(1)
        directory.mkdir(parents=True)
        self.properties = directory / "server.properties"
        settings = settings or {
            "node.id": STOCK,
            "process.roles": "controller",
            "controller.quorum.bootstrap.servers": bootstrap(self.port),
            "listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            "advertised.listeners": f"CONTROLLER://127.0.0.1:{self.port}",
            **MAP,
        }
        settings = {**settings, "log.dirs": directory / "data"}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        formatted = kafka.tool("storage", "format", "-t", cluster_id, "-c", self.properties, *how)
        assert formatted.returncode == 0, formatted.stderr
        self._log = (directory / "server.log").open("w")
        command = kafka.java("kafka.Kafka", str(self.properties))
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        kafka.stop_process(self.process)  # type: ignore[arg-type]
        self._log.close()


@pytest.fixture
def closing() -> Iterator[list[Callable[[], None]]]:
    """Functions that end processes after the test."""
    functions: list[Callable[[], None]] = []
    yield functions
    for function in reversed(functions):
        function()


def test_stock_controller_joins_votes_and_leads_and_hands_back(
    tmp_path: Path, closing: list[Callable[[], None]]
) -> None:
    cluster = Cluster(tmp_path / "ottla", brokers=1, dynamic=True)
    closing.append(cluster.close)
    cluster.start()
    own = cluster.controller_bootstrap
    with Admin(bootstrap_servers=cluster.bootstrap) as admin, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("t", b"1").result(20)
        stock = StockController(tmp_path / "stock", cluster.cluster_id, lambda _: own, "--no-initial-controllers")
        closing.append(stock.close)
        quorum = Quorum(own)
        quorum.until_observed(STOCK)
        quorum.add(stock.properties)
        assert set(quorum.status()[1]) == {1, STOCK}
        quorum.remove(1)
        quorum = Quorum(stock.address)
        quorum.until_leader(STOCK)
        admin.create_topic("under-stock")
        producer.send("under-stock", b"2").result(20)
        quorum.until_observed(1)
        quorum.add(cluster.nodes[1].properties_path)
        quorum.remove(STOCK)
        quorum = Quorum(own)
        quorum.until_leader(1)
        admin.create_topic("under-ottla")
        producer.send("t", b"3").result(20)
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id="g") as consumer:
        consumer.subscribe(["t", "under-stock"])
        values: set[bytes | None] = set()
        while len(values) < 3:
            batch = consumer.poll(20)
            assert batch, "no records within 20 s"
            values |= {record.value for record in batch}
    cluster.assert_no_traceback()


def test_ottla_controller_joins_a_stock_quorum_and_leads_after_its_end(
    tmp_path: Path, closing: list[Callable[[], None]]
) -> None:
    cluster_id = "oMixedQuorumMixedQuor0"
    stock = StockController(tmp_path / "stock", cluster_id, lambda port: f"127.0.0.1:{port}", "--standalone")
    closing.append(stock.close)
    client_port, controller_port = kafka.free_ports(2)
    node = ClusterNode(
        1,
        tmp_path / "ottla",
        {
            "process.roles": "broker,controller",
            "controller.quorum.bootstrap.servers": stock.address,
            "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}",
            **MAP,
        },
    )
    closing.append(node.kill)
    node.format(cluster_id, "--no-initial-controllers")
    node.launch()
    node.wait_until_ready(PATIENCE_S)
    with Admin(bootstrap_servers=f"127.0.0.1:{client_port}") as admin:
        admin.create_topic("under-stock")
        quorum = Quorum(stock.address)
        quorum.until_observed(1)
        quorum.add(node.properties_path)
        quorum.remove(STOCK)
        stock.process.kill()
        quorum = Quorum(f"127.0.0.1:{controller_port}")
        quorum.until_leader(1)
        admin.create_topic("under-ottla")
        assert {"under-stock", "under-ottla"} <= {topic.name for topic in admin.list_topics()}
    node.stop()
    node.launch()
    node.wait_until_ready(PATIENCE_S)
    with Admin(bootstrap_servers=f"127.0.0.1:{client_port}") as admin:
        assert {"under-stock", "under-ottla"} <= {topic.name for topic in admin.list_topics()}
    node.assert_no_traceback()


def test_static_voters_are_mixed_and_raise_the_kraft_version(tmp_path: Path, closing: list[Callable[[], None]]) -> None:
    cluster = Cluster(tmp_path / "ottla", brokers=1, controllers=3)
    closing.append(cluster.close)
    own = cluster.nodes.pop(103)
    stock = StockController(tmp_path / "stock", cluster.cluster_id, lambda _: "", settings=own.settings)
    closing.append(stock.close)
    cluster.start(PATIENCE_S)
    quorum = Quorum(cluster.controller_bootstrap)
    leader, voters = quorum.status()
    assert leader in {101, 102, 103}
    upgrade = ("features", "--bootstrap-server", cluster.bootstrap, "upgrade", "--feature", "kraft.version=1")
    deadline = time.monotonic() + PATIENCE_S
    while kafka.tool(*upgrade).returncode:  # The voters report their directories after some seconds.
        assert time.monotonic() < deadline, "kraft.version is not upgraded"
        time.sleep(0.5)
    leader, voters = quorum.status()
    assert set(voters) == {101, 102, 103}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("mixed")
        stock.process.kill()
        admin.create_topic("without-stock")
        assert {"mixed", "without-stock"} <= {topic.name for topic in admin.list_topics()}
    cluster.assert_no_traceback()
