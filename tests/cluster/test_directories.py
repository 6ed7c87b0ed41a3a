"""The directories of a node before and after it is in the cluster."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from ottla.clients import Producer
from ottla.clients.admin import ConfigResource, NewTopic
from ottla.cluster.node.directories import directory_id, identify
from ottla.config import BrokerConfig
from ottla.controller.brokers import RESERVED_DIRECTORIES
from ottla.log import Files
from ottla.log.storage import StorageError

from .conftest import Clusters
from .processes import ClusterNode

METADATA = "__cluster_metadata-0"


def test_node_of_a_cluster_does_not_found_another_one(tmp_path: Path) -> None:
    alone = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
    (tmp_path / "data").mkdir()
    for settings in (
        {"controller.quorum.voters": "1@localhost:9093,2@localhost:9095"},
        {"controller.quorum.bootstrap.servers": "localhost:9093,localhost:9095"},
    ):
        with pytest.raises(StorageError, match=r"No readable meta\.properties files found"):
            identify(BrokerConfig(alone | settings))
    assert list((tmp_path / "data").iterdir()) == []
    assert identify(BrokerConfig(alone))


def test_directory_without_an_id_gets_one(tmp_path: Path) -> None:
    """Kafka before 3.7 wrote none. A broker cannot register with the reserved id zero."""
    config = BrokerConfig({"log.dirs": str(tmp_path), "node.id": "3"})
    (tmp_path / "meta.properties").write_text("cluster.id=b3JkZXJzLWNsdXN0ZXItMQ\nversion=1\nnode.id=3\n")
    assert identify(config) == "b3JkZXJzLWNsdXN0ZXItMQ"
    first = directory_id(Files(), str(tmp_path))
    assert first not in RESERVED_DIRECTORIES
    assert identify(config) == "b3JkZXJzLWNsdXN0ZXItMQ"
    assert directory_id(Files(), str(tmp_path)) == first


def test_logs_that_the_metadata_on_disk_lacks_are_kept(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters(brokers=2)
    cluster.stop_node(2)
    data = cluster.nodes[2].data
    shutil.copytree(data / METADATA, tmp_path / "before")
    cluster.start_node(2)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic("kept", assignments={0: [2]})])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("kept", b"value", partition=0).result(20)
        cluster.kill(2)
        shutil.rmtree(data / METADATA)
        shutil.copytree(tmp_path / "before", data / METADATA)
        cluster.start_node(2)
        assert not list(data.glob("*-stray"))
        assert producer.send("kept", b"next", partition=0).result(20).offset == 1
    cluster.assert_no_traceback()


def test_clean_stop_is_remembered_by_a_start_without_a_controller(clusters: Clusters) -> None:
    cluster = clusters(brokers=2)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("topic", b"value").result(20)
    cluster.stop()
    node = cluster.nodes[2]
    marker = node.data / ".kafka_cleanshutdown"
    content = marker.read_text()
    node.launch()
    cluster.wait_until(lambda: not marker.exists())
    assert node.stop() == 0
    assert marker.read_text() == content


def test_broker_with_a_damaged_metadata_snapshot_fetches_it_again(clusters: Clusters) -> None:
    """A controller does not start: it would forget records that it has acknowledged."""
    often = {"metadata.log.max.record.bytes.between.snapshots": 1_000, "metadata.max.retention.bytes": 1_000}
    cluster = clusters(brokers=2, properties={**often, "metadata.log.segment.ms": 100})
    node = cluster.nodes[2]
    with cluster.admin() as admin, Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        admin.create_topics([NewTopic("kept", assignments={0: [2]})])
        producer.send("kept", b"value", partition=0).result(20)
        admin.create_topics([NewTopic(f"topic-{number}", 1, 2) for number in range(30)])

        def first_segment_is_deleted() -> bool:
            # Each change is a record of its own, which rolls a segment and leads to a snapshot.
            admin.alter_config(ConfigResource.topic("kept"), {"retention.ms": time.monotonic_ns()})
            return min(segments(node)) > 0

        cluster.wait_until(first_segment_is_deleted)
        assert cluster.stop_node(2) == 0
        for snapshot in (node.data / METADATA).glob("*.checkpoint"):
            snapshot.write_bytes(snapshot.read_bytes()[:-10])
        cluster.start_node(2)
        assert node.log_tail(limit=200_000).count("Fetching all metadata again from the controllers") == 1
        assert producer.send("kept", b"next", partition=0).result(20).offset == 1
        assert len(admin.list_topics()) == 31
    assert not list(node.data.glob("*-stray"))
    cluster.assert_no_traceback()


def segments(node: ClusterNode) -> list[int]:
    """The first offsets of the segments of a node's metadata log."""
    return [int(path.stem) for path in (node.data / METADATA).glob("*.log")]
