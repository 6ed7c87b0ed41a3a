"""Nodes that do not belong to the cluster end with one clear line, and the cluster goes on."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.clients import Producer
from ottla.common.ids import uuid_to_text
from tests.ottla_process import BrokerDied
from tests.peers.kafka import free_ports

from .conftest import Clusters
from .processes import ClusterNode

OTHER_CLUSTER = uuid_to_text(b"x" * 16)


def intruder(like: ClusterNode, directory: Path, node_id: int, **settings: object) -> ClusterNode:
    """A broker with the settings of another one, but with a port of its own."""
    changed = {**like.settings, "listeners": f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}"}
    changed |= {name.replace("_", "."): value for name, value in settings.items()}
    return ClusterNode(node_id, directory, changed)


def problem_of(node: ClusterNode) -> str:
    """The last line of a node that cannot start."""
    with pytest.raises(BrokerDied):
        node.start()
    assert node.wait() == 1
    node.assert_no_traceback()
    return node.log_tail().splitlines()[-1]


def test_strangers_end_with_one_line_and_change_nothing(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(brokers=2)
    model = cluster.nodes[2]

    unformatted = intruder(model, tmp_path / "unformatted", 3)
    unformatted.write_settings()
    assert "No readable meta.properties files found" in problem_of(unformatted)

    foreign = intruder(model, tmp_path / "foreign", 3)
    foreign.format(OTHER_CLUSTER)
    assert "Most of the controllers belong to another cluster than this node" in problem_of(foreign)
    assert "belongs to another cluster than this node" in foreign.log_tail()

    twin = intruder(model, tmp_path / "twin", 2, broker_session_timeout_ms=1000)
    twin.format(cluster.cluster_id)
    assert "another process is registered with this node.id, and it is alive" in problem_of(twin)
    assert "another process is registered with this node.id" in twin.log_tail()

    moved = intruder(model, tmp_path / "moved", 3)
    moved.format(cluster.cluster_id)
    moved.settings["node.id"] = 4
    moved.write_settings()
    assert "belongs to node 3, not 4" in problem_of(moved)

    busy = intruder(model, tmp_path / "busy", 3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        busy.format(cluster.cluster_id)
        with pytest.raises(BrokerDied):
            busy.start()
    assert "is in use" in busy.log_tail()

    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("topic", b"works").result(20)
    with cluster.admin() as admin:
        assert sorted(broker.node_id for broker in admin.describe_cluster().brokers) == [1, 2]
    cluster.assert_no_traceback()
