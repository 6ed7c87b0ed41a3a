"""The broker's side of OAUTHBEARER: RFC 7628, KIP-255."""

from __future__ import annotations

import pytest

from ottla.common.completion import Completion
from ottla.security.jwt import TokenRejected, ValidToken
from ottla.security.mechanism import AuthenticationError, Identity, SaslError
from ottla.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, OAuthToken

ALICE = ValidToken("alice", 5_000)


class Exchange:
    """A server whose validator answers what the test says; `reasons` are the reported rejections."""

    def __init__(self, outcome: ValidToken | TokenRejected | Completion[ValidToken]) -> None:
        self.reasons: list[str] = []
        self.tokens: list[str] = []

        def validate(token: str) -> ValidToken | Completion[ValidToken]:
            self.tokens.append(token)
            if isinstance(outcome, TokenRejected):
                raise outcome
            return outcome

        self.server = OAuthBearerServer(validate, self.reasons.append)


FIRST = OAuthBearerClient(OAuthToken("to.ke.n", extensions={"tenant": "a"})).start()


def test_valid_token_authenticates_until_it_expires() -> None:
    exchange = Exchange(ALICE)
    assert exchange.server.identity is None
    assert exchange.server.answer(FIRST) == b""
    assert (exchange.server.identity, exchange.tokens) == (Identity("alice", 5_000), ["to.ke.n"])


@pytest.mark.parametrize(
    ("rejection", "text"),
    [
        (TokenRejected("the token has expired"), b'{"status":"invalid_token"}'),
        (TokenRejected("no", "insufficient_scope", "[a]"), b'{"status":"insufficient_scope", "scope":"[a]"}'),
        (TokenRejected("no", 'x"y', 'z"'), b'{"status":"x\\"y", "scope":"z\\""}'),
    ],
)
def test_client_receives_the_status_and_the_log_the_reason(rejection: TokenRejected, text: bytes) -> None:
    exchange = Exchange(rejection)
    assert exchange.server.answer(FIRST) == text
    assert exchange.reasons == [str(rejection)]
    with pytest.raises(AuthenticationError, match="status") as failed:
        exchange.server.answer(b"\x01")
    assert str(failed.value).encode() == text
    assert exchange.server.identity is None


def test_second_token_after_a_rejection_is_refused() -> None:
    exchange = Exchange(TokenRejected("no"))
    exchange.server.answer(FIRST)
    with pytest.raises(AuthenticationError):
        exchange.server.answer(FIRST)
    assert len(exchange.tokens) == 1


@pytest.mark.parametrize("is_valid", [True, False])
def test_validation_may_take_time(is_valid: bool) -> None:
    later: Completion[ValidToken] = Completion()
    exchange = Exchange(later)
    answer = exchange.server.answer(FIRST)
    assert isinstance(answer, Completion)
    assert (answer.done, exchange.server.identity) == (False, None)
    if is_valid:
        later.complete(ALICE)
        assert (answer.result(), exchange.server.identity) == (b"", Identity("alice", 5_000))
    else:
        later.fail(TokenRejected("slow"))
        assert (answer.result(), exchange.reasons) == (b'{"status":"invalid_token"}', ["slow"])


@pytest.mark.parametrize(
    ("authorization_id", "is_allowed"), [("", True), ("alice", True), ("bob", False), ("=2Calice", False)]
)
def test_client_cannot_act_as_another_user(authorization_id: str, is_allowed: bool) -> None:
    exchange = Exchange(ALICE)
    asked = f"a={authorization_id}" if authorization_id else ""
    message = FIRST.replace(b"n,,", f"n,{asked},".encode())
    if is_allowed:
        assert exchange.server.answer(message) == b""
        return
    with pytest.raises(AuthenticationError, match="different from the token's principal name"):
        exchange.server.answer(message)
    assert exchange.server.identity is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer to.ke.n\x01\x01",
        b"n,,\x01auth=Basic to.ke.n\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer to ken\x01\x01",
        b"n,,\x01auth=Bearer to.ke.n\x01",
        b"n,,\x01ten_ant=a\x01auth=Bearer to.ke.n\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_malformed_message_is_an_error(message: bytes) -> None:
    exchange = Exchange(ALICE)
    with pytest.raises(SaslError):
        exchange.server.answer(message)
    assert (exchange.tokens, exchange.server.identity) == ([], None)


def test_texts_do_not_contain_the_token() -> None:
    from ottla.security.oauthbearer import read_message

    assert "to.ke.n" not in repr(read_message(FIRST))
