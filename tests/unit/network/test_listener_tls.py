"""Listeners with TLS over real sockets: who is let in, what the broker logs, and what a hostile client can use up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla.config import BrokerConfig
from ottla.network import handshakes, tls_transport
from ottla.network.connection import Connection, Frames
from ottla.network.errors import SecuritySettingError
from ottla.network.limits import Limits, ListenerLimits
from ottla.network.listener_tls import ListenerTls
from ottla.network.server import Server
from ottla.security.certificate import distinguished_name
from tests.peers.secured import Certificates
from tests.unit.network.tls_support import client_context, listener_tls

PATIENCE_S = 10.0


class Listening:
    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port


def reply(connection: Connection, frame: memoryview) -> Frames:
    """Answer with the principal of the client."""
    principal = connection.principal.encode()
    return [struct.pack(">i", len(principal)) + principal]


@asynccontextmanager
async def listening(tls: ListenerTls, limits: Limits | None = None) -> AsyncIterator[Listening]:
    server = Server(reply, limits)
    sock = socket.create_server(("127.0.0.1", 0))
    server.listen("SSL", sock, tls=tls)
    try:
        yield Listening(server, sock.getsockname()[1])
    finally:
        await server.close(1.0)


def ask(port: int, context: ssl.SSLContext, name: str = "localhost") -> str:
    """Send a request from a blocking client; returns its principal as the broker sees it."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    with sock, context.wrap_socket(sock, server_hostname=name) as tls:
        tls.sendall(struct.pack(">i", 1) + b"x")
        (size,) = struct.unpack(">i", tls.recv(4))
        return tls.recv(size).decode()


