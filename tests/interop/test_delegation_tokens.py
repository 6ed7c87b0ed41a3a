"""Delegation tokens and OAuth tokens with Kafka's tools and Java client; tokens of a directory, there and back."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin
from ottla.clients.admin import DelegationToken
from tests.clients.secured_ottla import SecuredOttla
from tests.clients.test_oauthbearer import oauth_settings
from tests.identity_provider import CLIENT, SECRET, IdentityProvider
from tests.peers import kafka
from tests.peers.secured import password_of

from .test_stock_directory import OttlaOnStock

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("stock-interop")]

KEY = "delegation-secret"
_PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{_PACKAGE}.plain.PlainLoginModule required username="{{}}" password="{{}}";'


def properties(directory: Path, mechanism: str, jaas: str, **others: str) -> Path:
    """The settings file of a Java client."""
    lines = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
        **{name.replace("_", "."): value for name, value in others.items()},
    }
    path = directory / f"{mechanism}-{abs(hash(jaas))}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return path


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[SecuredOttla]:
    settings = oauth_settings(provider) | {
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN,SCRAM-SHA-256",
        "delegation.token.secret.key": KEY,
    }
    with SecuredOttla(tmp_path_factory.mktemp("java"), settings) as ottla:
        yield ottla
        ottla.assert_no_traceback()


def tool(ottla: SecuredOttla, name: str, config: Path, *arguments: object) -> str:
    address = ("--bootstrap-server", ottla.address("SASL_PLAINTEXT"), "--command-config", config)
    done = kafka.tool(name, *address, *arguments)
    return f"{done.stdout}\n{done.stderr}"


def test_stock_tool_manages_tokens_and_java_client_logs_in_with_one(ottla: SecuredOttla, tmp_path: Path) -> None:
    alice = properties(tmp_path, "PLAIN", PLAIN.format("alice", password_of("alice")))
    reader = properties(tmp_path, "PLAIN", PLAIN.format("reader", password_of("reader")))
    created = tool(
        ottla, "delegation-tokens", alice, "--create", "--max-life-time-period", 3_600_000,
        "--renewer-principal", "User:reader",
    )  # fmt: skip
    match = re.search(r"^(\S{22})\s+(\S+==)\s+User:alice\s+User:alice\s+\[User:reader\]", created, re.MULTILINE)
    assert match, created
    token_id, password = match.groups()
    described = tool(ottla, "delegation-tokens", alice, "--describe", "--owner-principal", "User:alice")
    assert token_id in described
    renewed = tool(ottla, "delegation-tokens", reader, "--renew", "--hmac", password, "--renew-time-period", 60_000)
    assert "Completed renew operation. New expiry date" in renewed
    jaas = f'{_PACKAGE}.scram.ScramLoginModule required username="{token_id}" password="{password}" tokenauth="true";'
    delegate = properties(tmp_path, "SCRAM-SHA-256", jaas)
    assert "Created topic by-token" in tool(ottla, "topics", delegate, "--create", "--topic", "by-token")
    refused = tool(ottla, "delegation-tokens", delegate, "--create", "--max-life-time-period", -1)
    assert "DelegationTokenDisabledException" not in refused
    assert "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels" in refused
    expired = tool(ottla, "delegation-tokens", alice, "--expire", "--hmac", password, "--expiry-time-period", -1)
    assert "Completed expire operation" in expired
    failed = tool(ottla, "topics", delegate, "--list")
    assert "Authentication failed during authentication due to invalid credentials" in failed


def test_java_client_logs_in_with_tokens_of_an_endpoint(
    ottla: SecuredOttla, provider: IdentityProvider, tmp_path: Path
) -> None:
    secret = SECRET.encode("ascii", "backslashreplace").decode().replace("\\xfc", "\\u00fc")
    config = properties(
        tmp_path,
        "OAUTHBEARER",
        f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required ;",
        sasl_login_callback_handler_class=f"{_PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url=f"{provider.url}/token",
        sasl_oauthbearer_client_credentials_client_id=CLIENT,
        sasl_oauthbearer_client_credentials_client_secret=secret,
        sasl_oauthbearer_scope="kafka",
    )
    words = ("--bootstrap-server", ottla.address("SASL_PLAINTEXT"), "--command-config", str(config))
    command = kafka.java(kafka.TOOLS["topics"], *words, "--create", "--topic", "by-oauth", heap="256m")
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url}/token"
    done = subprocess.run(
        command,
        env=os.environ | {"JAVA_TOOL_OPTIONS": allowed},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Created topic by-oauth" in done.stdout, done.stdout + done.stderr
    assert provider.forms[-1]["grant_type"] == "client_credentials"


# -- a directory -----------------------------------------------------------------------------------------------


class StockWithTokens(kafka.StockKafka):
    """One stock broker with a SASL listener and delegation tokens."""

    def __init__(self, directory: Path) -> None:
        self._port = kafka.free_ports(1)[0]
        self.address = f"127.0.0.1:{self._port}"
        super().__init__(directory, 1)

    def _settings(self, index: int, ports: list[int]) -> dict[str, object]:
        settings = super()._settings(index, ports)
        prefix = "listener.name.sasl_plaintext"
        return {
            **settings,
            "listeners": f"{settings['listeners']},SASL_PLAINTEXT://{self.address}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            f"{prefix}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            f"{prefix}.plain.sasl.jaas.config": f'{_PACKAGE}.plain.PlainLoginModule required user_alice="a";',
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;",
            "delegation.token.secret.key": KEY,
        }


def alice_at(address: str) -> Admin:
    settings = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "a"}
    return Admin(address, settings, security_protocol="SASL_PLAINTEXT")


def log_in(address: str, token: DelegationToken) -> None:
    settings = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": token.jaas_config}
    with Admin(address, settings, security_protocol="SASL_PLAINTEXT") as delegate:
        assert delegate.describe_cluster().brokers


def test_tokens_of_a_stock_directory_and_back(tmp_path: Path) -> None:
    stock = StockWithTokens(tmp_path / "stock")
    with stock, alice_at(stock.address) as admin:
        by_stock = admin.create_delegation_token(renewers=["User:bob"])
    with OttlaOnStock(tmp_path / "ottla", tmp_path / "stock" / "node-1" / "server.properties"):
        with alice_at(stock.address) as admin:
            assert admin.describe_delegation_token() == [by_stock]
            expiry_ms = admin.renew_delegation_token(by_stock.hmac, 3_600_000)
            by_ottla = admin.create_delegation_token()
        log_in(stock.address, by_stock)
    with stock:
        log_in(stock.address, by_stock)
        log_in(stock.address, by_ottla)
        with alice_at(stock.address) as admin:
            found = {token.token_id: token for token in admin.describe_delegation_token()}
    assert found[by_ottla.token_id] == by_ottla
    assert found[by_stock.token_id].expiry_timestamp_ms == expiry_ms
