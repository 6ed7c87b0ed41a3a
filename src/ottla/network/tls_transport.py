"""The transport of one client's connection over TLS, on the socket itself.

asyncio's TLS transport has a buffer of 256 KiB for each connection, also for one whose client sends nothing. Here
OpenSSL reads into the memory of the connection (`get_buffer`) and writes from the views of the responses; it allocates
its own buffers of one record only while it needs them.

The connection is counted when it is accepted, and its requests are read when the handshake is complete. The states:

- SILENT: the client sent nothing. There is no TLS object yet.
- HANDSHAKE: `Handshakes` decides when a step runs.
- OPEN
- CLOSING: what is left is written, then TLS is closed and the socket.
- REFUSED: the client gets the reason as a TLS alert. Its bytes are discarded until it closes, for a second at most: a
  socket that is closed with unread bytes resets the connection, which would destroy the alert.
- CLOSED
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from ottla.network.record_queue import RecordQueue
from ottla.network.tls_errors import PLAINTEXT_CLIENT, handshake_problem

if TYPE_CHECKING:
    from ottla.network.connection import Connection
    from ottla.network.handshakes import Handshakes
    from ottla.protocol.wire import Buffer

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S: Final = 10.0
REFUSED_S: Final = 1.0
# Of one connection in one event loop iteration; encryption takes about 0.3 ms for it.
BYTES_PER_ITERATION: Final = 512 * 1024
_HANDSHAKE_RECORD: Final = 0x16
# A fatal alert, "unexpected message", for a client that does not speak TLS.
_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x0a"
_DISCARDED_BYTES: Final = 16 * 1024


class _State(Enum):
    SILENT = auto()
    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()
    REFUSED = auto()
    CLOSED = auto()


class ServerTls(Protocol):
    """The TLS of a listener."""

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """Return the TLS socket that takes over the descriptor of an accepted, non-blocking socket."""

    def principal(self, sock: ssl.SSLSocket, host: str) -> str:
        """Return the principal of a client whose handshake is complete. Raises ValueError to refuse it."""


class TlsTransport(asyncio.Transport):
    """Joins an accepted socket and its `Connection`, which uses it like asyncio's transports."""

    def __init__(
        self,
        connection: Connection,
        sock: socket.socket,
        tls: ServerTls,
        handshakes: Handshakes,
        refused: Callable[[Connection, str], None],
    ) -> None:
        """Begin with the connection; `refused` is called with the reason if its handshake fails."""
        super().__init__({"peername": sock.getpeername()})
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._socket = sock
        self._tls = tls
        self._handshakes = handshakes
        self._refused = refused
        self._state = _State.SILENT
        self._queue = RecordQueue()
        self._is_reading = True
        self._is_full = False
        """Whether the connection was asked to pause writing."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self.give_up, "its TLS handshake takes too long")
        self._loop.add_reader(sock, self._first_bytes)
        connection.connection_made(self)

    # -- the interface of a transport ----------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return "socket", "peername" or, after the handshake, "ssl_object"."""
        if name == "socket":
            return self._socket
        if name == "ssl_object" and isinstance(self._socket, ssl.SSLSocket):
            return self._socket
        return super().get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._state not in (_State.SILENT, _State.HANDSHAKE, _State.OPEN)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the connection pauses whenever the socket did not take everything."""

    def get_write_buffer_size(self) -> int:
        """Bytes that were not encrypted yet, and the record that the socket did not take completely."""
        return self._queue.size

    def pause_reading(self) -> None:
        """Read no more bytes of the client."""
        self._is_reading = False
        if self._state is _State.OPEN:
            self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        """Read again, first what OpenSSL has decrypted already."""
        self._is_reading = True
        if self._state is _State.OPEN:
            self._loop.add_reader(self._socket, self._read)
            if cast("ssl.SSLSocket", self._socket).pending():
                self._loop.call_soon(self._read)

    def write(self, data: Buffer) -> None:
        """Send bytes; what the socket does not take now is sent later."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send several buffers; they must not change until they are sent."""
        if self._state is not _State.OPEN:
            return
        is_idle = not self._queue.size
        self._queue.add(list_of_data)
        if is_idle:
            self._send()
            if self._queue.size and not self.is_closing():
                self._is_full = True
                self._connection.pause_writing()

    def close(self) -> None:
        """Send what is left, then close. Before the handshake is complete, close at once."""
        if self._state is not _State.OPEN:
            if not self.is_closing():
                self.abort()
            return
        self._state = _State.CLOSING
        self._loop.remove_reader(self._socket)
        if not self._queue.size:
            self._finish()

    def abort(self) -> None:
        """Close without sending what is left."""
        self._lose(None)

    # -- handshake -----------------------------------------------------------------------------------------------

    def _first_bytes(self) -> None:
        """Create the TLS object: the client sent something."""
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if not first:
            self._lose(None)  # For example a health check of a load balancer.
            return
        self._loop.remove_reader(self._socket)
        if first[0] != _HANDSHAKE_RECORD:
            self._refuse(PLAINTEXT_CLIENT, _ALERT)
            return
        try:
            self._socket = self._tls.wrap(self._socket)
        except OSError as error:
            self._lose(error)
            return
        self._state = _State.HANDSHAKE
        self._handshakes.begin(self)

    def step(self) -> None:
        """Called by `Handshakes`: continue the handshake."""
        try:
            cast("ssl.SSLSocket", self._socket).do_handshake()
        except ssl.SSLWantReadError:
            self._loop.add_reader(self._socket, self._continue, self._loop.remove_reader)
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._socket, self._continue, self._loop.remove_writer)
        except OSError as error:
            self._refuse(handshake_problem(error))
        else:
            self._open()

    def _continue(self, remove: Callable[[socket.socket], bool]) -> None:
        remove(self._socket)
        self._handshakes.schedule(self)

    def _open(self) -> None:
        self._handshakes.end(self)
        self._timer.cancel()
        try:
            principal = self._tls.principal(cast("ssl.SSLSocket", self._socket), self._connection.remote_host)
        except ValueError as error:
            self._refuse(str(error))
            return
        self._connection.principal = principal
        self._state = _State.OPEN
        if self._is_reading:
            self._loop.add_reader(self._socket, self._read)

    def give_up(self, problem: str) -> None:
        """Close a connection whose handshake is not finished."""
        self._refused(self._connection, problem)
        self._lose(None)

    def _refuse(self, problem: str, alert: bytes = b"") -> None:
        """Log the problem, and close after the client has read its alert. OpenSSL sent the alert itself if it can."""
        self._handshakes.end(self)
        self._timer.cancel()
        self._state = _State.REFUSED
        self._refused(self._connection, problem)
        try:
            if alert:
                self._socket.send(alert)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._lose(error)
            return
        self._timer = self._loop.call_later(REFUSED_S, self._lose, None)
        self._loop.add_reader(self._socket, self._discard)

    def _discard(self) -> None:
        try:
            # Past OpenSSL, which would report the failed handshake again.
            received = socket.socket.recv(self._socket, _DISCARDED_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if not received:
            self._lose(None)

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Fill the memory of the connection with as many records as there are, and have it handle them."""
        if self._state is not _State.OPEN or not self._is_reading:
            return
        sock = cast("ssl.SSLSocket", self._socket)
        buffer = self._connection.get_buffer(-1)
        most = min(len(buffer), BYTES_PER_ITERATION)
        size = 0
        is_end, problem = False, None
        try:
            while size < most:
                received = sock.recv_into(buffer[size:most])
                if not received:
                    is_end = True
                    break
                size += received
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass  # A key update that the socket cannot take now is sent with the next read or write.
        except OSError as error:
            is_end, problem = True, error
        del buffer
        if size:
            self._connection.buffer_updated(size)
        if is_end:
            self._lose(problem)
        elif size == most and self._state is _State.OPEN and self._is_reading and sock.pending():
            # The socket may have no more bytes, so that the event loop would not call this method.
            self._loop.call_soon(self._read)

    # -- writing -------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Encrypt and send records until the socket takes no more, or this iteration's share is used."""
        queue, sock = self._queue, self._socket
        share = BYTES_PER_ITERATION
        try:
            while queue.size and share > 0:
                record = queue.record()
                sent = sock.send(record)
                queue.sent(sent)
                share -= sent
        except ssl.SSLWantWriteError:
            share = 0
        except OSError as error:
            # Also SSLWantReadError, which only a renegotiation could cause; those are refused.
            self._lose(error)
            return
        if queue.size:
            self._loop.add_writer(sock, self._send_more)

    def _send_more(self) -> None:
        self._loop.remove_writer(self._socket)
        self._send()
        if self._queue.size or self._state is _State.CLOSED:
            return
        if self._state is _State.CLOSING:
            self._finish()
        elif self._is_full:
            self._is_full = False
            self._connection.resume_writing()

    # -- closing -------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Tell the client that the end was intended, and close."""
        try:
            cast("ssl.SSLSocket", self._socket).unwrap()
        except (OSError, ValueError) as error:
            # The alert is sent; waiting for the client's own would take a round trip.
            logger.debug("TLS of %s:%d closed: %s", self._connection.remote_host, self._connection.remote_port, error)
        self._lose(None)

    def _lose(self, error: OSError | None) -> None:
        """Close the socket, once, and notify the connection in the next event loop iteration."""
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        self._timer.cancel()
        self._handshakes.end(self)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._queue.clear()
        self._loop.call_soon(self._closed, error)

    def _closed(self, error: OSError | None) -> None:
        try:
            self._connection.connection_lost(error)
        finally:
            self._socket.close()
