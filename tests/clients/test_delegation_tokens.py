"""Delegation tokens on the wire: the same steps and errors on Ottla and on stock Kafka. KIP-48, KIP-373."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, AuthenticationFailed, ConnectionLost, Producer, RequestTimedOut
from ottla.clients.admin import DelegationToken
from ottla.clients.errors import BrokerError
from ottla.common.errors import ErrorCode
from tests.peers.secured import SCRAM, SecuredKafka

from .secured import sasl
from .secured_ottla import SecuredOttla
from .support import WAIT_S, unique, wait_until

pytestmark = pytest.mark.xdist_group("stock-kafka")
HOUR = 3_600_000
Server = SecuredKafka | SecuredOttla


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredOttla]:
    """A running broker with delegation tokens."""
    ottla = with_tokens(tmp_path_factory.mktemp("tokens"))
    ottla.start()
    yield ottla
    assert ottla.stop() == 0
    ottla.assert_no_traceback()
    assert "delegation-secret" not in ottla.log_tail(limit=10_000_000)


def with_tokens(directory: Path) -> SecuredOttla:
    ottla = SecuredOttla(
        directory,
        {"delegation.token.secret.key": "delegation-secret", "delegation.token.expiry.check.interval.ms": 200},
    )
    ottla.format()
    return ottla


@pytest.fixture(params=["ottla", pytest.param("kafka", marks=pytest.mark.jvm)])
def server(request: pytest.FixtureRequest) -> Server:
    """Each of the two brokers."""
    return request.getfixturevalue("ottla" if request.param == "ottla" else "secured")  # type: ignore[no-any-return]


def admin_of(server: Server, user: str = "alice") -> Admin:
    return Admin(sasl(server, "PLAIN", user))  # type: ignore[arg-type]


def by_token(
    server: Server, token: DelegationToken, mechanism: str = "SCRAM-SHA-256", listener: str = "SASL_PLAINTEXT"
) -> dict[str, object]:
    """The settings of a client that logs in with the token."""
    return {
        "bootstrap.servers": server.address(listener),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": token.jaas_config,
    }


def code_of(call: object) -> ErrorCode:
    """The error code of a call that must fail."""
    with pytest.raises(BrokerError) as error:
        call()  # type: ignore[operator]
    return ErrorCode(error.value.code)


def known(server: Server, token: DelegationToken) -> None:
    """Wait until the broker has the token."""
    with admin_of(server, "admin") as admin:
        wait_until(lambda: token.token_id in ids(admin), "the broker has the token")


def ids(admin: Admin) -> set[str]:
    return {token.token_id for token in admin.describe_delegation_token()}


def test_token_is_created_described_renewed_and_deleted(server: Server) -> None:
    with admin_of(server) as admin:
        token = admin.create_delegation_token(renewers=["User:reader"], max_lifetime_ms=2 * HOUR)
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:reader",))
        assert token.max_timestamp_ms == token.expiry_timestamp_ms == token.issue_timestamp_ms + 2 * HOUR
        wait_until(lambda: admin.describe_delegation_token() == [token], "the token is described")
        assert token.password not in repr(token)
        expiry_ms = admin.renew_delegation_token(token.hmac, HOUR)
        assert 0 <= expiry_ms - (time.time() * 1000 + HOUR) + 60_000 <= 60_000
        assert admin.renew_delegation_token(token.hmac) == token.max_timestamp_ms
        with admin_of(server, "reader") as renewer:
            assert [each.token_id for each in renewer.describe_delegation_token()] == [token.token_id]
            renewer.renew_delegation_token(token.hmac, HOUR)
        assert admin.expire_delegation_token(token.hmac) <= time.time() * 1000
        wait_until(lambda: not ids(admin), "the token is deleted")
        assert code_of(lambda: admin.expire_delegation_token(token.hmac)) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_stranger_can_do_nothing_with_a_token_of_another_user(server: Server) -> None:
    with admin_of(server) as admin, admin_of(server, "reader") as stranger:
        token = admin.create_delegation_token()
        known(server, token)
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert code_of(lambda: stranger.renew_delegation_token(token.hmac)) == mismatch
        assert code_of(lambda: stranger.expire_delegation_token(token.hmac)) == mismatch
        assert code_of(lambda: stranger.renew_delegation_token(b"x" * 64)) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        refused = code_of(lambda: stranger.create_delegation_token(renewers=["Group:admins"]))
        assert refused == ErrorCode.INVALID_PRINCIPAL_TYPE
        admin.expire_delegation_token(token.hmac)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_client_logs_in_by_token_and_gets_no_other_token(server: Server, mechanism: str) -> None:
    with admin_of(server) as admin:
        token = admin.create_delegation_token()
        known(server, token)
        with Admin(by_token(server, token, mechanism)) as delegate:
            refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert code_of(delegate.create_delegation_token) == refused
            assert code_of(delegate.describe_delegation_token) == refused
            assert code_of(lambda: delegate.renew_delegation_token(token.hmac)) == refused
            assert code_of(lambda: delegate.expire_delegation_token(token.hmac)) == refused
        admin.expire_delegation_token(token.hmac)


@pytest.mark.parametrize("wrong", ["password", "id", "not as a token", "user as a token"])
def test_wrong_log_in_by_token_fails_with_the_same_message(server: Server, wrong: str) -> None:
    with admin_of(server) as admin:
        token = admin.create_delegation_token()
        known(server, token)
        line = {
            "password": token.jaas_config.replace(token.password, token.password[::-1]),
            "id": token.jaas_config.replace(token.token_id, token.token_id[::-1]),
            "not as a token": token.jaas_config.replace("tokenauth", "other"),
            "user as a token": token.jaas_config.replace(token.token_id, "alice").replace(
                token.password, "alice-secret"
            ),
        }[wrong]
        settings = by_token(server, token) | {"sasl.jaas.config": line}
        expected = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM"
        with pytest.raises(AuthenticationFailed, match=expected), Admin(settings) as delegate:
            delegate.describe_cluster()
        admin.expire_delegation_token(token.hmac)


def test_session_ends_with_the_token(server: Server) -> None:
    with admin_of(server) as admin:
        token = admin.create_delegation_token()
        known(server, token)
        expiry_ms = admin.expire_delegation_token(token.hmac, 3_000)
        wait_until(
            lambda: [each.expiry_timestamp_ms for each in admin.describe_delegation_token()] == [expiry_ms],
            "the expiry is known",
        )
        with Admin(by_token(server, token)) as delegate:

            def has_ended() -> bool:
                try:
                    delegate.describe_cluster(timeout_s=2)
                except (AuthenticationFailed, ConnectionLost, RequestTimedOut):
                    # Stock Kafka accepts the log-in with an expired token, and closes the connection then.
                    return True
                return False

            wait_until(has_ended, "the session has ended")
        if isinstance(server, SecuredOttla):
            wait_until(lambda: not ids(admin), "the controller deletes the expired token")
        else:  # the next test must not see it; stock Kafka looks once an hour
            admin.expire_delegation_token(token.hmac)


def test_plaintext_listener_manages_no_tokens(server: Server) -> None:
    address = server.address("PLAINTEXT") if isinstance(server, SecuredOttla) else server.bootstrap
    with Admin(address) as admin:
        assert code_of(admin.create_delegation_token) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert code_of(admin.describe_delegation_token) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_tokens_survive_a_kill(tmp_path: Path) -> None:
    ottla = with_tokens(tmp_path)
    with ottla:
        with admin_of(ottla) as admin:
            token = admin.create_delegation_token()
        ottla.kill()
        ottla.start()
        with Producer(by_token(ottla, token)) as producer:
            producer.send(unique("tokens"), b"x").result(WAIT_S)
        with admin_of(ottla) as admin:
            assert admin.describe_delegation_token() == [token]
