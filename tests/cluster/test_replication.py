"""Three real brokers replicate a topic; its leader is killed while records are written."""

from __future__ import annotations

import time

from ottla.clients import Consumer, Producer
from tests.cluster.conftest import Clusters
from tests.cluster.processes import Cluster


def wait_for_isr(cluster: Cluster, topic: str, size: int, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    with cluster.admin() as admin:
        while True:
            sizes = [len(each.isr) for each in admin.describe_topic(topic).partitions]
            if all(each == size for each in sizes):
                return
            assert time.monotonic() < deadline, f"in-sync replicas: {sizes}"
            time.sleep(0.05)


def test_acknowledged_records_survive_the_kill_of_their_leader(clusters: Clusters) -> None:
    cluster = clusters()
    with cluster.admin() as admin:
        admin.create_topic("t", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:

        def write(count: int) -> None:
            futures = []
            for number in range(count):
                value = b"%d" % sum(map(len, sent.values()))
                sent[number % 3].append(value)
                futures.append(producer.send("t", value=value, partition=number % 3))
            for future in futures:
                future.result(30)

        write(300)
        killed = cluster.leader("t", 0)
        cluster.kill(killed)
        write(300)
        cluster.start_node(killed)
        write(30)
    wait_for_isr(cluster, "t", 3)
    # The restarted node may lead again only if it has everything.
    for node_id in cluster.running:
        if node_id != killed:
            cluster.stop_node(node_id)
            break
    with Consumer(bootstrap_servers=cluster.bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", index) for index in sent])
        found: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        deadline = time.monotonic() + 20
        while sum(map(len, found.values())) < 630 and time.monotonic() < deadline:
            for record in consumer.poll(timeout_s=0.2) or ():
                found[record.partition].append(record.value)
    assert found == sent
