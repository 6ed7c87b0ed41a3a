"""The client side of a connection: requests out, pipelined; responses in, matched by correlation id.

`ClientConnection.connect` opens the socket and requests ApiVersions (version 4, or 0 if the broker is too old for that:
KIP-511), so that every later request uses the highest version that both support. With `sasl` it then logs in, and again
before the session ends (KIP-368): requests wait during that. Requests are sent in the order of the calls, and a broker
answers in that order. The caller limits how many are in flight.

A request that is not answered within its timeout ends the connection, as in Kafka: the requests behind it would wait
too. When a connection ends, every request in flight fails with `ConnectionClosed`.

A response is decoded from a buffer of its own. Its `Records` fields are views of that buffer and keep it alive.
All methods must be called on the event loop that connected.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from ottla import __version__
from ottla.common.jitter import random_share
from ottla.network.errors import (
    AuthenticationRefused,
    ConnectFailed,
    ConnectionClosed,
    MechanismRefused,
    NetworkError,
    NoAnswer,
    NotKafka,
    TlsRefused,
    UnknownHost,
    UnsupportedRequest,
    address_of,
    connect_error,
    tls_problem,
)
from ottla.network.requests_in_flight import Completion, RequestInFlight, RequestsInFlight
from ottla.network.response_reader import (
    LARGEST_RESPONSE_BYTES,
    ResponseMemoryError,
    ResponseReader,
    ResponseSizeError,
)
from ottla.network.sasl import log_in, renewal_delay_s
from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.registry import API, response_class
from ottla.protocol.wire import DecodeError

if TYPE_CHECKING:
    from ottla.network.sasl import SaslSource
    from ottla.security.mechanism import SaslClient

__all__ = [
    "AuthenticationRefused",
    "ClientConnection",
    "ConnectFailed",
    "ConnectionClosed",
    "MechanismRefused",
    "NetworkError",
    "NoAnswer",
    "NotKafka",
    "TlsRefused",
    "UnknownHost",
    "UnsupportedRequest",
]

UNSUPPORTED_VERSION: Final = 35
RENEWAL_TIMEOUT_S: Final = 30.0
# An abort takes a few event loop iterations.
ABORT_S: Final = 1.0
HANDSHAKE_ABORT_ITERATIONS: Final = 5
PRODUCE: Final = 0


class _Held(asyncio.Transport):
    """Replaces the transport while a session is renewed: the broker accepts no other requests then."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self.transport = transport
        self.parts: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.parts.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        # Copy the bytes: with acks=0 the caller may reuse its buffers.
        self.parts.append(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.transport.get_extra_info(name, default)

    def close(self) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()


class ClientConnection(asyncio.BufferedProtocol):
    """One connection to one broker. `versions` maps each API key to the broker's (lowest, highest) version."""

    __slots__ = (
        "_client_id",
        "_close_callbacks",
        "_correlation_id",
        "_in_flight",
        "_is_lost",
        "_loop",
        "_loss",
        "_problem",
        "_reader",
        "_ready_id",
        "_renewal",
        "_renewal_timer",
        "_sasl",
        "_session_began",
        "_transport",
        "address",
        "closed",
        "features",
        "last_used",
        "received_bytes",
        "sent_bytes",
        "versions",
        "write_paused",
    )

    def __init__(self, address: str, client_id: str | None, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.closed = False
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}  # the finalized levels when the connection was opened (KIP-584)
        self.last_used = loop.time()
        self.write_paused = False
        self.sent_bytes = self.received_bytes = 0
        self._client_id = client_id
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0
        self._in_flight = RequestsInFlight(loop, self._time_out)
        self._reader = ResponseReader()
        self._problem: NetworkError | None = None
        self._close_callbacks: list[Callable[[], None]] = []
        self._is_lost = False
        self._loss: Exception | None = None
        self._ready_id = 0  # the last correlation id of the handshake
        self._sasl: SaslSource | None = None
        self._session_began = 0.0
        self._renewal_timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------------

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        sasl: SaslSource | None = None,
    ) -> ClientConnection:
        """A connection that is ready for requests, logged in if `sasl` is given, within `timeout_s` seconds.

        Raises ConnectFailed; its subclasses will not pass by themselves.
        """
        loop = asyncio.get_running_loop()
        address = address_of(host, port)
        connection = cls(address, client_id, loop)
        is_ready = False
        stage = "no token to log in with"
        try:
            async with asyncio.timeout(timeout_s):
                exchange = None if sasl is None else await sasl()
                stage = "no connection"
                await loop.create_connection(
                    lambda: connection, host, port, ssl=tls, server_hostname=host if tls else None
                )
                stage = "it accepts connections but does not answer"
                await connection._ask_versions(timeout_s)
                if exchange is not None:
                    connection._sasl = sasl
                    await connection._log_in(exchange, timeout_s)
                connection._ready()
            is_ready = True
        except (OSError, NetworkError, UnicodeError) as error:
            if isinstance(error, ConnectFailed):
                raise
            cause = connection._loss if isinstance(connection._loss, ssl.SSLError) else error
            raise connect_error(address, cause, timeout_s, stage=stage, is_tls=tls is not None) from error
        finally:
            if not is_ready:
                await connection._give_up()
        return connection

    async def _give_up(self) -> None:
        """Clean up after a failed connect, so that the event loop can be closed."""
        self.abort()
        if self._transport is not None:
            await self.wait_lost(ABORT_S)
        else:
            # The event loop aborts a cancelled TLS handshake itself, in a few iterations.
            for _ in range(HANDSHAKE_ABORT_ITERATIONS):
                await asyncio.sleep(0)

    async def _ask_versions(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        answer: ApiVersionsResponse = await self.send(request, version=4, timeout_s=timeout_s)
        if answer.error_code == UNSUPPORTED_VERSION:
            answer = await self.send(request, version=0, timeout_s=timeout_s)
        if answer.error_code or not answer.api_keys:
            raise NotKafka(f"{self.address} answered ApiVersions with error {answer.error_code}")
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        self.features = {row.name: row.max_version_level for row in answer.finalized_features}

    def _ready(self) -> None:
        self._reader.largest_bytes = LARGEST_RESPONSE_BYTES
        self._ready_id = self._correlation_id

    # -- authentication --------------------------------------------------------------------------------------------

    async def _log_in(self, exchange: SaslClient, timeout_s: float) -> None:
        """Authenticate, and set the timer for the session's renewal. Raises AuthenticationRefused."""

        def ask(request: Message, version: int) -> asyncio.Future[Message | None]:
            held = self._transport
            if isinstance(held, _Held):
                self._transport = held.transport
            try:
                return self.send_nowait(request, version=version, timeout_s=timeout_s)
            finally:
                self._transport = held

        lifetime_ms = await log_in(self.address, exchange, self.highest_version, ask)
        self._session_began = self._loop.time()
        if lifetime_ms > 0:
            delay_s = renewal_delay_s(lifetime_ms, random_share())
            self._renewal_timer = self._loop.call_later(delay_s, self._renew)

    def _renew(self) -> None:
        if self.closed:
            return
        if not self._in_flight and self.last_used <= self._session_began:
            # The connection was unused for a whole session. The next request opens another connection.
            self.close()
            return
        self._renewal = self._loop.create_task(self._log_in_again(), name=f"log in again at {self.address}")

    async def _log_in_again(self) -> None:
        """Renew the session (KIP-368); the connection ends if that fails."""
        assert self._sasl is not None
        try:
            async with asyncio.timeout(RENEWAL_TIMEOUT_S):
                exchange = await self._sasl()
                if self.closed or self._transport is None:
                    return
                held = self._transport = _Held(self._transport)
                await self._log_in(exchange, RENEWAL_TIMEOUT_S)
        except AuthenticationRefused as error:
            self._end(error)
            self.abort()
        except (NetworkError, TimeoutError) as error:
            self._end(ConnectionClosed(f"The session with {self.address} could not be renewed: {error}"))
            self.abort()
        else:
            self._transport = held.transport
            if not self.closed:
                held.transport.writelines(held.parts)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.closed = self._is_lost = True
        self._loss = exc
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
        problem = self._problem
        if problem is None:
            why = f": {tls_problem(exc) if isinstance(exc, ssl.SSLError) else exc}" if exc else ""
            if self._sasl is None and 0 < self._correlation_id - self._ready_id == len(self._in_flight):
                why += "; it never answered after the handshake: does this listener want SASL (security.protocol)?"
            problem = ConnectionClosed(f"{self.address} closed the connection{why}")
        for request in self._in_flight.take_all():
            if not request.completion.done():
                request.completion.set_exception(type(problem)(*problem.args))
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback()

    @property
    def was_lost(self) -> bool:
        """Whether the other side or the network closed the connection, not this side."""
        return self._is_lost and self._problem is None

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop when the connection is lost, or now if it is closed already."""
        if self.closed:
            callback()
        else:
            self._close_callbacks.append(callback)

    def close(self) -> None:
        """Close the connection after the written bytes were sent; requests in flight fail with ConnectionClosed."""
        self._end(ConnectionClosed(f"The connection to {self.address} was closed by this client"))
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once; requests in flight fail with ConnectionClosed."""
        self._end(ConnectionClosed(f"The connection to {self.address} was aborted by this client"))
        if self._transport is not None:
            self._transport.abort()

    async def wait_lost(self, timeout_s: float) -> None:
        """After `close`: wait until the connection is closed, then abort it after the timeout."""
        if self._is_lost:
            return
        lost: asyncio.Future[None] = self._loop.create_future()
        self._close_callbacks.append(lambda: None if lost.done() else lost.set_result(None))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(lost)
        except TimeoutError:
            self.abort()
            await asyncio.wait([lost], timeout=ABORT_S)

    def _end(self, problem: NetworkError) -> None:
        self.closed = True
        if self._problem is None:
            self._problem = problem

    def pause_writing(self) -> None:
        """Called by the loop: the broker reads too slowly; callers should check `write_paused`."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """Called by the loop."""
        self.write_paused = False

    def loop_time(self) -> float:
        """The time of the connection's event loop, in seconds."""
        return self._loop.time()

    # -- requests ----------------------------------------------------------------------------------------------

    @property
    def requests(self) -> int:
        """The number of requests that were sent, including the handshake."""
        return self._correlation_id

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._in_flight)

    def highest_version(self, api_key: int, limit: int | None = None, least: int = 0) -> int:
        """The highest version of an API that both sides speak, from `least` to `limit`; raises UnsupportedRequest."""
        ours = API[api_key]
        lowest, highest = self.versions.get(api_key, (0, -1))
        version = min(highest, ours.max_version)
        if limit is not None:
            version = min(version, limit)
        if version < max(lowest, ours.min_version, least):
            supported = f"versions {lowest} to {highest} of {ours.name}" if highest >= 0 else f"no {ours.name}"
            raise UnsupportedRequest(
                f"{self.address} supports {supported}; this client needs {max(ours.min_version, least)} to "
                f"{ours.max_version if limit is None else min(limit, ours.max_version)}"
            )
        return version

    async def send(self, request: Message, *, version: int | None = None, timeout_s: float) -> Any:
        """The response to `request`, within `timeout_s` seconds. Raises NetworkError.

        `version` is the highest common one if None. A caller that is cancelled leaves the connection usable.
        """
        return await self.send_nowait(request, version=version, timeout_s=timeout_s)

    def send_nowait(
        self, request: Message, *, version: int | None = None, timeout_s: float
    ) -> asyncio.Future[Message | None]:
        """Send a request and return a future of its response; requests are sent in the order of the calls.

        A Produce request with acks=0 has no response: its future is done, with None. The request's buffers (records)
        must not change before the future is done. Raises UnsupportedRequest; all other errors are set on the future.
        """
        future: asyncio.Future[Message | None] = self._loop.create_future()
        self.send_to(future, request, version=version, timeout_s=timeout_s)
        return future

    def send_to(
        self, completion: Completion, request: Message, *, version: int | None = None, timeout_s: float
    ) -> None:
        """As `send_nowait`, but `completion` gets the outcome immediately: a future would notify in the next iteration.

        An outcome that is known already (closed, acks=0) is set before this method returns.
        """
        transport = self._transport
        if self.closed or transport is None:
            completion.set_exception(self._problem or ConnectionClosed(f"The connection to {self.address} is closed"))
            return
        api_key = request.API_KEY
        if version is None:
            version = self.highest_version(api_key)
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(request, version, correlation_id, self._client_id)
        self.last_used = now_s = self._loop.time()
        self.sent_bytes += sum(map(len, parts))
        has_response = api_key != PRODUCE or request.acks != 0  # type: ignore[attr-defined]
        if has_response:
            sent = RequestInFlight(api_key, version, completion, now_s + timeout_s, timeout_s)
            self._in_flight.add(correlation_id, sent)
        transport.writelines(parts)
        if not has_response:
            completion.set_result(None)

    def _time_out(self, late: list[RequestInFlight]) -> None:
        for request in late:
            problem = f"{self.address} did not answer {API[request.api_key].name} within {request.timeout_s:g} s"
            if not request.completion.done():
                request.completion.set_exception(NoAnswer(problem))
            self._end(ConnectionClosed(f"{problem}, so the connection was closed"))
        self.abort()

    # -- responses ---------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the event loop puts the next bytes."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: handle the received bytes."""
        self.received_bytes += nbytes
        reader = self._reader
        reader.received(nbytes)
        try:
            while (frame := reader.next_response()) is not None:
                self._answered(frame)
                if self.closed:
                    return
        except DecodeError as error:
            self._fail(NotKafka if not self.versions else ConnectionClosed, f"sent an invalid response: {error}")
        except ResponseSizeError as error:
            self._refuse(error.data, error.size)
        except ResponseMemoryError as error:
            problem = f"sent a response of {error.size} bytes, for which there is no memory: {error.error}"
            self._fail(ConnectionClosed, problem)

    def _refuse(self, data: bytes, size: int) -> None:
        if self.versions:
            self._fail(ConnectionClosed, f"sent a response of {size} bytes, more than {self._reader.largest_bytes}")
        elif data.startswith((b"HTTP/", b"<")):
            self._fail(NotKafka, "answers as a web server does, not as Kafka")
        elif data[:2] in {b"\x15\x03", b"\x16\x03"}:
            self._fail(TlsRefused, "wants TLS: set security.protocol to SSL or SASL_SSL")
        else:
            self._fail(NotKafka, f"does not answer as Kafka does (it sent {data[:16]!r})")

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        request = self._in_flight.take(correlation_id)
        if request is None:
            raise DecodeError(f"correlation id {correlation_id} belongs to no request in flight")
        if request.completion.done():  # cancelled
            return
        api_key, version = request.api_key, request.version
        try:
            _, position = decode_response_header(frame, api_key, version)
            if api_key == ApiVersionsRequest.API_KEY and version > 0 and _is_refused(frame, position):
                version = 0
            response, _ = response_class(api_key).decode_from(frame, position, version)
        except DecodeError as error:
            where = f"{self.address} sent an invalid response to {API[api_key].name}: {error}"
            request.completion.set_exception(ConnectionClosed(where) if self.versions else NotKafka(where))
            raise
        request.completion.set_result(response)

    def _fail(self, kind: type[NetworkError], problem: str) -> None:
        self._end(kind(f"{self.address} {problem}"))
        self.abort()


def _is_refused(frame: memoryview, position: int) -> bool:
    """Whether the broker does not support our version of ApiVersions; it reports that in version 0 (KIP-511)."""
    return int.from_bytes(frame[position : position + 2], "big") == UNSUPPORTED_VERSION
