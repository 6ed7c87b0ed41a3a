"""One client's connection: bytes in, frames to `dispatch`, answers out, in order, within limits.

One request of a connection is in progress at a time, as in Kafka: what comes behind it waits in the connection's
buffer, and beyond `READ_AHEAD_BYTES` in the client's. The contract with `dispatch(connection, frame)`:

- `frame` is a writable view without the four bytes of size, valid only until `dispatch` returns;
- buffers to write are the answer, None is no answer (acks=0), a `Completion` of either is one that comes later;
- KafkaError and DecodeError close the connection with one log line, any other exception also with its traceback.

A connection with no half-received frame owns no buffer: all of them read into one scratch buffer, which is why a
thousand idle ones cost little. Answers to all frames of one read go out in one write. What is `Unread` in a large one
is read when the socket takes it, a piece at a time: a client that does not read costs one piece.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.shortage import is_shortage
from ottla.common.unread import Unread
from ottla.network.buffers import FrameBuffer, frame_capacity, grown_capacity
from ottla.protocol.wire import Buffer, DecodeError

if TYPE_CHECKING:
    from ottla.network.server import Server

logger = logging.getLogger(__name__)

Frames: TypeAlias = list[Buffer] | None
Dispatch: TypeAlias = "Callable[[Connection, memoryview], Frames | Completion[Frames]]"

SIZE_BYTES = 4
SCRATCH_BYTES = 256 * 1024
READ_AHEAD_BYTES = 64 * 1024
# Of one who pipelines.
SMALL_READ_BYTES = 16 * 1024
LEAST_BUFFER_BYTES = 1024
WRITE_HIGH_WATER_BYTES = 256 * 1024
# Up to here copying small answers into one beats a gathering write.
JOIN_BYTES = 32 * 1024
# Of a large answer, in one turn: what a socket takes at once (Linux's tcp_wmem goes to 4 MiB), so that no rest of it
# keeps its memory. Smaller pieces wake the client more often: those of 1 MB cost a seventh more.
PIECE_BYTES = 4_000_000
ANONYMOUS = "User:ANONYMOUS"
_read_size = struct.Struct(">i").unpack_from


class Connection(asyncio.BufferedProtocol):
    """One client. `listener`, `remote_host`, `principal` say who; `state` is for handlers to keep things in."""

    __slots__ = (
        "_backlog",
        "_buffer",
        "_buffer_size",
        "_close_callbacks",
        "_dispatch",
        "_filled",
        "_last_tick",
        "_left",
        "_outgoing",
        "_pending",
        "_reading_paused",
        "_round",
        "_server",
        "_transport",
        "_unsent_bytes",
        "_waits_for_memory",
        "_write_paused_tick",
        "closed",
        "listener",
        "principal",
        "remote_host",
        "remote_port",
        "software_name",
        "software_version",
        "state",
    )

    def __init__(self, server: Server, listener: str, dispatch: Dispatch | None = None) -> None:
        self._server = server
        self._dispatch = dispatch or server.dispatch
        self.listener = listener
        self.remote_host = ""
        self.remote_port = 0
        self.principal = ANONYMOUS
        self.software_name = self.software_version = ""
        self.state: dict[str, object] = {}
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._close_callbacks: list[Callable[[], None]] | None = []
        # What was received of a frame that is not complete or may not be handled yet; None while there is nothing.
        self._buffer: FrameBuffer | None = None
        self._buffer_size = 0
        self._filled = 0
        self._pending: Completion[Frames] | None = None
        # Its turn ended before its frames did.
        self._backlog = False
        # The last round in which it had a turn of several frames, and how many were left of that.
        self._round = self._left = 0
        self._reading_paused = False
        self._waits_for_memory = False
        # While writing is paused: when the client last took some of its answers, and how much was left then.
        self._write_paused_tick: int | None = None
        self._unsent_bytes = 0
        # What has not been given to the transport yet, of large answers.
        self._outgoing: deque[Buffer] | None = None
        self._last_tick = server.tick

    # -- life --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._last_tick = self._server.tick
        peer = transport.get_extra_info("peername") or ("", 0)
        # A socket for both families shows clients of IPv4 in IPv6's clothes.
        self.remote_host, self.remote_port = str(peer[0]).removeprefix("::ffff:"), int(peer[1])
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES, low=0)
        problem = self._server.admit(self)
        if problem:
            self._server.reject(self, problem)
            self.abort()
            return
        logger.debug("Accepted connection from %s:%d on %s", self.remote_host, self.remote_port, self.listener)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called by the loop."""
        self.closed = True
        logger.debug("Connection from %s:%d closed", self.remote_host, self.remote_port)
        self._outgoing = None
        self._drop_buffer()
        self._server.forget(self)
        callbacks, self._close_callbacks = self._close_callbacks, None
        for callback in callbacks or ():
            callback()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the connection is lost; at once if it is."""
        if self._close_callbacks is None:
            callback()
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """Send what was answered, then close."""
        self.closed = True
        if self._transport is not None and self._outgoing is None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        return self._pending is not None

    def expired(self, tick: int, idle_ticks: int, slow_ticks: int) -> str | None:
        """Why the connection should be closed, if it should."""
        if self._write_paused_tick is not None and self._transport is not None:
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes != self._unsent_bytes:
                self._unsent_bytes, self._write_paused_tick = unsent_bytes, tick
            return "the client does not read its responses" if tick - self._write_paused_tick > slow_ticks else None
        if self._pending is None and 0 < idle_ticks < tick - self._last_tick:
            return "idle"
        return None

    # -- reading -----------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the loop is to put what it reads next."""
        if self._buffer is None:
            return self._server.scratch
        if self._buffer_size > SCRATCH_BYTES:
            # Up to the end of the frame: what is read beyond would have to be moved.
            needed = self._needed(memoryview(self._buffer)[: self._filled])
            if self._filled < needed:
                return memoryview(self._buffer)[self._filled : needed]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle what was read."""
        self._last_tick = self._server.tick
        must_wait = self._pending is not None or self._write_paused_tick is not None
        if self._buffer is None:
            data = self._server.scratch[:nbytes]
            if must_wait:
                self._keep(data, LEAST_BUFFER_BYTES)
            else:
                self._handle(data)
        else:
            self._filled += nbytes
            if must_wait:
                self._make_room()
            else:
                self._handle_buffered()

    def eof_received(self) -> bool:
        """The client will send no more: what is in progress has nobody to answer to, or is cut off."""
        return False

    def _handle_buffered(self) -> None:
        buffer = self._buffer
        if buffer is None:
            return
        filled = self._filled
        needed = self._needed(memoryview(buffer)[:filled])
        # A frame that claims too much is not waited for: it is refused below.
        if filled < needed <= self._server.limits.max_frame_bytes + SIZE_BYTES:
            self._make_room()
            return
        # From here on the frames are in `buffer`, which the view keeps alive; what is left over gets a new one.
        self._drop_buffer()
        self._handle(memoryview(buffer)[:filled])
        self._server.buffers.give_back(buffer)

    def _handle(self, data: memoryview) -> None:
        """Answer all whole frames in `data`; keep the rest."""
        answers: list[Buffer] = []
        answered_bytes = 0
        position, end = 0, len(data)
        server = self._server
        turn = left = server.frames_per_turn if self._round != server.round else self._left
        self._backlog = False
        dispatch = self._dispatch
        largest = server.limits.max_frame_bytes
        try:
            while end - position >= SIZE_BYTES and self._write_paused_tick is None:
                (size,) = _read_size(data, position)
                if not 0 <= size <= largest:
                    raise DecodeError(_no_frame(size, largest))
                start = position + SIZE_BYTES
                if end - start < size:
                    break
                if not left:
                    self._backlog = True
                    break
                left -= 1
                position = start + size
                answer = dispatch(self, data[start:position])
                if isinstance(answer, Completion):
                    if not answer.done:
                        self._pending = answer
                        break
                    answer = answer.result()
                if answer is not None:
                    answers += answer
                    answered_bytes += sum(map(len, answer))
                    if answered_bytes > WRITE_HIGH_WATER_BYTES:
                        self._write(answers)  # may pause us: small requests can have large answers
                        answers, answered_bytes = [], 0
                if self.closed or server.draining:
                    break
        except (KafkaError, DecodeError) as error:
            self._write(answers)
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001 - a bug in one request must not harm other clients
            self._write(answers)
            self._crash(error)
            return
        if answers:
            self._write(answers)
        self._settle(data[position:], turn - left, left)

    def _settle(self, rest: memoryview, handled: int, left: int) -> None:
        """After the frames that could be handled: keep what is left of the data, see to the request in progress."""
        if handled > 1:
            # What is left of its turn, for it may be read from again before others are.
            self._left = left
            self._round = self._server.took_turn(handled, again=self._round == self._server.round)
        if self._pending is None and self._server.draining:
            self.close()
        if rest and not self.closed:
            # Who sent whole ones has more to send: a kilobyte at a time costs a read and a write for each few of them.
            self._keep(rest, SMALL_READ_BYTES if handled else LEAST_BUFFER_BYTES)
            if self._backlog:
                self._pause_reading()
                asyncio.get_running_loop().call_soon(self._go_on)
        if self._pending is not None:
            self._pending.on_done(self._answered)

    def _answered(self, done: Completion[Frames]) -> None:
        self._pending = None
        self._last_tick = self._server.tick
        if self.closed:
            return
        try:
            answer = done.result()
        except (KafkaError, DecodeError) as error:
            self._fail(error)
            return
        except Exception as error:  # noqa: BLE001 - a bug in one request must not harm other clients
            self._crash(error)
            return
        if answer is not None:
            self._write(answer)
        if self._server.draining:
            self.close()
        elif self._buffer is not None or self._reading_paused:
            # Not on this stack: it may be that of another client's request.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle what has been waiting, and read again."""
        if self.closed or self._pending is not None or self._write_paused_tick is not None:
            return
        self._handle_buffered()
        held = self._pending is not None or self._waits_for_memory or self._backlog
        if self._reading_paused and not held and not self.closed:
            self._resume_reading()

    # -- buffers -----------------------------------------------------------------------------------------------

    @staticmethod
    def _needed(data: memoryview) -> int:
        """Bytes of the first frame in `data`, size included."""
        if len(data) < SIZE_BYTES:
            return SIZE_BYTES
        return SIZE_BYTES + int(_read_size(data)[0])

    def _keep(self, rest: memoryview, least: int) -> None:
        needed = self._needed(rest)
        room = max(frame_capacity(len(rest), needed), 2 * len(rest), least)
        if self._pending is not None:
            room = max(room, READ_AHEAD_BYTES)
        elif room > READ_AHEAD_BYTES and not self._server.has_room(room):
            room = max(len(rest), LEAST_BUFFER_BYTES)  # it is told to wait below
        buffer = self._take(room)
        if buffer is not None:
            memoryview(buffer)[: len(rest)] = rest
            self._set_buffer(buffer, len(rest))
            self._make_room()

    def _make_room(self) -> None:
        """See to it that the loop has room to read into, or does not read."""
        buffer = self._buffer
        if buffer is None:
            return
        if self._pending is not None or self._write_paused_tick is not None:
            if self._filled == len(buffer):
                self._pause_reading()
            return
        needed = self._needed(memoryview(buffer)[: self._filled])
        size = max(grown_capacity(len(buffer), self._filled, needed), LEAST_BUFFER_BYTES)
        if size > len(buffer):
            if not self._server.may_buffer(self, size - len(buffer)):
                self._waits_for_memory = True
                self._pause_reading()
                return
            larger = self._take(size)
            if larger is not None:
                memoryview(larger)[: self._filled] = memoryview(buffer)[: self._filled]
                self._set_buffer(larger, self._filled)

    def _take(self, size: int) -> FrameBuffer | None:
        try:
            return self._server.buffers.take(size)
        except OSError as error:
            self._server.complain(self, f"no memory for a frame of {size} bytes: {error}")
            self.abort()
            return None

    def memory_available(self) -> None:
        """Called by the server when this connection may go on to receive its frame."""
        self._waits_for_memory = False
        if not self.closed:
            self._make_room()
            if not self._waits_for_memory and self._reading_paused:
                self._resume_reading()

    def _set_buffer(self, buffer: FrameBuffer, filled: int) -> None:
        self._server.buffered_bytes += len(buffer) - self._buffer_size
        self._buffer, self._buffer_size, self._filled = buffer, len(buffer), filled

    def _drop_buffer(self) -> None:
        size, self._buffer, self._buffer_size, self._filled = self._buffer_size, None, 0, 0
        if size:
            self._server.release(self, size)

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self, answer: list[Buffer]) -> None:
        transport = self._transport
        if not answer or transport is None or transport.is_closing():
            return
        if self._outgoing is not None:
            self._outgoing += answer
        elif len(answer) == 1:
            transport.write(answer[0])
        elif sum(map(len, answer)) <= JOIN_BYTES:
            transport.write(b"".join(answer))
        else:
            self._outgoing = deque(answer)
            self._send_pieces()

    def _send_pieces(self) -> None:
        """Give the transport a piece of what is outgoing; the next when it takes more, and others had their turn."""
        outgoing, transport = self._outgoing, self._transport
        if outgoing is None or transport is None or transport.is_closing():
            return
        try:
            piece = _next_piece(outgoing)
        except KafkaError as error:
            # The client has a part of the answer: there is no other way to tell it that no more comes.
            self._server.complain(self, str(error))
            self.abort()
            return
        if not outgoing:
            self._outgoing = None
        transport.writelines(piece)
        if not outgoing:
            if self.closed:
                transport.close()
        elif self._write_paused_tick is None:
            self._write_paused_tick = self._server.tick
            asyncio.get_running_loop().call_soon(self.resume_writing)

    def pause_writing(self) -> None:
        """The client reads slower than it asks."""
        self._write_paused_tick = self._server.tick
        self._unsent_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0

    def resume_writing(self) -> None:
        """It caught up."""
        self._write_paused_tick = None
        self._send_pieces()
        self._go_on()

    # -- trouble -----------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        self._server.complain(self, str(error))
        self.close()

    def _crash(self, error: Exception) -> None:
        if isinstance(error, OSError) and is_shortage(error):  # as where a handler is imported: the client retries
            self._fail(error)
            return
        who = self.remote_host, self.remote_port
        logger.error("Closing socket for %s:%d because of error: unhandled error in a request", *who, exc_info=error)
        self.close()


def _no_frame(size: int, largest: int) -> str:
    """Why these first four bytes are not the size of a request: often the client speaks another protocol."""
    start = size.to_bytes(4, "big", signed=True)
    if start.startswith(b"\x16\x03"):
        return "the client speaks TLS, this listener does not: set its security.protocol to PLAINTEXT"
    if start in (b"GET ", b"HEAD", b"POST", b"PUT ", b"PRI "):
        return "the client speaks HTTP, not Kafka's protocol"
    return f"Invalid receive (size = {size}{f' larger than {largest}' if size > largest else ''})"


def _next_piece(outgoing: deque[Buffer]) -> list[Buffer]:
    piece: list[Buffer] = []
    room = PIECE_BYTES
    while outgoing and room > 0:
        part: Buffer | Unread = outgoing[0]
        if isinstance(part, Unread):
            taken = part.take(room)
            if not part:
                outgoing.popleft()
        else:
            taken = outgoing.popleft()
        piece.append(taken)
        room -= len(taken)
    return piece
