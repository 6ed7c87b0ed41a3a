"""Nodes whose disks are replaced by empty ones, as docs/cluster.md says, serve and lead their partitions again."""

from __future__ import annotations

import shutil

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import NewTopic
from ottla.clients.admin.model import PartitionDescription

from .conftest import Clusters
from .processes import Cluster

TOPIC, PARTITIONS, RECORDS = "kept", 6, 1_000
WAIT_S = 60.0


def replace_disk(cluster: Cluster, node_id: int) -> None:
    """The steps of docs/cluster.md, "Replacing a node"."""
    node = cluster.nodes[node_id]
    assert cluster.stop_node(node_id) == 0
    shutil.rmtree(node.data)
    node.format(cluster.cluster_id)
    cluster.start_node(node_id)


def partitions_of(admin: Admin) -> list[PartitionDescription]:
    return list(admin.describe_topics([TOPIC])[TOPIC].partitions)


def read_all(cluster: Cluster) -> list[int]:
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        wanted = [(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(wanted)
        values: list[int] = []

        def is_complete() -> bool:
            values.extend(int(record.value or b"") for record in consumer.poll(0.5))
            return len(values) >= RECORDS

        cluster.wait_until(is_complete, WAIT_S)
        return values


def test_records_survive_the_replacement_of_every_disk(clusters: Clusters) -> None:
    cluster = clusters(properties={"min.insync.replicas": 2})
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for future in [producer.send(TOPIC, b"%d" % each) for each in range(RECORDS)]:
                future.result(WAIT_S)
        for node_id in cluster.nodes:
            replace_disk(cluster, node_id)
            cluster.wait_until(lambda: all(len(each.isr) == 3 for each in partitions_of(admin)), WAIT_S)
        cluster.wait_until(lambda: all(each.leader is not None for each in partitions_of(admin)), WAIT_S)
        # Each replica can lead.
        for node_id in cluster.nodes:
            assert cluster.stop_node(node_id) == 0
            cluster.wait_until(lambda: all(each.leader is not None for each in partitions_of(admin)), WAIT_S)
            cluster.start_node(node_id)
            cluster.wait_until(lambda: all(len(each.isr) == 3 for each in partitions_of(admin)), WAIT_S)
    assert sorted(read_all(cluster)) == list(range(RECORDS))
    cluster.assert_no_traceback()
