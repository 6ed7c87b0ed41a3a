"""Each HTTP client reports a broken connection as its own error, with and without TLS 1.3.

With TLS 1.3 the handshake ends for the client before the server has seen the certificate of the client: the refusal
arrives when the client reads the response.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import httpx
import pytest
import uvloop
from starlette.types import Receive, Scope, Send

from ottla.broker import jwks
from ottla.cli.connectors_client import Api
from ottla.common.failure import Failure
from ottla.connect.connectors.http import client as connector
from ottla.connect.errors import RetriableError
from ottla.connect.peers import Peers
from ottla.network import oauth
from ottla.network.errors import AuthenticationRefused, ConnectFailed
from ottla.registry.forwarding import Forwarding
from ottla.registry.writer import NotPrimary
from ottla.registry_client import AsyncRegistryClient, RegistryClient, RegistryUnavailable
from ottla.tools import usage
from ottla.web.errors import HttpError
from tests import deadlines
from tests.peers.secured import Certificates

from .broken_server import BREAKS, BrokenServer

_REQUEST_S: Final = deadlines.END_S


class Identity(NamedTuple):
    """The authority that a client trusts, and its own certificate, if it has one."""

    ca: str
    certificate: str | None

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate)
        return context

    def registry_settings(self) -> dict[str, object]:
        given: dict[str, object] = {"ssl.truststore.location": self.ca, "max.retries": 0}
        if self.certificate is not None:
            given["ssl.keystore.location"] = self.certificate
        return given


def on_uvloop(call: Callable[[], Awaitable[object]]) -> None:
    """Run a call on the event loop that servers use."""

    async def run() -> None:
        await asyncio.wait_for(call(), deadlines.END_S)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def worker(url: str, identity: Identity) -> None:
    async def call() -> None:
        peers = Peers(_REQUEST_S, identity.context())
        try:
            await peers.request("GET", url, b"", {})
        finally:
            await peers.close()

    on_uvloop(call)


def registry_node(url: str, identity: Identity) -> None:
    async def follower(scope: Scope, receive: Receive, send: Send) -> None:
        raise NotPrimary

    async def call() -> None:
        forwarding = Forwarding(follower, lambda: url, tls=identity.context())
        scope = {"type": "http", "method": "GET", "raw_path": b"/subjects", "query_string": b"", "headers": []}
        unused: Receive | Send = None  # type: ignore[assignment]
        try:
            await forwarding(scope, unused, unused)  # type: ignore[arg-type]
        finally:
            await forwarding.close()

    on_uvloop(call)


def registry_client(url: str, identity: Identity) -> None:
    with RegistryClient(identity.registry_settings(), url=url) as client:
        client.get_subjects()


def asyncio_registry_client(url: str, identity: Identity) -> None:
    async def call() -> None:
        async with AsyncRegistryClient(identity.registry_settings(), url=url) as client:
            await client.get_subjects()

    on_uvloop(call)


def http_connector(url: str, identity: Identity) -> None:
    with connector.make_client({}, 1_000 * int(_REQUEST_S), verify=identity.context()) as client:
        connector.send(client, "GET", url)


def connectors_command(url: str, identity: Identity) -> None:
    Api(url, identity.ca, identity.certificate).get("/connectors")


def top_command(url: str, identity: Identity) -> None:
    parts = httpx.URL(url)
    place = usage.Place(parts.host, parts.port or 0, parts.scheme == "https")
    usage.read_usage({"broker 1": place}, "user", usage.Access(context=identity.context()))


def token_endpoint(url: str, identity: Identity) -> None:
    options = dict.fromkeys(
        ("sasl_oauthbearer_scope", "sasl_oauthbearer_jwt_retriever_class", "sasl_oauthbearer_assertion_file")
    )
    options |= {f"sasl_oauthbearer_client_credentials_client_{name}": "x" for name in ("id", "secret")}
    request, _ = oauth.token_request(options | {"sasl_oauthbearer_token_endpoint_url": url}, {}, {})
    request()


def key_set(url: str, identity: Identity) -> None:
    async def call() -> None:
        later = jwks.in_thread(jwks.Endpoint(f"{url}/keys", _REQUEST_S, identity.ca))
        done = asyncio.Event()
        later.on_done(lambda _: done.set())
        await done.wait()
        later.result()

    on_uvloop(call)


Client = Callable[[str, Identity], None]
CLIENTS: Final[Mapping[Client, type[Exception] | tuple[type[Exception], ...]]] = {
    worker: RetriableError,
    registry_node: HttpError,
    registry_client: RegistryUnavailable,
    asyncio_registry_client: RegistryUnavailable,
    http_connector: RetriableError,
    connectors_command: Failure,
    top_command: Failure,
    token_endpoint: ConnectFailed,
    key_set: (OSError, ValueError),
}
WITHOUT_CERTIFICATES: Final = (top_command, token_endpoint, key_set)
REASONS: Final = {None: "CERTIFICATE_REQUIRED", "other-client": "UNKNOWN_CA"}


@pytest.fixture
def identity(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Identity:
    """Trusts the authority, and has no certificate."""
    # The token endpoint must have a certificate that the system trusts.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    return Identity(str(certificates.ca), None)


@pytest.mark.parametrize(
    ("client", "certificate"),
    [(client, name) for client in CLIENTS for name in REASONS if name is None or client not in WITHOUT_CERTIFICATES],
)
def test_certificate_that_the_server_does_not_accept(
    certificates: Certificates, identity: Identity, client: Client, certificate: str | None
) -> None:
    if certificate is not None:
        identity = identity._replace(certificate=str(certificates.directory / f"{certificate}.pem"))
    with (
        BrokenServer(BREAKS["not HTTP"], certificates, is_mutual=True) as server,
        pytest.raises(CLIENTS[client], match=f"(?i){REASONS[certificate]}"),
    ):
        client(server.url, identity)


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("what", BREAKS)
@pytest.mark.parametrize("client", CLIENTS)
def test_connection_that_breaks(
    certificates: Certificates, identity: Identity, client: Client, what: str, with_tls: bool
) -> None:
    with (
        BrokenServer(BREAKS[what], certificates if with_tls else None) as server,
        pytest.raises(CLIENTS[client]) as raised,
    ):
        client(server.url, identity)
    # Clients of Kafka do not retry after a refusal.
    assert not isinstance(raised.value, AuthenticationRefused)


def test_response_that_a_connector_cannot_decode_is_retried(identity: Identity) -> None:
    def garble(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd")

    with BrokenServer(garble) as server, pytest.raises(RetriableError, match="DecodingError"):
        http_connector(server.url, identity)


def test_refusal_of_a_token_endpoint_counts_even_if_the_connection_breaks(identity: Identity) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{")

    with BrokenServer(refuse) as server, pytest.raises(AuthenticationRefused, match="answered 401 No"):
        token_endpoint(server.url, identity)
