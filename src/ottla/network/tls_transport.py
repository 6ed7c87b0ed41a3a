"""TLS between the transport of an accepted socket and its `Connection`, which uses it like a transport.

asyncio's TLS has a buffer of 256 KiB for each connection, also for one whose client sends nothing. Here all connections
receive into the same memory, and decrypted bytes go directly into the memory of the connection (`get_buffer`). Up to
`WRITE_BYTES` are encrypted at a time, from the views of the responses, and only when the socket has taken what was
encrypted before: OpenSSL keeps the memory of the largest write and read for the life of a connection.

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
import ssl
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from ottla.network.record_queue import RECORD_BYTES, RecordQueue
from ottla.network.tls_errors import CLOSED_BY_CLIENT, PLAINTEXT_CLIENT, handshake_problem

if TYPE_CHECKING:
    from ottla.network.handshakes import Handshakes
    from ottla.protocol.wire import Buffer

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S: Final = 10.0
REFUSED_S: Final = 1.0
# Of one connection in one event loop iteration; encryption takes about 0.3 ms for it.
BYTES_PER_ITERATION: Final = 512 * 1024
WRITE_BYTES: Final = 4 * RECORD_BYTES
# Of an encrypted record: RFC 8446 allows 256 bytes beyond the content, RFC 5246 2048.
MOST_RECORD_BYTES: Final = RECORD_BYTES + 2048 + 5
_HANDSHAKE_RECORD: Final = 0x16
# A fatal alert, "unexpected message", for a client that does not speak TLS.
_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x0a"


class _State(Enum):
    SILENT = auto()
    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()
    REFUSED = auto()
    CLOSED = auto()


class ServerTls(Protocol):
    """The TLS of a listener."""

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """Return the TLS of a new connection, whose encrypted bytes go through these."""

    def principal(self, tls: ssl.SSLObject, host: str) -> str:
        """Return the principal of a client whose handshake is complete. Raises ValueError to refuse it."""


class DecryptedConnection(Protocol):
    """A connection that uses a `TlsTransport` like a transport."""

    principal: str
    remote_host: str
    remote_port: int

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is accepted; its handshake follows."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for decrypted bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle this many decrypted bytes."""

    def pause_writing(self) -> None:
        """The client does not read."""

    def resume_writing(self) -> None:
        """The client reads again."""


C = TypeVar("C", bound=DecryptedConnection)


