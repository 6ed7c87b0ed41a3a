"""The SASL state machine of one connection: what it serves before a log-in, and what it never takes for one."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.authentication import LogInFailed, Mechanism, SaslListener, SaslSession, State, Times
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol import frames
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.wire import DecodeError
from ottla.security import plain, scram
from ottla.security.mechanism import Identity, SaslServer

USERS = plain.Users({"alice": "alice-secret", "bob": "bob-secret"})
CREDENTIAL = scram.derive(
    "SCRAM-SHA-256", scram.salted_password("SCRAM-SHA-256", "pencil", b"salt", 4096), b"salt", 4096
)
WRONG = "Authentication failed: Invalid username or password"


def find(name: str, by_token: bool) -> scram.Account | None:
    return None if by_token or name != "alice" else scram.Account(CREDENTIAL, name)


def listener(max_reauth_ms: int = 0, verify: plain.Verify = USERS) -> SaslListener:
    return SaslListener(
        {
            "PLAIN": Mechanism(lambda: plain.PlainServer(verify), max_reauth_ms),
            "SCRAM-SHA-256": Mechanism(lambda: scram.ScramExchange("SCRAM-SHA-256", find, "server"), max_reauth_ms),
        }
    )


class Client:
    """Sends frames to one session, at a time that the test moves."""

    def __init__(self, settings: SaslListener) -> None:
        self.session = SaslSession(settings)
        self.now_ms = 1_000

    def send_frame(self, frame: bytes) -> Any:
        def answer_versions(frame: memoryview) -> Any:
            version = frames.decode_request_header(frame)[0].api_version
            code = 0 if version <= 4 else ErrorCode.UNSUPPORTED_VERSION
            return [struct.pack(">iih", 6, 7, code)]

        return self.session.receive(
            memoryview(bytearray(frame)), lambda: Times(self.now_ms, self.now_ms), answer_versions
        )

    def send(self, request: Message, version: int) -> Any:
        return self.send_frame(encoded(request, version))

    def log_in(self, user: str = "alice", password: str = "alice-secret", version: int = 2) -> SaslAuthenticateResponse:
        self.send(SaslHandshakeRequest("PLAIN"), 1)
        answer = self.send(SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), version)
        response: SaslAuthenticateResponse = decoded(answer, SaslAuthenticateResponse, version)
        return response


def encoded(request: Message, version: int) -> bytes:
    return b"".join(frames.encode_request(request, version, 7, "client"))[4:]


def decoded(answer: Any, kind: type[Any], version: int) -> Any:
    data = b"".join(bytes(part) for part in answer)[4:]
    correlation_id, position = frames.decode_response_header(data, kind.API_KEY, version)
    assert correlation_id == 7
    return kind.decode_from(data, position, version)[0]


# -- log-ins ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_log_in(version: int) -> None:
    client = Client(listener())
    assert client.send(ApiVersionsRequest(), 3) == [struct.pack(">iih", 6, 7, 0)]
    handshake = decoded(client.send(SaslHandshakeRequest("PLAIN"), 1), SaslHandshakeResponse, 1)
    assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
    assert client.session.identity is None
    answer = client.send(SaslAuthenticateRequest(b"\0alice\0alice-secret"), version)
    response = decoded(answer, SaslAuthenticateResponse, version)
    assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", 0)
    assert client.session.state is State.AUTHENTICATED
    assert client.session.identity == Identity("alice")


def test_tokens_after_handshake_version_0_are_whole_frames() -> None:
    client = Client(listener())
    decoded(client.send(SaslHandshakeRequest("SCRAM-SHA-256"), 0), SaslHandshakeResponse, 0)
    exchange = scram.ScramClient("SCRAM-SHA-256", "alice", "pencil", "nonce")
    (first,) = client.send_frame(exchange.start())
    assert struct.unpack(">i", first[:4]) == (len(first) - 4,)
    proof = exchange.answer(first[4:])
    assert proof is not None
    (last,) = client.send_frame(proof)
    assert exchange.answer(last[4:]) is None
    assert exchange.is_complete
    assert client.session.identity == Identity("alice")


def test_scram_log_in() -> None:
    client = Client(listener())
    client.send(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    exchange = scram.ScramClient("SCRAM-SHA-256", "alice", "pencil", "nonce")
    token: bytes | None = exchange.start()
    while token is not None:
        assert client.session.identity is None
        answer = client.send(SaslAuthenticateRequest(token), 2)
        token = exchange.answer(decoded(answer, SaslAuthenticateResponse, 2).auth_bytes)
    assert exchange.is_complete
    assert client.session.identity == Identity("alice")


def test_slow_verification_answers_later() -> None:
    verified: Completion[bool] = Completion()
    client = Client(listener(5_000, lambda _name, _password: verified))
    client.send(SaslHandshakeRequest("PLAIN"), 1)
    answer = client.send(SaslAuthenticateRequest(b"\0alice\0secret"), 2)
    assert not answer.done
    assert client.session.state is State.TOKENS
    client.now_ms += 3_000
    verified.complete(True)
    response = decoded(answer.result(), SaslAuthenticateResponse, 2)
    assert (response.error_code, response.session_lifetime_ms) == (0, 5_000)
    assert client.session.identity == Identity("alice")
    # The session begins with the answer.
    assert not client.session.is_expired(client.now_ms + 5_000)


# -- refused log-ins --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", WRONG),
        (b"\0mallory\0alice-secret", WRONG),
        (b"\0alice\0alice-secre", WRONG),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"bob\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_refused_plain_token(token: bytes, message: str) -> None:
    client = Client(listener())
    client.send(SaslHandshakeRequest("PLAIN"), 1)
    with pytest.raises(LogInFailed) as failure:
        client.send(SaslAuthenticateRequest(token), 2)
    response = decoded(failure.value.response, SaslAuthenticateResponse, 2)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    assert str(failure.value) == message
    assert client.session.identity is None


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("mallory", "pencil")])
def test_unknown_scram_user_and_wrong_password_have_the_same_answer(user: str, password: str) -> None:
    client = Client(listener())
    client.send(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    exchange = scram.ScramClient("SCRAM-SHA-256", user, password, "nonce")

    def log_in() -> None:
        token = exchange.start()
        for _ in range(2):
            answer = client.send(SaslAuthenticateRequest(token), 2)
            token = exchange.answer(decoded(answer, SaslAuthenticateResponse, 2).auth_bytes) or b""

    with pytest.raises(LogInFailed) as failure:
        log_in()
    response = decoded(failure.value.response, SaslAuthenticateResponse, 2)
    text = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)


def test_unknown_mechanism_lists_the_enabled_ones() -> None:
    client = Client(listener())
    with pytest.raises(LogInFailed, match="Unsupported SASL mechanism 'GSSAPI'") as failure:
        client.send(SaslHandshakeRequest("GSSAPI"), 1)
    response = decoded(failure.value.response, SaslHandshakeResponse, 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256"]


# -- illegal requests -------------------------------------------------------------------------------------------


def test_other_requests_before_the_log_in_are_refused() -> None:
    with pytest.raises(LogInFailed, match="Unexpected Kafka request of type METADATA during SASL handshake"):
        Client(listener()).send(MetadataRequest(), 12)
    client = Client(listener())
    client.send(SaslHandshakeRequest("PLAIN"), 1)
    with pytest.raises(LogInFailed, match="Unexpected Kafka request of type METADATA during SASL authentication"):
        client.send(MetadataRequest(), 12)
    with pytest.raises(LogInFailed, match="SASL_AUTHENTICATE during SASL handshake"):
        Client(listener()).send(SaslAuthenticateRequest(b"\0alice\0alice-secret"), 2)


def test_second_handshake_is_an_illegal_state() -> None:
    client = Client(listener())
    client.send(SaslHandshakeRequest("PLAIN"), 1)
    with pytest.raises(LogInFailed) as failure:
        client.send(SaslHandshakeRequest("PLAIN"), 1)
    assert decoded(failure.value.response, SaslHandshakeResponse, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_api_versions_is_served_once_and_again_after_a_version_that_is_not_supported() -> None:
    client = Client(listener())
    client.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0")
    client.send(ApiVersionsRequest(), 3)
    with pytest.raises(DecodeError, match="Unexpected ApiVersions request"):
        client.send(ApiVersionsRequest(), 3)


def test_frame_that_is_not_a_request_is_not_taken_for_a_kerberos_token() -> None:
    with pytest.raises(LogInFailed, match="GSSAPI is not supported by server"):
        Client(listener()).send_frame(b"\x60\x82\x02\x6f" + bytes(40))


def test_unsupported_versions_close_the_connection() -> None:
    with pytest.raises(KafkaError, match="Version 9 is not supported for apiKey SASL_HANDSHAKE"):
        Client(listener()).send_frame(struct.pack(">hhih", 17, 9, 7, -1))
    client = Client(listener())
    client.send(SaslHandshakeRequest("PLAIN"), 1)
    with pytest.raises(KafkaError, match="Version 9 is not supported for apiKey SASL_AUTHENTICATE"):
        client.send_frame(struct.pack(">hhih", 36, 9, 7, -1) + b"\0")


# -- sessions ---------------------------------------------------------------------------------------------------


def test_session_ends_and_another_log_in_renews_it() -> None:
    client = Client(listener(max_reauth_ms=5_000))
    assert client.log_in().session_lifetime_ms == 5_000
    client.now_ms += 5_000
    assert not client.session.is_expired(client.now_ms)
    assert client.session.may_reauthenticate(client.now_ms)
    assert client.log_in().session_lifetime_ms == 5_000
    client.now_ms += 5_001
    assert client.session.is_expired(client.now_ms)


def test_session_without_an_end_has_no_reauthentication() -> None:
    client = Client(listener())
    client.log_in()
    assert not client.session.may_reauthenticate(client.now_ms)
    assert not client.session.is_expired(client.now_ms + 10**12)


def test_at_most_one_reauthentication_per_second() -> None:
    client = Client(listener(max_reauth_ms=5_000))
    client.log_in()
    assert client.session.may_reauthenticate(client.now_ms)
    assert not client.session.may_reauthenticate(client.now_ms + 999)
    assert client.session.may_reauthenticate(client.now_ms + 1_000)


def test_reauthentication_as_another_user_is_refused() -> None:
    client = Client(listener(max_reauth_ms=5_000))
    client.log_in()
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    with pytest.raises(LogInFailed) as failure:
        client.log_in("bob", "bob-secret")
    response = decoded(failure.value.response, SaslAuthenticateResponse, 2)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert client.session.identity == Identity("alice")


def test_reauthentication_with_another_mechanism_is_refused_at_the_token() -> None:
    client = Client(listener(max_reauth_ms=5_000))
    client.log_in()
    response = decoded(client.send(SaslHandshakeRequest("SCRAM-SHA-256"), 1), SaslHandshakeResponse, 1)
    assert response.error_code == 0
    with pytest.raises(
        LogInFailed, match="'SCRAM-SHA-256' requested by client is not supported for re-auth"
    ) as failure:
        client.send(SaslAuthenticateRequest(b"n,,n=alice,r=nonce"), 2)
    assert failure.value.response is None


def test_session_ends_with_its_credential() -> None:
    class Expiring:
        name = "PLAIN"
        identity: Identity | None = None

        def answer(self, _token: bytes) -> bytes:
            self.identity = Identity("alice", expires_at_ms=4_000)
            return b""

    def start() -> SaslServer:
        return Expiring()

    for max_reauth_ms, expected in ((0, 3_000), (10_000, 3_000), (500, 500)):
        client = Client(SaslListener({"PLAIN": Mechanism(start, max_reauth_ms)}))
        assert client.log_in().session_lifetime_ms == expected
        assert not client.session.is_expired(client.now_ms + expected)
        assert client.session.is_expired(client.now_ms + expected + 1)


# -- any frames -------------------------------------------------------------------------------------------------

TOKENS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\0alice\0wrong", b"\0bob\0alice-secret", b"n,,n=alice,r=n", b"c=biws,r=nserver,p=AAAA"]),
)
REQUESTS = st.one_of(
    st.builds(lambda v: encoded(ApiVersionsRequest(), v), st.sampled_from([0, 3])),
    st.builds(
        lambda name, v: encoded(SaslHandshakeRequest(name), v),
        st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI", ""]),
        st.sampled_from([0, 1]),
    ),
    st.builds(lambda token, v: encoded(SaslAuthenticateRequest(token), v), TOKENS, st.sampled_from([0, 1, 2])),
    st.just(encoded(MetadataRequest(), 12)),
)
CUT = st.builds(lambda frame, size: frame[:size], REQUESTS, st.integers(0, 30))


@given(st.lists(st.one_of(TOKENS, REQUESTS, CUT), max_size=8))
def test_no_frames_without_a_right_exchange_authenticate(received: list[bytes]) -> None:
    client = Client(listener(max_reauth_ms=5_000))
    for frame in received:
        try:
            client.send_frame(frame)
        except (LogInFailed, DecodeError, KafkaError):
            break
        assert client.session.state is not State.AUTHENTICATED
    assert client.session.identity is None
