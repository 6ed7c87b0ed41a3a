"""Nodes of stock Kafka become nodes of Ottla under load, in several ways; only in `make chaos`, and with Java.

- On the same directories, back and forth, at random, also after kill -9.
- With new nodes: replicas and voters move to them, and the stock nodes leave the cluster.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from ottla.cli.main import main
from tests.cluster.processes import ClusterNode
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import StockKafka, free_ports
from tests.peers.quorum import Quorum

from .migration import SETTINGS, WAIT_S, Migration

SECONDS = float(os.environ.get("OTTLA_CHAOS_MINUTES", "0")) * 60
SEED = int(os.environ.get("OTTLA_CHAOS_SEED", "8"))
SMALL_LOGS = {"log.segment.bytes": 1 << 20, "metadata.log.max.record.bytes.between.snapshots": 1 << 16}

pytestmark = [pytest.mark.jvm, pytest.mark.skipif(not SECONDS, reason="only in `make chaos`")]


@pytest.fixture(autouse=True)
def _stock_kafka_is_here() -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static-voters", "dynamic-voters"])
@pytest.mark.timeout(600 + 2 * SECONDS)
def test_nodes_go_back_and_forth_between_stock_kafka_and_ottla(tmp_path: Path, *, dynamic: bool) -> None:
    choice = random.Random(SEED)
    overrides = SETTINGS | SMALL_LOGS
    with StockKafka(tmp_path, brokers=3, overrides=overrides, dynamic=dynamic) as stock, Migration(stock) as migration:
        migration.start_load()
        migration.settle()
        steps: list[str] = []
        ours: set[int] = set()
        end_s = time.monotonic() + SECONDS
        # All become Ottla first; then nodes change at random.
        while len(steps) < 3 or time.monotonic() < end_s:
            node_id = len(steps) + 1 if len(steps) < 3 else choice.choice((1, 2, 3))
            kill = choice.random() < 0.5
            (migration.to_stock if node_id in ours else migration.to_ottla)(node_id, kill=kill)
            ours ^= {node_id}
            steps.append(f"{'kill' if kill else 'stop'} {node_id} -> {'ottla' if node_id in ours else 'stock'}")
            print(steps[-1])
            migration.settle()
        migration.finish()


@pytest.mark.timeout(600)
def test_new_ottla_nodes_take_the_place_of_stock_nodes(tmp_path: Path) -> None:
    with StockKafka(tmp_path / "stock", brokers=3, overrides=SETTINGS, dynamic=True) as stock:
        ports = {node_id: free_ports(2) for node_id in (4, 5, 6)}
        with Migration(stock) as migration:
            migration.bootstrap += "".join(f",127.0.0.1:{client}" for client, _ in ports.values())
            migration.start_load()
            migration.settle()
            addresses = {node_id: f"127.0.0.1:{controller}" for node_id, (_, controller) in ports.items()}
            controllers = dict(enumerate(stock.controllers, start=1)) | addresses
            quorum = Quorum(*controllers.values())
            members = {1, 2, 3}
            for old, new in ((1, 4), (2, 5), (3, 6)):
                node = new_node(new, tmp_path, ports[new], controllers)
                migration.nodes[new] = node
                node.format(stock.cluster_id, "--no-initial-controllers")
                node.start()
                ottla(migration, "replace", old, new)
                quorum.until_observed(new)
                quorum.add(node.properties_path)
                quorum.remove(old)
                stock.stop_node(old)
                ottla(migration, "remove", old)
                members = members - {old} | {new}
                migration.settle(members)
            assert set(Quorum(*addresses.values()).status()[1]) == {4, 5, 6}
            migration.finish()


def new_node(node_id: int, directory: Path, ports: list[int], controllers: dict[int, str]) -> ClusterNode:
    client, controller = ports
    return ClusterNode(
        node_id,
        directory / f"node-{node_id}",
        {
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(controllers.values()),
            **SETTINGS,
        },
    )


def ottla(migration: Migration, verb: str, *nodes: int) -> None:
    """`ottla broker VERB`, which must succeed. A broker that just stopped may still be in the metadata."""
    words = ["broker", verb, *map(str, nodes), "--yes", "-b", migration.bootstrap]
    deadline = time.monotonic() + WAIT_S
    while main(words) != 0:
        assert time.monotonic() < deadline, f"{words} fails"
        time.sleep(0.5)