class _Encryption:
    """The TLS of one connection, and its bytes as they are on the network."""

    __slots__ = ("incoming", "outgoing", "tls")

    def __init__(self, tls: ServerTls) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = tls.wrap(self.incoming, self.outgoing)

    @property
    def has_input(self) -> bool:
        """Whether received bytes, or the end of them, were not read yet."""
        return bool(self.incoming.pending or self.incoming.eof or self.tls.pending())

    def advance(self) -> bool:
        """Continue the handshake; whether it is complete. Raises SSLError if it fails."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol, Generic[C]):
    """The transport of `connection`, and the protocol of the socket's transport."""

    def __init__(
        self,
        connection: C,
        tls: ServerTls,
        handshakes: Handshakes,
        refused: Callable[[C, str], None],
    ) -> None:
        """`refused` is called with the reason if the handshake fails."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._listener = tls
        self._handshakes = handshakes
        self._refused = refused
        self._raw: asyncio.Transport
        self._state = _State.SILENT
        self._encryption: _Encryption | None = None
        self._queue = RecordQueue()
        self._is_reading = True
        """Whether the connection wants bytes."""
        self._is_receiving = True
        """Whether the socket's transport reads."""
        self._is_blocked = False
        """Whether the socket took less than it was given."""
        self._has_paused = False
        """Whether the connection was asked to pause writing."""
        self._timer: asyncio.TimerHandle

    # -- the transport of the connection -------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return "ssl_object" from the client's first bytes on, or what the socket's transport returns."""
        if name == "ssl_object" and self._encryption is not None:
            return self._encryption.tls
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._state not in (_State.SILENT, _State.HANDSHAKE, _State.OPEN)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the connection pauses whenever the socket did not take everything."""

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket did not take yet."""
        return self._queue.size + self._raw.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Pass no more bytes to the connection."""
        self._is_reading = False
        if self._state is _State.OPEN:
            self._receive(wanted=False)

    def resume_reading(self) -> None:
        """Pass bytes to the connection again, first those that were received already."""
        self._is_reading = True
        if self._state is _State.OPEN:
            self._loop.call_soon(self._decrypt)

    def write(self, data: Buffer) -> None:
        """Send bytes; what the socket does not take now is sent later."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send several buffers; they must not change until they are sent."""
        if self._state is not _State.OPEN:
            return
        is_idle = not self._queue.size and not self._is_blocked
        self._queue.add(list_of_data)
        if is_idle:
            self._send()
            if self._queue.size or self._is_blocked:
                self._has_paused = True
                self._connection.pause_writing()

    def close(self) -> None:
        """Send what is left, then close. Before the handshake is complete, close at once."""
        if self._state is _State.OPEN:
            self._state = _State.CLOSING
            self._receive(wanted=False)
            if not self._queue.size:
                self._finish()
        elif not self.is_closing():
            self.abort()

    def abort(self) -> None:
        """Close without sending what is left, also of a connection that waits for its client to read the rest."""
        self._state = _State.CLOSED
        self._timer.cancel()
        self._handshakes.end(self)
        self._queue.clear()
        self._raw.abort()

    # -- the protocol of the socket ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._raw = cast("asyncio.Transport", transport)
        self._raw.set_write_buffer_limits(high=0)
        self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self.give_up, "its TLS handshake takes too long")
        self._connection.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        if self._state is _State.HANDSHAKE:
            self._refused(self._connection, CLOSED_BY_CLIENT)
        self._state = _State.CLOSED
        self._timer.cancel()
        self._handshakes.end(self)
        self._queue.clear()
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Called by the loop: memory for encrypted bytes; OpenSSL copies them."""
        return self._handshakes.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: `nbytes` were received."""
        received = self._handshakes.scratch[:nbytes]
        if self._state is _State.SILENT:
            if received[0] != _HANDSHAKE_RECORD:
                self._refuse(PLAINTEXT_CLIENT, _ALERT)
                return
            self._encryption = _Encryption(self._listener)
        encryption = self._encryption
        if encryption is None or self.is_closing():
            return
        encryption.incoming.write(received)
        if self._state is _State.OPEN:
            self._decrypt()
            return
        self._receive(wanted=False)
        if self._state is _State.SILENT:
            self._state = _State.HANDSHAKE
            self._handshakes.begin(self)
        else:
            self._handshakes.schedule(self)

    def eof_received(self) -> bool:
        """Called by the loop. The records before the end are handled first."""
        encryption = self._encryption
        if self._state is not _State.OPEN or encryption is None:
            return False
        encryption.incoming.write_eof()
        self._decrypt()
        return self._state is _State.OPEN

    def pause_writing(self) -> None:
        """Called by the loop: the socket took less than it was given."""
        self._is_blocked = True

    def resume_writing(self) -> None:
        """Called by the loop: the socket took everything."""
        self._is_blocked = False
        # In the next iteration, because asyncio's transport breaks if the protocol closes it during this call.
        self._loop.call_soon(self._send_more)

    def _receive(self, *, wanted: bool) -> None:
        if wanted == self._is_receiving or self._raw.is_closing():
            return
        self._is_receiving = wanted
        if wanted:
            self._raw.resume_reading()
        else:
            self._raw.pause_reading()

    # -- handshake -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Called by `Handshakes`: continue the handshake with the bytes that were received."""
        encryption = self._encryption
        assert encryption is not None
        try:
            is_complete = encryption.advance()
        except ssl.SSLError as error:
            self._refuse(handshake_problem(error), encryption.outgoing.read())
            return
        if encryption.outgoing.pending:
            self._raw.write(encryption.outgoing.read())
        if is_complete:
            self._open(encryption)
        else:
            self._receive(wanted=True)

    def _open(self, encryption: _Encryption) -> None:
        self._handshakes.end(self)
        self._timer.cancel()
        try:
            principal = self._listener.principal(encryption.tls, self._connection.remote_host)
        except ValueError as error:
            self._refuse(str(error))
            return
        self._connection.principal = principal
        self._state = _State.OPEN
        # The client may have sent its first request with the end of the handshake.
        self._decrypt()

    def give_up(self, problem: str) -> None:
        """Close a connection whose handshake is not finished."""
        self._refused(self._connection, problem)
        self.abort()

    def _refuse(self, problem: str, alert: bytes = b"") -> None:
        """Log the problem, and close after the client has read its alert."""
        self._handshakes.end(self)
        self._timer.cancel()
        self._state = _State.REFUSED
        self._refused(self._connection, problem)
        if self._raw.is_closing():
            return
        if alert:
            self._raw.write(alert)
        try:
            self._raw.write_eof()
        except OSError as error:  # the client has closed already
            logger.debug("No end was sent to %s: %s", self._connection.remote_host, error)
            self.abort()
            return
        self._timer = self._loop.call_later(REFUSED_S, self.abort)
        self._receive(wanted=True)

    # -- reading -------------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Fill the memory of the connection with the records that were received, and have it handle them."""
        encryption = self._encryption
        if encryption is None or self._state is not _State.OPEN or not self._is_reading:
            return
        if encryption.has_input:
            buffer = self._connection.get_buffer(-1)
            size, most = 0, len(buffer)
            is_end = is_broken = False
            read = encryption.tls.read
            try:
                while size < most:
                    received = cast("int", read(most - size, buffer[size:]))
                    if not received:
                        is_end = True
                        break
                    size += received
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:  # also the end of the connection without the end of TLS
                is_broken = True
                logger.debug("TLS of %s:%d ends: %s", self._connection.remote_host, self._connection.remote_port, error)
            del buffer
            if size:
                self._connection.buffer_updated(size)
            if is_broken:
                self.abort()
            elif is_end:
                self._queue.clear()
                self.close()
            elif size == most:
                self._loop.call_soon(self._decrypt)
        if self._state is _State.OPEN:
            # Bytes that the connection could not take yet stay below one read and one record.
            self._receive(wanted=self._is_reading and encryption.incoming.pending <= MOST_RECORD_BYTES)

    # -- writing -------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Encrypt and send until the socket takes no more, or this iteration's share is used."""
        encryption, queue = self._encryption, self._queue
        assert encryption is not None
        share = BYTES_PER_ITERATION
        try:
            while queue.size and share > 0 and not self._is_blocked:
                left = WRITE_BYTES
                while queue.size and left > 0:
                    written = encryption.tls.write(queue.record())
                    queue.sent(written)
                    left -= written
                share -= WRITE_BYTES - left
                self._raw.write(encryption.outgoing.read())
        except ssl.SSLError as error:
            # Also SSLWantReadError, which only a renegotiation could cause; those are refused.
            logger.debug("TLS of %s:%d ends: %s", self._connection.remote_host, self._connection.remote_port, error)
            self.abort()
            return
        if queue.size and not self._is_blocked:
            self._loop.call_soon(self._send_more)

    def _send_more(self) -> None:
        if self._state not in (_State.OPEN, _State.CLOSING):
            return
        self._send()
        if self._queue.size or self._is_blocked:
            return
        if self._state is _State.CLOSING:
            self._finish()
        elif self._has_paused:
            self._has_paused = False
            self._connection.resume_writing()

    def _finish(self) -> None:
        """Tell the client that the end was intended, and close without waiting for its answer."""
        encryption = self._encryption
        assert encryption is not None
        try:
            encryption.tls.unwrap()
        except ssl.SSLError as error:  # SSLWantReadError: the client did not answer yet
            logger.debug("TLS of %s:%d closed: %s", self._connection.remote_host, self._connection.remote_port, error)
        self._state = _State.CLOSED
        if encryption.outgoing.pending and not self._raw.is_closing():
            self._raw.write(encryption.outgoing.read())
        self._raw.close()
