"""Turns a frame into its response: header, version check, decoding, handler, encoding.

The network calls `dispatch(connection, frame)` for one request at a time per connection. A request without a possible
response (an unknown API or version, a body that does not decode) raises; the network then closes the connection with
one log line, as Kafka does. The exception is ApiVersions, which clients may send in any version.

Most requests are decoded, handled and encoded in this one call, without a task or a future. A small request therefore
costs some microseconds. The frame is a view of the receive buffer and valid only until `dispatch` returns. Two kinds of
requests are finished after that call:

- A handler whose work grows with the request is a generator, which the broker's `Worker` runs in slices (see `work`).
- A frame of more than `LARGE_FRAME_BYTES` is decoded later if too many large requests are unfinished, from a copy.
  Produce, Fetch, JoinGroup and SyncGroup never queue behind such requests: they only wait until the event loop
  iteration has time left.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.authorization_guard import guarded
from ottla.broker.context import RequestContext
from ottla.broker.envelope import FORWARDABLE, FORWARDED, Client
from ottla.broker.forwarding import handled_by_controller
from ottla.broker.request_usage import EXEMPT, RequestUsage
from ottla.broker.served import ANSWERED, CONTROLLER_ANSWERED, HANDLERS, api_rows
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices
from ottla.protocol import frames, registry
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.wire import Buffer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.metrics.meter import Meter
    from ottla.network.connection import Connection

PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP, API_VERSIONS = 0, 1, 11, 14, 18
# Decoding a larger frame can take a millisecond or more, so that other requests may have to go first.
LARGE_FRAME_BYTES = 16 * 1024
# Clients that wait for records or members do not queue behind large administrative requests.
NEVER_QUEUED = frozenset({PRODUCE, FETCH, JOIN_GROUP, SYNC_GROUP})

Answer = Message | frames.Encoded | None
Handled = Answer | Completion[Answer]
Handler = Callable[["Broker", RequestContext, Message], Handled | Slices[Handled]]
Frames = list[Buffer] | None
_Api = tuple[Callable[..., tuple[Message, int]], int, Handler, type[Message]]
"""The decoder of a request, the limit on its array elements, its handler, and the type of its response."""


class Dispatcher:
    """Answers the requests of all connections of one broker, or of its controller's listeners.

    `served` has the lowest and highest served version of each API, `handlers` the module of its handler.
    """

    def __init__(
        self,
        broker: Broker,
        served: Mapping[int, tuple[int, int]] = ANSWERED,
        handlers: Mapping[int, str] = HANDLERS,
        meter: Meter | None = None,
    ) -> None:
        self._broker = broker
        self._meter = meter
        self._handlers = handlers
        self._worker = broker.schedulers.worker
        self._served = served
        self._monotonic_ms = broker.clock.monotonic_ms
        self._quotas = broker.security.quotas
        # By API key and version; loaded at the first request.
        self._apis: dict[tuple[int, int], _Api] = {}

    def preload(self, keys: Iterable[int]) -> None:
        """Load the code of those APIs that are served, so that their first requests need not wait for it."""
        for key in keys:
            if key in self._served:
                _load(self._served, self._handlers, key, self._served[key][1])

    def __call__(
        self, connection: Connection, frame: memoryview, is_measured: bool = False
    ) -> Frames | Completion[Frames]:
        """Handle one request; raises KafkaError or DecodeError if the connection must be closed.

        `is_measured` is for calls by the meter, which has counted the request.
        """
        header, position = frames.decode_request_header(frame)
        key, version, correlation_id, client_id = header
        api = self._apis.get((key, version))
        if api is None:
            if key == API_VERSIONS and not _is_served(self._served, key, version):
                return _unsupported_api_versions(header, self._served)
            api = self._apis[key, version] = _load(self._served, self._handlers, key, version)
        meter = self._meter
        if meter is not None and not is_measured:
            weight = meter.due(connection, key, client_id, len(frame))
            if weight:
                return meter.measure(self, connection, frame, header, weight)
        decode, most, handle, response_type = api
        context = RequestContext(connection, key, version, correlation_id, client_id)
        usage = None
        if self._quotas.is_active and key not in EXEMPT:
            usage = RequestUsage(self._broker, context, len(frame), handle)
            handle = usage.handle
            api = decode, most, handle, response_type
        is_large = len(frame) > LARGE_FRAME_BYTES
        if is_large:
            handled = self._handle_large(context, api, frame, position)
        else:
            handled = handle(self._broker, context, decode(frame, position, most)[0])
            # Most requests end here. A type that is equal needs none of the questions below.
            if type(handled) is response_type and usage is None:
                encoded: list[Buffer] = handled.encode_frame(version, correlation_id)
                if meter is not None and key == FETCH:
                    meter.fetched(connection, encoded)
                return encoded
        answer: Handled = handled  # type: ignore[assignment]  # a generator is replaced below
        if isinstance(handled, GeneratorType):
            answer = self._worker.run(handled, connection, is_large=is_large)
        if usage is not None:
            responded = usage.respond(header, answer)
            return responded if meter is None else _metered(meter, connection, header, responded)
        if not isinstance(answer, Completion) or answer.done:
            response = _encode(header, answer.result() if isinstance(answer, Completion) else answer)
            if meter is not None and key == FETCH:
                meter.fetched(connection, response)
            return response
        return _encoded_later(header, answer) if meter is None else _metered_later(meter, connection, header, answer)

    def _handle_large(
        self, context: RequestContext, api: _Api, frame: memoryview, position: int
    ) -> Handled | Slices[Handled]:
        handle = api[2]
        worker = self._worker
        waits_for_others = context.api_key in NEVER_QUEUED
        if worker.has_time if waits_for_others else worker.may_decode():
            answer = handle(self._broker, context, self._decode_large(api, frame, position))
            if isinstance(answer, Completion) and not waits_for_others:
                worker.wait_for(answer)
            return answer
        copied = memoryview(bytearray(frame))

        def decode_and_handle() -> Slices[Handled]:
            request = self._decode_large(api, copied, position)
            yield
            answer = handle(self._broker, context, request)
            if isinstance(answer, GeneratorType):
                answer = yield from answer
            return answer  # type: ignore[return-value]

        if waits_for_others:
            return worker.run(decode_and_handle(), context.connection)
        return worker.hold_back(decode_and_handle(), context.connection)

    def _decode_large(self, api: _Api, frame: memoryview, position: int) -> Message:
        decode, most, _, _ = api
        began_ms = self._monotonic_ms()
        try:
            return decode(frame, position, most)[0]
        finally:
            self._worker.charge(began_ms)


def handle_forwarded(broker: Broker, client: Client, data: bytes) -> tuple[frames.RequestHeader, Any]:
    """Handle the request in an Envelope; returns its header and what its handler returns.

    Raises DecodeError, and KafkaError if the API cannot be forwarded.
    """
    frame = memoryview(bytearray(data))
    header, position = frames.decode_request_header(frame)
    key, version, correlation_id, client_id = header
    if key not in FORWARDABLE:
        text = f"API {key} is not enabled or is not eligible for forwarding"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    decode, most, handle, _ = _load(CONTROLLER_ANSWERED, HANDLERS, key, version)
    connection = cast("Connection", client)
    context = RequestContext(connection, key, version, correlation_id, client_id)
    return header, handle(broker, context, decode(frame, position, most)[0])


def _is_served(served: Mapping[int, tuple[int, int]], key: int, version: int) -> bool:
    lowest, highest = served[key]
    return lowest <= version <= highest


def _load(served: Mapping[int, tuple[int, int]], handlers: Mapping[int, str], key: int, version: int) -> _Api:
    if key not in served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unexpected api key: {key}")
    if not _is_served(served, key, version):
        name = registry.API[key].name
        text = f"Received request for api with key {key} ({name}) and unsupported version {version}"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    module = importlib.import_module(f"ottla.broker.handlers.{handlers[key]}")
    request_class = registry.request_class(key)
    # The active controller authorizes forwarded requests, by the principal of the client.
    handle = guarded(key, module.handle, is_controller=served is CONTROLLER_ANSWERED)
    if key in FORWARDED:
        handle = handled_by_controller(handle)
    return request_class.decoder_of(version), request_class.MOST_ELEMENTS, handle, registry.response_class(key)


def _encode(header: frames.RequestHeader, answer: Answer) -> Frames:
    return None if answer is None else frames.encode_response(header, answer)


def _encode_result(header: frames.RequestHeader, done: Completion[Answer]) -> Frames:
    return _encode(header, done.result())


def _encoded_later(header: frames.RequestHeader, answer: Completion[Answer]) -> Completion[Frames]:
    # `then` would take half a microsecond more for every response that waits.
    later: Completion[Frames] = Completion()
    answer.on_done(lambda done: later.complete_with(_encode_result, header, done))
    return later


def _metered_later(
    meter: Meter, connection: Connection, header: frames.RequestHeader, answer: Completion[Answer]
) -> Completion[Frames]:
    meter.waits(connection, header.api_key)
    later: Completion[Frames] = Completion()
    answer.on_done(lambda done: later.complete_with(_encode_metered, meter, connection, header, done))
    return later


def _encode_metered(
    meter: Meter, connection: Connection, header: frames.RequestHeader, done: Completion[Answer]
) -> Frames:
    meter.completed(connection)
    response = _encode_result(header, done)
    if header.api_key == FETCH:
        meter.fetched(connection, response)
    return response


def _metered(
    meter: Meter, connection: Connection, header: frames.RequestHeader, response: Frames | Completion[Frames]
) -> Frames | Completion[Frames]:
    """Count what a client with quotas used, and its pause."""
    key = header.api_key

    def complete(done: Completion[Frames]) -> None:
        meter.completed(connection)
        if done.error is None:
            meter.throttled(connection, key, done.result())
            if key == FETCH:
                meter.fetched(connection, done.result())

    if isinstance(response, Completion):
        meter.waits(connection, key)
        response.on_done(complete)
    elif key == FETCH:
        meter.fetched(connection, response)
    return response


def _unsupported_api_versions(header: frames.RequestHeader, served: Mapping[int, tuple[int, int]]) -> list[Buffer]:
    """The response to an unknown version of ApiVersions: its versions, in version 0 (KIP-511)."""
    own = api_rows({API_VERSIONS: served[API_VERSIONS]})
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)
    return frames.encode_response(header._replace(api_version=0), answer)
