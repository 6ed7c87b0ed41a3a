"""Brokers of a real cluster join it, fail, return and stop. The limits are far below the session timeout of 9 s."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

from ottla.broker.node_metadata import RESIGN_WITHIN_S
from ottla.clients import Admin
from ottla.clients.admin import NewTopic
from ottla.cluster.lost_brokers import WAIT_S
from ottla.network.client import ClientConnection
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

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


def wait_until_in_sync(cluster: Cluster) -> None:
    with cluster.admin() as admin:
        cluster.wait_until(lambda: all(len(each.isr) == 3 for each in admin.describe_topic(TOPIC).partitions))


async def answer_after_loss(lost_port: int, port: int, pid: int) -> MetadataResponse:
    """Return the answer of the broker at `port` to a client whose connection to a killed leader was just closed."""
    lost = await ClientConnection.connect("127.0.0.1", lost_port, client_id="test", timeout_s=LIMIT_S)
    other = await ClientConnection.connect("127.0.0.1", port, client_id="test", timeout_s=LIMIT_S)
    is_closed = asyncio.Event()
    lost.on_close(is_closed.set)
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(LIMIT_S):
        await is_closed.wait()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    response: MetadataResponse = await other.send(request, timeout_s=LIMIT_S)
    other.close()
    await other.wait_lost(LIMIT_S)
    return response


def test_first_answer_after_the_loss_of_a_leader_names_the_next_one(clusters: Clusters) -> None:
    """Otherwise the next request of librdkafka follows after a second."""
    cluster = clusters(brokers=3)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    until(lambda: leaders(cluster) == {1, 2, 3}, "each broker leads")
    ports = dict(
        zip(cluster.nodes, (int(each.rpartition(":")[2]) for each in cluster.bootstrap.split(",")), strict=True)
    )
    active = cluster.active_controller()
    other = next(node_id for node_id in cluster.running if node_id != active)
    for victim in (other, active):
        asked = next(node_id for node_id in cluster.running if node_id != victim)
        began_s = time.monotonic()
        response = asyncio.run(answer_after_loss(ports[victim], ports[asked], cluster.nodes[victim].pid))
        took_s = time.monotonic() - began_s
        cluster.kill(victim)
        named = {partition.leader_id for partition in response.topics[0].partitions}
        assert victim not in named or took_s > WAIT_S, "the election did not take that long"
        assert victim in {broker.node_id for broker in response.brokers}
        cluster.start_node(victim)
        wait_until_in_sync(cluster)
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.elect_leaders([(TOPIC, index) for index in range(PARTITIONS)])
        until(lambda: leaders(cluster) == {1, 2, 3}, "each broker leads again")


def test_last_node_of_a_cluster_stops_without_waiting_for_a_majority(clusters: Clusters) -> None:
    cluster = clusters(brokers=3)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    for node_id in (1, 2):
        assert cluster.stop_node(node_id) == 0
    began_s = time.monotonic()
    assert cluster.stop_node(3) == 0
    assert time.monotonic() - began_s < RESIGN_WITHIN_S
    log = cluster.nodes[3].log_tail(limit=200_000)
    assert "shut down completed" in log
    cluster.assert_no_traceback()
