"""Requests about delegation tokens on a broker, and log-ins by token: KIP-48, KIP-373."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.context import DELEGATED
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.broker.envelope import Client
from ottla.common.errors import ErrorCode
from ottla.network.connection import ANONYMOUS
from ottla.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.security import scram
from ottla.security.acl import Operation, ResourceType
from ottla.security.delegation_token import password_of

from .harness import START_MS, BrokerHarness, open_harness

ALICE, BOB, EVE = "User:alice", "User:bob", "User:eve"
SECRET = "only-nodes-know"
HOUR = 3_600_000
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0,TLS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,TLS:SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "delegation.token.secret.key": SECRET,
}


class Rules:
    """An authorizer that allows what is listed."""

    def __init__(self) -> None:
        self.allowed: set[tuple[str, Operation, ResourceType, str]] = set()

    def decide(self, principal: str, _host: str, operation: Operation, kind: ResourceType, name: str) -> Any:
        return Decision((principal, operation, kind, name) in self.allowed)


class Decision:
    def __init__(self, is_allowed: bool) -> None:
        self.is_allowed = is_allowed


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BrokerHarness]:
    with open_harness(tmp_path, SETTINGS) as harness:
        become(harness, ALICE)
        yield harness


@pytest.fixture
def rules(harness: BrokerHarness) -> Rules:
    harness.broker.security.authorizer = rules = Rules()  # type: ignore[assignment]
    return rules


def become(harness: BrokerHarness, principal: str, listener: str = "SASL", *, by_token: bool = False) -> None:
    client = harness.client
    client.principal, client.listener = principal, listener
    client.state = {DELEGATED: True} if by_token else {}


def create(harness: BrokerHarness, *renewers: str, owner: str = "", version: int = 3) -> Any:
    kind, _, name = owner.partition(":")
    request = CreateDelegationTokenRequest(
        kind or None, name or None, [CreatableRenewers(*each.split(":")) for each in renewers], -1
    )
    return harness.ask(request, version)


def described(harness: BrokerHarness, *owners: str) -> list[str]:
    """The ids of the tokens that the client sees: of all owners, or of some."""
    wanted = [DescribeDelegationTokenOwner(*each.split(":")) for each in owners] if owners else None
    response = harness.ask(DescribeDelegationTokenRequest(wanted))
    assert response.error_code == 0
    return [token.token_id for token in response.tokens]


def every_request(harness: BrokerHarness) -> set[int]:
    """The error codes of one request of each API."""
    return {
        create(harness).error_code,
        harness.ask(RenewDelegationTokenRequest(b"x", 1)).error_code,
        harness.ask(ExpireDelegationTokenRequest(b"x", 1)).error_code,
        harness.ask(DescribeDelegationTokenRequest(None)).error_code,
    }


@pytest.mark.parametrize(
    ("principal", "listener", "by_token", "is_allowed"),
    [
        (ANONYMOUS, "PLAINTEXT", False, False),
        (ALICE, "PLAINTEXT", False, False),
        (ANONYMOUS, "TLS", False, False),
        ("User:CN=alice", "TLS", False, True),
        (ALICE, "SASL", False, True),
        (ALICE, "SASL", True, False),
        ("User:CN=alice", "TLS", True, False),
    ],
)
def test_only_clients_that_authenticated_without_a_token_manage_tokens(
    harness: BrokerHarness, principal: str, listener: str, by_token: bool, is_allowed: bool
) -> None:
    become(harness, principal, listener, by_token=by_token)
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert every_request(harness) == ({0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND} if is_allowed else {refused})


def test_tokens_are_disabled_without_a_secret_key(tmp_path: Path) -> None:
    with open_harness(tmp_path, SETTINGS | {"delegation.token.secret.key": ""}) as harness:
        become(harness, ALICE)
        assert every_request(harness) == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_created_token_is_durable_and_described(harness: BrokerHarness, version: int) -> None:
    created = create(harness, BOB, version=version)
    assert (created.error_code, len(created.hmac)) == (0, 64)
    [token] = harness.ask(DescribeDelegationTokenRequest(None), version).tokens
    assert (token.token_id, token.hmac) == (created.token_id, created.hmac)
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
        START_MS, START_MS + 24 * HOUR, START_MS + 7 * 24 * HOUR,
    )  # fmt: skip
    assert [(each.principal_type, each.principal_name) for each in token.renewers] == [("User", "bob")]
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice" if version == 3 else "")


def test_token_for_another_owner_needs_create_tokens_on_the_owner(harness: BrokerHarness, rules: Rules) -> None:
    refused = create(harness, owner=BOB)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    assert create(harness, owner=ALICE).error_code == 0
    rules.allowed.add((ALICE, Operation.CREATE_TOKENS, ResourceType.USER, BOB))
    assert create(harness, owner=BOB).error_code == 0


def test_renewers_must_be_users(harness: BrokerHarness) -> None:
    refused = create(harness, "Group:admins")
    assert (refused.error_code, refused.issue_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)


def test_stranger_sees_and_changes_no_token(harness: BrokerHarness, rules: Rules) -> None:
    token = create(harness, BOB)
    become(harness, EVE)
    assert described(harness) == described(harness, ALICE) == []
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert harness.ask(RenewDelegationTokenRequest(token.hmac, -1)).error_code == mismatch
    assert harness.ask(ExpireDelegationTokenRequest(token.hmac, -1)).error_code == mismatch
    become(harness, BOB)
    assert described(harness) == [token.token_id]


@pytest.mark.parametrize(
    "rule",
    [(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, "ID"), (Operation.DESCRIBE_TOKENS, ResourceType.USER, ALICE)],
)
def test_permission_to_describe_tokens(
    harness: BrokerHarness, rules: Rules, rule: tuple[Operation, ResourceType, str]
) -> None:
    first, second = create(harness).token_id, create(harness).token_id
    operation, kind, name = rule
    rules.allowed.add((EVE, operation, kind, name.replace("ID", first)))
    become(harness, EVE)
    assert set(described(harness)) == ({first} if name == "ID" else {first, second})
    assert described(harness, BOB) == []


def test_tokens_are_described_by_owner_and_by_renewer(harness: BrokerHarness) -> None:
    mine, shared = create(harness).token_id, create(harness, BOB).token_id
    assert set(described(harness)) == {mine, shared}
    assert set(described(harness, ALICE, EVE)) == {mine, shared}
    assert described(harness, BOB) == [shared]
    assert harness.ask(DescribeDelegationTokenRequest([])).tokens == []


def test_renewed_token_lasts_longer(harness: BrokerHarness) -> None:
    token = create(harness)
    harness.loop.advance(HOUR)
    renewed = harness.ask(RenewDelegationTokenRequest(token.hmac, -1))
    assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, START_MS + 25 * HOUR)
    assert harness.broker.metadata.image.delegation_tokens[token.token_id].expiration_timestamp == START_MS + 25 * HOUR


def test_controller_refuses_a_forwarded_request_of_a_client_that_has_logged_in_by_token(harness: BrokerHarness) -> None:
    for by_token in (False, True):
        state: dict[str, object] = {DELEGATED: True} if by_token else {}
        harness.client = Client(ALICE, "127.0.0.1", "PLAINTEXT", False, state)  # type: ignore[assignment]
        expected = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if by_token else 0
        assert create(harness).error_code == expected


# -- log-in ----------------------------------------------------------------------------------------------------


def tokens_of(harness: BrokerHarness) -> DelegationTokens:
    tokens = harness.broker.security.tokens
    assert tokens is not None
    return tokens


@pytest.mark.parametrize("mechanism", scram.NAMES)
def test_credential_of_a_token_verifies_its_hmac(harness: BrokerHarness, mechanism: str) -> None:
    token = create(harness)
    account = tokens_of(harness).account(mechanism, token.token_id)
    assert account is not None
    assert (account.owner, account.expires_at_ms) == ("alice", token.expiry_timestamp_ms)
    client = scram.ScramClient(mechanism, token.token_id, password_of(token.hmac), "nonce", token_auth=True)
    server = scram.ScramServer(mechanism, scram.read_client_first(client.start()), account.credential, "more")
    proof = client.answer(server.challenge())
    assert proof is not None
    client.answer(server.verify(proof))
    assert client.is_complete


def test_expired_and_unknown_tokens_have_no_account(harness: BrokerHarness) -> None:
    token = create(harness)
    tokens = tokens_of(harness)
    assert tokens.account("SCRAM-SHA-256", "unknown") is None
    assert tokens.account("SCRAM-SHA-256", token.token_id) is not None
    harness.loop.advance(24 * HOUR)
    assert tokens.account("SCRAM-SHA-256", token.token_id) is None


def test_deleted_token_has_no_account(harness: BrokerHarness) -> None:
    token = create(harness)
    tokens = tokens_of(harness)
    assert tokens.account("SCRAM-SHA-256", token.token_id) is not None
    assert harness.ask(ExpireDelegationTokenRequest(token.hmac, -1)).error_code == 0
    assert tokens.account("SCRAM-SHA-256", token.token_id) is None


def test_token_of_another_principal_type_has_no_account(harness: BrokerHarness) -> None:
    token = create(harness, owner="Group:alice")
    assert token.error_code == 0
    assert tokens_of(harness).account("SCRAM-SHA-256", token.token_id) is None


def test_active_controller_deletes_expired_tokens(harness: BrokerHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    token = create(harness)
    tokens_of(harness).delete_expired()
    harness.loop.run()
    assert tokens_of(harness).records
    harness.loop.advance(24 * HOUR + 1)
    tokens_of(harness).delete_expired()
    harness.loop.run()
    assert not tokens_of(harness).records
    assert f"Delegation token expired for token: {token.token_id} for owner: User:alice" in caplog.text
    assert SECRET not in caplog.text
