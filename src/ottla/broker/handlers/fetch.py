"""Fetch (1): record batches from the asked offsets, with long polling and incremental sessions.

KIP-74 (size limits), KIP-98 (isolation levels), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids from
version 13). As in Kafka since 4.0, batches of zstd go to every version. Left out: fetching from followers (KIP-392),
as there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ottla.broker.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession
from ottla.broker.fetching import TOPIC_IDS_SINCE_VERSION, Fetch, FetchLimits
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.context import RequestContext
    from ottla.network.connection import Connection

_WAITING = "fetch"


def handle(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchResponse | Completion[FetchResponse]:
    """Answer with what there is, or wait for `min_bytes` up to `max_wait_ms`."""
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    try:
        session = _session(broker, request, uses_topic_ids=by_id)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    _update(session, request, by_id=by_id)
    if not session.partitions and request.session_epoch > INITIAL_EPOCH:
        # The last partition was forgotten: the session ends, and the answer says that there is none any more.
        broker.fetch_sessions.remove(session.id)
        session.id = NO_SESSION
    max_bytes = min(request.max_bytes, broker.config.int("fetch.max.bytes"))
    limits = FetchLimits(
        max_wait_ms=request.max_wait_ms,
        # Who asks for more than an answer may hold gets a full one.
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        isolation_level=request.isolation_level,
    )
    fetch = Fetch(broker.partitions, session, limits)
    response = fetch.start()
    if isinstance(response, Completion):
        _cancel_with_connection(context.connection, fetch)
    return response


def _session(broker: Broker, request: FetchRequest, *, uses_topic_ids: bool) -> FetchSession:
    sessions = broker.fetch_sessions
    now_ms = broker.clock.monotonic_ms()
    epoch = request.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.remove(request.session_id)
        if epoch == FINAL_EPOCH:
            return FetchSession(NO_SESSION, uses_topic_ids=uses_topic_ids)
        return sessions.open(now_ms, uses_topic_ids=uses_topic_ids)
    return sessions.resume(request.session_id, epoch, now_ms, uses_topic_ids=uses_topic_ids)


def _update(session: FetchSession, request: FetchRequest, *, by_id: bool) -> None:
    for requested in request.topics:
        topic = requested.topic_id if by_id else requested.topic
        for wanted in requested.partitions:
            state = session.state((topic, wanted.partition))
            state.fetch_offset = wanted.fetch_offset
            state.max_bytes = wanted.partition_max_bytes
            state.current_leader_epoch = wanted.current_leader_epoch
            state.last_fetched_epoch = wanted.last_fetched_epoch
    # Last, as in Kafka: what a request both names and forgets is forgotten.
    for forgotten in request.forgotten_topics_data:
        topic = forgotten.topic_id if by_id else forgotten.topic
        for index in forgotten.partitions:
            session.forget((topic, index))


def _cancel_with_connection(connection: Connection, fetch: Fetch) -> None:
    """A connection has one request in progress: one callback for its whole life finds the fetch that waits."""
    if _WAITING not in connection.state:
        connection.on_close(lambda: cast("Fetch", connection.state[_WAITING]).cancel())
    connection.state[_WAITING] = fetch
