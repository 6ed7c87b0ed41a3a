"""Clusters of the pytest plugin: brokers that die, pause and return, and what a failed test shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer
from ottla.testing import BrokerError, OttlaCluster

from .test_plugin import Run


def test_brokers_stop_pause_and_return_with_their_settings(ottla_cluster: Callable[..., OttlaCluster]) -> None:
    cluster = ottla_cluster(2, {"num.partitions": 4}, auto_create_topics_enable="false")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t")
        assert [len(each.replicas) for each in admin.describe_topic("t").partitions] == [2] * 4
    cluster.pause(2)
    assert cluster.brokers[2].running
    cluster.resume(2)
    cluster.stop(2)
    assert not cluster.brokers[2].running
    assert "Stopped cleanly" in cluster.brokers[2].log()
    with pytest.raises(BrokerError, match="Broker 2 does not run"):
        cluster.pause(2)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("t", b"x", partition=0).result(20)
    assert cluster.leader("t", 0) == 1
    cluster.start(2)
    cluster.wait_until_in_sync("t")


def test_failed_test_shows_logs_and_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    code, out = Run(tmp_path)(
        """
        def test_it(ottla_cluster):
            cluster = ottla_cluster(1)
            print("pid", cluster.brokers[1].pid, "data", cluster.brokers[1].data, "end")
            assert False
        """
    )
    assert code == 1, out
    assert "ottla: log of broker 1" in out
    after = out[out.index("Captured stdout") :].split()
    pid, data = after[after.index("pid") + 1], after[after.index("data") + 1]
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(data).exists()


def test_misspelt_setting_starts_no_broker(ottla_cluster: Callable[..., OttlaCluster]) -> None:
    with pytest.raises(pytest.UsageError, match=r"did you mean 'num\.partitions'"):
        ottla_cluster(1, {"num.partition": 4})
