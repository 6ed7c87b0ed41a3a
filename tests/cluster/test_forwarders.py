"""Brokers whose clients connect through TCP forwarders, as in container networks and behind load balancers."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from ottla.clients.admin import NewTopic
from ottla.testing.ports import ReservedPort
from tests.clients.proxy import Proxy

from .processes import Cluster

TOPIC = "t"
# Far below the session timeout of 9 s; the machine may be busy.
SOON_S = 5.0


def kill_leader(cluster: Cluster) -> float:
    """Kill -9 the leader of a partition; the seconds until another broker leads it."""
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, assignments={0: [2, 1, 3]})])
        cluster.wait_until(lambda: cluster.in_sync(TOPIC) == [1, 2, 3] and cluster.leader(TOPIC) == 2)
        cluster.kill(2)
        killed_s = time.monotonic()
        cluster.wait_until(lambda: admin.describe_topic(TOPIC).partitions[0].leader not in {2, None}, 30.0)
        return time.monotonic() - killed_s


def test_killed_broker_behind_a_forwarder_is_replaced_before_its_session_expires(tmp_path: Path) -> None:
    """Its listener for brokers refuses connections, while the forwarder of its other listener accepts and closes."""
    cluster = Cluster(tmp_path, controllers=1, properties={"inter.broker.listener.name": "PLAINTEXT"})
    ports = {node.node_id: ReservedPort() for node in cluster.nodes.values() if node.is_broker}
    with contextlib.ExitStack() as stack:
        for node_id, port in ports.items():
            settings = cluster.nodes[node_id].settings
            forwarder = stack.enter_context(Proxy(f"127.0.0.1:{port.number}"))
            settings["advertised.listeners"] = f"{settings['listeners']},EXTERNAL://{forwarder.bootstrap}"
            settings["listeners"] = f"{settings['listeners']},EXTERNAL://127.0.0.1:{port.number}"
        for node in cluster.nodes.values():
            names = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT"
            node.settings["listener.security.protocol.map"] = names
        stack.enter_context(cluster)
        assert kill_leader(cluster) < SOON_S
        cluster.assert_no_traceback()


def test_killed_broker_without_a_direct_listener_is_replaced_when_its_session_expires(tmp_path: Path) -> None:
    """With the settings that docs/cluster.md recommends for this case."""
    session = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}
    cluster = Cluster(tmp_path, controllers=1, properties=session)
    with contextlib.ExitStack() as stack:
        for node in cluster.nodes.values():
            if node.is_broker:
                address = str(node.settings["listeners"]).removeprefix("PLAINTEXT://")
                forwarder = stack.enter_context(Proxy(address))
                node.settings["advertised.listeners"] = f"PLAINTEXT://{forwarder.bootstrap}"
        stack.enter_context(cluster)
        assert kill_leader(cluster) > 2
        cluster.assert_no_traceback()
