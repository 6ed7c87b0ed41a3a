"""Counts what one request of a client uses of its quotas, and mutes its connection above a limit.

KIP-13 (bytes), KIP-124 (request time), KIP-219 (the response first, then the pause), KIP-599 (changes of topics). Used
while any user or client id has a quota. As in Kafka:

- A quota of bytes counts the bytes of Produce requests and of Fetch responses. A Fetch that has to pause gets no
  records.
- `request_percentage` counts the time of the event loop: 100 is all the time of this node's only thread for requests.
  A pause for it is at most one sample. Produce without acks is not counted.
- The longest of several pauses counts. The response has it, if it has the field `throttle_time_ms`.
- Followers and other requests between nodes are exempt.

Unlike in Kafka:

- All requests of brokers to controllers and to share coordinators are exempt, and on the listeners of controllers only
  changes of topics count.
- A ShareFetch that has to pause gets the records that it acquired: without them they would be locked until a timeout.
- A consumer gets a batch that is larger than its quota of a whole window, followed by the pause for it. In Kafka it
  never gets the batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.broker.quotas import client_of
from ottla.broker.served import CONTROLLER_ONLY
from ottla.common.completion import Completion
from ottla.common.slices import Slices
from ottla.network.connection import MutingResponse
from ottla.partitions.fetch_session import INITIAL_EPOCH
from ottla.protocol import frames
from ottla.protocol.frames import Encoded
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.registry import response_class
from ottla.security.client_quotas import Quota

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.network.connection import Frames
    from ottla.protocol.message import Message

PERCENT_PER_NS = 100 / 1e9
FETCH, SHARE_FETCH = 1, 78
SASL_HANDSHAKE, SASL_AUTHENTICATE, WRITE_TXN_MARKERS = 17, 36, 27
SHARE_STATE = frozenset({83, 84, 85, 86, 87})
EXEMPT = CONTROLLER_ONLY | SHARE_STATE | {SASL_HANDSHAKE, SASL_AUTHENTICATE, WRITE_TXN_MARKERS}
REPLICA_STATE_SINCE_VERSION = 15

_Answer: TypeAlias = "Message | Encoded | None"
_Handle: TypeAlias = Callable[["Broker", "RequestContext", Any], Any]


class RequestUsage:
    """One request, from its frame to its response."""

    __slots__ = ("_broker", "_busy_ns", "_client", "_context", "_frame_bytes", "_handle", "_quotas", "_request")

    def __init__(self, broker: Broker, context: RequestContext, frame_bytes: int, handle: _Handle) -> None:
        self._broker = broker
        self._context = context
        self._frame_bytes = frame_bytes
        self._handle = handle
        self._busy_ns = 0
        self._client = client_of(context)
        self._quotas = broker.security.quotas
        self._request: Any = None

    def handle(self, broker: Broker, context: RequestContext, request: Any) -> Any:
        """Handle the request, and measure its time."""
        self._request = request
        if isinstance(request, FetchRequest) and self._counts:
            most = self._quotas.clients.most_at_once(Quota.FETCH, *self._client)
            if most is not None:
                request.max_bytes = int(min(request.max_bytes, most))
        now_ns = self._quotas.now_ns
        began_ns = now_ns()
        try:
            handled = self._handle(broker, context, request)
        finally:
            self._busy_ns += now_ns() - began_ns
        return self._measured(handled, now_ns) if isinstance(handled, GeneratorType) else handled

    def _measured(self, work: Slices[Any], now_ns: Callable[[], int]) -> Slices[Any]:
        try:
            while True:
                began_ns = now_ns()
                try:
                    waiting = next(work)
                except StopIteration as end:
                    return end.value
                finally:
                    self._busy_ns += now_ns() - began_ns
                yield waiting
        finally:
            work.close()

    def respond(self, header: frames.RequestHeader, answer: Any) -> Frames | Completion[Frames]:
        """Encode the response, and mute the connection if the client has to pause."""
        later: Completion[Frames] = Completion()
        if isinstance(answer, Completion) and not answer.done:
            answer.on_done(lambda done: later.complete_with(lambda: self._encode(header, done.result())))
            return later
        response = self._encode(header, answer.result() if isinstance(answer, Completion) else answer)
        if not isinstance(response, MutingResponse):
            return response
        # In the next iteration: the responses to earlier requests are sent first.
        asyncio.get_running_loop().call_soon(later.complete, response)
        return later

    def _encode(self, header: frames.RequestHeader, answer: _Answer) -> Frames:
        pause_ms: int = getattr(answer, "throttle_time_ms", 0)
        if self._counts:
            count, client, now_ms = self._quotas.clients.count, self._client, self._quotas.monotonic_ms()
            if answer is not None or not isinstance(self._request, ProduceRequest):
                used = self._busy_ns * PERCENT_PER_NS
                pause_ms = max(pause_ms, count(Quota.REQUEST, *client, used, now_ms))
            if isinstance(self._request, ProduceRequest):
                pause_ms = max(pause_ms, count(Quota.PRODUCE, *client, self._frame_bytes, now_ms))
            elif isinstance(answer, FetchResponse) and not answer.error_code:
                return self._encode_fetch(header, answer, pause_ms)
            elif header.api_key == SHARE_FETCH and answer is not None:
                size = sum(map(len, frames.encode_response(header, answer)))
                pause_ms = max(pause_ms, count(Quota.FETCH, *client, size, now_ms))
        return _muting(header, answer, pause_ms)

    def _encode_fetch(self, header: frames.RequestHeader, answer: FetchResponse, pause_ms: int) -> Frames:
        """Encode the records, or an empty response if the client has to pause."""
        clients, client, now_ms = self._quotas.clients, self._client, self._quotas.monotonic_ms()
        if not pause_ms:
            response = frames.encode_response(header, answer)
            size = sum(map(len, response))
            pause_ms = clients.count(Quota.FETCH, *client, size, now_ms, keep=False)
            if not pause_ms:
                return response
            most = clients.most_at_once(Quota.FETCH, *client)
            if most is not None and size > most and not clients.count(Quota.FETCH, *client, 0, now_ms):
                return _muting(header, answer, clients.count(Quota.FETCH, *client, size, now_ms))
        sessions = self._broker.fetch_sessions
        empty = FetchResponse(session_id=answer.session_id)
        session = sessions.peek(answer.session_id)
        if session is not None and self._request.session_epoch == INITIAL_EPOCH:
            # As in Kafka, the client has to name its partitions again.
            sessions.remove(session.id)
            empty.session_id = 0
        elif session is not None:
            session.not_sent(answer)
        return _muting(header, empty, pause_ms)

    @property
    def _counts(self) -> bool:
        """Whether bytes and time count: for followers and on controller listeners they do not."""
        if self._broker.endpoints.is_controller_listener(self._context.listener):
            return False
        request = self._request
        if not isinstance(request, FetchRequest):
            return True
        named_in_state = self._context.api_version >= REPLICA_STATE_SINCE_VERSION
        return (request.replica_state.replica_id if named_in_state else request.replica_id) < 0


def _muting(header: frames.RequestHeader, answer: _Answer, pause_ms: int) -> Frames:
    """Encode a response that says how long its client has to pause, if it has to."""
    if not pause_ms:
        return None if answer is None else frames.encode_response(header, answer)
    if answer is None:
        return MutingResponse(None, pause_ms / 1000)
    if isinstance(answer, Encoded):
        decoded, _ = response_class(header.api_key).decode_from(answer.body, 0, header.api_version)
        answer = decoded
    if getattr(answer, "throttle_time_ms", pause_ms) != pause_ms:
        # Some handlers return the same object to several clients.
        answer = copy(answer)
        answer.throttle_time_ms = pause_ms  # type: ignore[attr-defined]
    return MutingResponse(frames.encode_response(header, answer), pause_ms / 1000)
