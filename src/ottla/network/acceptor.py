"""Accepts the connections of one listening socket, within the descriptors that the process has for connections.

An event loop's own server accepts until the backlog is empty. A burst of connections could then use all descriptors, so
that the log cannot open a segment. Here a connection stays open only if the server has a descriptor for it; otherwise
it is closed at once. If the whole machine has no descriptor, accepting pauses for a second, as in asyncio.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.network.admission import Admission
from ottla.network.connection import Connection, Dispatch
from ottla.network.connections import Connections

if TYPE_CHECKING:
    from ottla.network.listener_tls import ListenerTls

logger = logging.getLogger(__name__)

# Per event loop iteration, so that requests are handled between new connections.
ACCEPTS_PER_ITERATION: Final = 100
PAUSE_S: Final = 1.0
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Service(NamedTuple):
    """The settings of the connections of a listener."""

    listener: str
    dispatch: Dispatch
    first_frame_bytes: int | None = None
    """Limits the size of frames until `Connection.limit_frames` is called."""
    tls: ListenerTls | None = None


class Acceptor:
    """Accepts connections of `service.listener` on `sock`, which it owns, from `start` to `close`."""

    def __init__(
        self,
        connections: Connections[Connection],
        admission: Admission,
        service: Service,
        sock: socket.socket,
    ) -> None:
        self._connections = connections
        self._admission = admission
        self.listener = service.listener
        self._service = service
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._resuming: asyncio.TimerHandle | None = None
        self._is_reading = False

    def start(self, backlog: int) -> None:
        """Start accepting."""
        self._socket.setblocking(False)
        self._socket.listen(backlog)
        self._resume()

    def close(self) -> None:
        """Stop accepting and close the socket."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._pause()
        self._socket.close()
        for task in tuple(self._opening):
            task.cancel()

    def _resume(self) -> None:
        self._resuming = None
        self._is_reading = True
        self._loop.add_reader(self._socket, self._accept)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_ITERATION):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORTAGES:
                    raise
                if self._admission.release_descriptor():
                    continue
                self._admission.note_shortage(error)
                self._pause()
                self._resuming = self._loop.call_later(PAUSE_S, self._resume)
                return
            if self._admission.has_descriptor():
                connection = Connection(self._connections, self.listener, self._service.dispatch)
                connection.limit_frames(self._service.first_frame_bytes)
                self._connections.opening.add(connection)
                task = self._loop.create_task(self._open(connection, accepted, str(address[0])))
                self._opening.add(task)
                task.add_done_callback(self._opening.discard)
            else:
                accepted.close()

    async def _open(self, connection: Connection, accepted: socket.socket, address: str) -> None:
        accepted.setblocking(False)
        is_open = False
        try:
            refused_ms = self._admission.refused_ms(address.removeprefix("::ffff:"))
            if refused_ms:
                # Closed only now, as in Kafka: a client that is closed at once connects again at once.
                await asyncio.sleep(refused_ms / 1000)
                return
            delay_s = self._admission.delay_s(self.listener)
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            tls = self._service.tls
            protocol: asyncio.BufferedProtocol = connection
            if tls is not None:
                protocol = tls.protocol(connection, self._admission.handshakes, self._admission.note_refused)
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
            is_open = True
        except OSError as error:
            logger.debug("The client disconnected before its connection was open: %s", error)
        finally:
            self._connections.opening.discard(connection)
            if not is_open:
                accepted.close()
