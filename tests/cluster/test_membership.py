"""Brokers of a real cluster join it, fail, return and stop. The limits are far below the session timeout of 9 s."""

from __future__ import annotations

import time
from collections.abc import Callable

from ottla.clients import Admin
from ottla.clients.admin import NewTopic

from .conftest import Clusters
from .processes import Cluster

LIMIT_S = 5.0
TOPIC, PARTITIONS = "topic", 6


def until(condition: Callable[[], bool], what: str) -> float:
    """Wait for the condition; returns how long that took."""
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < LIMIT_S, what
        time.sleep(0.01)
    return time.monotonic() - began_s


def leaders(cluster: Cluster) -> set[int]:
    return {cluster.leader(TOPIC, index) for index in range(PARTITIONS)}


def test_dead_brokers_are_replaced_at_once_and_return(clusters: Clusters) -> None:
    cluster = clusters(brokers=3)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    until(lambda: leaders(cluster) == {1, 2, 3}, "each broker leads")
    active = cluster.active_controller()
    other = next(node_id for node_id in cluster.running if node_id != active)
    for victim in (other, active):
        rest = set(cluster.running) - {victim}
        cluster.kill(victim)
        until(lambda rest=rest: leaders(cluster) <= rest, f"{victim} lost its leaderships")  # type: ignore[misc]
        # The restarted process does not wait until the session of the previous one expires.
        began_s = time.monotonic()
        cluster.start_node(victim)
        assert time.monotonic() - began_s < LIMIT_S
    for line in ("its listeners refuse connections", "Successfully registered broker"):
        assert any(line in node.log_tail(limit=200_000) for node in cluster.nodes.values()), line
    cluster.assert_no_traceback()


def test_stopped_broker_moves_its_leaderships_first(clusters: Clusters) -> None:
    cluster = clusters(brokers=3)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    until(lambda: leaders(cluster) == {1, 2, 3}, "each broker leads")
    active = cluster.active_controller()
    assert cluster.stop_node(active) == 0
    assert leaders(cluster) == {1, 2, 3} - {active}
    assert "The controller has asked us to exit controlled shutdown" in cluster.nodes[active].log_tail(limit=200_000)
    cluster.start_node(active)
    assert cluster.active_controller() != active
