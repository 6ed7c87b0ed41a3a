"""One client's connection: joins its transport, `FrameReader`, `dispatch` and `WriteQueue`.

One request of a connection is in progress at a time, as in Kafka. Requests behind it wait in the connection's buffer,
beyond `READ_AHEAD_BYTES` in the client's. The contract with `dispatch(connection, frame)`:

- `frame` is a writable view without the four bytes of size, valid only until `dispatch` returns;
- it returns the buffers of the response, None for no response (acks=0), or a `Completion` of either;
- KafkaError and DecodeError close the connection with one log line, any other exception also with its traceback.

A client above a quota is muted by a `MutingResponse`: it is sent at once, the next request is handled later (KIP-219).
Only a `Completion` may have such a result.

Responses to all frames of one read go out in one write, in the order of the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias, cast

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.shortage import is_shortage
from ottla.network.connections import DISCONNECTED, Connections
from ottla.network.frame_quota import RoundShare
from ottla.network.frame_reader import LEAST_BUFFER_BYTES, PIPELINE_BUFFER_BYTES, READ_AHEAD_BYTES, FrameReader
from ottla.network.sockets import is_half_closed
from ottla.network.write_queue import WriteQueue
from ottla.protocol.wire import Buffer, DecodeError

logger = logging.getLogger(__name__)

Frames: TypeAlias = list[Buffer] | None
Dispatch: TypeAlias = "Callable[[Connection, memoryview], Frames | Completion[Frames]]"

# Collected responses above this size are written before further frames are handled.
COLLECTED_RESPONSE_BYTES = 256 * 1024
ANONYMOUS = "User:ANONYMOUS"
# The keys in `Connection.state` of the name and version that the client library gave in ApiVersions (KIP-511).
SOFTWARE_NAME = "software name"
SOFTWARE_VERSION = "software version"
# The key in `Connection.state` that marks a connection on which a replica fetches.
FETCHED_BY_REPLICA = "fetched by replica"


class MutingResponse(list[Buffer]):
    """The buffers of a response, none for acks=0, and how long the connection is muted after it."""

    __slots__ = ("pause_s",)

    def __init__(self, response: Frames, pause_s: float) -> None:
        super().__init__(response or ())
        self.pause_s = pause_s


class Pause(Completion[Frames]):
    """The time for which a connection is muted; takes the place of the request in progress."""

    __slots__ = ("_timer",)

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self._timer = asyncio.get_running_loop().call_later(pause_s, self.complete, None)

    def cancel(self) -> None:
        """Never complete."""
        self._timer.cancel()


class Connection(asyncio.BufferedProtocol):
    """One client, described by `listener`, `remote_host` and `principal`; handlers may store values in `state`."""

    __slots__ = (
        "_close_callbacks",
        "_dispatch",
        "_last_tick",
        "_pending",
        "_reader",
        "_share",
        "_shared",
        "_transport",
        "_writes",
        "closed",
        "listener",
        "principal",
        "remote_host",
        "remote_port",
        "state",
    )

    def __init__(self, shared: Connections[Connection], listener: str, dispatch: Dispatch) -> None:
        self._shared = shared
        self._dispatch = dispatch
        self.listener = listener
        self.remote_host = ""
        self.remote_port = 0
        self.principal = ANONYMOUS
        self.state: dict[str, object] = {}
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._close_callbacks: list[Callable[[], None]] | None = []
        self._reader = FrameReader(shared.memory, self)
        self._writes = WriteQueue()
        # The response of the request in progress, if it is not complete yet.
        self._pending: Completion[Frames] | None = None
        self._share = RoundShare()
        self._last_tick = shared.tick

    # -- life --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)
        self._last_tick = self._shared.tick
        peer = transport.get_extra_info("peername") or ("", 0)
        # A socket for both families shows an IPv4 client with a mapped IPv6 address.
        self.remote_host, self.remote_port = str(peer[0]).removeprefix("::ffff:"), int(peer[1])
        # Pause whenever the socket did not take everything: otherwise the transport could hold a rest and a piece.
        self._transport.set_write_buffer_limits(high=0)
        problem = self._shared.admit(self)
        if problem:
            self._shared.reject(self, problem)
            self.abort()
            return
        logger.debug("Accepted connection from %s:%d on %s", self.remote_host, self.remote_port, self.listener)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Called by the loop."""
        self.closed = True
        logger.debug("Connection from %s:%d closed", self.remote_host, self.remote_port)
        if isinstance(self._pending, Pause):
            self._pending.cancel()
        self._writes.clear()
        self._reader.close()
        self._shared.forget(self)
        self._transport = None  # it refers to this object
        callbacks, self._close_callbacks = self._close_callbacks, None
        for callback in callbacks or ():
            callback()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection is lost, or now if it is lost already."""
        if self._close_callbacks is None:
            callback()
        else:
            self._close_callbacks.append(callback)

    def limit_frames(self, max_frame_bytes: int | None) -> None:
        """Limit the size of the next frames; None leaves only the limit of all connections."""
        self._reader.max_frame_bytes = max_frame_bytes

    def dispatch_to(self, dispatch: Dispatch) -> None:
        """Let `dispatch` handle the next frames; frames of the same read may still go to the previous one."""
        self._dispatch = dispatch

    def close(self) -> None:
        """Send all responses, then close."""
        self.closed = True
        if self._transport is not None and not self._writes:
            self._transport.close()

    def abort(self) -> None:
        """Close without sending the responses that are left."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def descriptor(self) -> int | None:
        """The descriptor of the socket; None if it is closed."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        number = -1 if sock is None else sock.fileno()
        return None if number < 0 else number

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        return self._pending is not None and not isinstance(self._pending, Pause)

    def expired(self, tick: int, idle_ticks: int, slow_ticks: int) -> str | None:
        """Why the connection should be closed, if it should."""
        if self._writes.is_paused and self._transport is not None:
            stalled_ticks = self._writes.stalled_ticks(tick, self._transport.get_write_buffer_size())
            return "the client does not read its responses" if stalled_ticks > slow_ticks else None
        if self._pending is None and 0 < idle_ticks < tick - self._last_tick:
            return "idle"
        if isinstance(self._pending, Pause) and self._reader.is_paused:
            # The loop does not watch the socket, and a pause can be long.
            descriptor = self.descriptor
            if descriptor is not None and is_half_closed(descriptor):
                return DISCONNECTED
        return None

    # -- reading -----------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Called by the loop: the memory for the next bytes."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: `nbytes` were read."""
        self._last_tick = self._shared.tick
        self._reader.received(nbytes)
        if self._pending is None and not self._writes.is_paused:
            self._handle()
        else:
            self._retain(READ_AHEAD_BYTES if self._pending is not None else LEAST_BUFFER_BYTES)

    def eof_received(self) -> bool:
        """Close: there is no client to answer, and a half-received request will never be complete."""
        return False

    def _handle(self) -> None:
        """Handle the received frames in order, as far as the client and the other clients allow it.

        Stops at the first request whose response has to wait, when the transport takes no more responses, and when the
        connection has used its share of this round (`FrameQuota`). Then the completion, `resume_writing`, or the next
        event loop iteration calls `_go_on`. So at most one of these is outstanding, and requests of one connection are
        handled one after another.

        The responses are collected and written together: one system call for each read, not for each request. They are
        written earlier when they exceed `COLLECTED_RESPONSE_BYTES`, since small requests can have large responses.
        """
        shared, reader, writes, dispatch = self._shared, self._reader, self._writes, self._dispatch
        responses: list[Buffer] = []
        response_bytes = 0
        left = quota = self._share.frames(shared.quota)
        try:
            while left and not writes.is_paused and not self.closed:
                frame = reader.next_frame()
                if frame is None:
                    break
                left -= 1
                response = dispatch(self, frame)
                if isinstance(response, Completion):
                    if not response.done:
                        self._pending = response
                        break
                    response = response.result()
                if response is not None:
                    responses += response
                    response_bytes += sum(map(len, response))
                    if response_bytes > COLLECTED_RESPONSE_BYTES:
                        self._write(responses)
                        responses, response_bytes = [], 0
                if shared.draining:
                    break
        except Exception as error:  # noqa: BLE001 - it ends only this connection; others must be served
            self._write(responses)
            self._fail(error)
            return
        if responses:
            self._write(responses)
        self._share.has_backlog = not left and self._pending is None and reader.has_frame
        self._after_frames(quota - left, left)

    def _after_frames(self, handled: int, left: int) -> None:
        """Count the handled frames, retain the bytes behind them, and schedule the next step."""
        if handled > 1:
            self._shared.use_quota(self._share, handled, left)
        if self._pending is None and self._shared.draining:
            self.close()
        if self.closed:
            self._reader.clear()
        elif self._pending is not None:
            self._retain(READ_AHEAD_BYTES)
        else:
            pipelined = READ_AHEAD_BYTES if self._reader.is_full else PIPELINE_BUFFER_BYTES
            self._retain(pipelined if handled else LEAST_BUFFER_BYTES)
        if self._share.has_backlog and not self.closed:
            self._pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)
        if self._pending is not None:
            self._pending.on_done(self._respond)

    def _respond(self, done: Completion[Frames]) -> None:
        """Send the response of the request in progress."""
        self._pending = None
        self._last_tick = self._shared.tick
        if self.closed:
            return
        if done.error is not None:
            self._fail(done.error)
            return
        response = done.result()
        if response is not None:
            self._write(response)
        if self._shared.draining:
            self.close()
        elif isinstance(response, MutingResponse):
            self._pending = Pause(response.pause_s)
            self._pending.on_done(self._respond)
        elif self._reader.has_bytes or self._reader.is_paused:
            # In the next iteration, because this may be the stack of another client's request.
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle the frames that had to wait, and resume reading if no frame is left."""
        if self.closed or self._pending is not None or self._writes.is_paused:
            return
        if self._reader.has_bytes:
            self._handle()
        is_held = self._pending is not None or self._share.has_backlog or self.closed
        if self._reader.is_paused and not is_held and self._reserve():
            self._resume_reading()

    def memory_available(self) -> None:
        """Called by `ReceiveMemory`: the buffer may grow now."""
        self._reader.waits_for_memory = False
        if not self.closed and self._reserve() and self._reader.is_paused:
            self._resume_reading()

    def _retain(self, least_bytes: int) -> None:
        """Move the unhandled bytes to a buffer; stop reading if there is no space behind them."""
        try:
            has_bytes = self._reader.retain(least_bytes)
        except OSError as error:
            self._abort_without_memory(error)
            return
        if has_bytes:
            self._reserve()

    def _reserve(self) -> bool:
        """Make sure that there is space to read into; otherwise stop reading."""
        try:
            has_space = self._reader.reserve(may_grow=self._pending is None and not self._writes.is_paused)
        except OSError as error:
            self._abort_without_memory(error)
            return False
        if not has_space:
            self._pause_reading()
        return has_space

    def _abort_without_memory(self, error: OSError) -> None:
        self._shared.complain(self, f"no memory for a request: {error}")
        self.abort()

    def _pause_reading(self) -> None:
        if not self._reader.is_paused and self._transport is not None:
            self._reader.is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None:
            self._reader.is_paused = False
            self._transport.resume_reading()

    # -- writing -----------------------------------------------------------------------------------------------

    def _write(self, response: list[Buffer]) -> None:
        transport = self._transport
        if not response or transport is None or transport.is_closing():
            return
        at_once = self._writes.add(response)
        if at_once is not None:
            transport.write(at_once)
        elif not self._writes.is_paused:  # otherwise `resume_writing` sends it
            self._send_piece()

    def _send_piece(self) -> None:
        """Give the transport the next piece of the queue.

        The piece after it follows in a later event loop iteration, even if the transport took this one: a client that
        reads fast must not keep the others from being served.
        """
        writes, transport = self._writes, self._transport
        if not writes or transport is None or transport.is_closing():
            return
        try:
            piece = writes.take_piece()
        except KafkaError as error:
            # The client has a part of the response already, so that an error response is impossible.
            self._shared.complain(self, str(error))
            self.abort()
            return
        transport.writelines(piece)
        if not writes:
            if self.closed:
                transport.close()
        elif not writes.is_paused:
            writes.pause(self._shared.tick)
            asyncio.get_running_loop().call_soon(self._send_next_piece)

    def pause_writing(self) -> None:
        """Called by the transport: the client reads more slowly than it sends requests."""
        unsent_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._writes.pause(self._shared.tick, unsent_bytes)

    def resume_writing(self) -> None:
        """Called by the transport when it has sent everything."""
        # In the next iteration, because asyncio's transport breaks if the protocol closes it during this call.
        asyncio.get_running_loop().call_soon(self._send_next_piece)

    def _send_next_piece(self) -> None:
        self._writes.resume()
        self._send_piece()
        self._go_on()

    # -- errors ------------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> None:
        """Log why a request has no response, and close."""
        # A shortage of descriptors or memory, for example during the import of a handler, passes: the client retries.
        if isinstance(error, (KafkaError, DecodeError)) or (isinstance(error, OSError) and is_shortage(error)):
            self._shared.complain(self, str(error))
        else:
            address = self.remote_host, self.remote_port
            text = "Closing socket for %s:%d because of error: unhandled error in a request"
            logger.error(text, *address, exc_info=error)
        self._reader.clear()
        self.close()
