"""One of two log directories of a broker fails while a mirror copies, in the target and in the source.

A directory fails as a disk that is removed: it is renamed while the broker runs, and has its name again before the next
start of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Producer
from ottla.clients.admin import Admin, NewTopic
from ottla.tools.admin.mirrors import Finding, MirrorReport, explain
from tests.mirrors import (
    PARTITIONS,
    TOPIC,
    WAIT_S,
    data,
    is_open_to_producers,
    mirror,
    partitions,
    produce,
    promote,
    wait_until_copied,
)

from .processes import Cluster, ClusterNode, wait_until

SINGLE = "single"
"""A topic whose copy, by a mirror of the same name, has one replica of each partition."""
SINGLES = 6
SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    # A checkpoint notices that the directory is missing.
    "replica.high.watermark.checkpoint.interval.ms": 300,
    "auto.leader.rebalance.enable": "false",
}


def disk(node: ClusterNode) -> Path:
    """The log directory that fails; the metadata log is in `node.data`."""
    return node.directory / "disk"


def started(path: Path, controllers: int) -> Iterator[Cluster]:
    cluster = Cluster(path, controllers=controllers, properties=SETTINGS)
    for node in cluster.nodes.values():
        if node.is_broker:
            node.settings["log.dirs"] = f"{node.data},{disk(node)}"
    with cluster:
        yield cluster


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Cluster]:
    yield from started(tmp_path / "source", 0)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Cluster]:
    yield from started(tmp_path / "target", 1)


def led_on_a_disk(cluster: Cluster, topic: str, count: int) -> tuple[int, int]:
    """A partition of the topic whose leader has it in the directory that fails, and this leader."""
    leaders = {index: cluster.leader(topic, index) for index in range(count)}
    found = [
        (index, each) for index, each in leaders.items() if (disk(cluster.nodes[each]) / f"{topic}-{index}").exists()
    ]
    return found[-1]


def remove_disk(cluster: Cluster, node_id: int) -> None:
    node = cluster.nodes[node_id]
    disk(node).rename(node.directory / "removed")
    wait_until(lambda: f"Stopping serving logs in dir {disk(node)}" in node.log_tail(limit=100_000), WAIT_S)


def return_disk(cluster: Cluster, node_id: int) -> None:
    node = cluster.nodes[node_id]
    cluster.kill(node_id)
    (node.directory / "removed").rename(disk(node))
    cluster.start_node(node_id)


def write_singles(source: Cluster) -> None:
    with Producer(bootstrap_servers=source.bootstrap) as producer:
        for sent in [producer.send(SINGLE, b"record", partition=index) for index in range(SINGLES)]:
            sent.result(WAIT_S)


def copied_singles(admin: Admin) -> dict[int, int]:
    """The end of each partition of the copy with one replica, unless it has a problem."""
    return {row["partition"]: row["end"] for row in partitions(admin, SINGLE) if not row["problem"]}


def findings(admin: Admin) -> list[Finding]:
    return explain(MirrorReport.of(admin.mirror_status(SINGLE)), SINGLE)


def replicas(cluster: Cluster, index: int) -> list[bytes]:
    """The segments of each replica of a partition, which is in one of two directories."""
    places = [(node.data, disk(node)) for node in cluster.nodes.values() if node.is_broker]
    return [b"".join(data(path, index) for path in both) for both in places]


def test_copies_go_on_when_disks_of_leaders_fail_in_both_clusters(source: Cluster, target: Cluster) -> None:
    with source.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3), NewTopic(SINGLE, SINGLES, 3)])
    produce(source.bootstrap, 0, 100)
    mirror(source.bootstrap, target.bootstrap)
    mirror(source.bootstrap, target.bootstrap, SINGLE, {"topics": SINGLE, "replication.factor": 1, "groups": ""})
    write_singles(source)
    wait_until_copied(source.bootstrap, target.bootstrap)

    with target.admin() as admin:
        until: Callable[[Callable[[], Any]], None] = lambda condition: wait_until(condition, WAIT_S)  # noqa: E731
        until(lambda: copied_singles(admin) == dict.fromkeys(range(SINGLES), 1))
        moved, former = led_on_a_disk(target, TOPIC, PARTITIONS)
        lost = [index for index in range(SINGLES) if (disk(target.nodes[former]) / f"{SINGLE}-{index}").exists()]
        assert 0 < len(lost) < SINGLES
        remove_disk(target, former)
        produce(source.bootstrap, 100, 100)
        write_singles(source)
        # Another replica copies on, and so do all partitions in other directories.
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert target.leader(TOPIC, moved) != former
        others = {index: 2 for index in range(SINGLES) if index not in lost}
        until(lambda: copied_singles(admin) == others)
        until(lambda: [each.subject for each in findings(admin)] == [f"{SINGLE}-{index}" for index in lost])
        assert "log directories" in findings(admin)[0].next_step

        moved, failed = led_on_a_disk(source, TOPIC, PARTITIONS)
        remove_disk(source, failed)
        produce(source.bootstrap, 200, 100)
        write_singles(source)
        wait_until_copied(source.bootstrap, target.bootstrap)
        assert source.leader(TOPIC, moved) != failed
        until(lambda: copied_singles(admin) == dict.fromkeys(others, 3))

        # A promotion needs no replica in the directory that failed, and the replica follows when it is back.
        promote(admin)
        until(lambda: is_open_to_producers(target.bootstrap, 1000, 10))
        return_disk(source, failed)
        return_disk(target, former)
        until(lambda: copied_singles(admin) == dict.fromkeys(range(SINGLES), 3))
        until(lambda: findings(admin) == [])
    for index in range(PARTITIONS):
        for cluster in (source, target):
            until(lambda cluster=cluster, index=index: cluster.in_sync(TOPIC, index) == [1, 2, 3])  # type: ignore[misc]
            until(lambda cluster=cluster, index=index: len(set(replicas(cluster, index))) == 1)  # type: ignore[misc]
        original, copy = replicas(source, index)[0], replicas(target, index)[0]
        assert copy.startswith(original)
        assert len(copy) > len(original)
    source.assert_no_traceback()
    target.assert_no_traceback()
