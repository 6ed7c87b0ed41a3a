"""A server of HTTP on loopback whose connections break, with and without TLS 1.3."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from tests import deadlines
from tests.peers.secured import Certificates

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_BEGUN: Final = _HEAD + b'Content-Length: 1000\r\n\r\n{"keys": ['


def _reset(connection: socket.socket) -> None:
    """Close the connection at once: the client receives RST, and not an end of TLS or of the stream."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reset_within(connection: socket.socket) -> None:
    connection.sendall(_BEGUN)
    _reset(connection)


Break = Callable[[socket.socket], None]
BREAKS: Final[dict[str, Break]] = {
    "closed before the response": lambda _: None,
    "reset before the response": _reset,
    "cut within the status line": lambda connection: connection.sendall(_HEAD[:11]),
    "cut within the body": lambda connection: connection.sendall(_BEGUN),
    "cut within a chunk": lambda connection: connection.sendall(
        _HEAD + b'Transfer-Encoding: chunked\r\n\r\nff\r\n{"keys"'
    ),
    "reset within the body": _reset_within,
    "not HTTP": lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"),
}
"""The ways to break a connection after a request. The server then closes it, without the end of TLS."""


class BrokenServer:
    """The server; use it as a context manager.

    With `certificates` it requires TLS 1.3, and with `is_mutual` a certificate of the client that the authority signed.
    """

    def __init__(self, answer: Break, certificates: Certificates | None = None, *, is_mutual: bool = False) -> None:
        self._answer = answer
        self._context: ssl.SSLContext | None = None
        if certificates is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.minimum_version = ssl.TLSVersion.TLSv1_3
            self._context.load_cert_chain(certificates.server)
            if is_mutual:
                self._context.load_verify_locations(certificates.ca)
                self._context.verify_mode = ssl.CERT_REQUIRED
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if certificates else ''}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, name="broken server")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # ends accept(), which close() does not
        deadlines.join(self._thread, "the broken server")
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(deadlines.END_S)
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        if self._context is None:
            self._break(connection)
            return
        # The copy still reads the bytes of the stream when TLS has failed.
        with connection.dup() as stream:
            tls = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with tls:
                try:
                    tls.do_handshake()
                except ssl.SSLError:
                    # A close with unread bytes would be a reset, which may overtake the alert that says why.
                    stream.shutdown(socket.SHUT_WR)
                    while stream.recv(4096):
                        pass
                else:
                    self._break(tls)

    def _break(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            if not (part := connection.recv(4096)):
                return
            request += part
        head, _, body = request.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        # A close with unread bytes would be a reset.
        while length is not None and len(body) < int(length[1]):
            if not (part := connection.recv(4096)):
                return
            body += part
        self._answer(connection)
