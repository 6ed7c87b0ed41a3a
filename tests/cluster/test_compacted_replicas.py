"""A replica of a compacted topic has the gaps of its leader. They are no corruption, whatever cleanup.policy says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla.clients import Consumer, Producer
from ottla.clients.admin import ConfigResource, NewTopic
from ottla.common.ids import TopicPartition

from .processes import Cluster

TOPIC = "compacted"
RECORDS = 60
WAIT_S = 60.0
SETTINGS = {"log.cleaner.backoff.ms": 0, "log.initial.task.delay.ms": 0}
# A segment has about ten records.
CONFIG = {"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.01}


def write(cluster: Cluster) -> None:
    """Every second record has a key that appears again."""
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for i in range(RECORDS):
            key = b"again" if i % 2 else b"once %d" % i
            producer.send(TOPIC, b"%06d" % i * 17_000, key=key).result(WAIT_S)


def read(cluster: Cluster) -> list[tuple[int, bytes | None, bytes | None]]:
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, 0)])
        end = consumer.end_offsets([(TOPIC, 0)])[TOPIC, 0]  # type: ignore[index]
        found: list[tuple[int, bytes | None, bytes | None]] = []
        deadline = time.monotonic() + WAIT_S
        while consumer.position((TOPIC, 0)) < end:  # type: ignore[operator]
            assert time.monotonic() < deadline, f"{len(found)} records"
            found += [(each.offset, each.key, each.value) for each in consumer.poll(0.5)]
    return found


def move(cluster: Cluster, node: int) -> None:
    with cluster.admin() as admin:
        admin.alter_partition_reassignments({TopicPartition(TOPIC, 0): [node]})
        cluster.wait_until(lambda: not admin.list_partition_reassignments())
    cluster.wait_until(lambda: cluster.leader(TOPIC) == node and cluster.in_sync(TOPIC) == [node])


def restart(cluster: Cluster, node: int, how: str, lost: str | None) -> None:
    if how == "stop":
        assert cluster.stop_node(node) == 0
    else:
        cluster.kill(node)
    data = Path(cluster.nodes[node].data)
    if lost is not None:
        for path in data.glob(lost):
            path.unlink()
    cluster.start_node(node)
    cluster.wait_until(lambda: cluster.leader(TOPIC) == node)


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "lost"),
    [
        ("stop", None),
        ("stop", f"{TOPIC}-0/*.index"),
        ("kill", None),
        ("kill", "recovery-point-offset-checkpoint"),
    ],
    ids=["stop", "stop and lose the indices", "kill", "kill and lose the recovery points"],
)
def test_replica_of_a_topic_that_is_no_longer_compacted_is_read_as_before(
    tmp_path: Path, how: str, lost: str | None
) -> None:
    with Cluster(tmp_path, brokers=2, controllers=1, properties=SETTINGS) as cluster:
        with cluster.admin() as admin:
            admin.create_topics([NewTopic(TOPIC, config=CONFIG, assignments={0: [1]})])
            write(cluster)
            cluster.wait_until(lambda: len(read(cluster)) < RECORDS * 2 / 3, WAIT_S)
            admin.alter_config(ConfigResource.topic(TOPIC), {"cleanup.policy": "delete"})
        before = read(cluster)
        move(cluster, 2)
        assert read(cluster) == before
        for _ in range(2):
            restart(cluster, 2, how, lost)
            assert read(cluster) == before
        move(cluster, 1)
        assert read(cluster) == before
        cluster.assert_no_traceback()
        assert not list(Path(cluster.nodes[2].data).glob(f"{TOPIC}-0/*.re[mp]*")), "nothing was repaired"
