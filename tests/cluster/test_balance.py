"""`ottla cluster balance` on real processes: under load, killed and continued, stopped and cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import ConfigResource, NewTopic
from ottla.common.ids import TopicPartition
from ottla.tools.admin import balance_run

from .conftest import Clusters
from .processes import Cluster, wait_until

TOPIC = "t"
PARTITIONS = 6
WAIT_S = 60.0
MIB = 1 << 20
QUICK = {"replication.quota.window.num": 3, "replica.fetch.max.bytes": 200_000}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ottla(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["cluster", "balance", *words])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def cluster(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """All replicas of the topic are on two of three brokers: 3 MiB for each partition."""
    cluster = clusters(brokers=3, controllers=1, properties=QUICK)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", cluster.bootstrap)
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(TOPIC, assignments={each: [1, 2] for each in range(PARTITIONS)})])
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for index in range(PARTITIONS):
            for _ in range(30):
                producer.send(TOPIC, os.urandom(50_000) * 2, partition=index)
    return cluster


def replicas(admin: Admin) -> list[tuple[int, ...]]:
    return [each.replicas for each in admin.describe_topics([TOPIC])[TOPIC].partitions]


def limits(admin: Admin) -> dict[str, dict[str, str | None]]:
    """The settings of replication throttles that are set, by resource."""
    resources = [ConfigResource.topic(TOPIC), *map(ConfigResource.broker, (1, 2, 3))]
    return {
        resource.name: found
        for resource, settings in admin.describe_configs(resources).items()
        if (
            found := {
                name: entry.value
                for name, entry in settings.items()
                if "replication.throttled" in name and entry.source.name in ("TOPIC", "BROKER")
            }
        )
    }


@contextmanager
def writing(cluster: Cluster) -> Iterator[list[tuple[int, bytes]]]:
    """Write small records all the time; yields the partitions and values of those that were acknowledged."""
    acknowledged: list[tuple[int, bytes]] = []
    is_over = threading.Event()

    def write() -> None:
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            number = 0
            while not is_over.is_set():
                index, value = number % PARTITIONS, b"%d" % number
                producer.send(TOPIC, value, partition=index).result(WAIT_S)
                acknowledged.append((index, value))
                number += 1
                time.sleep(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        writer.join(WAIT_S)
        assert not writer.is_alive()


def read(cluster: Cluster) -> list[tuple[int, bytes | None]]:
    """The small records."""
    with Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[tuple[int, bytes | None]] = []
        deadline = time.monotonic() + WAIT_S
        while any(consumer.position(each) < ends[each] for each in partitions):
            assert time.monotonic() < deadline
            found += [(each.partition, each.value) for each in consumer.poll(0.5) if len(each.value or b"") < 1000]
    return found


def execute(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ottla.cli.main", "cluster", "balance", "--execute", "--yes", *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def started(admin: Admin, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run in a process of its own that moves partitions."""
    process = execute(*words)
    try:
        wait_until(lambda: bool(admin.list_partition_reassignments()) or process.poll() is not None, WAIT_S)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=WAIT_S)


@pytest.mark.timeout(180)
def test_killed_run_is_continued_under_load_and_loses_nothing(cluster: Cluster, ottla: Run) -> None:
    with cluster.admin() as admin, writing(cluster) as acknowledged:
        code, out, err = ottla("--json")
        assert code == 0, err
        plan: dict[str, Any] = json.loads(out)
        assert [each["size"]["before"] > 17 * MIB for each in plan["brokers"]] == [True, True, False]
        assert all(11 * MIB < each["size"]["after"] < 14 * MIB for each in plan["brokers"])
        assert limits(admin) == {}
        with started(admin, "--throttle", "1MiB", "--at-once", "2") as process:
            time.sleep(1)
            assert len(admin.list_partition_reassignments()) <= 2
            process.kill()
            assert process.wait(WAIT_S) == -signal.SIGKILL
        run = balance_run.load(plan["cluster_id"])
        assert run is not None
        rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), str(MIB))
        assert {name: found for name, found in limits(admin).items() if name != TOPIC} == dict.fromkeys("123", rates)
        assert limits(admin)[TOPIC]
        assert "--execute continues it" in ottla()[2]
        code, _, err = ottla("--execute", "--throttle", "2MiB")
        assert (code, "has a throttle of 1.0 MiB/s" in err) == (1, True)
        code, out, err = ottla("--execute", "--yes", "--json")
        assert (code, json.loads(out)["moved"] > 0) == (0, True), err
        assert limits(admin) == {}
        assert not admin.list_partition_reassignments()
        # It continues the moves of the first run. A new plan would fit the records that were written meanwhile.
        for index, nodes in enumerate(replicas(admin)):
            assert list(nodes) == run.after.get(TopicPartition(TOPIC, index), [1, 2])
        assert json.loads(ottla("--json")[1])["moves"] == []
        cluster.wait_until(lambda: {cluster.leader(TOPIC, index) for index in range(PARTITIONS)} == {1, 2, 3})
    found = read(cluster)
    assert len(acknowledged) > 100
    assert sorted(found) == sorted(acknowledged)
    cluster.assert_no_traceback()


@pytest.mark.timeout(180)
def test_interrupt_completes_the_moves_that_have_started(cluster: Cluster, ottla: Run) -> None:
    with cluster.admin() as admin:
        other = {"leader.replication.throttled.replicas": "5:3"}
        admin.alter_config(ConfigResource.topic(TOPIC), other)
        admin.alter_config(ConfigResource.broker(3), {"follower.replication.throttled.rate": 50_000_000})
        with started(admin, "--throttle", "1MiB", "--at-once", "1") as process:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WAIT_S)
            assert process.returncode == 130, err
            assert b"not started; the throttle is removed" in out
        assert not admin.list_partition_reassignments()
        # The limits of others are as before.
        assert limits(admin) == {TOPIC: other, "3": {"follower.replication.throttled.rate": "50000000"}}
        assert len([nodes for nodes in replicas(admin) if 3 in nodes]) == 1
        assert ottla("--execute", "--yes")[0] == 0
        assert json.loads(ottla("--json")[1])["moves"] == []


@pytest.mark.timeout(180)
def test_killed_run_is_cancelled(cluster: Cluster, ottla: Run) -> None:
    with cluster.admin() as admin:
        assert "No run was interrupted" in ottla("--cancel")[2]
        with started(admin, "--throttle", "100KiB") as process:
            code, _, err = ottla("--cancel")
            assert (code, "another `ottla cluster balance`" in err) == (1, True)
            process.kill()
            process.wait(WAIT_S)
        # Leaders change at once, copies take half a minute.
        moving = admin.list_partition_reassignments()
        code, out, err = ottla("--cancel", "--json")
        assert (code, json.loads(out)["cancelled"]) == (0, len(moving)), err
        assert limits(admin) == {}
        assert not admin.list_partition_reassignments()
        assert not [nodes for nodes in replicas(admin) if 3 in nodes]
