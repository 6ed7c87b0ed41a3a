"""HTTP servers with real sockets: limits, slow and broken clients, errors, stop."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl

import pytest

from ottla.common.failure import Failure
from ottla.web.connection import ConnectionLimits
from ottla.web.guard import BodyLimits
from ottla.web.listeners import Address, bind_all, parse_listener, tls_config
from ottla.web.server import ServerLimits
from tests.peers.secured import Certificates
from tests.unit.web.web_support import Client, running

SHORT = ServerLimits(BodyLimits(bytes=1000, idle_s=0.2), ConnectionLimits(header_s=0.2, header_bytes=4096))


def test_requests_share_a_connection() -> None:
    async def scenario() -> None:
        async with running() as server:
            client = await Client.connect(server.port)
            client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" * 2)
            for _ in range(2):
                status, head, body = await client.response()
                assert (status, json.loads(body)["bytes"]) == (200, 3)
                assert b"application/json" in head
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "start", [b"", b"GE", b"GET /echo HTTP/1.1\r\n", b"GET /echo HTTP/1.1\r\nHost: a\r\nX: ", b"\r\n\r\n"]
)
def test_client_that_does_not_finish_its_headers_is_disconnected(start: bytes) -> None:
    async def scenario() -> None:
        async with running(SHORT) as server:
            client = await Client.connect(server.port)
            client.send(start)
            assert await client.rest() == b""
            await client.close()

    asyncio.run(scenario())


def test_half_request_after_a_response_is_limited_too() -> None:
    async def scenario() -> None:
        async with running(SHORT) as server:
            client = await Client.connect(server.port)
            client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await client.response())[0] == 200
            client.send(b"GET /ec")
            assert await client.rest() == b""
            await client.close()

    asyncio.run(scenario())


def test_headers_have_a_limit_of_size() -> None:
    async def scenario() -> None:
        async with running(SHORT) as server:
            client = await Client.connect(server.port)
            client.send(b"GET /echo HTTP/1.1\r\nX: " + b"x" * 5000)
            assert (await client.rest()).startswith(b"HTTP/1.1 431 ")
            await client.close()

    asyncio.run(scenario())


def test_request_is_not_interrupted_while_it_is_handled() -> None:
    async def scenario() -> None:
        async with running(SHORT) as server:
            client = await Client.connect(server.port)
            client.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\nGET /echo")
            await server.app.waiting.wait()
            await asyncio.sleep(0.5)  # longer than the limit of headers
            server.app.release.set()
            assert (await client.response())[0] == 200
            await client.close()

    asyncio.run(scenario())


def test_body_that_declares_too_many_bytes_is_refused_before_it_is_read() -> None:
    async def scenario() -> None:
        async with running(SHORT) as server:
            client = await Client.connect(server.port)
            client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n")
            status, _, body = await client.response()
            assert (status, json.loads(body)["error_code"]) == (413, 413)
            # The rest of the body is discarded, and the connection remains usable.
            client.send(b"x" * 1001 + b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await client.response())[0] == 200
            await client.close()

    asyncio.run(scenario())


def test_chunked_body_is_counted() -> None:
    async def scenario() -> None:
        async with running(SHORT) as server:
            client = await Client.connect(server.port)
            client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            client.send(b"1f4\r\n" + b"x" * 500 + b"\r\n")
            client.send(b"1f5\r\n" + b"x" * 501 + b"\r\n")
            status, _, body = await client.response()
            assert (status, json.loads(body)["message"]) == (413, "The body of the request exceeds 1000 bytes")
            await client.close()

    asyncio.run(scenario())


def test_body_that_stops_is_a_timeout() -> None:
    async def scenario() -> None:
        async with running(SHORT) as server:
            client = await Client.connect(server.port)
            client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
            assert (await client.response())[0] == 408
            assert await client.rest() == b""
            await client.close()

    asyncio.run(scenario())


def test_streams_have_no_limit_of_the_whole_body() -> None:
    async def scenario() -> None:
        limits = SHORT._replace(body=BodyLimits(10, 5, lambda scope: scope["path"] == "/echo"))
        async with running(limits) as server:
            client = await Client.connect(server.port)
            client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000)
            assert (await client.response())[0] == 200
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("target", "status", "error_code"),
    [("/fail?known=1", 404, 40401), ("/fail", 500, 50001), ("/nothing", 404, 404)],
)
def test_errors_have_the_body_of_confluent(target: str, status: int, error_code: int) -> None:
    async def scenario() -> None:
        async with running() as server:
            client = await Client.connect(server.port)
            client.send(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            answered, _, body = await client.response()
            assert (answered, json.loads(body)["error_code"]) == (status, error_code)
            await client.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01", b"NOT HTTP\r\n\r\n", b"GET / HTTP/1.1\r\n: \r\n\r\n"])
def test_bytes_that_are_not_http_are_a_bad_request(garbage: bytes) -> None:
    async def scenario() -> None:
        async with running() as server:
            client = await Client.connect(server.port)
            client.send(garbage)
            assert (await client.rest()).startswith(b"HTTP/1.1 400 ")
            await client.close()

    asyncio.run(scenario())


def test_stop_lets_a_request_finish_and_closes_idle_connections() -> None:
    async def scenario() -> None:
        async with running() as server:
            idle, busy = await Client.connect(server.port), await Client.connect(server.port)
            busy.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
            await server.app.waiting.wait()
            server.stop.set()
            assert await idle.rest() == b""
            server.app.release.set()
            assert (await busy.response())[0] == 200
            await server.server
            await asyncio.gather(idle.close(), busy.close())

    asyncio.run(scenario())


def test_stop_cancels_requests_after_its_limit() -> None:
    async def scenario() -> None:
        async with running(ServerLimits(stop_s=0)) as server:
            client = await Client.connect(server.port)
            client.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
            await server.app.waiting.wait()
            server.stop.set()
            await server.server
            await client.close()

    asyncio.run(scenario())


def test_too_many_connections_are_refused() -> None:
    async def scenario() -> None:
        async with running(ServerLimits(connections=2)) as server:
            clients = [await Client.connect(server.port) for _ in range(3)]
            clients[2].send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await clients[2].response())[0] == 503
            await asyncio.gather(*(client.close() for client in clients))

    asyncio.run(scenario())


def test_access_log_has_no_query(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running(access_log=True) as server:
            client = await Client.connect(server.port)
            client.send(b"GET /echo?token=secret HTTP/1.1\r\nHost: a\r\n\r\n")
            await client.response()
            await client.close()

    with caplog.at_level(logging.INFO, "ottla.web.access"):
        asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.name == "ottla.web.access"]
    assert '"GET /echo" 200 ' in line
    assert "secret" not in line


def test_principal_of_a_certificate_is_mapped_as_the_broker_does(certificates: Certificates) -> None:
    settings = {
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.authentication": "REQUESTED",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/L,DEFAULT",
    }

    async def scenario() -> None:
        async with running(tls=settings) as server:
            for identity, principal in ((None, None), ("client", "User:")):
                context = ssl.create_default_context(cafile=str(certificates.ca))
                context.check_hostname = False
                if identity is not None:
                    context.load_cert_chain(certificates.directory / f"{identity}.pem")
                client = await Client.connect(server.port, context)
                client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n")
                _, _, body = await client.response()
                found = json.loads(body)["principal"]
                assert found is None if principal is None else found.startswith(principal), found
                await client.close()

    asyncio.run(scenario())


def test_listener_for_other_machines_needs_authentication_or_insecure() -> None:
    address = (Address("0.0.0.0", 0),)
    with pytest.raises(Failure, match="would be open to other machines without authentication"):
        bind_all(address, tls_config({}), authenticates=False, insecure=False)
    for choice in ({"authenticates": True, "insecure": False}, {"authenticates": False, "insecure": True}):
        for each in bind_all(address, tls_config({}), **choice):
            each.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8081", Address("127.0.0.1", 8081)),
        (":8081", Address("127.0.0.1", 8081)),
        ("http://0.0.0.0:8081/", Address("0.0.0.0", 8081)),
        ("https://[::1]:0", Address("::1", 0, True)),
        ("localhost:1", Address("localhost", 1)),
    ],
)
def test_listener_addresses(text: str, address: Address) -> None:
    assert parse_listener(text) == address


@pytest.mark.parametrize("text", ["ftp://a:1", "a", "http://", "99999", "a:99999"])
def test_wrong_listener_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|begins with|65535"):
        parse_listener(text)


def test_client_that_does_not_read_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.web.connection._NO_PROGRESS_S", 0.1)

    async def scenario() -> None:
        limits = ServerLimits(connection=ConnectionLimits(keep_alive_s=0))
        async with running(limits) as server:
            client = await Client.connect(server.port)
            client.writer.transport.pause_reading()
            client.send(b"GET /large?bytes=50000000 HTTP/1.1\r\nHost: a\r\n\r\n")
            await server.app.large.wait()
            server.stop.set()
            await server.server  # It waits for the connection.
            client.writer.transport.abort()

    asyncio.run(scenario())
