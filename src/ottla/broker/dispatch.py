"""From a frame to its answer: header, version check, handler, encoding.

The network calls `dispatch(connection, frame)` for one request at a time per connection. A request that cannot be
answered in the protocol (an unknown API or version, a body that does not decode) raises; the network then closes the
connection with one log line, as Kafka does. The exception is ApiVersions, which every client may ask in any version.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.context import RequestContext
from ottla.broker.served import HANDLERS, SERVED
from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol import frames, registry
from ottla.protocol.message import Message
from ottla.protocol.wire import Buffer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.network.connection import Connection

API_VERSIONS = 18

Answer = Message | frames.Encoded | None
Handler = Callable[["Broker", RequestContext, Message], "Answer | Completion[Answer]"]
Frames = list[Buffer] | None


class Dispatcher:
    """Answers the requests of all connections of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._monotonic_ms = broker.clock.monotonic_ms
        # By API key and version, once asked for.
        self._apis: dict[tuple[int, ...], tuple[type[Message], Handler]] = {}

    def __call__(self, connection: Connection, frame: memoryview) -> Frames | Completion[Frames]:
        """Answer one request; raises KafkaError or DecodeError if the connection is to be closed."""
        header, position = frames.decode_request_header(frame)
        key, version, correlation_id, client_id = header
        api = self._apis.get(header[:2])
        if api is None:
            if key == API_VERSIONS and not _is_served(key, version):
                return _unsupported_api_versions(header)
            api = self._apis[header[:2]] = _load(key, version)
        request_class, handle = api
        request, _ = request_class.decode_from(frame, position, version)
        context = RequestContext(connection, key, version, correlation_id, client_id, self._monotonic_ms())
        answer = handle(self._broker, context, request)
        if not isinstance(answer, Completion):
            return None if answer is None else frames.encode_response(header, answer)
        if answer.done:
            return _encode(header, answer.result())
        # Not by `then`, which takes half a microsecond longer for every answer that waits.
        later: Completion[Frames] = Completion()
        answer.on_done(lambda done: _hand_over(header, done, later))
        return later


def _is_served(key: int, version: int) -> bool:
    lowest, highest = SERVED[key]
    return lowest <= version <= highest


def _load(key: int, version: int) -> tuple[type[Message], Handler]:
    if key not in SERVED:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"API {key} is not served")
    if not _is_served(key, version):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{registry.API[key].name} version {version} is not served")
    module = importlib.import_module(f"ottla.broker.handlers.{HANDLERS[key]}")
    return registry.request_class(key), module.handle


def _encode(header: frames.RequestHeader, answer: Answer) -> Frames:
    return None if answer is None else frames.encode_response(header, answer)


def _hand_over(header: frames.RequestHeader, done: Completion[Answer], later: Completion[Frames]) -> None:
    try:
        encoded = _encode(header, done.result())
    except Exception as error:  # noqa: BLE001 - not swallowed: the connection gets it and closes
        later.fail(error)
    else:
        later.complete(encoded)


def _unsupported_api_versions(header: frames.RequestHeader) -> list[Buffer]:
    """The answer to ApiVersions of the future: version 0, so that any client can read it and ask again (KIP-511)."""
    from ottla.broker.handlers.api_versions import served_apis
    from ottla.protocol.messages.api_versions import ApiVersionsResponse

    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=served_apis())
    return frames.encode_response(header._replace(api_version=0), answer)
