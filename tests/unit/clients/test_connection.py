"""A connection to one broker: order of responses, limits, lost connections, and errors if the peer is not Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any, TypeVar

import pytest
import uvloop

from ottla.network.client import (
    ClientConnection,
    ConnectFailed,
    ConnectionClosed,
    NoAnswer,
    NotKafka,
    TlsRefused,
    UnknownHost,
    UnsupportedRequest,
)
from ottla.network.response_reader import LARGEST_RESPONSE_BYTES
from ottla.protocol.frames import RequestHeader, encode_response
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

from .fake_broker import Answer, FakeBroker, api_versions

R = TypeVar("R")
TIMEOUT_S = 5.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """Runs a coroutine on each kind of event loop."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    def go(story: Awaitable[Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(story, 20))

    return go


async def connect(port: int, timeout_s: float = TIMEOUT_S) -> ClientConnection:
    return await ClientConnection.connect("127.0.0.1", port, client_id="me", timeout_s=timeout_s)


def echo(_: RequestHeader, request: Message) -> Answer:
    """Return a response with the request's generation as its throttle time."""
    assert isinstance(request, HeartbeatRequest)
    return HeartbeatResponse(request.generation_id)


def test_pipelined_requests_get_their_own_responses(run: Callable[..., Any]) -> None:
    async def story() -> None:
        async with FakeBroker(echo) as broker:
            connection = await connect(broker.port)
            futures = [connection.send_nowait(HeartbeatRequest("g", i, "m"), timeout_s=TIMEOUT_S) for i in range(500)]
            assert connection.in_flight == 500
            assert [(await f).throttle_time_ms for f in futures] == list(range(500))  # type: ignore[union-attr]
            assert connection.in_flight == 0
            header, _ = broker.seen[0]
            assert (header.client_id, header.api_version) == ("me", HeartbeatRequest.MAX_VERSION)
            connection.close()

    run(story())


def test_response_that_arrives_byte_by_byte_is_assembled(run: Callable[..., Any]) -> None:
    async def story() -> None:
        async with FakeBroker(echo) as broker:
            broker.chunk = 1
            connection = await connect(broker.port)
            assert (await connection.send(HeartbeatRequest("g", 7, "m"), timeout_s=TIMEOUT_S)).throttle_time_ms == 7
            connection.close()

    run(story())


@pytest.mark.parametrize("size", [1000, 65_500, 65_536, 300_000, 9_000_000])
def test_records_of_any_size_arrive_as_views_of_the_frame(run: Callable[..., Any], size: int) -> None:
    from ottla.protocol.messages.fetch import FetchableTopicResponse, PartitionData

    records = bytes(range(256)) * (size // 256)

    def fetched(_: RequestHeader, __: Message) -> Answer:
        return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=records)])])

    async def story() -> None:
        async with FakeBroker(fetched) as broker:
            connection = await connect(broker.port)
            futures = [connection.send_nowait(FetchRequest(), timeout_s=TIMEOUT_S) for _ in range(3)]
            answers: list[Any] = [await future for future in futures]
            for answer in answers:
                got = answer.responses[0].partitions[0].records
                assert isinstance(got, memoryview)
                assert got == records
            connection.close()

    run(story())


def test_produce_with_acks_0_is_done_at_once(run: Callable[..., Any]) -> None:
    async def story() -> None:
        async with FakeBroker(lambda header, request: None if header.api_key == 0 else echo(header, request)) as broker:
            connection = await connect(broker.port)
            future = connection.send_nowait(ProduceRequest(acks=0, timeout_ms=1), timeout_s=TIMEOUT_S)
            assert future.done()
            assert future.result() is None
            assert (await connection.send(HeartbeatRequest("g", 1, "m"), timeout_s=TIMEOUT_S)).throttle_time_ms == 1
            assert [header.api_key for header, _ in broker.seen] == [0, 12]
            connection.close()

    run(story())


def test_timed_out_request_is_named_and_closes_the_connection(run: Callable[..., Any]) -> None:
    async def story() -> None:
        async with FakeBroker(lambda *_: None) as broker:
            connection = await connect(broker.port)
            lost: list[bool] = []
            connection.on_close(lambda: lost.append(True))
            first = connection.send_nowait(HeartbeatRequest(), timeout_s=0.05)
            second = connection.send_nowait(HeartbeatRequest(), timeout_s=TIMEOUT_S)
            with pytest.raises(NoAnswer, match=r"did not answer Heartbeat within 0\.05 s"):
                await first
            with pytest.raises(ConnectionClosed, match="so the connection was closed"):
                await second
            assert connection.closed
            await asyncio.sleep(0)
            assert lost == [True]
            with pytest.raises(ConnectionClosed):
                await connection.send(HeartbeatRequest(), timeout_s=TIMEOUT_S)

    run(story())


def test_cancelled_caller_leaves_the_connection_usable(run: Callable[..., Any]) -> None:
    async def story() -> None:
        async with FakeBroker(echo) as broker:
            connection = await connect(broker.port)
            task = asyncio.ensure_future(connection.send(HeartbeatRequest("g", 1, "m"), timeout_s=TIMEOUT_S))
            await asyncio.sleep(0)
            task.cancel()
            assert (await connection.send(HeartbeatRequest("g", 2, "m"), timeout_s=TIMEOUT_S)).throttle_time_ms == 2
            connection.close()

    run(story())


