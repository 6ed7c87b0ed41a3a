"""The endpoint of the metrics over real sockets: one path, two formats, and limits for hostile clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from ottla.common.completion import Completion
from ottla.metrics import http
from ottla.metrics.exposition import OPENMETRICS, PROMETHEUS
from ottla.metrics.http import Endpoint, Scrapes

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
CLOSE = b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"


class Served:
    """A running endpoint; `held` delays its bodies."""

    def __init__(self, token: str | None) -> None:
        self.made: list[str] = []
        self.held: Completion[list[bytes]] | None = None
        self.now_s = 0.0
        self.endpoint = Endpoint(Scrapes(self._make, lambda: self.now_s), asyncio.get_running_loop(), token)
        self.port = 0

    def _make(self, content_type: str) -> Completion[list[bytes]]:
        self.made.append(content_type)
        return self.held or Completion.of([f"number {len(self.made)}\n".encode()])

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and read until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        try:
            return await asyncio.wait_for(reader.read(), 10)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def served(token: str | None = None) -> AsyncIterator[Served]:
    it = Served(token)
    server = await asyncio.get_running_loop().create_server(it.endpoint.connection, "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
        it.endpoint.close()


async def _ask(request: bytes, token: str | None = None) -> bytes:
    async with served(token) as it:
        return await it.ask(request)


def ask(request: bytes, token: str | None = None) -> bytes:
    return asyncio.run(_ask(request, token))


def test_scrape_has_the_format_that_the_client_accepts() -> None:
    response = ask(CLOSE)
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert f"Content-Type: {PROMETHEUS}".encode() in response
    assert response.endswith(b"\r\n\r\nnumber 1\n")
    accept = b"Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1\r\n"
    assert f"Content-Type: {OPENMETRICS}".encode() in ask(CLOSE.replace(b"Connection", accept + b"Connection"))
    refused = b"Accept: application/openmetrics-text;q=0,text/plain\r\n"
    assert f"Content-Type: {PROMETHEUS}".encode() in ask(CLOSE.replace(b"Connection", refused + b"Connection"))


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x00\x00\x00\x20\x00\x12\x00\x03\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, 431),
    ],
)
def test_other_requests_are_refused_and_end_the_connection(request_bytes: bytes, status: int) -> None:
    assert ask(request_bytes).startswith(f"HTTP/1.1 {status} ".encode())


def test_head_has_no_body() -> None:
    response = ask(CLOSE.replace(b"GET", b"HEAD"))
    assert response.endswith(b"\r\n\r\n")
    assert b"Content-Length: 9" in response


@pytest.mark.parametrize("header", [b"", b"Authorization: Bearer wrong\r\n", b"Authorization: Bearer \xff\r\n"])
def test_scrape_without_the_token_is_refused(header: bytes) -> None:
    assert ask(CLOSE.replace(b"Connection", header + b"Connection"), "secret").startswith(b"HTTP/1.1 401 ")


def test_scrape_with_the_token_is_answered() -> None:
    header = b"Authorization: Bearer secret\r\n"
    assert ask(CLOSE.replace(b"Connection", header + b"Connection"), "secret").startswith(b"HTTP/1.1 200 ")


def test_requests_of_one_connection_are_answered_in_order() -> None:
    response = ask(GET + GET + CLOSE)
    assert response.count(b"HTTP/1.1 200 OK") == 3


def test_scrapes_of_one_second_share_a_body() -> None:
    async def scenario() -> tuple[bytes, bytes, bytes]:
        async with served() as it:
            first = await it.ask(CLOSE)
            it.now_s = 0.9
            second = await it.ask(CLOSE)
            it.now_s = 1.1
            return first, second, await it.ask(CLOSE)

    first, second, third = asyncio.run(scenario())
    assert first == second
    assert third.endswith(b"number 2\n")


def test_scrapes_at_the_same_time_share_a_collection() -> None:
    async def scenario() -> list[str]:
        async with served() as it:
            it.held = Completion()
            asked = [asyncio.create_task(it.ask(CLOSE)) for _ in range(5)]
            await asyncio.sleep(0.2)
            it.now_s = 5.0
            it.held.complete([b"body\n"])
            assert [each.endswith(b"body\n") for each in await asyncio.gather(*asked)] == [True] * 5
            return it.made

    assert asyncio.run(scenario()) == [PROMETHEUS]


def test_failed_scrape_is_an_error_and_the_next_one_is_collected() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        async with served() as it:
            it.held = Completion.failed(OSError("no descriptor"))
            first = await it.ask(CLOSE)
            it.held, it.now_s = None, 2.0
            return first, await it.ask(CLOSE)

    first, second = asyncio.run(scenario())
    assert first.startswith(b"HTTP/1.1 500 ")
    assert second.startswith(b"HTTP/1.1 200 ")


def test_connection_above_the_limit_replaces_the_oldest_that_waits_for_a_request() -> None:
    async def scenario() -> None:
        async with served() as it:
            idle = [await asyncio.open_connection("127.0.0.1", it.port) for _ in range(http.MOST_CONNECTIONS)]
            assert (await it.ask(CLOSE)).startswith(b"HTTP/1.1 200 ")
            (oldest, _), (next_oldest, writer) = idle[:2]
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(oldest.read(), 10) == b""
            writer.write(CLOSE)
            assert (await asyncio.wait_for(next_oldest.read(), 10)).startswith(b"HTTP/1.1 200 ")
            for _, writer in idle:
                writer.close()

    asyncio.run(scenario())


def test_connection_above_the_limit_is_closed_while_all_are_being_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 2)

    async def scenario() -> tuple[bytes, list[bytes]]:
        async with served() as it:
            it.held = Completion()
            asked = [asyncio.create_task(it.ask(CLOSE)) for _ in range(2)]
            while sum(not each.is_waiting for each in it.endpoint.connections) < 2:
                await asyncio.sleep(0.01)
            refused = await it.ask(CLOSE)
            it.held.complete([b"body\n"])
            return refused, await asyncio.gather(*asked)

    refused, answered = asyncio.run(scenario())
    assert refused == b""
    assert all(each.endswith(b"body\n") for each in answered)


def test_client_that_sends_no_complete_header_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEADER_S", 0.2)
    assert ask(GET[:-2]) == b""


def test_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SEND_S", 0.2)

    async def scenario() -> int:
        async with served() as it:
            it.held = Completion.of([b"x" * (64 << 20)])
            _, writer = await asyncio.open_connection("127.0.0.1", it.port)
            writer.write(GET)
            for _ in range(200):
                await asyncio.sleep(0.02)
                if it.made and not it.endpoint.connections:
                    break
            writer.close()
            return len(it.endpoint.connections)

    assert asyncio.run(scenario()) == 0
