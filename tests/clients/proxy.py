"""A proxy between clients and one broker: a test can change or drop each response.

The proxy replaces the addresses in responses (Metadata, FindCoordinator, DescribeCluster) by its own, so that clients
connect only to the proxy.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from ottla.protocol.frames import RequestHeader, decode_request_header, decode_response_header, encode_response
from ottla.protocol.message import Message
from ottla.protocol.registry import response_class

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
# Takes the request's header and the decoded response, and returns the response to send; None closes the connection.
Meddle = Callable[[RequestHeader, Any], Any]


class Proxy:
    """Listens on a free port from `__enter__` to `__exit__`. `answers` has a function per API key for responses."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.answers: dict[int, Meddle] = {}
        self.asked: list[int] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = self._connect()
                except OSError:  # the broker is down: close this connection too
                    client.close()
                    continue
                broker.settimeout(None)
                self._sockets += [client, broker]
                waiting: dict[int, RequestHeader] = {}
                for work in (self._requests, self._responses):
                    threading.Thread(target=work, args=(client, broker, waiting), daemon=True).start()

    def _connect(self) -> socket.socket:
        """A connection to the broker. Raises OSError."""
        return socket.create_connection(self._broker, 10)

    def _forward(self, to: socket.socket, frame: bytes) -> None:
        """Send a request or a response. Raises OSError, which closes the connection."""
        to.sendall(frame)

    def _requests(self, client: socket.socket, broker: socket.socket, waiting: dict[int, RequestHeader]) -> None:
        with _ends(broker):
            while frame := _read_frame(client):
                header, _ = decode_request_header(frame)
                waiting[header.correlation_id] = header
                self.asked.append(header.api_key)
                self._forward(broker, struct.pack(">i", len(frame)) + frame)

    def _responses(self, client: socket.socket, broker: socket.socket, waiting: dict[int, RequestHeader]) -> None:
        with _ends(client):
            while frame := _read_frame(broker):
                header = waiting.pop(int.from_bytes(frame[:4], "big"))
                answer = self._changed(header, frame)
                if answer is None:
                    break
                self._forward(client, answer)

    def _changed(self, header: RequestHeader, frame: bytes) -> bytes | None:
        key = header.api_key
        meddle = self.answers.get(key)
        if meddle is None and key not in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER):
            return struct.pack(">i", len(frame)) + frame
        _, position = decode_response_header(frame, key, header.api_version)
        response: Message | None = response_class(key).decode_from(frame, position, header.api_version)[0]
        self._move(response)
        if meddle is not None:
            response = meddle(header, response)
        return None if response is None else b"".join(encode_response(header, response))

    def _move(self, response: Any) -> None:
        for row in (*getattr(response, "brokers", ()), *getattr(response, "coordinators", ()), response):
            if hasattr(row, "port"):
                row.host, row.port = "127.0.0.1", self._port


@contextlib.contextmanager
def _ends(other: socket.socket) -> Iterator[None]:
    """At the end, close the connection to the other side. `shutdown` wakes another thread that reads from it."""
    try:
        with contextlib.suppress(OSError):
            yield
    finally:
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
        other.close()


def _read_frame(source: socket.socket) -> bytes:
    size = _read(source, 4)
    return _read(source, int.from_bytes(size, "big")) if size else b""


def _read(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)
