"""The endpoint with TLS over real sockets: handshakes, their limits, and a certificate that changes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig
from ottla.metrics import http
from ottla.metrics.http import Endpoint, Scrapes
from ottla.network.endpoint_tls import accepting, endpoint_tls
from tests.deadlines import in_threads
from tests.peers.secured import Certificates
from tests.unit.network.tls_support import client_context

BODY = b"body\n" * 100_000
CLIENT_AUTH = "ottla_metrics_ssl_client_auth"
CLOSE = b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def settings(key_and_chain: Path, **others: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in others.items()}
    return BrokerConfig({"node.id": "1", "ottla.metrics.ssl.keystore.location": str(key_and_chain), **given})


def exchange(port: int, context: ssl.SSLContext | None) -> bytes:
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    with plain, plain if context is None else context.wrap_socket(plain, server_hostname="localhost") as sock:
        sock.sendall(CLOSE)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := sock.recv(65536):
                found += part
        return found


class Served:
    """A running endpoint."""

    def __init__(self, config: BrokerConfig) -> None:
        tls = endpoint_tls(config)
        assert tls is not None
        self.tls = tls
        body: Completion[list[bytes]] = Completion.of([BODY])
        loop = asyncio.get_running_loop()
        self.endpoint = Endpoint(Scrapes(lambda _: body, loop.time), loop)
        self.port = 0

    async def ask(self, context: ssl.SSLContext | None) -> bytes:
        """Send a request from a blocking client, and read until the server closes."""
        asked = in_threads([lambda: exchange(self.port, context)], "scrape")
        return await asyncio.wait_for(asyncio.wrap_future(asked[0]), 30)

    async def until(self, connections: int) -> None:
        async with asyncio.timeout(10):
            while len(self.endpoint.connections) != connections:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def served(config: BrokerConfig) -> AsyncIterator[Served]:
    it = Served(config)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(accepting(it.tls, it.endpoint.connection), "127.0.0.1", 0)
    it.port = server.sockets[0].getsockname()[1]
    try:
        yield it
    finally:
        server.close()
        it.endpoint.close()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def start(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(scenario, 60))

    return start


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_scrape_is_encrypted_and_a_new_file_is_for_new_connections(
    run: Run, certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusting = client_context(certificates)
    trusting.check_hostname = True
    file = tmp_path / "metrics.pem"
    file.write_bytes(certificates.expired.read_bytes())

    async def scenario() -> None:
        async with served(settings(file, ssl_allow_dn_changes="true")) as it:
            with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
                await it.ask(trusting)
            file.write_text("half a file")
            it.tls.reload()
            it.tls.reload()
            assert caplog.text.count("stays as it was: listener METRICS: ottla.metrics.ssl.keystore.location") == 1
            with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
                await it.ask(trusting)
            file.write_bytes(certificates.server.read_bytes())
            it.tls.reload()
            assert (await it.ask(trusting)).endswith(BODY)
            await it.until(0)

    run(scenario())


def test_plain_request_gets_no_metrics(run: Run, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with served(settings(certificates.server)) as it:
            assert BODY not in await it.ask(None)
            await it.until(0)

    run(scenario())


def test_certificate_of_the_client_may_be_required(run: Run, certificates: Certificates) -> None:
    required = {"ottla_metrics_ssl_truststore_location": str(certificates.ca), CLIENT_AUTH: "required"}

    async def scenario() -> None:
        async with served(settings(certificates.server, **required)) as it:
            assert (await it.ask(client_context(certificates, "client"))).endswith(BODY)
            for identity in (None, "other-client"):
                with contextlib.suppress(OSError):
                    assert BODY not in await it.ask(client_context(certificates, identity))
            await it.until(0)

    run(scenario())


def test_handshakes_are_limited_in_number_and_time(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 3)

    async def scenario() -> None:
        async with served(settings(certificates.server)) as it:
            silent = [await asyncio.open_connection("127.0.0.1", it.port) for _ in range(3)]
            await it.until(3)
            # It replaces the oldest silent one.
            assert (await it.ask(client_context(certificates))).endswith(BODY)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(silent[0][0].read(), 10) == b""
            await it.until(2)
            monkeypatch.setattr(http, "HEADER_S", 0.2)
            late, writer = await asyncio.open_connection("127.0.0.1", it.port)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(late.read(), 10) == b""
            for each in (writer, *(writer for _, writer in silent)):
                each.close()
            await it.until(0)

    run(scenario())


def test_handshake_in_progress_ends_with_the_endpoint(run: Run, certificates: Certificates) -> None:
    async def scenario() -> None:
        async with served(settings(certificates.server)) as it:
            reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
            await it.until(1)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        await it.until(0)

    run(scenario())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"ssl.keystore.location": "/nowhere.pem"}, "ottla.metrics.ssl.keystore.location"),
        ({"ssl.keystore.location": "CA"}, "private key"),
        ({"ssl.truststore.location": "CA"}, "set ottla.metrics.ssl.keystore.location"),
        ({"ssl.key.password": "x"}, "set ottla.metrics.ssl.keystore.location"),
        ({"ssl.client.auth": "required"}, "set ottla.metrics.ssl.keystore.location"),
        ({"ssl.keystore.location": "SERVER", "ssl.client.auth": "required"}, "ottla.metrics.ssl.truststore.location"),
    ],
)
def test_unusable_setting_is_one_line(certificates: Certificates, given: dict[str, str], problem: str) -> None:
    files = {"CA": str(certificates.ca), "SERVER": str(certificates.server)}
    properties = {f"ottla.metrics.{name}": files.get(value, value) for name, value in given.items()}
    with pytest.raises(KafkaError) as raised:
        endpoint_tls(BrokerConfig({"node.id": "1", **properties}))
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_endpoint_without_these_settings_has_no_tls() -> None:
    assert endpoint_tls(BrokerConfig({"node.id": "1"})) is None
