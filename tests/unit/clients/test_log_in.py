"""SASL authentication and renewal of the session, against a minimal broker with a SCRAM server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.network.client import (
    AuthenticationRefused,
    ClientConnection,
    ConnectFailed,
    ConnectionClosed,
    MechanismRefused,
)
from ottla.network.sasl import renewal_delay_s
from ottla.protocol.frames import RequestHeader
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.security import scram
from ottla.security.mechanism import SaslClient, SaslError

from .fake_broker import Answer, FakeBroker

TIMEOUT_S = 5.0
SCRAM = "SCRAM-SHA-256"
SALT = b"salt"


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


async def me() -> SaslClient:
    return scram.ScramClient(SCRAM, "me", "secret", "nonce")


class Strict:
    """Answers authenticated clients. As in Kafka, only SASL requests are valid during the exchange."""

    def __init__(self, *, lifetime_ms: int = 0, password: str = "secret") -> None:
        self.lifetime_ms = lifetime_ms
        self.log_ins = 0
        self.refuse = ""
        self.broken: list[str] = []
        self._is_in = False
        self._is_talking = False
        self._server: scram.ScramServer | None = None
        self._credential = scram.derive(SCRAM, scram.salted_password(SCRAM, password, SALT, 4096), SALT, 4096)

    def __call__(self, _: RequestHeader, request: Message) -> Answer:
        if isinstance(request, SaslHandshakeRequest):
            self._is_talking, self._server = True, None
            known = request.mechanism == SCRAM
            return SaslHandshakeResponse(0 if known else 33, [SCRAM, "OTHER"])
        if isinstance(request, SaslAuthenticateRequest):
            return self._answer(request.auth_bytes)
        if self._is_talking or not self._is_in:
            self.broken.append(type(request).__name__)
            raise ConnectionError
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(request.generation_id)
        return None

    def _answer(self, token: bytes) -> Message:
        if self.refuse:
            return SaslAuthenticateResponse(58, self.refuse)
        try:
            if self._server is None:
                self._server = scram.ScramServer(SCRAM, scram.read_client_first(token), self._credential, "more")
                return SaslAuthenticateResponse(0, None, self._server.challenge())
            last = self._server.verify(token)
        except SaslError as error:
            return SaslAuthenticateResponse(58, str(error))
        self.log_ins += 1
        self._is_in, self._is_talking = True, False
        return SaslAuthenticateResponse(0, None, last, self.lifetime_ms)


async def connect(broker: FakeBroker, source: Any = me) -> ClientConnection:
    return await ClientConnection.connect("127.0.0.1", broker.port, client_id="me", timeout_s=TIMEOUT_S, sasl=source)


async def beat_on(connection: ClientConnection) -> None:
    """Send heartbeats until the connection ends."""
    while True:
        await connection.send(HeartbeatRequest("g", 1, "m"), timeout_s=TIMEOUT_S)
        await asyncio.sleep(0.002)


def test_requests_are_sent_after_mutual_authentication() -> None:
    async def story() -> None:
        async with FakeBroker(Strict()) as broker:
            connection = await connect(broker)
            assert (await connection.send(HeartbeatRequest("g", 7, "m"), timeout_s=TIMEOUT_S)).throttle_time_ms == 7
            names = [type(request).__name__.removesuffix("Request") for _, request in broker.seen]
            assert names == ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate", "Heartbeat"]
            assert [header.api_version for header, _ in broker.seen[:2]] == [1, 2]
            connection.close()

    run(story())


def test_refused_client_raises_the_brokers_reason() -> None:
    async def story() -> None:
        async with FakeBroker(Strict(password="other")) as broker:
            with pytest.raises(AuthenticationRefused, match=f"{broker.address} refuses .*{SCRAM}: Wrong password"):
                await connect(broker)

    run(story())


def test_unsupported_mechanism_error_lists_the_brokers_mechanisms() -> None:
    async def source() -> SaslClient:
        return scram.ScramClient("SCRAM-SHA-512", "me", "secret", "nonce")

    async def story() -> None:
        async with FakeBroker(Strict()) as broker:
            with pytest.raises(MechanismRefused, match=r"offers SCRAM-SHA-256, OTHER: set sasl\.mechanism"):
                await connect(broker, source)

    run(story())


@pytest.mark.parametrize(
    ("token", "message"),
    [(b"v=QUJD", "its signature is wrong"), (b"", "makes no sense"), (b"e=no", "refused: no")],
)
def test_broker_that_does_not_know_the_password_is_rejected(token: bytes, message: str) -> None:
    strict = Strict()

    def impostor(header: RequestHeader, request: Message) -> Answer:
        answer = strict(header, request)
        if isinstance(answer, SaslAuthenticateResponse) and strict.log_ins:
            answer.auth_bytes = token
        return answer

    async def story() -> None:
        async with FakeBroker(impostor) as broker:
            with pytest.raises(AuthenticationRefused, match=message):
                await connect(broker)

    run(story())


def test_endless_exchange_is_aborted() -> None:
    class Endless:
        name, is_complete = SCRAM, False

        def start(self) -> bytes:
            return b"x"

        def answer(self, challenge: bytes) -> bytes:
            return b"x" + challenge

    async def source() -> SaslClient:
        return Endless()

    def answer(_: RequestHeader, request: Message) -> Answer:
        return (
            SaslHandshakeResponse(0, []) if isinstance(request, SaslHandshakeRequest) else SaslAuthenticateResponse(0)
        )

    async def story() -> None:
        async with FakeBroker(answer) as broker:
            with pytest.raises(AuthenticationRefused, match="did not complete SCRAM-SHA-256"):
                await connect(broker, source)
            assert len(broker.seen) == 11

    run(story())


def test_missing_token_is_the_reason_of_the_timeout() -> None:
    async def source() -> SaslClient:
        await asyncio.sleep(60)
        raise AssertionError

    async def story() -> None:
        async with FakeBroker(Strict()) as broker:
            with pytest.raises(ConnectFailed, match=r"no token to log in with within 0\.1 s"):
                await ClientConnection.connect("127.0.0.1", broker.port, client_id=None, timeout_s=0.1, sasl=source)
            assert broker.connections == 0

    run(story())


def test_requests_during_a_renewal_are_sent_after_it() -> None:
    strict = Strict(lifetime_ms=200)

    async def slowly() -> SaslClient:
        return await me()

    async def story() -> None:
        async with FakeBroker(strict) as broker:
            connection = await connect(broker, slowly)
            futures = []
            for i in range(500):
                futures.append(connection.send_nowait(HeartbeatRequest("g", i, "m"), timeout_s=TIMEOUT_S))
                await asyncio.sleep(0.001)
            assert [(await future).throttle_time_ms for future in futures] == list(range(500))  # type: ignore[union-attr]
            assert strict.log_ins >= 3
            assert strict.broken == []
            assert broker.connections == 1
            connection.close()

    run(story())


def test_request_with_acks_0_is_copied_while_a_renewal_delays_it() -> None:
    """With acks=0 the future is done at once, so the caller may reuse its buffers."""
    strict = Strict(lifetime_ms=100)

    async def story() -> None:
        async with FakeBroker(strict) as broker:
            connection = await connect(broker)
            while connection.transport is None or not hasattr(connection.transport, "parts"):
                connection.send_nowait(HeartbeatRequest("g", 1, "m"), timeout_s=TIMEOUT_S)
                await asyncio.sleep(0)
            assert connection.send_nowait(ProduceRequest(acks=0), timeout_s=TIMEOUT_S).done()
            assert all(type(part) is bytes for part in connection.transport.parts)
            await connection.send(HeartbeatRequest("g", 2, "m"), timeout_s=TIMEOUT_S)
            names = [type(request).__name__ for _, request in broker.seen]
            assert names[-2:] == ["ProduceRequest", "HeartbeatRequest"]
            connection.close()

    run(story())


def test_unused_session_is_closed_instead_of_renewed() -> None:
    strict = Strict(lifetime_ms=100)

    async def story() -> None:
        async with FakeBroker(strict) as broker:
            connection = await connect(broker)
            closed = asyncio.Event()
            connection.on_close(closed.set)
            await asyncio.wait_for(closed.wait(), TIMEOUT_S)
            assert strict.log_ins == 1

    run(story())


def test_refused_renewal_closes_the_connection_with_the_reason() -> None:
    strict = Strict(lifetime_ms=150)

    async def story() -> None:
        async with FakeBroker(strict) as broker:
            connection = await connect(broker)
            await connection.send(HeartbeatRequest("g", 1, "m"), timeout_s=TIMEOUT_S)
            strict.refuse = "the user was deleted"
            with pytest.raises(AuthenticationRefused, match="the user was deleted"):
                await beat_on(connection)
            assert connection.closed

    run(story())


def test_renewal_without_a_token_is_a_retriable_connection_loss() -> None:
    calls = 0

    async def source() -> SaslClient:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ConnectFailed("the token endpoint is down")
        return await me()

    async def story() -> None:
        async with FakeBroker(Strict(lifetime_ms=100)) as broker:
            connection = await connect(broker, source)
            with pytest.raises(ConnectionClosed, match="could not be renewed: the token endpoint is down"):
                await beat_on(connection)

    run(story())


def test_renewals_are_spread_over_a_tenth_of_the_session() -> None:
    assert [round(renewal_delay_s(1000, chance), 3) for chance in (0, 0.5, 0.999)] == [0.85, 0.9, 0.95]
