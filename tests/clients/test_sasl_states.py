"""The SASL state machine on the wire: the same answers, errors and closed connections as stock Kafka."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol import frames
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.registry import response_class
from tests.peers.secured import SESSION_MS, SecuredKafka, password_of

from .secured_ottla import SecuredOttla
from .support import wait_until

DEADLINE_S = 5.0
CLOSED = "closed"
ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 34, 58
ALICE = b"\0alice\0" + password_of("alice").encode()
ADMIN = b"\0admin\0" + password_of("admin").encode()
Step: TypeAlias = tuple[Message, int] | bytes


class Wire:
    """One connection; `send` sends a request or the bytes of a frame, and returns a description of the answer."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), DEADLINE_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self.socket.settimeout(DEADLINE_S)

    def close(self) -> None:
        self.socket.close()

    def send_only(self, step: Step) -> None:
        if isinstance(step, bytes):
            self.socket.sendall(struct.pack(">i", len(step)) + step)
        else:
            self.socket.sendall(b"".join(frames.encode_request(step[0], step[1], 7, "client")))

    def receive(self) -> bytes | None:
        """The next frame; None if the connection is closed."""
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                more = self.socket.recv(size - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                assert not data
                return None
            data += more
        return data

    def send(self, step: Step) -> Any:
        try:
            self.send_only(step)
        except (BrokenPipeError, ConnectionResetError):
            return CLOSED
        frame = self.receive()
        if frame is None:
            return CLOSED
        if isinstance(step, bytes):
            return frame if len(frame) < 10 else len(frame)
        return described(frame, step[0].API_KEY, step[1])


def described(frame: bytes, key: int, version: int) -> Any:
    """The parts of a response that do not depend on the time and on random numbers."""
    _, position = frames.decode_response_header(frame, key, version)
    response: Any = response_class(key).decode_from(memoryview(bytearray(frame)), position, version)[0]
    if isinstance(response, SaslHandshakeResponse):
        return response.error_code, sorted(each for each in response.mechanisms if each != "OAUTHBEARER")
    if isinstance(response, SaslAuthenticateResponse):
        size = len(response.auth_bytes)
        return response.error_code, response.error_message, size > 0, response.session_lifetime_ms
    if isinstance(response, ApiVersionsResponse):
        return response.error_code
    return type(response).__name__


HANDSHAKE: Step = (SaslHandshakeRequest("PLAIN"), 1)
RAW_HANDSHAKE: Step = (SaslHandshakeRequest("PLAIN"), 0)
SCRAM_HANDSHAKE: Step = (SaslHandshakeRequest("SCRAM-SHA-512"), 1)
VERSIONS: Step = (ApiVersionsRequest("test", "1"), 3)
METADATA: Step = (MetadataRequest([]), 4)


def token(data: bytes, version: int = 2) -> Step:
    return SaslAuthenticateRequest(data), version


def request(key: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, 7, -1) + body


SCENARIOS: dict[str, list[Step]] = {
    "log-in": [VERSIONS, HANDSHAKE, token(ALICE), METADATA, VERSIONS],
    "log-in without ApiVersions": [HANDSHAKE, token(ALICE), METADATA],
    "log-in, version 0": [HANDSHAKE, token(ALICE, 0), METADATA],
    "log-in, version 1": [HANDSHAKE, token(ALICE, 1), METADATA],
    "log-in with raw tokens": [VERSIONS, RAW_HANDSHAKE, ALICE, METADATA],
    "wrong password": [HANDSHAKE, token(b"\0alice\0wrong"), METADATA],
    "wrong password, version 0": [HANDSHAKE, token(b"\0alice\0wrong", 0)],
    "unknown user": [HANDSHAKE, token(b"\0mallory\0wrong")],
    "wrong password with raw tokens": [RAW_HANDSHAKE, b"\0alice\0wrong"],
    "no user name": [HANDSHAKE, token(b"\0\0x")],
    "no password": [HANDSHAKE, token(b"\0alice\0")],
    "no token": [HANDSHAKE, token(b"")],
    "too many parts": [HANDSHAKE, token(b"a\0b\0c\0d\0e")],
    "not UTF-8": [HANDSHAKE, token(b"\0\xff\xfe\0x")],
    "own authorization id": [HANDSHAKE, token(b"alice" + ALICE)],
    "other authorization id": [HANDSHAKE, token(b"admin" + ALICE)],
    "other authorization id and wrong password": [HANDSHAKE, token(b"admin\0alice\0wrong")],
    "unknown mechanism": [(SaslHandshakeRequest("CRAM-MD5"), 1), METADATA],
    "unknown mechanism, version 0": [(SaslHandshakeRequest("CRAM-MD5"), 0)],
    "kerberos": [(SaslHandshakeRequest("GSSAPI"), 1)],
    "mechanism in lower case": [(SaslHandshakeRequest("plain"), 1)],
    "no mechanism": [(SaslHandshakeRequest(""), 1)],
    "other request first": [METADATA],
    "other request after ApiVersions": [VERSIONS, METADATA],
    "other request after the handshake": [HANDSHAKE, METADATA],
    "other request in a newer version after the handshake": [HANDSHAKE, (CreateTopicsRequest([]), 7)],
    "token without a handshake": [token(ALICE)],
    "token after ApiVersions": [VERSIONS, token(ALICE)],
    "two handshakes": [HANDSHAKE, HANDSHAKE],
    "ApiVersions after the handshake": [HANDSHAKE, VERSIONS],
    "ApiVersions twice": [VERSIONS, VERSIONS],
    "unknown version of ApiVersions": [request(18, 99), VERSIONS, HANDSHAKE, token(ALICE)],
    "unknown version of ApiVersions twice": [request(18, 99), request(18, 99)],
    "wrong name of the client": [(ApiVersionsRequest("-", "1"), 3), VERSIONS, HANDSHAKE],
    "unknown version of SaslHandshake": [request(17, 9, b"\0\5PLAIN")],
    "unknown version of SaslAuthenticate": [HANDSHAKE, request(36, 9, b"\0\1")],
    "unknown API": [request(999, 0)],
    "unknown API after ApiVersions": [VERSIONS, request(999, 0)],
    "kerberos token": [b"\x60\x82\x02\x6f" + bytes(40)],
    "no bytes": [b""],
    "one byte": [b"\0"],
    "no bytes after the handshake": [HANDSHAKE, b""],
    "cut handshake": [request(17, 1, b"\0\x20PLA")],
    "cut token": [HANDSHAKE, request(36, 1, struct.pack(">i", 100) + b"x")],
    "handshake after the log-in": [HANDSHAKE, token(ALICE), HANDSHAKE, METADATA],
    "token after the log-in": [HANDSHAKE, token(ALICE), token(ALICE), METADATA],
    "unknown SCRAM user": [SCRAM_HANDSHAKE, token(b"n,,n=mallory,r=nonce")],
    "malformed SCRAM message": [SCRAM_HANDSHAKE, token(b"hello")],
    "SCRAM with channel binding": [SCRAM_HANDSHAKE, token(b"p=tls-unique,,n=alice,r=nonce")],
    "SCRAM with its own authorization id": [SCRAM_HANDSHAKE, token(b"n,a=alice,n=alice,r=nonce")],
    "SCRAM with another authorization id": [SCRAM_HANDSHAKE, token(b"n,a=admin,n=alice,r=nonce")],
    "wrong proof": [SCRAM_HANDSHAKE, token(b"n,,n=alice,r=nonce"), token(b"c=biws,r=nonce,p=AAAA")],
    "unknown delegation token": [SCRAM_HANDSHAKE, token(b"n,,n=alice,r=nonce,tokenauth=true")],
}


def play(address: str, steps: list[Step]) -> list[Any]:
    wire = Wire(address)
    transcript = []
    with contextlib.closing(wire):
        for step in steps:
            transcript.append(wire.send(step))
            if transcript[-1] == CLOSED:
                break
    return transcript


# Kafka answers these with an error of their own before it closes the connection, for which it decodes them.
NOT_DECODED = {"other request after the handshake", "other request in a newer version after the handshake"}


@pytest.mark.jvm
@pytest.mark.xdist_group("stock-kafka")
@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answers_as_stock_kafka(secured: SecuredKafka, secured_ottla: SecuredOttla, name: str) -> None:
    stock, ottla = (play(each.address("SASL_PLAINTEXT"), SCENARIOS[name]) for each in (secured, secured_ottla))
    if name in NOT_DECODED:
        assert ottla == [*stock[:-1], CLOSED]
    else:
        assert ottla == stock


def log_in(wire: Wire, message: bytes = ALICE) -> Any:
    assert wire.send(HANDSHAKE)[0] == 0
    return wire.send(token(message))


@pytest.fixture(
    params=["ottla", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.xdist_group("stock-kafka")])]
)
def short(request: pytest.FixtureRequest) -> str:
    """Return the address of a listener whose sessions last 2 s."""
    broker = request.getfixturevalue("secured_ottla" if request.param == "ottla" else "secured")
    return str(broker.address("SHORT"))


