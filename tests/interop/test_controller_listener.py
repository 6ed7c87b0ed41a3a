"""Kafka's tools with `--bootstrap-controller`, at the listener that a controller has for itself. KIP-919."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.wire import API_VERSIONS, METADATA, Connection, ConnectionClosed
from tests.conftest import OTTLA, RunningBroker
from tests.ottla_process import OttlaProcess
from tests.peers import kafka

pytestmark = [pytest.mark.jvm, pytest.mark.both]

WITH_CONTROLLER = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
}


class Node(NamedTuple):
    """Where clients reach a node, and where the controller is reached."""

    bootstrap: str
    controller: str

    def ok(self, tool: str, *arguments: str) -> str:
        verb = arguments[:1] if tool == "cluster" else ()
        done = kafka.tool(tool, *verb, "--bootstrap-controller", self.controller, *arguments[len(verb) :])
        assert done.returncode == 0, f"{done.args} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def node(broker: RunningBroker, tmp_path: Path) -> Iterator[Node]:
    if broker.kind == OTTLA:
        with OttlaProcess(tmp_path, WITH_CONTROLLER) as process:
            yield Node(process.bootstrap, controller_of(process.bootstrap))
            process.assert_no_traceback()
    else:
        yield Node(broker.bootstrap, controller_of(broker.bootstrap))


def controller_of(bootstrap: str) -> str:
    """As the broker describes its quorum."""
    status = kafka.tool("metadata-quorum", "--bootstrap-server", bootstrap, "describe", "--status")
    found = re.search(r"CONTROLLER://([\w.:]+)", status.stdout)
    assert found is not None, status.stdout
    return found[1]


def test_tools_describe_the_cluster_by_its_controller(node: Node) -> None:
    status = node.ok("metadata-quorum", "describe", "--status")
    assert f"CONTROLLER://{node.controller}" in status
    cluster_id = node.ok("cluster", "cluster-id").strip().removeprefix("Cluster ID: ")
    assert cluster_id in status
    (row,) = (line.split() for line in node.ok("cluster", "list-endpoints").splitlines()[1:])
    assert (f"{row[1]}:{row[2]}", row[-1]) == (node.controller, "controller")
    finalized = dict(re.findall(r"Feature: (\S+) .*FinalizedVersionLevel: (\S+)", node.ok("features", "describe")))
    assert finalized["metadata.version"].startswith("4.")


def test_settings_are_changed_by_the_controller(node: Node) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    node.ok("configs", *default, "--alter", "--add-config", "log.cleaner.backoff.ms=20001")
    assert "log.cleaner.backoff.ms=20001" in node.ok("configs", *default, "--describe")
    node.ok("configs", *default, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert "20001" not in node.ok("configs", *default, "--describe")


def test_controller_serves_its_own_apis_and_no_others(node: Node) -> None:
    with Connection(node.controller) as connection:
        answer = connection.ask(API_VERSIONS, 0, b"")
        error, count = struct.unpack_from(">hi", answer)
        keys = {key for key, _, _ in struct.iter_unpack(">hhh", answer[6 : 6 + 6 * count])}
        assert error == 0
        assert keys >= {18, 19, 20, 32, 33, 37, 43, 44, 45, 46, 55, 57, 60, 64}
        assert not keys & {0, 2, METADATA, 8, 9, 10, 11, 12, 21, 22, 35, 61, 74, 75}
        with pytest.raises(ConnectionClosed):
            connection.ask(METADATA, 12, b"\x00" * 8)


@pytest.mark.parametrize(
    ("at_controller", "endpoint_type", "error"), [(True, 2, 0), (True, 1, 114), (False, 1, 0), (False, 2, 114)]
)
def test_each_kind_of_endpoint_describes_its_own(
    node: Node, at_controller: bool, endpoint_type: int, error: int
) -> None:
    address = node.controller if at_controller else node.bootstrap
    with Connection(address) as connection:
        answer = connection.ask(60, 1, bytes([0, 0, endpoint_type, 0]))  # DescribeCluster v1, its header is flexible
    assert struct.unpack_from(">h", answer, 1 + 4)[0] == error
