"""Clusters of Ottla and stock Kafka 4.3 whose nodes use only SASL_SSL, or mutual TLS, among themselves.

Each joins the other's controller, replicates with acks=all, forwards requests of clients with their principal, and the
transactions of a client span both. Brokers log in by SCRAM, with credentials of the first metadata, or by certificates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, Producer
from ottla.clients.admin import Acl, AclOperation, AclResource, NewTopic
from ottla.clients.errors import ClientError, NotAuthorized
from tests.cluster.processes import ClusterNode
from tests.interop.test_mixed_quorum import StockController
from tests.peers.kafka import free_ports

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(200)]

OTTLA, STOCK = 1, 2
PARTITIONS = 4
LIMIT_S = 60.0
CLUSTER_ID = "bWl4ZWQtYW5kLXNlY3VyZQ"
PASSWORDS = {"broker": "broker-Xq7", "admin": "admin-Xq7", "ann": "ann-Xq7"}
MODULES = "org.apache.kafka.common.security"
SCRAM = [f"--add-scram=SCRAM-SHA-512=[name={user},password={password}]" for user, password in PASSWORDS.items()]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ottla.tools.secured_files import LOCAL_HOSTS, SecuredFiles

    directory = tmp_path_factory.mktemp("security")
    for number in (OTTLA, STOCK):
        SecuredFiles(directory).issue(number, LOCAL_HOSTS, 2)
    return directory


def settings_of(node_id: int, controller: int, ports: Mapping[str, int], files: Path, inside: str) -> dict[str, Any]:
    """The settings of a broker; the node `controller` is the only voter. `inside` is the protocol between nodes."""
    is_controller = node_id == controller
    clients, brokers = f"CLIENTS://127.0.0.1:{ports[f'c{node_id}']}", f"BROKERS://127.0.0.1:{ports[f'b{node_id}']}"
    listeners = [clients, brokers, *([f"CONTROLLER://127.0.0.1:{ports['q']}"] if is_controller else [])]
    home = files / f"node-{node_id}"
    login = f'required username="broker" password="{PASSWORDS["broker"]}"'
    settings = {
        "node.id": node_id,
        "process.roles": "broker,controller" if is_controller else "broker",
        "controller.quorum.voters": f"{controller}@127.0.0.1:{ports['q']}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": f"CLIENTS:SASL_SSL,BROKERS:{inside},CONTROLLER:{inside}",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": home / "keystore.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": home / "ca.pem",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker;User:admin;User:CN=node-1;User:CN=node-2",
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": 2,
        "transaction.state.log.num.partitions": 2,
        "transaction.state.log.replication.factor": 2,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    if inside == "SSL":
        return settings | {
            "listener.name.brokers.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
        }
    return settings | {
        "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.brokers.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule {login};",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{MODULES}.plain.PlainLoginModule {login} user_broker="{PASSWORDS["broker"]}";'
        ),
    }


class MixedCluster:
    """An Ottla broker and a stock broker; one of them is the controller."""

    def __init__(self, directory: Path, files: Path, controller: int, inside: str) -> None:
        names = ["c1", "c2", "b1", "b2", "q"]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._authority = files / "ca.pem"
        own = {each: settings_of(each, controller, self._ports, files, inside) for each in (OTTLA, STOCK)}
        self.node = ClusterNode(OTTLA, directory / "ottla", own[OTTLA])
        self.node.format(CLUSTER_ID, *SCRAM)
        self.stock: StockController | None = None

        def start_stock() -> None:
            self.stock = StockController(directory / "stock", CLUSTER_ID, lambda _: "", *SCRAM, settings=own[STOCK])

        # A broker waits for its controller, and `start` waits for the broker.
        for start in (start_stock, self.node.start) if controller == STOCK else (self.node.start, start_stock):
            start()

    def client(self, user: str, node_id: int) -> dict[str, object]:
        """The settings of a client that connects to one of the nodes first."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._ports[f'c{node_id}']}",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.truststore.location": str(self._authority),
        }

    def close(self) -> None:
        if self.stock is not None:
            self.stock.close()
        if self.node.is_running:
            self.node.kill()


@pytest.fixture(params=["ottla-controls", "stock-controls"])
def controller(request: pytest.FixtureRequest) -> int:
    return OTTLA if request.param == "ottla-controls" else STOCK


@pytest.fixture
def other(controller: int) -> int:
    """The node that is not the controller."""
    return OTTLA + STOCK - controller


