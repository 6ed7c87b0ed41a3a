"""Brokers that are not super users: ClusterAction and Create of the cluster, and Describe of all topics are enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.admin import Acl, AclOperation, AclResource, NewTopic
from ottla.common.ids import uuid_to_text
from tests.peers.kafka import free_ports

from .processes import SMALL, ClusterNode, wait_until

PASSWORDS = {user: f"{user}-pw" for user in ("broker", "admin", "alice")}
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
JAAS = f'{_LOGIN} username="broker" password="{PASSWORDS["broker"]}" {_USERS};'
WAIT_S = 20.0
CLUSTER_ID = uuid_to_text(b"rights of broker")
RIGHTS = [
    Acl(AclResource.cluster(), "User:broker", AclOperation.CLUSTER_ACTION),
    Acl(AclResource.cluster(), "User:broker", AclOperation.CREATE),
    Acl(AclResource.topic("*"), "User:broker", AclOperation.DESCRIBE),
    Acl(AclResource.topic("t"), "User:alice", AclOperation.READ),
    Acl(AclResource.topic("t"), "User:alice", AclOperation.WRITE),
    Acl(AclResource.group("g"), "User:alice", AclOperation.READ),
    Acl(AclResource.transactional_id("x"), "User:alice", AclOperation.WRITE),
]


class Nodes:
    """A broker with the only controller, and another broker; all listeners use SASL/PLAIN."""

    def __init__(self, directory: Path) -> None:
        ports = free_ports(3)
        self._bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[:2])
        controller = f"127.0.0.1:{ports[2]}"
        self.nodes = []
        for number, port in enumerate(ports[:2], 1):
            is_controller = number == 1
            listeners = [f"CLIENTS://127.0.0.1:{port}", *([f"CONTROLLER://{controller}"] if is_controller else [])]
            settings = SMALL | {
                "process.roles": "broker,controller" if is_controller else "broker",
                "controller.quorum.voters": f"1@{controller}",
                "controller.listener.names": "CONTROLLER",
                "listeners": ",".join(listeners),
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "inter.broker.listener.name": "CLIENTS",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "listener.name.clients.plain.sasl.jaas.config": JAAS,
                "listener.name.controller.plain.sasl.jaas.config": JAAS,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:broker;User:admin",
                "offsets.topic.replication.factor": 2,
                "transaction.state.log.replication.factor": 2,
            }
            self.nodes.append(ClusterNode(number, directory / str(number), settings))

    def start(self) -> None:
        for node in self.nodes:
            node.format(CLUSTER_ID)
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def settings_of(self, user: str, **options: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            **{name.replace("_", "."): value for name, value in options.items()},
        }


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    nodes.start()
    try:
        yield nodes
    finally:
        nodes.stop()


def test_brokers_need_three_rights(nodes: Nodes) -> None:
    with Admin(nodes.settings_of("admin")) as admin:
        admin.create_acls(RIGHTS)
    nodes.stop()
    for node in nodes.nodes:
        node.settings["super.users"] = "User:admin"
        node.write_settings()
    nodes.start()
    with Admin(nodes.settings_of("admin")) as admin:
        admin.create_topics([NewTopic("t", 4, 2)])
        wait_until(lambda: len(admin.describe_topics(["t"])["t"].partitions) == 4, WAIT_S)
    with Producer(nodes.settings_of("alice", acks="all", transactional_id="x")) as producer:
        producer.init_transactions()
        with producer.transaction():
            for partition in range(4):
                producer.send("t", b"v", partition=partition)
    options = {"group_id": "g", "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(nodes.settings_of("alice", **options)) as consumer:
        consumer.subscribe(["t"])
        found: list[object] = []
        wait_until(lambda: found.extend(consumer.poll(0.5)) is None and len(found) == 4, WAIT_S)
        consumer.commit()
    denied = r"Principal = User:broker is Denied operation = (\w+) .* for request = (\w+) .* rule (\w+)"
    lines = [line for node in nodes.nodes for line in re.findall(denied, node.log_path.read_text())]
    # Before the controller knows the rules, nodes are refused, and try again.
    assert {rule for _, _, rule in lines} <= {"AuthorizerNotReady"}, lines
