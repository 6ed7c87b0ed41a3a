"""Nodes that log in to each other with tokens of an authorization server: OAUTHBEARER on all connections between them.

The server is a real token endpoint and key set on loopback, whose tokens last a few seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Producer
from ottla.testing.ports import ReservedPort
from tests.identity_provider import AUDIENCE, ISSUER, SECRET, IdentityProvider

from .processes import Cluster, wait_until

NODES = (1, 2, 3)
TIMEOUT_S = 40.0
LIFETIME_S = 4
RENEWALS = 3


class ClusterWithTokens(Cluster):
    """Three nodes; the listeners of brokers and of controllers accept only tokens, whose user is a super user."""

    def __init__(self, directory: Path, provider: IdentityProvider) -> None:
        self._provider = provider
        self._inside = {node_id: ReservedPort() for node_id in NODES}
        super().__init__(directory)

    def _roles(self, node_id: int, *, dynamic: bool) -> dict[str, object]:
        roles = super()._roles(node_id, dynamic=dynamic)
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        return {
            **roles,
            "listeners": f"{roles['listeners']},INSIDE://127.0.0.1:{self._inside[node_id].number}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "listener.name.inside.oauthbearer.sasl.jaas.config": module,
            "listener.name.controller.oauthbearer.sasl.jaas.config": module,
            "sasl.oauthbearer.jwks.endpoint.url": f"{self._provider.url}/keys",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.token.endpoint.url": f"{self._provider.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": f"node-{node_id}",
            "sasl.oauthbearer.client.credentials.client.secret": SECRET,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # ANONYMOUS is the client of the test.
            "super.users": "User:node;User:ANONYMOUS",
        }


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider("node") as provider:
        provider.lifetime_s = LIFETIME_S
        yield provider


@pytest.fixture
def cluster(tmp_path: Path, provider: IdentityProvider) -> Iterator[Cluster]:
    with ClusterWithTokens(tmp_path, provider) as cluster:
        yield cluster
        cluster.assert_no_traceback()


def epochs(admin: Admin) -> list[int]:
    """The epochs of the quorum and of the topic's leaders: they change if a node was taken for dead."""
    leaders = [each.leader_epoch for each in admin.describe_topic("orders").partitions]
    return [admin.describe_quorum().leader_epoch, *leaders]


def logs_of(cluster: Cluster) -> str:
    return "".join(node.log_tail(limit=10_000_000) for node in cluster.nodes.values())


def test_nodes_renew_their_tokens_without_a_new_election(cluster: Cluster, provider: IdentityProvider) -> None:
    with Admin(cluster.bootstrap) as admin, Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        admin.create_topic("orders", partitions=3, replication_factor=3, config={"min.insync.replicas": "3"})
        wait_until(lambda: all(cluster.in_sync("orders", each) == list(NODES) for each in range(3)), TIMEOUT_S)
        before, provider.forms = epochs(admin), []

        def are_renewed() -> bool:
            for partition in range(3):
                producer.send("orders", b"x", partition=partition).result(TIMEOUT_S)
            requests = Counter(form["client_id"] for form in list(provider.forms))
            return all(requests[f"node-{node_id}"] >= RENEWALS for node_id in NODES)

        wait_until(are_renewed, TIMEOUT_S)
        assert epochs(admin) == before
        assert all(cluster.in_sync("orders", each) == list(NODES) for each in range(3))
    assert {form["grant_type"] for form in provider.forms} == {"client_credentials"}
    log = logs_of(cluster)
    assert "failed authentication" not in log.lower()
    assert SECRET not in log


def test_node_with_the_token_of_another_user_replicates_nothing(cluster: Cluster, provider: IdentityProvider) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("orders", partitions=3, replication_factor=3, config={"min.insync.replicas": "2"})
        wait_until(lambda: all(cluster.in_sync("orders", each) == list(NODES) for each in range(3)), TIMEOUT_S)
    follower = next(node_id for node_id in NODES if node_id != cluster.active_controller())
    cluster.stop_node(follower)
    provider.subjects[f"node-{follower}"] = "stranger"
    node = cluster.nodes[follower]
    node.launch()
    wait_until(lambda: "Unable to register" in node.log_tail(limit=10_000_000), TIMEOUT_S)
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        producer.send("orders", b"x", partition=0).result(TIMEOUT_S)
    assert follower not in cluster.in_sync("orders")
    # The node needs no restart: its next token is of the right user.
    provider.subjects.clear()
    node.wait_until_ready()
    wait_until(lambda: cluster.in_sync("orders") == list(NODES), TIMEOUT_S)
