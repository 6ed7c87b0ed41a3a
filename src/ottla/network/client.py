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
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ottla import __version__
from ottla.network.connection_end import ConnectionEnd
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
from ottla.network.requests_in_flight import Completion, Latency, RequestInFlight, RequestsInFlight
from ottla.network.response_reader import (
    LARGEST_RESPONSE_BYTES,
    ResponseMemoryError,
    ResponseReader,
    ResponseSizeError,
)
from ottla.network.session import Session
from ottla.protocol.frames import decode_response_header, encode_request
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.registry import API, response_class
from ottla.protocol.wire import DecodeError

if TYPE_CHECKING:
    from ottla.network.sasl import SaslSource

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
# An abort takes a few event loop iterations.
ABORT_S: Final = 1.0
HANDSHAKE_ABORT_ITERATIONS: Final = 5
PRODUCE: Final = 0


class ClientConnection(asyncio.BufferedProtocol):
    """One connection to one broker. `versions` maps each API key to the broker's (lowest, highest) version."""

    __slots__ = (
        "_client_id",
        "_end",
        "_in_flight",
        "_loop",
        "_reader",
        "_session",
        "address",
        "closed",
        "features",
        "last_used",
        "received_bytes",
        "sent_bytes",
        "transport",
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
        self.transport: asyncio.Transport | None = None
        self._client_id = client_id
        self._loop = loop
        self._in_flight = RequestsInFlight(loop)
        self._reader = ResponseReader()
        self._end = ConnectionEnd()
        self._session: Session | None = None

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
                    assert sasl is not None
                    connection._session = Session(connection, sasl, loop)
                    await connection._session.log_in(exchange, timeout_s)
                connection._ready()
            is_ready = True
        except (OSError, NetworkError, UnicodeError) as error:
            if isinstance(error, ConnectFailed):
                raise
            # Not in local variables: an exception that its own traceback refers to waits for the garbage collector.
            raise connect_error(
                address, connection._end.cause_of(error), timeout_s, stage=stage, is_tls=tls is not None
            ) from error
        finally:
            if not is_ready:
                await connection._give_up()
        return connection

    async def _give_up(self) -> None:
        """Clean up after a failed connect, so that the event loop can be closed."""
        self.abort()
        if self.transport is not None:
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
        self._in_flight.handshake_is_complete()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.closed = self._end.is_lost = True
        self._end.loss = exc
        if self._session is not None:
            self._session.cancel()
        problem = self._end.problem
        if problem is None:
            why = f": {tls_problem(exc) if isinstance(exc, ssl.SSLError) else exc}" if exc else ""
            if self._session is None and self._in_flight.never_answered:
                why += "; it never answered after the handshake: does this listener want SASL (security.protocol)?"
            problem = ConnectionClosed(f"{self.address} closed the connection{why}")
        for request in self._in_flight.take_all():
            if not request.completion.done():
                request.completion.set_exception(type(problem)(*problem.args))
        self._end.notify()

    @property
    def was_lost(self) -> bool:
        """Whether the other side or the network closed the connection, not this side."""
        return self._end.was_lost

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the event loop when the connection is lost, or now if it is closed already."""
        if self.closed:
            callback()
        else:
            self._end.callbacks.append(callback)

    def close(self) -> None:
        """Close the connection after the written bytes were sent; requests in flight fail with ConnectionClosed."""
        self._decide_end(ConnectionClosed(f"The connection to {self.address} was closed by this client"))
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the connection at once; requests in flight fail with ConnectionClosed."""
        self.fail(ConnectionClosed(f"The connection to {self.address} was aborted by this client"))

    def fail(self, problem: NetworkError) -> None:
        """Close the connection at once; requests in flight fail with `problem`, if it is the first."""
        self._decide_end(problem)
        if self.transport is not None:
            self.transport.abort()

    async def wait_lost(self, timeout_s: float) -> None:
        """After `close`: wait until the connection is closed, then abort it after the timeout."""
        if self._end.is_lost:
            return
        lost: asyncio.Future[None] = self._loop.create_future()
        self._end.callbacks.append(lambda: None if lost.done() else lost.set_result(None))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(lost)
        except TimeoutError:
            self.abort()
            await asyncio.wait([lost], timeout=ABORT_S)

    def _decide_end(self, problem: NetworkError) -> None:
        self.closed = True
        self._end.decide(problem)

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
        return self._in_flight.last_id

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._in_flight)

    def measure(self) -> Mapping[int, Latency]:
        """Return the times of requests since the previous call, by API key, and measure from now on."""
        latencies, self._in_flight.latencies = self._in_flight.latencies, defaultdict(Latency)
        return latencies or {}

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
        transport = self.transport
        if self.closed or transport is None:
            completion.set_exception(
                self._end.problem or ConnectionClosed(f"The connection to {self.address} is closed")
            )
            return
        api_key = request.API_KEY
        if version is None:
            version = self.highest_version(api_key)
        correlation_id = self._in_flight.next_id()
        parts = encode_request(request, version, correlation_id, self._client_id)
        self.last_used = now_s = self._loop.time()
        self.sent_bytes += sum(map(len, parts))
        has_response = api_key != PRODUCE or request.acks != 0  # type: ignore[attr-defined]
        if has_response:
            sent = RequestInFlight(api_key, version, completion, now_s + timeout_s, timeout_s)
            self._in_flight.add(correlation_id, sent, self._time_out)
        transport.writelines(parts)
        if not has_response:
            completion.set_result(None)

    def _time_out(self, late: list[RequestInFlight]) -> None:
        for request in late:
            problem = f"{self.address} did not answer {API[request.api_key].name} within {request.timeout_s:g} s"
            if not request.completion.done():
                request.completion.set_exception(NoAnswer(problem))
            self._decide_end(ConnectionClosed(f"{problem}, so the connection was closed"))
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
            self._refuse(NotKafka if not self.versions else ConnectionClosed, f"sent an invalid response: {error}")
        except ResponseSizeError as error:
            self._refuse_size(error.data, error.size)
        except ResponseMemoryError as error:
            problem = f"sent a response of {error.size} bytes, for which there is no memory: {error.error}"
            self._refuse(ConnectionClosed, problem)

    def _refuse_size(self, data: bytes, size: int) -> None:
        if self.versions:
            self._refuse(ConnectionClosed, f"sent a response of {size} bytes, more than {self._reader.largest_bytes}")
        elif data.startswith((b"HTTP/", b"<")):
            self._refuse(NotKafka, "answers as a web server does, not as Kafka")
        elif data[:2] in {b"\x15\x03", b"\x16\x03"}:
            self._refuse(TlsRefused, "wants TLS: set security.protocol to SSL or SASL_SSL")
        else:
            self._refuse(NotKafka, f"does not answer as Kafka does (it sent {data[:16]!r})")

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

    def _refuse(self, kind: type[NetworkError], problem: str) -> None:
        self.fail(kind(f"{self.address} {problem}"))


def _is_refused(frame: memoryview, position: int) -> bool:
    """Whether the broker does not support our version of ApiVersions; it reports that in version 0 (KIP-511)."""
    return int.from_bytes(frame[position : position + 2], "big") == UNSUPPORTED_VERSION
