"""Kafka -> Ottla -> Kafka: users of a directory log in to each, with the same server.properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.clients import Admin, AuthenticationFailed
from ottla.clients.admin import ScramDeletion, ScramUpsertion
from tests.peers import kafka
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.secured import SCRAM, password_of

from .conftest import Tools
from .test_stock_directory import OttlaOnStock

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

MECHANISMS = ("PLAIN", *SCRAM)
_PACKAGE = "org.apache.kafka.common.security"


class StockWithUsers(kafka.StockKafka):
    """One broker with a SASL listener, and the user alice of each mechanism."""

    def __init__(self, directory: Path) -> None:
        self._port = kafka.free_ports(1)[0]
        self.address = f"127.0.0.1:{self._port}"
        users = [f"--add-scram={each}=[name=alice,password={password_of('alice')}]" for each in SCRAM]
        super().__init__(directory, 1, format_options=users)

    def _settings(self, index: int, ports: list[int]) -> dict[str, object]:
        settings = super()._settings(index, ports)
        prefix = "listener.name.sasl_plaintext"
        plain = f'{_PACKAGE}.plain.PlainLoginModule required user_alice="{password_of("alice")}";'
        scram = f"{_PACKAGE}.scram.ScramLoginModule required;"
        return {
            **settings,
            "listeners": f"{settings['listeners']},SASL_PLAINTEXT://{self.address}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
            f"{prefix}.plain.sasl.jaas.config": plain,
            **{f"{prefix}.{each.lower()}.sasl.jaas.config": scram for each in SCRAM},
        }


def log_in(address: str, mechanism: str, user: str, password: str) -> None:
    settings = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    with Admin(settings) as admin:
        assert admin.describe_cluster().brokers


def users(tools: Tools) -> str:
    return "\n".join(sorted(tools.ok("configs", "--describe", "--entity-type", "users").splitlines()))


def test_users_of_a_stock_directory_and_back(tmp_path: Path) -> None:
    missing = missing_for_jvm()
    if missing:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    stock = StockWithUsers(tmp_path / "stock")
    with stock:
        before = users(Tools(stock.bootstrap))
        assert "SCRAM-SHA-256=iterations=4096" in before
    ottla = OttlaOnStock(tmp_path / "ottla", tmp_path / "stock" / "node-1" / "server.properties")
    with ottla:
        assert users(Tools(ottla.bootstrap)) == before
        for mechanism in MECHANISMS:
            log_in(stock.address, mechanism, "alice", password_of("alice"))
        with Admin(ottla.bootstrap) as admin:
            admin.alter_scram_credentials([ScramUpsertion("bob", "bobs"), ScramDeletion("alice", "SCRAM-SHA-256")])
        ottla.kill()
        ottla.start()
        log_in(stock.address, "SCRAM-SHA-512", "bob", "bobs")
    ottla.assert_no_traceback()
    with stock:
        log_in(stock.address, "SCRAM-SHA-512", "bob", "bobs")
        log_in(stock.address, "SCRAM-SHA-512", "alice", password_of("alice"))
        with pytest.raises(AuthenticationFailed):
            log_in(stock.address, "SCRAM-SHA-256", "alice", password_of("alice"))