def test_expired_session_is_closed_at_the_next_request(short: str) -> None:
    with contextlib.closing(Wire(short)) as wire:
        assert log_in(wire) == (0, "", False, SESSION_MS)
        assert wire.send(METADATA) == "MetadataResponse"
        time.sleep(SESSION_MS / 1000 + 0.2)
        assert wire.send(METADATA) == CLOSED


def test_session_is_renewed_after_its_end_and_before(short: str) -> None:
    with contextlib.closing(Wire(short)) as wire:
        log_in(wire)
        assert log_in(wire) == (0, "", False, SESSION_MS)
        assert wire.send(METADATA) == "MetadataResponse"
        # At most one log-in per second.
        assert wire.send(HANDSHAKE) == (ILLEGAL_SASL_STATE, [])
        time.sleep(SESSION_MS / 1000 + 0.2)  # the session has ended: only another log-in keeps the connection
        assert log_in(wire) == (0, "", False, SESSION_MS)
        assert wire.send(METADATA) == "MetadataResponse"


def test_other_user_or_mechanism_cannot_renew_a_session(short: str) -> None:
    with contextlib.closing(Wire(short)) as wire:
        log_in(wire)
        text = "Cannot change principals during re-authentication from User.alice: User.admin"
        assert log_in(wire, ADMIN) == (SASL_AUTHENTICATION_FAILED, text, False, 0)
        assert wire.receive() is None
    with contextlib.closing(Wire(short)) as wire:
        log_in(wire)
        assert wire.send(SCRAM_HANDSHAKE)[0] == 0
        assert wire.send(token(b"n,,n=alice,r=nonce")) == CLOSED
    with contextlib.closing(Wire(short)) as wire:
        log_in(wire)
        text = "Authentication failed: Invalid username or password"
        assert log_in(wire, b"\0alice\0wrong") == (SASL_AUTHENTICATION_FAILED, text, False, 0)
        assert wire.receive() is None