def story(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `ottla up` does
        runner.run(asyncio.wait_for(coroutine, 30))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla")
    return caplog


# -- who is let in -------------------------------------------------------------------------------------------------


def test_certificate_of_the_client_is_requested_or_required(
    certificates: Certificates, log: pytest.LogCaptureFixture
) -> None:
    named, unnamed = client_context(certificates, "client"), client_context(certificates)
    foreign = client_context(certificates, "other-client")

    async def run() -> None:
        for client_auth, known, unknown in (
            ("none", "User:ANONYMOUS", "User:ANONYMOUS"),
            ("requested", "User:CN=client", "User:ANONYMOUS"),
            ("required", "User:CN=client", None),
        ):
            tls = listener_tls(certificates, ssl_client_auth=client_auth)
            tls.principal_of = principal
            async with listening(tls) as broker:
                assert await asyncio.to_thread(ask, broker.port, named) == known
                if unknown is None:
                    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
                        await asyncio.to_thread(ask, broker.port, unnamed)
                else:
                    assert await asyncio.to_thread(ask, broker.port, unnamed) == unknown
                if client_auth != "none":
                    with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
                        await asyncio.to_thread(ask, broker.port, foreign)

    story(run())
    assert "the client has no certificate, and ssl.client.auth=required" in log.text
    assert "the client's certificate is not valid here: " in log.text


def principal(certificate: bytes | None, _host: str) -> str:
    return "User:ANONYMOUS" if certificate is None else f"User:{distinguished_name(certificate)}"


def test_client_whose_principal_cannot_be_determined_is_refused(
    certificates: Certificates, log: pytest.LogCaptureFixture
) -> None:
    def refuse(_certificate: bytes | None, _host: str) -> str:
        raise ValueError("No rules apply to CN=client")

    async def run() -> None:
        tls = listener_tls(certificates)
        tls.principal_of = refuse
        async with listening(tls) as broker:
            with pytest.raises((OSError, struct.error)):
                await asyncio.to_thread(ask, broker.port, client_context(certificates))

    story(run())
    assert "No rules apply to CN=client" in log.text


@pytest.mark.parametrize(
    ("identity", "name", "client_message", "broker_message"),
    [
        ("expired", "localhost", "certificate has expired", "does not trust this broker's certificate"),
        ("wrong-host", "localhost", "Hostname mismatch", None),
        (
            "other-client",
            "localhost",
            "self-signed certificate in certificate chain",
            "does not trust this broker's certificate",
        ),
    ],
)
def test_client_refuses_a_certificate_that_is_not_valid(
    certificates: Certificates,
    log: pytest.LogCaptureFixture,
    identity: str,
    name: str,
    client_message: str,
    broker_message: str | None,
) -> None:
    async def run() -> None:
        tls = listener_tls(certificates, ssl_keystore_location=str(certificates.directory / f"{identity}.pem"))
        context = client_context(certificates)
        context.check_hostname = True
        async with listening(tls) as broker:
            with pytest.raises(ssl.SSLCertVerificationError, match=client_message):
                await asyncio.to_thread(ask, broker.port, context, name)
            await until(lambda: not broker.server.connections)

    story(run())
    if broker_message is not None:
        assert broker_message in log.text


def test_versions_of_tls_are_limited(certificates: Certificates, log: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        old = client_context(certificates)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.minimum_version = ssl.TLSVersion.TLSv1_1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        second = client_context(certificates)
        second.maximum_version = ssl.TLSVersion.TLSv1_2
        async with listening(listener_tls(certificates)) as broker:
            with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                await asyncio.to_thread(ask, broker.port, old)
            assert await asyncio.to_thread(ask, broker.port, second) == "User:ANONYMOUS"
        async with listening(listener_tls(certificates, ssl_enabled_protocols="TLSv1.3")) as broker:
            with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                await asyncio.to_thread(ask, broker.port, second)

    story(run())
    assert "the client's TLS versions are not in ssl.enabled.protocols" in log.text


def test_cipher_suites_have_the_names_of_java(certificates: Certificates) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    context = listener_tls(certificates, ssl_cipher_suites=suite).context
    assert [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"] == [
        "ECDHE-ECDSA-AES128-GCM-SHA256"
    ]
    # A version without a suite is disabled.
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    modern = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    assert listener_tls(certificates, ssl_cipher_suites=modern).context.minimum_version == ssl.TLSVersion.TLSv1_3
    for java, openssl in (
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
    ):
        both = listener_tls(certificates, ssl_cipher_suites=f"{suite},{java}").context
        assert openssl in [each["name"] for each in both.get_ciphers()]


# -- wrong protocols -----------------------------------------------------------------------------------------------


def test_plaintext_client_gets_an_alert_and_one_log_line(
    certificates: Certificates, log: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with listening(listener_tls(certificates)) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(struct.pack(">i", 20) + bytes(20))
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b"\x15\x03\x03\x00\x02\x02\x0a"
            writer.close()
            await until(lambda: not broker.server.connections)

    story(run())
    lines = [record.getMessage() for record in log.records if record.levelno >= logging.INFO]
    assert len(lines) == 1
    assert "on SSL (SSL handshake failed): the client does not speak TLS: set its security.protocol to SSL" in lines[0]


def test_log_lines_about_handshakes_are_limited(certificates: Certificates, log: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with listening(listener_tls(certificates)) as broker:
            for _ in range(100):
                _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
                writer.write(b"GET / HTTP/1.1\r\n")
                writer.close()
            await until(lambda: not broker.server.connections)

    story(run())
    assert 1 <= len([each for each in log.records if "handshake failed" in each.getMessage()]) < 50


def test_health_check_without_bytes_logs_nothing(certificates: Certificates, log: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with listening(listener_tls(certificates)) as broker:
            _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.close()
            await until(lambda: not broker.server.connections)

    story(run())
    assert not [record for record in log.records if record.levelno >= logging.INFO]


def test_damaged_handshakes_end_only_their_connections(certificates: Certificates) -> None:
    whole, generator = hello(), random.Random(5)
    unhandled: list[dict[str, Any]] = []

    def damaged() -> bytes:
        first = bytearray(whole)
        for _ in range(generator.randrange(6)):
            first[generator.randrange(1, len(first))] = generator.randrange(256)
        return bytes(first[: generator.randrange(1, len(first) + 1)]) + generator.randbytes(generator.randrange(50))

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
        async with listening(listener_tls(certificates)) as broker:
            for _ in range(200):
                _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
                writer.write(damaged())
                await asyncio.sleep(0)
                writer.transport.abort() if generator.random() < 0.3 else writer.close()
            assert await asyncio.to_thread(ask, broker.port, client_context(certificates)) == "User:ANONYMOUS"
            await until(lambda: not broker.server.connections)
            assert not len(broker.server.admission.handshakes)

    story(run())
    assert not unhandled


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01"], ids=["silent", "half"])
def test_handshake_that_does_not_finish_is_given_up(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture, first: bytes
) -> None:
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def run() -> None:
        async with listening(listener_tls(certificates)) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(first)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            writer.close()

    story(run())
    assert "its TLS handshake takes too long" in log.text


def hello() -> bytes:
    """The first message of a client."""
    outgoing = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_unfinished_handshakes_neither_lock_out_nor_delay_other_clients(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 clients send their first message and stop; only 50 handshakes are remembered."""
    monkeypatch.setattr(handshakes, "MOST_UNFINISHED", 50)
    monkeypatch.setattr(tls_transport, "HANDSHAKE_TIMEOUT_S", 10 * PATIENCE_S)
    first = hello()
    slowest_s = 0.0

    async def run() -> None:
        nonlocal slowest_s
        async with listening(listener_tls(certificates)) as broker:
            writers = []
            for _ in range(400):
                _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
                writers.append(writer)
            asked = asyncio.create_task(asyncio.to_thread(ask, broker.port, client_context(certificates)))
            for writer in writers:
                writer.write(first)
            while not asked.done():
                before = time.thread_time()
                await asyncio.sleep(0)
                slowest_s = max(slowest_s, time.thread_time() - before)
            assert await asked == "User:ANONYMOUS"
            await until(lambda: len(broker.server.admission.handshakes) <= 50)
            for writer in writers:
                writer.close()

    story(run())
    # 400 handshakes take 0.1 to 0.4 s of the processor; each iteration may use 2 ms of it.
    assert slowest_s < 0.1


def test_steps_of_handshakes_leave_time_for_others() -> None:
    class Slow:
        def __init__(self) -> None:
            self.steps = 0

        def step(self) -> None:
            self.steps += 1
            time.sleep(handshakes.STEPS_S / 2)

        def give_up(self, problem: str) -> None:
            raise AssertionError(problem)

    async def run() -> None:
        shared, slow = handshakes.Handshakes(), [Slow() for _ in range(20)]
        for each in slow:
            shared.begin(each)
        iterations = 0
        while not all(each.steps for each in slow):
            await asyncio.sleep(0)
            iterations += 1
        assert iterations >= 5
        assert [each.steps for each in slow] == [1] * 20

    story(run())


def test_silent_connections_use_little_memory(certificates: Certificates) -> None:
    """asyncio's own TLS transport would use 256 KiB for each."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1_000, soft // 3)

    async def run() -> None:
        async with listening(listener_tls(certificates)) as broker:
            socks = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(10)]
            await until(lambda: len(broker.server.connections) == 10)
            before = _resident_bytes()
            socks += [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(count)]
            await until(lambda: len(broker.server.connections) == count + 10)
            assert (_resident_bytes() - before) / count < 32 * 1024
            for sock in socks:
                sock.close()
            await until(lambda: not broker.server.connections)

    story(run())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_connections_of_one_listener_are_limited(certificates: Certificates, log: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        limits = Limits(listeners={"SSL": ListenerLimits(max_connections=1)})
        async with listening(listener_tls(certificates), limits) as broker:
            plain = socket.create_server(("127.0.0.1", 0))
            broker.server.listen("PLAINTEXT", plain)
            _, first = await asyncio.open_connection("127.0.0.1", broker.port)
            await until(lambda: len(broker.server.connections) == 1)
            reader, second = await asyncio.open_connection("127.0.0.1", broker.port)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            _, other = await asyncio.open_connection(*plain.getsockname())
            await until(lambda: len(broker.server.connections) == 2)
            first.close()
            await until(lambda: len(broker.server.connections) == 1)
            assert await asyncio.to_thread(ask, broker.port, client_context(certificates)) == "User:ANONYMOUS"
            for writer in (second, other):
                writer.close()

    story(run())
    assert "Rejected connection from 127.0.0.1, listener SSL already has the configured maximum of 1" in log.text


def test_limits_of_all_listeners_omit_the_listener_of_brokers(certificates: Certificates) -> None:
    async def run() -> None:
        limits = Limits(max_connections=1, max_connection_creation_rate=1, protected_listener="SSL")
        async with listening(listener_tls(certificates), limits) as broker:
            plain = socket.create_server(("127.0.0.1", 0))
            broker.server.listen("PLAINTEXT", plain)
            _, client = await asyncio.open_connection(*plain.getsockname())
            await until(lambda: len(broker.server.connections) == 1)
            assert await asyncio.to_thread(ask, broker.port, client_context(certificates)) == "User:ANONYMOUS"
            assert max(broker.server.admission.delay_s("SSL") for _ in range(5)) == 0
            refused, writer = await asyncio.open_connection(*plain.getsockname())
            assert await asyncio.wait_for(refused.read(), PATIENCE_S) == b""
            for each in (client, writer):
                each.close()

    story(run())


def test_rate_of_new_connections_of_one_listener_is_limited(certificates: Certificates) -> None:
    async def run() -> None:
        limits = Limits(listeners={"SSL": ListenerLimits(max_connection_creation_rate=10)})
        async with listening(listener_tls(certificates), limits) as broker:
            admission = broker.server.admission
            delays = [admission.delay_s("SSL") for _ in range(15)]
            assert max(delays[:9]) <= 0
            assert 0.2 < delays[-1] < 0.7
            assert admission.delay_s("PLAINTEXT") <= 0

    story(run())


def test_idle_connection_with_tls_is_closed(certificates: Certificates) -> None:
    async def run() -> None:
        async with listening(listener_tls(certificates), Limits(max_idle_ms=200)) as broker:
            context = client_context(certificates)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", broker.port, ssl=context, server_hostname="localhost"
            )
            # An end of TLS, not of the connection alone: a blocking client can tell the difference.
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            writer.close()

    story(run())


def test_client_that_ends_tls_with_a_large_response_underway_gets_all_of_it(certificates: Certificates) -> None:
    """The broker stops while a client reads slowly: what was begun is sent, then TLS is closed cleanly."""
    size = 24 << 20
    received: list[int] = []

    def read_slowly(port: int, sent: threading.Event) -> None:
        context = client_context(certificates)
        context.check_hostname = False
        sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        with sock, context.wrap_socket(sock, suppress_ragged_eofs=False) as tls:
            tls.sendall(struct.pack(">i", 1) + b"x")
            count = 0
            sent.wait(PATIENCE_S)
            while data := tls.recv(1 << 16):
                count += len(data)
            received.append(count)

    async def run() -> None:
        server = Server(lambda connection, frame: [struct.pack(">i", size), bytes(size)])
        sock = socket.create_server(("127.0.0.1", 0))
        server.listen("SSL", sock, tls=listener_tls(certificates))
        is_stopping = threading.Event()
        reading = asyncio.create_task(asyncio.to_thread(read_slowly, sock.getsockname()[1], is_stopping))
        await until(lambda: any(each._writes.is_paused for each in server.connections))
        closing = asyncio.create_task(server.close(PATIENCE_S))
        await asyncio.sleep(0)
        is_stopping.set()
        await reading
        await closing

    story(run())
    assert received == [size + 4]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_connection_that_is_closing_can_be_aborted(
    certificates: Certificates, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The client reads nothing, so that the end of TLS is never sent."""

    async def run() -> None:
        async with listening(listener_tls(certificates)) as broker:
            context = client_context(certificates)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
            writer.write(struct.pack(">i", 1) + b"x")
            assert await asyncio.wait_for(reader.read(4), PATIENCE_S)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            (connection,) = broker.server.connections
            transport = connection._transport
            assert isinstance(transport, tls_transport.TlsTransport)
            while not transport._is_blocked:
                transport.write(bytes(16_384))
                await asyncio.sleep(0)
            transport.write(bytes(64 << 20))  # more than the buffers of both sockets can grow to
            connection.close()
            await asyncio.sleep(0.05)
            assert len(broker.server.connections) == 1
            connection.abort()
            await until(lambda: not broker.server.connections)
            writer.transport.abort()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(run(), 30))


def test_requests_before_the_end_of_a_connection_are_handled(certificates: Certificates) -> None:
    """A producer with acks=0 sends and disconnects: the broker handles all that arrived."""
    handled: list[int] = []

    def slow(connection: Connection, frame: memoryview) -> None:
        handled.append(len(frame))

    def send(port: int) -> None:
        sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        with sock, client_context(certificates).wrap_socket(sock, server_hostname="localhost") as tls:
            tls.sendall((struct.pack(">i", 5_000) + bytes(5_000)) * 200)
            # Past TLS: only the end of the connection. Closing with unread bytes would reset it.
            socket.socket.shutdown(tls, socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while tls.recv(1):
                    pass

    async def run() -> None:
        server = Server(slow)
        sock = socket.create_server(("127.0.0.1", 0))
        server.listen("SSL", sock, tls=listener_tls(certificates))
        # Small reads leave received records behind the bytes that the connection takes at a time.
        server.connections.memory.limit_scratch(4_096)
        await asyncio.to_thread(send, sock.getsockname()[1])
        await until(lambda: not server.connections)
        await server.close(1.0)

    story(run())
    assert handled == [5_000] * 200


# -- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl_keystore_location": ""}, "TLS needs a certificate: set ssl.keystore.location"),
        ({"ssl_keystore_location": "/no/such.pem"}, "'/no/such.pem' cannot be read: No such file"),
        ({"ssl_truststore_location": "", "ssl_client_auth": "required"}, "needs the authorities that sign"),
        ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not supported: use TLSv1.2 and TLSv1.3"),
        ({"ssl_cipher_suites": "TLS_NULL_WITH_NULL_NULL"}, "is not a suite that OpenSSL supports"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "name all of them"),
        ({"ssl_cipher_suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "a handshake with the certificate"),
        ({"ssl_keystore_password": "hush"}, "PEM has only ssl.key.password"),
    ],
)
def test_invalid_setting_is_named_with_its_listener(
    certificates: Certificates, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(SecuritySettingError, match=words) as caught:
        listener_tls(certificates, **settings)
    assert str(caught.value).startswith("listener SSL: ")
    assert "hush" not in str(caught.value)


def test_java_key_store_is_refused_with_the_command_that_converts_it(
    certificates: Certificates, tmp_path: Path
) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    with pytest.raises(SecuritySettingError, match=r"is JKS; Ottla reads PEM\. Convert it: keytool -importkeystore"):
        listener_tls(certificates, ssl_keystore_location=str(store))


@pytest.mark.parametrize("kind", ["inline", "inline-encrypted", "encrypted-file", "pkcs12"])
def test_each_kind_of_key_store_serves(certificates: Certificates, tmp_path: Path, kind: str) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=30)

    server = certificates.directory / "server"
    openssl("pkcs8", "-topk8", "-in", f"{server}.key", "-out", "locked.key", "-passout", "pass:secret")
    settings = {
        "inline": {
            "ssl.keystore.key": certificates.text("server.key"),
            "ssl.keystore.certificate.chain": certificates.text("server.crt"),
            "ssl.truststore.certificates": certificates.text("ca.pem"),
        },
        "inline-encrypted": {
            "ssl.keystore.key": (tmp_path / "locked.key").read_text(),
            "ssl.keystore.certificate.chain": certificates.text("server.crt"),
            "ssl.key.password": "secret",
        },
        "encrypted-file": {"ssl.keystore.location": str(tmp_path / "locked.pem"), "ssl.key.password": "secret"},
        "pkcs12": {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(tmp_path / "server.p12"),
            "ssl.keystore.password": "secret",
        },
    }[kind]
    (tmp_path / "locked.pem").write_text((tmp_path / "locked.key").read_text() + certificates.text("server.crt"))
    openssl(
        *("pkcs12", "-export", "-in", f"{server}.crt", "-inkey", f"{server}.key"),
        *("-out", "server.p12", "-passout", "pass:secret"),
    )

    async def run() -> None:
        async with listening(ListenerTls("SSL", BrokerConfig(settings))) as broker:
            assert await asyncio.to_thread(ask, broker.port, client_context(certificates)) == "User:ANONYMOUS"

    story(run())


# -- reloading -----------------------------------------------------------------------------------------------------


def test_files_that_change_are_used_for_new_connections(certificates: Certificates, tmp_path: Path) -> None:
    store = tmp_path / "server.pem"
    shutil.copy(certificates.server, store)
    settings = {"ssl.keystore.location": str(store), "ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    config = BrokerConfig(settings)
    tls = ListenerTls("SSL", config)
    old = tls.context
    assert not tls.reload(config)
    shutil.copy(certificates.client, store)
    assert tls.reload(config)
    assert tls.context is not old


def test_unusable_file_leaves_the_old_certificate_and_is_reported_once(
    certificates: Certificates, tmp_path: Path
) -> None:
    store = tmp_path / "server.pem"
    shutil.copy(certificates.server, store)
    config = BrokerConfig({"ssl.keystore.location": str(store)})
    tls = ListenerTls("SSL", config)
    old = tls.context
    store.write_text("half a certif")
    with pytest.raises(SecuritySettingError, match="holds no PEM certificate"):
        tls.reload(config)
    assert not tls.reload(config)
    assert tls.context is old
    shutil.copy(certificates.server, store)
    assert tls.reload(config)


@pytest.mark.parametrize(
    ("identity", "words"),
    [("client", "DistinguishedName does not match: existing CN=server, new CN=client"), ("fewer", "SubjectAltNames")],
)
def test_certificate_of_another_server_is_refused_as_in_kafka(
    certificates: Certificates, tmp_path: Path, identity: str, words: str
) -> None:
    if identity == "fewer":
        other = Certificates(tmp_path / "others")
        other._signed("server", "DNS:localhost")
        store = other.server
    else:
        store = certificates.client
    before = BrokerConfig({"ssl.keystore.location": str(certificates.server)})
    tls = ListenerTls("SSL", before)
    with pytest.raises(SecuritySettingError, match=words):
        tls.reload(BrokerConfig({"ssl.keystore.location": str(store)}))
