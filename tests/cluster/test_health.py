"""The probes of a node over HTTP, beside `ottla health` at the same node: starting, ready, stopped."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from ottla.cli.main import main
from ottla.testing.ports import ReservedPort

from .processes import Cluster


def probe(port: int, level: str) -> tuple[int, str]:
    """The status and the body of a probe; status 0 if nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/{level}", timeout=10) as response:
            return response.status, response.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()
    except OSError:
        return 0, ""


def test_node_without_a_quorum_is_starting_and_ready_with_it(tmp_path: Path) -> None:
    reserved = ReservedPort()
    port = reserved.number
    cluster = Cluster(tmp_path)
    node = cluster.nodes[1]
    node.settings["ottla.health.listener"] = f"127.0.0.1:{port}"
    address = str(node.settings["listeners"]).partition(",")[0].removeprefix("PLAINTEXT://")
    try:
        for each in cluster.nodes.values():
            each.format(cluster.cluster_id)
        node.launch()
        cluster.wait_until(lambda: probe(port, "live") == (503, "starting"))
        assert probe(port, "ready") == (503, "starting")
        assert main(["health", "live", "-b", address, "--timeout", "1s"]) == 1
        cluster.nodes[2].launch()
        node.wait_until_ready()
        assert probe(port, "live") == (200, "live")
        cluster.wait_until(lambda: probe(port, "ready") == (200, "ready"))
        assert main(["health", "ready", "-b", address, "--node", "1"]) == 0
        assert node.stop() == 0
        assert probe(port, "live") == (0, "")
    finally:
        cluster.close()