def principal(wire: Wire) -> tuple[str, str]:
    wire.send_only((CreateDelegationTokenRequest(), 3))
    frame = wire.receive()
    assert frame is not None
    _, position = frames.decode_response_header(frame, 38, 3)
    response = CreateDelegationTokenResponse.decode_from(frame, position, 3)[0]
    return response.principal_type, response.principal_name


def test_principal_is_the_user_that_logged_in(secured_ottla: SecuredOttla) -> None:
    """The certificate of a client of SASL_SSL does not count."""
    tls = ssl.create_default_context(cafile=str(secured_ottla.certificates.ca))
    tls.load_cert_chain(str(secured_ottla.certificates.client))
    for listener, context in (("SASL_PLAINTEXT", None), ("SASL_SSL", tls), ("SHORT", None)):
        with contextlib.closing(Wire(secured_ottla.address(listener), context)) as wire:
            log_in(wire)
            assert principal(wire) == ("User", "alice")
    with contextlib.closing(Wire(secured_ottla.address("PLAINTEXT"))) as wire:
        assert principal(wire) == ("User", "ANONYMOUS")


# In the response to Metadata, and in no response before a log-in.
HOST = b"127.0.0.1"


def is_right(step: Step) -> bool:
    return ALICE in (step if isinstance(step, bytes) else step[0].encode(step[1]))


