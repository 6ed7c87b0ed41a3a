"""Prometheus scrapes a cluster, and the alert for under-replicated partitions fires when a broker is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin
from ottla.launch.local_nodes import free_ports
from tests.cluster.test_up import Up

ALERTS = Path(__file__).parents[2] / "deploy" / "metrics" / "prometheus-alerts.yml"
TIMEOUT_S = 90.0

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)"
)


class Prometheus:
    """A server that scrapes ports of this machine each second, with the rules of deploy/metrics."""

    def __init__(self, home: Path, targets: list[str]) -> None:
        home.mkdir()
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "kafka", "static_configs": [{"targets": targets}]}],
        }
        (home / "prometheus.json").write_text(json.dumps(config))  # YAML contains JSON
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self.log = home / "log"
        words = [f"--config.file={home}/prometheus.json", f"--storage.tsdb.path={home}/data"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", *words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
            )

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an API of Prometheus; None while it starts."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self._url}/{path}?{query}", timeout=5) as response:
                return json.load(response)["data"]
        except OSError:
            return None

    def value(self, expression: str) -> float | None:
        """The value of an expression with one sample."""
        data = self.get("query", query=expression)
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        data = self.get("alerts") or {"alerts": []}
        return {alert["labels"]["alertname"] for alert in data["alerts"] if alert["state"] == "firing"}

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, self.log.read_text()[-3000:]
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Up, list[str], list[int]]]:
    """Three brokers, their addresses, and the ports of their metrics."""
    first = next(port for port in range(20_000 + os.getpid() % 8_000 * 4, 65_000) if _are_free(port, 3))
    up = Up(tmp_path / "cluster", "--brokers", "3", "--listen", "127.0.0.1:0", "--metrics", str(first))
    try:
        yield up, up.wait_until_ready(), [first, first + 1, first + 2]
    finally:
        with contextlib.suppress(ProcessLookupError):
            up.end(signal.SIGTERM)


def _are_free(port: int, count: int) -> bool:
    try:
        for each in range(port, port + count):
            socket.create_server(("127.0.0.1", each)).close()
    except OSError:
        return False
    return True


@pytest.mark.timeout(240)
def test_alert_fires_when_a_broker_is_killed(cluster: tuple[Up, list[str], list[int]], tmp_path: Path) -> None:
    up, addresses, ports = cluster
    with Admin(addresses) as admin:
        admin.create_topic("t", partitions=6, replication_factor=3)
    prometheus = Prometheus(tmp_path / "prometheus", [f"127.0.0.1:{port}" for port in ports])
    try:
        prometheus.wait_for(lambda: prometheus.value('sum(up{job="kafka"})') == 3)
        prometheus.wait_for(lambda: prometheus.value("sum(kafka_server_replicamanager_leadercount)") == 6)
        assert prometheus.value("sum(kafka_controller_kafkacontroller_activecontrollercount)") == 1
        assert prometheus.value("sum(kafka_server_replicamanager_underreplicatedpartitions)") == 0
        assert not prometheus.firing()
        os.kill(up.children()[3], signal.SIGKILL)
        prometheus.wait_for(lambda: "UnderReplicatedPartitions" in prometheus.firing())
        assert "OfflinePartitions" not in prometheus.firing()
    finally:
        prometheus.process.terminate()
        prometheus.process.wait(30)
