"""Fetch (1): record batches from the requested offsets, with long polling and incremental sessions.

KIP-74 (size limits), KIP-98 (isolation levels), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids from
version 13), KIP-392 (consumers read from followers, from version 11), KIP-903 (broker epochs of followers), KIP-951
(the current leader with an error). As in Kafka since 4.0, zstd batches are returned to every version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, cast

from ottla.broker.authorization import NO_TOPICS, Topics, allowed_on_cluster, denied_topics, grants_of
from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.ids import Uuid
from ottla.common.slices import Slices
from ottla.network.connection import FETCHED_BY_REPLICA
from ottla.partitions.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, NOT_REPORTED, FetchSession
from ottla.partitions.fetching import (
    MOST_AT_ONCE,
    SLICE_PARTITIONS,
    TOPIC_IDS_SINCE_VERSION,
    Fetch,
    FetchLimits,
)
from ottla.partitions.reading import READ_ALL, READ_COMMITTED, READ_UNCOMMITTED
from ottla.partitions.replication.selector import RackAwareSelector
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, NodeEndpoint
from ottla.security.acl import Operation

if TYPE_CHECKING:
    from ottla.broker.context import RequestContext
    from ottla.broker.ports import FetchPorts
    from ottla.network.connection import Connection

_WAITING = "fetch"
# The attributes of an enumeration are slow.
_READ: Final = Operation.READ
RACK_SINCE_VERSION = 11
REPLICA_STATE_SINCE_VERSION = 15


def handle(
    broker: FetchPorts, context: RequestContext, request: FetchRequest
) -> FetchResponse | Completion[FetchResponse] | Slices[FetchResponse | Completion[FetchResponse]]:
    """Respond at once if there are `min_bytes`, otherwise wait for them up to `max_wait_ms`."""
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    try:
        session = _session(broker, request, uses_topic_ids=by_id)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    named_in_state = context.api_version >= REPLICA_STATE_SINCE_VERSION
    replica_id = request.replica_state.replica_id if named_in_state else request.replica_id
    session.follow_replica(replica_id, request.replica_state.replica_epoch)
    if replica_id >= 0:
        context.connection.state[FETCHED_BY_REPLICA] = True
    count = len(session.dirty)
    for requested in request.topics:
        count += len(requested.partitions)
    for forgotten in request.forgotten_topics_data:
        count += len(forgotten.partitions)
    if count > MOST_AT_ONCE:
        return _fetch_in_slices(broker, context, request, session)
    for requested in request.topics:
        _update(session, requested.topic_id if by_id else requested.topic, requested.partitions)
    # Forget partitions last, as in Kafka: a partition that a request both adds and forgets is forgotten.
    for forgotten in request.forgotten_topics_data:
        topic = forgotten.topic_id if by_id else forgotten.topic
        for index in forgotten.partitions:
            session.forget((topic, index))
    fetch = _begin(broker, context, request, session)
    response = fetch.start()
    if isinstance(response, Completion):
        _cancel_with_connection(broker, context.connection, fetch, is_follower=session.replica_id >= 0)
    return response


def _fetch_in_slices(
    broker: FetchPorts, context: RequestContext, request: FetchRequest, session: FetchSession
) -> Slices[FetchResponse | Completion[FetchResponse]]:
    by_id = context.api_version >= TOPIC_IDS_SINCE_VERSION
    session.is_busy = True
    is_waiting = False
    try:
        for requested in request.topics:
            topic = requested.topic_id if by_id else requested.topic
            for start in range(0, len(requested.partitions), SLICE_PARTITIONS):
                yield
                session.check_open()
                _update(session, topic, requested.partitions[start : start + SLICE_PARTITIONS])
        for forgotten in request.forgotten_topics_data:
            topic = forgotten.topic_id if by_id else forgotten.topic
            for index in forgotten.partitions:
                yield
                session.forget((topic, index))
        fetch = _begin(broker, context, request, session)
        response = yield from fetch.start_in_slices()
        is_waiting = isinstance(response, Completion)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    finally:
        session.is_busy = False
        if session.id == NO_SESSION and not is_waiting:
            session.close()
    if is_waiting:
        _cancel_with_connection(broker, context.connection, fetch, is_follower=session.replica_id >= 0)
    return response


def _begin(broker: FetchPorts, context: RequestContext, request: FetchRequest, session: FetchSession) -> Fetch:
    if not session.partitions and request.session_epoch > INITIAL_EPOCH:
        # The last partition was forgotten: the session ends, and the response contains no session id.
        broker.fetch_sessions.remove(session.id)
        session.id = NO_SESSION
    max_bytes = min(request.max_bytes, broker.settings.current.int("fetch.max.bytes"))
    hidden = NO_TOPICS if broker.security.authorizer is None else _hidden_topics(broker, context, session)
    reads_followers = session.replica_id < 0 and context.api_version >= RACK_SINCE_VERSION
    # `min_bytes` above `max_bytes` is met by a full response.
    sizes = min(request.min_bytes, max_bytes), max_bytes
    level, quota = _isolation_level(request, session), broker.replication_quotas.leader
    limits = FetchLimits(request.max_wait_ms, *sizes, level, reads_followers, hidden, quota)

    def locate(node_id: int) -> NodeEndpoint | None:
        address = broker.endpoints.address(node_id, context.listener)
        return None if address is None else NodeEndpoint(node_id, *address)

    fetch = Fetch(broker.partitions, session, limits, broker.schedulers.worker, locate)
    if request.rack_id and session.replica_id < 0 and broker.settings.current.text("replica.selector.class"):
        fetch.select = RackAwareSelector(broker.partitions.cluster, request.rack_id).select
    return fetch


def _hidden_topics(broker: FetchPorts, context: RequestContext, session: FetchSession) -> Topics:
    """The topics of the session that the client may not read; unknown ids have another error.

    Each request decides again for the whole session, since rights change, and since another client may know its id.
    """
    if session.replica_id < 0:
        grants = grants_of(context)
        if grants is not None and session.has_only(grants.readable):
            return NO_TOPICS
        hidden = denied_topics(broker, context, _READ, session.topics, None if grants is None else grants.readable)
    else:
        hidden = NO_TOPICS if allowed_on_cluster(broker, context, Operation.CLUSTER_ACTION) else session.topics
    if hidden:
        session.hide(hidden)
    return hidden


def _isolation_level(request: FetchRequest, session: FetchSession) -> int:
    if session.replica_id >= 0:
        return READ_ALL
    return READ_COMMITTED if request.isolation_level == READ_COMMITTED else READ_UNCOMMITTED


def _session(broker: FetchPorts, request: FetchRequest, *, uses_topic_ids: bool) -> FetchSession:
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


def _update(session: FetchSession, topic: str | Uuid, partitions: Iterable[FetchPartition]) -> None:
    for wanted in partitions:
        state = session.state((topic, wanted.partition))
        state.fetch_offset = wanted.fetch_offset
        state.max_bytes = wanted.partition_max_bytes
        state.current_leader_epoch = wanted.current_leader_epoch
        state.last_fetched_epoch = wanted.last_fetched_epoch
        state.follower_log_start = wanted.log_start_offset
        if session.replica_id >= 0:
            state.is_repositioned = True
            # A follower ignores an answer that is outdated, and names the partition again: report all offsets again.
            state.high_watermark = NOT_REPORTED


def _cancel_with_connection(broker: FetchPorts, connection: Connection, fetch: Fetch, *, is_follower: bool) -> None:
    """Cancel the fetch when the connection is lost: one callback per connection, for the request in progress."""
    if _WAITING not in connection.state:
        if is_follower:
            broker.connections.followers.add(connection)
        connection.on_close(lambda: cast("Fetch", connection.state[_WAITING]).cancel())
    connection.state[_WAITING] = fetch
