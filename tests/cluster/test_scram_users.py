"""SCRAM users of a cluster: a change on one node counts for log-ins on each, and survives the controller's death."""

from __future__ import annotations

from pathlib import Path

from ottla.clients import Admin, AuthenticationFailed
from ottla.clients.admin import ScramDeletion, ScramUpsertion
from ottla.testing.ports import ReservedPort

from .processes import Cluster, wait_until

NODES = (1, 2, 3)
TIMEOUT_S = 30.0
MAP = "listener.security.protocol.map"


class ClusterWithUsers(Cluster):
    """Three nodes, each with a SASL listener for clients."""

    def __init__(self, directory: Path) -> None:
        self._sasl_ports = {node_id: ReservedPort() for node_id in NODES}
        super().__init__(directory, properties={"sasl.enabled.mechanisms": "SCRAM-SHA-512"})

    def _roles(self, node_id: int, *, dynamic: bool) -> dict[str, object]:
        roles = super()._roles(node_id, dynamic=dynamic)
        return {
            **roles,
            "listeners": f"{roles['listeners']},SASL_PLAINTEXT://{self.sasl_address(node_id)}",
            "listener.security.protocol.map": f"{roles[MAP]},SASL_PLAINTEXT:SASL_PLAINTEXT",
        }

    def sasl_address(self, node_id: int) -> str:
        return f"127.0.0.1:{self._sasl_ports[node_id].number}"

    def may_log_in(self, node_id: int, user: str, password: str) -> bool:
        settings = {
            "bootstrap.servers": self.sasl_address(node_id),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }
        try:
            with Admin(settings) as admin:
                return len(admin.describe_cluster().brokers) > 0
        except AuthenticationFailed:
            return False

    def wait_for_log_in(self, node_id: int, user: str, password: str) -> None:
        wait_until(lambda: self.may_log_in(node_id, user, password), TIMEOUT_S)


def test_users_of_a_cluster(tmp_path: Path) -> None:
    with ClusterWithUsers(tmp_path) as cluster:
        for node_id in NODES:
            with Admin(cluster.nodes[node_id].bootstrap) as admin:
                admin.alter_scram_credentials([ScramUpsertion(f"user-{node_id}", "first")])
            for other in NODES:
                cluster.wait_for_log_in(other, f"user-{node_id}", "first")
                assert not cluster.may_log_in(other, f"user-{node_id}", "wrong")
        dead = cluster.active_controller()
        cluster.nodes[dead].kill()
        alive = [node_id for node_id in NODES if node_id != dead]
        with Admin(cluster.nodes[alive[0]].bootstrap) as admin:
            changes: list[ScramUpsertion | ScramDeletion] = [
                ScramUpsertion("user-1", "second"),
                ScramDeletion("user-2", "SCRAM-SHA-512"),
            ]
            admin.alter_scram_credentials(changes)
        cluster.nodes[dead].start()
        for node_id in NODES:
            cluster.wait_for_log_in(node_id, "user-1", "second")
            assert not cluster.may_log_in(node_id, "user-1", "first")
            assert not cluster.may_log_in(node_id, "user-2", "first")
            assert cluster.may_log_in(node_id, "user-3", "first")
        cluster.assert_no_traceback()
