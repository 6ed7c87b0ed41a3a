"""Client quotas in a cluster whose clients log in and need rights: who may set them, and what they limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ottla.clients import Admin, NotAuthorized
from ottla.clients.admin import Acl, AclOperation, AclResource, PartialFailure, QuotaEntity
from ottla.protocol.message import Message
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.records import encode_batch
from ottla.testing.ports import ReservedPort
from tests.clients.test_answers_in_detail import Asking

from .processes import Cluster, wait_until

NODES = (1, 2, 3)
TIMEOUT_S = 30.0
TOPIC = "orders"
TOPIC_AUTHORIZATION_FAILED, THROTTLING_QUOTA_EXCEEDED = 29, 89
# Two requests exceed the quota; none of them waits longer than the shortened windows.
BYTES_PER_S, REQUEST_BYTES, MOST_REQUESTS = 50_000, 200_000, 10
_USERS = " ".join(f'user_{user}="{user}-pw"' for user in ("admin", "ann", "bob"))
ANN = QuotaEntity(user="ann")


class SecuredCluster(Cluster):
    """Three nodes, each with a listener for clients with passwords. Nodes and `admin` are super users."""

    def __init__(self, directory: Path) -> None:
        self._sasl_ports = {node_id: ReservedPort() for node_id in NODES}
        super().__init__(directory, properties={"quota.window.num": 3, "controller.quota.window.num": 3})

    def _roles(self, node_id: int, *, dynamic: bool) -> dict[str, object]:
        roles = super()._roles(node_id, dynamic=dynamic)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return {
            **roles,
            "listeners": f"{roles['listeners']},CLIENTS://{self.address(node_id)}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": f"{module} {_USERS};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
        }

    def address(self, node_id: int) -> str:
        """Where clients with passwords connect."""
        return f"127.0.0.1:{self._sasl_ports[node_id].number}"

    def admin_of(self, user: str, node_id: int) -> Admin:
        return Admin(
            self.address(node_id), security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username=user,
            sasl_password=f"{user}-pw",
        )  # fmt: skip


class Clients:
    """Raw connections of users to each node."""

    def __init__(self, cluster: SecuredCluster, stack: ExitStack) -> None:
        self._cluster = cluster
        self._stack = stack

    def connect(self, user: str, node_id: int) -> Asking:
        """Log in to a node."""
        connection = self._stack.enter_context(Asking(self._cluster.address(node_id)))
        assert not connection.send_message(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
        answer = connection.send_message(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}-pw".encode()), 2)
        assert not answer.error_code, answer
        return connection


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path) as cluster:
        rules = [
            Acl(AclResource.topic(TOPIC), f"User:{user}", operation)
            for user in ("ann", "bob")
            for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
        ]
        rules += [
            Acl(AclResource.topic("own-", prefixed=True), f"User:{u}", AclOperation.CREATE) for u in ("ann", "bob")
        ]
        with cluster.admin_of("admin", 1) as admin:
            admin.create_topic(TOPIC, partitions=3, replication_factor=1)
            admin.create_acls(rules)
        yield cluster
        cluster.assert_no_traceback()


@pytest.fixture
def clients(cluster: SecuredCluster) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(cluster, stack)


def produce(connection: Asking, topic: str, partition: int) -> tuple[int, int]:
    """Send a batch; the error code, and the time for which the client is muted in ms."""
    data = [PartitionProduceData(partition, encode_batch([(0, None, bytes(REQUEST_BYTES), [])]))]
    request = ProduceRequest(acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    response: Any = connection.send_message(request, 9)
    return response.responses[0].partition_responses[0].error_code, response.throttle_time_ms


def is_throttled(connection: Asking, topic: str, partition: int) -> bool:
    return any(produce(connection, topic, partition)[1] > 0 for _ in range(MOST_REQUESTS))


def test_only_users_with_rights_set_and_see_quotas(cluster: SecuredCluster) -> None:
    for node_id in NODES:
        with cluster.admin_of("ann", node_id) as ann:
            with pytest.raises(PartialFailure, match="Cluster authorization failed"):
                ann.alter_client_quotas({ANN: {"producer_byte_rate": 1e9}})
            with pytest.raises(NotAuthorized):
                ann.describe_client_quotas()
    with cluster.admin_of("admin", 2) as admin:
        assert admin.describe_client_quotas() == {}
        cluster_rights = [AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]
        admin.create_acls([Acl(AclResource.cluster(), "User:bob", each) for each in cluster_rights])
    with cluster.admin_of("bob", 3) as bob:
        bob.alter_client_quotas({ANN: {"producer_byte_rate": 1e9}})
        wait_until(lambda: bob.describe_client_quotas() == {ANN: {"producer_byte_rate": 1e9}}, TIMEOUT_S)


def test_user_is_throttled_by_each_node_and_other_users_are_not(cluster: SecuredCluster, clients: Clients) -> None:
    with cluster.admin_of("admin", 2) as admin:
        admin.alter_client_quotas({ANN: {"producer_byte_rate": BYTES_PER_S}})
    leaders = {cluster.leader(TOPIC, partition): partition for partition in range(3)}
    for node_id, partition in leaders.items():
        with Admin(cluster.nodes[node_id].bootstrap) as admin:
            wait_until(lambda a=admin: len(a.describe_client_quotas()) == 1, TIMEOUT_S)  # type: ignore[misc]
        assert is_throttled(clients.connect("ann", node_id), TOPIC, partition)
        assert not is_throttled(clients.connect("bob", node_id), TOPIC, partition)
    assert len(leaders) == 3


def test_denied_requests_count_for_the_quota(cluster: SecuredCluster, clients: Clients) -> None:
    with cluster.admin_of("admin", 1) as admin:
        admin.create_topic("secret", partitions=1, replication_factor=1)
        admin.alter_client_quotas({ANN: {"producer_byte_rate": BYTES_PER_S}})
    leader = cluster.leader("secret")
    with Admin(cluster.nodes[leader].bootstrap) as admin:
        wait_until(lambda: len(admin.describe_client_quotas()) == 1, TIMEOUT_S)
    connection = clients.connect("ann", leader)
    assert produce(connection, "secret", 0)[0] == TOPIC_AUTHORIZATION_FAILED
    assert is_throttled(connection, "secret", 0)


def create(connection: Asking, name: str) -> int:
    """Create a topic; the error code."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request: Message = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return int(connection.send_message(request, 6).topics[0].error_code)


def test_changes_that_a_node_forwards_count_for_their_user(cluster: SecuredCluster, clients: Clients) -> None:
    with cluster.admin_of("admin", 1) as admin:
        admin.alter_client_quotas({ANN: {"controller_mutation_rate": 1.0}})
        wait_until(lambda: len(admin.describe_client_quotas()) == 1, TIMEOUT_S)
    others = [node_id for node_id in NODES if node_id != cluster.active_controller()]
    ann, bob = clients.connect("ann", others[0]), clients.connect("bob", others[0])
    assert create(ann, "secret-1") == TOPIC_AUTHORIZATION_FAILED
    errors = {create(ann, f"own-{number}") for number in range(MOST_REQUESTS)}
    assert errors == {0, THROTTLING_QUOTA_EXCEEDED}
    assert create(clients.connect("ann", others[1]), "own-other") == THROTTLING_QUOTA_EXCEEDED
    assert {create(bob, f"own-bob-{number}") for number in range(MOST_REQUESTS)} == {0}
