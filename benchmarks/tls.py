"""The races of TLS connections: new ones, and many that are idle."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from contextlib import ExitStack

from benchmarks.brokers import Broker
from benchmarks.wire import Figures, receive
from ottla.protocol.frames import encode_request
from ottla.protocol.messages.api_versions import ApiVersionsRequest

HANDSHAKES = 2_000
CONNECTIONS = 1_000


def _connect(broker: Broker, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A new connection that has asked for ApiVersions, as every client does first."""
    host, port = broker.secured["bootstrap.servers"].rsplit(":", 1)
    connection = context.wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname=host)
    connection.sendall(b"".join(encode_request(ApiVersionsRequest(), 0, 1, "bench")))
    receive(connection)
    return connection


def _context(broker: Broker) -> ssl.SSLContext:
    """Without resumption of sessions: each handshake is a whole one."""
    context = ssl.create_default_context(cafile=broker.secured["ssl.ca.location"])
    context.options |= ssl.OP_NO_TICKET
    return context


def handshakes(broker: Broker, scale: float) -> Figures:
    """new connections with TLS 1.3, one after another: handshake (ECDSA), ApiVersions, close"""
    context, count = _context(broker), int(HANDSHAKES * scale)
    cpu, start = broker.cpu_seconds(), time.perf_counter()
    for _ in range(count):
        _connect(broker, context).close()
    seconds, used = time.perf_counter() - start, broker.cpu_seconds() - cpu
    return {"handshakes/s": count / seconds, "handshakes per broker-CPU-second": count / max(used, 0.01)}


def idle_connections(broker: Broker, scale: float) -> Figures:  # noqa: ARG001 - the number of connections is the point
    """1,000 TLS connections that have asked for ApiVersions and say nothing more"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CONNECTIONS)), hard))
    context, before = _context(broker), broker.resident_mb()
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(_connect(broker, context))
        time.sleep(1)
        cpu = broker.cpu_seconds()
        time.sleep(5)
        used = (broker.cpu_seconds() - cpu) / 5 * 100
        more = broker.resident_mb() - before
    return {"% of a core": used, "MB more than without them": more, "MB in all": before + more}