def test_all_requests_in_flight_fail_when_the_broker_closes_the_connection(run: Callable[..., Any]) -> None:
    def close(_: RequestHeader, request: Message) -> Answer:
        assert isinstance(request, HeartbeatRequest)
        if request.generation_id == 2:
            raise ConnectionError
        return None

    async def story() -> None:
        async with FakeBroker(close) as broker:
            connection = await connect(broker.port)
            futures = [connection.send_nowait(HeartbeatRequest("g", i, "m"), timeout_s=TIMEOUT_S) for i in range(3)]
            for future in futures:
                with pytest.raises(ConnectionClosed, match="closed the connection"):
                    await future

    run(story())


def test_api_versions_is_retried_in_version_0_for_an_old_broker(run: Callable[..., Any]) -> None:
    def old(header: RequestHeader, _: Message) -> Answer:
        if header.api_version > 0:
            refusal = ApiVersionsResponse(error_code=35)
            return b"".join(encode_response(header._replace(api_version=0), refusal))
        return api_versions(highest=1)

    async def story() -> None:
        async with FakeBroker(old, handshake=False) as broker:
            connection = await connect(broker.port)
            assert [header.api_version for header, _ in broker.seen] == [4, 0]
            assert connection.highest_version(HeartbeatRequest.API_KEY) == 1
            connection.close()

    run(story())


def test_unsupported_request_is_rejected_before_it_is_sent(run: Callable[..., Any]) -> None:
    def few(_: RequestHeader, __: Message) -> Answer:
        answer = api_versions()
        answer.api_keys = [row for row in answer.api_keys if row.api_key != SaslHandshakeRequest.API_KEY]
        return answer

    async def story() -> None:
        async with FakeBroker(few, handshake=False) as broker:
            connection = await connect(broker.port)
            with pytest.raises(UnsupportedRequest, match="supports no SaslHandshake"):
                await connection.send(SaslHandshakeRequest(), timeout_s=TIMEOUT_S)
            assert connection.highest_version(FindCoordinatorRequest.API_KEY, limit=3) == 3
            assert not connection.closed
            connection.close()

    run(story())


NOT_KAFKA = [
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", NotKafka, "as a web server does"),
    (bytes.fromhex("15030300020246"), TlsRefused, "wants TLS: set security.protocol"),
    (b"SSH-2.0-OpenSSH_9.0\r\n", NotKafka, "does not answer as Kafka does"),
    (pack(">ii", 4, 99), NotKafka, "correlation id 99"),
    (pack(">iih", 6, 1, 0), NotKafka, "sent an invalid response"),
    (pack(">i", -5), NotKafka, "does not answer as Kafka does"),
    (b"", ConnectFailed, "does it want TLS"),
    (None, ConnectFailed, "does not answer within 0.2 s"),
]


@pytest.mark.parametrize(("data", "kind", "message"), NOT_KAFKA)
def test_listener_that_is_not_kafka_is_a_one_line_error(
    run: Callable[..., Any], data: bytes | None, kind: type[Exception], message: str
) -> None:
    def answer(_: RequestHeader, __: Message) -> Answer:
        if data == b"":
            raise ConnectionError
        return data

    async def story() -> None:
        async with FakeBroker(answer, handshake=False) as broker:
            with pytest.raises(kind, match=message) as caught:
                await connect(broker.port, timeout_s=0.2)
            assert type(caught.value) is kind
            assert str(caught.value).startswith(broker.address)
            assert "\n" not in str(caught.value)

    run(story())


def test_closed_port_and_unknown_host_are_different_errors(run: Callable[..., Any]) -> None:
    async def story() -> None:
        with pytest.raises(ConnectFailed, match="connection refused"):
            await connect(1)
        with pytest.raises(UnknownHost, match="resolves to nothing"):
            await ClientConnection.connect("no.such.host.invalid", 9092, client_id=None, timeout_s=TIMEOUT_S)

    run(story())


@pytest.mark.parametrize(
    "data",
    [pack(">i", LARGEST_RESPONSE_BYTES + 1), pack(">i", 3), pack(">ii", 4, 12345), pack(">ii", 4, 2)],
    ids=["huge", "small", "unasked", "short"],
)
def test_invalid_response_closes_the_connection(run: Callable[..., Any], data: bytes) -> None:
    async def story() -> None:
        async with FakeBroker(lambda *_: data) as broker:
            connection = await connect(broker.port)
            with pytest.raises(ConnectionClosed, match=r"sent|answered"):
                await connection.send(HeartbeatRequest(), timeout_s=TIMEOUT_S)
            assert connection.closed

    run(story())


def test_close_fails_requests_in_flight(run: Callable[..., Any]) -> None:
    async def story() -> None:
        async with FakeBroker(lambda *_: None) as broker:
            connection = await connect(broker.port)
            future = connection.send_nowait(FindCoordinatorRequest(), timeout_s=TIMEOUT_S)
            connection.close()
            with pytest.raises(ConnectionClosed, match="by this client"):
                await future

    run(story())


def test_response_has_the_class_of_its_request(run: Callable[..., Any]) -> None:
    async def story() -> None:
        async with FakeBroker(lambda *_: FindCoordinatorResponse()) as broker:
            connection = await connect(broker.port)
            answer = await connection.send(FindCoordinatorRequest(), timeout_s=TIMEOUT_S)
            assert isinstance(answer, FindCoordinatorResponse)
            connection.close()

    run(story())