PLAYED = st.lists(
    st.one_of(
        st.sampled_from([step for steps in SCENARIOS.values() for step in steps if not is_right(step)]),
        st.binary(max_size=60),
        st.builds(token, st.binary(max_size=60)),
    ),
    max_size=6,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=PLAYED, size=st.integers(0, 400))
def test_no_sequence_of_wrong_frames_is_a_log_in(secured_ottla: SecuredOttla, steps: list[Step], size: int) -> None:
    """Sent at once and cut anywhere. The fixture checks that the log has no traceback."""
    sent = b"".join(
        struct.pack(">i", len(step)) + step
        if isinstance(step, bytes)
        else b"".join(frames.encode_request(step[0], step[1], 7, "client"))
        for step in [*steps, METADATA]
    )
    with contextlib.closing(Wire(secured_ottla.address("SASL_PLAINTEXT"))) as wire, contextlib.suppress(OSError):
        wire.socket.sendall(sent[:-size] if size else sent)
        wire.socket.shutdown(socket.SHUT_WR)
        received = b""
        while more := wire.socket.recv(65536):
            received += more
        assert HOST not in received


def test_requests_behind_a_log_in_wait_for_it(secured_ottla: SecuredOttla) -> None:
    """A client that pipelines gets its answers in order, and none after a refused log-in."""
    for password, expected in ((password_of("alice"), True), ("wrong", False)):
        with contextlib.closing(Wire(secured_ottla.address("SASL_PLAINTEXT"))) as wire:
            steps: Any = [VERSIONS, HANDSHAKE, token(f"\0alice\0{password}".encode()), METADATA, METADATA]
            requests = [b"".join(frames.encode_request(message, version, 7, "c")) for message, version in steps]
            wire.socket.sendall(b"".join(requests))
            answers = [wire.receive() for _ in steps]
            assert [each is not None for each in answers] == [True] * 3 + [expected] * 2
            assert (HOST in b"".join(each or b"" for each in answers)) == expected


def test_frames_before_a_log_in_have_a_limit_of_their_own(secured_ottla: SecuredOttla) -> None:
    address = secured_ottla.address("SASL_PLAINTEXT")
    with contextlib.closing(Wire(address)) as wire:
        wire.socket.sendall(struct.pack(">i", 524_289))  # the size alone is enough
        assert wire.receive() is None
    with contextlib.closing(Wire(address)) as wire:
        wire.send(HANDSHAKE)
        assert wire.send(token(bytes(524_000)))[0] == SASL_AUTHENTICATION_FAILED
    with contextlib.closing(Wire(address)) as wire:
        log_in(wire)
        assert wire.send((MetadataRequest([MetadataRequestTopic(name="x" * 30_000)] * 20), 4)) == "MetadataResponse"


def test_failed_log_in_is_logged_without_its_secret(secured_ottla: SecuredOttla) -> None:
    def is_logged() -> bool:
        with contextlib.closing(Wire(secured_ottla.address("SASL_PLAINTEXT"))) as wire:
            port = wire.socket.getsockname()[1]
            log_in(wire, b"\0alice\0very-secret-guess")
            assert wire.receive() is None
        return (
            f"Failed authentication with 127.0.0.1:{port} on listener SASL_PLAINTEXT with mechanism PLAIN"
            " (Authentication failed: Invalid username or password)"
        ) in secured_ottla.log_path.read_text()

    # Previous tests may have used up the ten lines per second.
    wait_until(is_logged, "the failure is logged")
    log = secured_ottla.log_path.read_text()
    assert "very-secret-guess" not in log
    assert password_of("alice") not in log
