"""Delegation tokens of a cluster: any node creates one, each node lets it log in, and they survive the controller."""

from __future__ import annotations

from pathlib import Path

from ottla.clients import Admin, AuthenticationFailed
from ottla.clients.admin import DelegationToken, ScramUpsertion

from .processes import wait_until
from .test_scram_users import NODES, TIMEOUT_S, ClusterWithUsers


class ClusterWithTokens(ClusterWithUsers):
    """Three nodes that know one secret key."""

    def _roles(self, node_id: int, *, dynamic: bool) -> dict[str, object]:
        tokens = {"delegation.token.secret.key": "secret", "delegation.token.expiry.check.interval.ms": 200}
        return super()._roles(node_id, dynamic=dynamic) | tokens

    def admin_of_alice(self, node_id: int) -> Admin:
        """A client of the user alice."""
        settings = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "alice-secret"}
        return Admin(self.sasl_address(node_id), settings, security_protocol="SASL_PLAINTEXT")

    def lets_in(self, node_id: int, token: DelegationToken) -> bool:
        settings = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": token.jaas_config}
        try:
            with Admin(self.sasl_address(node_id), settings, security_protocol="SASL_PLAINTEXT") as admin:
                return len(admin.describe_cluster().brokers) > 0
        except AuthenticationFailed:
            return False


def test_tokens_of_a_cluster(tmp_path: Path) -> None:
    with ClusterWithTokens(tmp_path) as cluster:
        with Admin(cluster.nodes[1].bootstrap) as admin:
            admin.alter_scram_credentials([ScramUpsertion("alice", "alice-secret")])
        for node_id in NODES:
            cluster.wait_for_log_in(node_id, "alice", "alice-secret")
        tokens = []
        for node_id in NODES:
            with cluster.admin_of_alice(node_id) as admin:
                tokens.append(admin.create_delegation_token())
        for token in tokens:
            for node_id in NODES:
                wait_until(lambda n=node_id, t=token: cluster.lets_in(n, t), TIMEOUT_S)  # type: ignore[misc]
        dead = cluster.active_controller()
        cluster.nodes[dead].kill()
        alive = next(node_id for node_id in NODES if node_id != dead)
        with cluster.admin_of_alice(alive) as admin:
            assert {token.token_id for token in admin.describe_delegation_token()} == {t.token_id for t in tokens}
            admin.expire_delegation_token(tokens[0].hmac)
            admin.expire_delegation_token(tokens[1].hmac, 500)
            _wait_for_tokens(admin, tokens[2:])
        cluster.nodes[dead].start()
        for node_id in NODES:
            wait_until(lambda n=node_id: not cluster.lets_in(n, tokens[0]), TIMEOUT_S)  # type: ignore[misc]
            assert not cluster.lets_in(node_id, tokens[1])
            assert cluster.lets_in(node_id, tokens[2])
        cluster.assert_no_traceback()


def _wait_for_tokens(admin: Admin, expected: list[DelegationToken]) -> None:
    """Wait until the new active controller has deleted the expired tokens."""
    ids = {token.token_id for token in expected}
    wait_until(lambda: {token.token_id for token in admin.describe_delegation_token()} == ids, TIMEOUT_S)
