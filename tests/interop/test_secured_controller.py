"""Kafka's tools with `--bootstrap-controller` at a controller listener with SASL_SSL and an authorizer, KIP-919.

The same commands run on Ottla and on stock Kafka, and print the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.clients import Admin
from tests.ottla_process import OttlaProcess
from tests.peers import kafka
from tests.peers.secured import Certificates

from .test_controller_listener import controller_of

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

USERS = ("admin", "reader", "stranger")
_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_LOGINS = f'{_JAAS} username="admin" password="admin-pw" ' + " ".join(f'user_{user}="{user}-pw"' for user in USERS)
OTTLA, STOCK = "Ottla", "stock Kafka"
BROKERS = ("--entity-type", "brokers", "--entity-default")
EVERYTHING = ("--allow-principal", "User:stranger", "--operation", "All", "--cluster")


class Node(NamedTuple):
    """A node, by the addresses of its controller's and its clients' listener."""

    controller: str
    bootstrap: str
    directory: Path

    def run(self, user: str, tool: str, *words: str, password: str = "") -> subprocess.CompletedProcess[str]:
        """Run a tool as a user, on the controller."""
        path = self.directory / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.directory / 'certificates' / 'ca.pem'}\n"
            "request.timeout.ms=20000\ndefault.api.timeout.ms=20000\n"
            f'sasl.jaas.config={_JAAS} username="{user}" password="{password or f"{user}-pw"}";\n'
        )
        return kafka.tool(tool, "--bootstrap-controller", self.controller, "--command-config", str(path), *words)

    def ok(self, tool: str, *words: str) -> list[str]:
        """Run a tool as the administrator; its lines, sorted."""
        done = self.run("admin", tool, *words)
        assert done.returncode == 0, f"{done.args} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return sorted(done.stdout.splitlines())


def settings_of(certificates: Certificates) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f"{_LOGINS};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    directory = tmp_path_factory.mktemp("controllers")
    settings = settings_of(Certificates(directory / "certificates"))
    own = {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "controller.listener.names": "CONTROLLER"}
    ottla = OttlaProcess(directory / "ottla", settings | own)
    with ottla, kafka.StockKafka(directory / "stock", overrides=settings) as stock:
        yield {
            name: Node(controller_of(bootstrap), bootstrap, directory)
            for name, bootstrap in ((OTTLA, ottla.bootstrap), (STOCK, stock.bootstrap))
        }
    ottla.assert_no_traceback()


def same(nodes: dict[str, Node], tool: str, *words: str) -> list[str]:
    """Run a tool on both controllers as the administrator; its lines, sorted."""
    mine, stock = (node.ok(tool, *words) for node in nodes.values())
    assert mine == stock, words
    return mine


def test_kafka_acls_adds_lists_and_removes_rules(nodes: dict[str, Node]) -> None:
    rule = ("--allow-principal", "User:ann", "--operation", "Read", "--topic", "orders")
    denial = (
        "--deny-principal",
        "User:bob",
        "--operation",
        "Write",
        "--topic",
        "pre",
        "--resource-pattern-type",
        "prefixed",
    )
    same(nodes, "acls", "--add", *rule)
    same(nodes, "acls", "--add", *denial)
    listed = same(nodes, "acls", "--list")
    assert [line for line in listed if "principal=User:ann, host=*, operation=READ, permissionType=ALLOW" in line]
    assert [line for line in listed if "name=pre, patternType=PREFIXED" in line]
    same(nodes, "acls", "--list", "--topic", "prefer", "--resource-pattern-type", "match")
    same(nodes, "acls", "--remove", "--force", *rule)
    same(nodes, "acls", "--remove", "--force", "--topic", "pre", "--resource-pattern-type", "prefixed")
    assert "".join(same(nodes, "acls", "--list")).strip() == ""


def test_kafka_configs_changes_brokers_and_topics(nodes: dict[str, Node], name: str) -> None:
    same(nodes, "configs", *BROKERS, "--alter", "--add-config", "log.cleaner.backoff.ms=20001")
    assert any("log.cleaner.backoff.ms=20001" in line for line in same(nodes, "configs", *BROKERS, "--describe"))
    same(nodes, "configs", *BROKERS, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    assert not any("20001" in line for line in same(nodes, "configs", *BROKERS, "--describe"))
    # The tool lists the topics before it describes one, which Java's client cannot do on a controller.
    topic = ("--entity-type", "topics", "--entity-name", name)
    for node in nodes.values():
        with Admin(node.bootstrap) as admin:
            admin.create_topic(name, partitions=1)
    same(nodes, "configs", *topic, "--alter", "--add-config", "retention.ms=20001")
    for node in nodes.values():
        described = kafka.tool("configs", "--bootstrap-server", node.bootstrap, *topic, "--describe")
        assert "retention.ms=20001" in described.stdout


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("acls", ("--add", *EVERYTHING)),
        ("acls", ("--list",)),
        ("configs", (*BROKERS, "--alter", "--add-config", "log.cleaner.backoff.ms=1")),
    ],
)
def test_user_without_rights_is_refused_by_the_controller(
    nodes: dict[str, Node], tool: str, words: tuple[str, ...]
) -> None:
    for node in nodes.values():
        done = node.run("stranger", tool, *words)
        assert "ClusterAuthorizationException" in done.stdout + done.stderr
    assert "stranger" not in "".join(same(nodes, "acls", "--list"))


def test_rights_count_on_the_controller(nodes: dict[str, Node]) -> None:
    # As in Kafka, Java's clients need Alter to find the active controller.
    for operation in ("Alter", "DescribeConfigs"):
        same(nodes, "acls", "--add", "--allow-principal", "User:reader", "--operation", operation, "--cluster")
    for node in nodes.values():
        for tool, words in (("acls", ("--list",)), ("configs", (*BROKERS, "--describe"))):
            done = node.run("reader", tool, *words)
            assert done.returncode == 0, done.stdout + done.stderr
        done = node.run("reader", "configs", *BROKERS, "--alter", "--add-config", "log.cleaner.backoff.ms=1")
        assert "ClusterAuthorizationException" in done.stdout + done.stderr
    same(nodes, "acls", "--remove", "--force", "--cluster")


def test_wrong_password_is_refused_by_the_controller(nodes: dict[str, Node]) -> None:
    for node in nodes.values():
        done = node.run("admin", "acls", "--list", password="wrong")
        assert "SaslAuthenticationException" in done.stdout + done.stderr
        node.ok("acls", "--list")
