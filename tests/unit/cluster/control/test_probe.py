"""Which answers of a socket prove that a process has ended."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

from ottla.cluster.control.probe import Prober
from ottla.common.completion import Completion
from ottla.metadata.image import Endpoint


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def probe(*addresses: tuple[str, int]) -> bool:
    """Whether the endpoints prove that the process ended."""

    async def run() -> bool:
        prober = Prober()
        completion: Completion[bool] = prober([Endpoint("PLAINTEXT", host, port, 0) for host, port in addresses])
        async with asyncio.timeout(5):
            while not completion.done:
                await asyncio.sleep(0.005)
        return completion.result()

    return asyncio.run(run())


def test_refused_connections_prove_it() -> None:
    assert probe(("127.0.0.1", closed_port()))
    assert probe(("localhost", closed_port()), ("127.0.0.1", closed_port()))


def test_listening_socket_proves_the_contrary_even_if_nothing_answers() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        assert not probe(("127.0.0.1", closed_port()), sock.getsockname())


def test_no_endpoint_or_an_unknown_host_proves_nothing() -> None:
    assert not probe()
    assert not probe(("no-such-host.invalid", 9092))


def test_process_that_accepts_and_ends_is_probed_again() -> None:
    async def run() -> bool:
        server: asyncio.Server

        async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.close()
            writer.transport.abort()

        server = await asyncio.start_server(end, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        completion = Prober()([Endpoint("PLAINTEXT", host, port, 0)])
        async with asyncio.timeout(5):
            while not completion.done:
                await asyncio.sleep(0.005)
        return completion.result()

    assert asyncio.run(run())


@contextlib.contextmanager
def forwarder() -> Iterator[tuple[str, int]]:
    """Accepts connections and closes them: its broker has ended, or is at its limit of connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_listener_that_accepts_and_closes_proves_nothing_alone() -> None:
    """A live broker at its limit of connections does the same on each of its listeners."""
    with forwarder() as first, forwarder() as second:
        assert not probe(first)
        assert not probe(first, second)


def test_refused_connections_prove_it_beside_a_forwarder_that_accepts_and_closes() -> None:
    with forwarder() as forwarded:
        assert probe(("127.0.0.1", closed_port()), forwarded)
        assert probe(forwarded, ("127.0.0.1", closed_port()))


def test_connection_that_stays_open_refutes_every_other_listener() -> None:
    with forwarder() as forwarded, socket.create_server(("127.0.0.1", 0)) as stopped:
        assert not probe(("127.0.0.1", closed_port()), forwarded, stopped.getsockname())