@pytest.fixture(params=["SASL_SSL", "SSL"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, files: Path, controller: int) -> Iterator[MixedCluster]:
    made = MixedCluster(tmp_path, files, controller, request.param)
    try:
        yield made
    finally:
        made.close()


def wait_for_both(settings: Mapping[str, object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    found: object = None
    while time.monotonic() < deadline:
        try:
            with Admin(settings, default_api_timeout_ms=5000) as admin:
                found = {each.node_id for each in admin.describe_cluster().brokers}
        except ClientError as error:
            found = error
        if found == {OTTLA, STOCK}:
            return
        time.sleep(0.2)
    raise AssertionError(f"the cluster has the brokers {found}")


def until_authorized(action: Callable[[], None]) -> None:
    """Repeat an action until every node has the rules: a node follows them as fast as it follows the metadata."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return action()
        except NotAuthorized:
            assert time.monotonic() < deadline, "the rules do not arrive"
            time.sleep(0.1)


def test_nodes_replicate_forward_and_commit_transactions(cluster: MixedCluster, controller: int, other: int) -> None:
    wait_for_both(cluster.client("admin", controller))
    # The other node forwards to the controller, in an Envelope with the principal of its client.
    with Admin(cluster.client("admin", other)) as admin:
        admin.create_topics([NewTopic("orders", PARTITIONS, 2, config={"min.insync.replicas": "2"})])
        leaders = {each.leader for each in admin.describe_topic("orders").partitions}
        assert leaders == {OTTLA, STOCK}
        with pytest.raises(NotAuthorized), Admin(cluster.client("ann", other)) as ann:
            ann.create_topic("denied", partitions=1, replication_factor=2)
        write, create = AclOperation.WRITE, AclOperation.CREATE
        for resource in (AclResource.topic("orders"), AclResource.transactional_id("payments")):
            admin.create_acls([Acl(resource, "User:ann", write)])
        admin.create_acls([Acl(AclResource.topic("granted"), "User:ann", create)])

    def create_topic() -> None:
        with Admin(cluster.client("ann", other)) as ann:
            ann.create_topic("granted", partitions=1, replication_factor=2)

    def initialize() -> None:
        with Producer(cluster.client("ann", other), transactional_id="payments") as producer:
            producer.init_transactions(LIMIT_S)

    for action in (create_topic, initialize):
        until_authorized(action)
    # The coordinator is one of the nodes; its markers reach partitions of both.
    with Producer(cluster.client("ann", other), transactional_id="payments", acks="all") as producer:
        producer.init_transactions(LIMIT_S)
        for _ in range(2):
            producer.begin_transaction()
            sent = [producer.send("orders", b"x", partition=i) for i in range(PARTITIONS)]
            for each in sent:
                each.result(LIMIT_S)
            producer.commit_transaction(LIMIT_S)
    with Admin(cluster.client("admin", controller)) as admin:
        assert all(len(each.isr) == 2 for each in admin.describe_topic("orders").partitions)
        [transaction] = admin.describe_transactions(["payments"]).values()
        assert transaction.state.value in ("CompleteCommit", "PrepareCommit")
    log = cluster.node.log_tail(limit=10_000_000)
    assert "Traceback" not in log
    assert "failed authentication" not in log
    for password in PASSWORDS.values():
        assert password not in log


def test_stock_node_and_stock_tools_use_the_files_of_security_init(tmp_path: Path) -> None:
    from ottla.config import load_properties
    from ottla.tools.secured_files import PORTS, ClusterPlan, SecuredFiles
    from tests.peers import kafka

    security = SecuredFiles(tmp_path / "security")
    security.create(ClusterPlan([["127.0.0.1"], ["127.0.0.2"]], clients=["eve"]))
    free = dict(zip(PORTS.values(), free_ports(len(PORTS)), strict=True))
    own = {}
    for path in (*(tmp_path / "security").rglob("*.properties"),):
        text = path.read_text()
        for port, other in free.items():
            text = text.replace(f":{port}", f":{other}")
        path.write_text(text)
        own[path.parent.name] = load_properties(path)
    stock = StockController(tmp_path / "stock", CLUSTER_ID, lambda _: "", settings=own["node-1"])
    node = ClusterNode(2, tmp_path / "ottla", own["node-2"])
    try:
        node.format(CLUSTER_ID)
        node.start()
        admin = security.admin_properties
        deadline = time.monotonic() + LIMIT_S
        settings = load_properties(admin)
        with Admin(settings) as client:
            while len(client.describe_cluster().brokers) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        server = settings["bootstrap.servers"]
        created = kafka.tool(
            "topics", "--bootstrap-server", server, "--command-config", admin, "--create", "--topic", "orders",
            "--partitions", "2", "--replication-factor", "2",
        )  # fmt: skip
        assert created.returncode == 0, created.stdout + created.stderr
        with Producer(settings, acks="all") as producer:
            for partition in (0, 1):
                producer.send("orders", b"x", partition=partition).result(LIMIT_S)
        eve = tmp_path / "security" / "clients" / "eve.properties"
        server = load_properties(eve)["bootstrap.servers"]
        denied = kafka.tool(
            "topics", "--bootstrap-server", server, "--command-config", eve, "--create", "--topic", "hers",
        )  # fmt: skip
        assert "Authorization failed" in denied.stdout + denied.stderr
    finally:
        stock.close()
        if node.is_running:
            node.kill()
    assert "Traceback" not in node.log_tail(limit=10_000_000)
