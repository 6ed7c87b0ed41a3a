"""Requests of a member of a share group to the leader of its partitions: ShareFetch and ShareAcknowledge. KIP-932.

A fetch acknowledges first, then acquires records. It waits like a Fetch, until the partitions of its session have
`min_bytes` or `max_wait_ms` is over, and its response waits until the acknowledgements are stored. When the connection
of a session is lost, or the session ends, the records that its member has acquired are released.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.slices import Slices, result_of
from ottla.coordination.shares.acknowledging import (
    Acknowledgements,
    Batches,
    MayRead,
    batches_of,
    may_renew,
    session_key,
)
from ottla.coordination.shares.partition import Delivery, SharedPartition
from ottla.coordinators.share.acknowledgement import Refusal
from ottla.coordinators.share.acquisition import Acquisition
from ottla.coordinators.share.events import ShareKey
from ottla.coordinators.share.limits import AcquireMode
from ottla.coordinators.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SharedTopicPartition,
    ShareSession,
    ShareSessions,
)
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.common.timers import CallLater
    from ottla.coordination.shares.partitions import SharedPartitions
    from ottla.coordination.shares.settings import ShareSettings
    from ottla.network.connection import Connection

logger = logging.getLogger(__name__)

# A client may request a wait of weeks; no response needs to be delayed for longer than this.
LONGEST_WAIT_MS = 300_000
_TRACKED = "share sessions"
_WAITING = "share fetch"


class _Outcome:
    """The results of a fetch, by partition."""

    __slots__ = ("acknowledged", "deliveries", "errors")

    def __init__(self) -> None:
        self.deliveries: dict[SharedTopicPartition, Delivery] = {}
        self.errors: dict[SharedTopicPartition, KafkaError] = {}
        self.acknowledged: dict[SharedTopicPartition, Refusal] = {}


class _Wakeup:
    """Completes at a deadline, or when one of the watched partitions may have records."""

    def __init__(self, shared: Iterable[SharedPartition], wait_ms: int, call_later: CallLater) -> None:
        self.done: Completion[None] = Completion()
        self._shared = tuple(shared)
        self._timer = call_later(wait_ms / 1000, self.wake)
        for each in self._shared:
            each.watchers[self.wake] = None
            each.partition.watchers[self] = None

    def partition_changed(self, _appended_bytes: int) -> None:
        """Called by the partition."""
        self.wake()

    def wake(self) -> None:
        """Continue the fetch."""
        self.done.complete(None)

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        for each in self._shared:
            each.watchers.pop(self.wake, None)
            each.partition.watchers.pop(self, None)


def _wait(wakeup: _Wakeup, connection: Connection) -> Slices[None]:
    """Wait for the wakeup, or until the connection is lost."""
    connection.state[_WAITING] = wakeup
    try:
        yield wakeup.done
    finally:
        connection.state.pop(_WAITING, None)
        wakeup.close()


class ShareParts(NamedTuple):
    """The share partitions that this node leads, the sessions of members, and the settings of each group."""

    partitions: SharedPartitions
    sessions: ShareSessions
    settings: Callable[[str], ShareSettings]


class ShareRequests:
    """Handles the requests of all members; `connection` is the request's."""

    def __init__(
        self,
        shares: ShareParts,
        clock: Clock,
        call_later: CallLater,
        max_bytes: int,
        run: Callable[[Slices[None]], Completion[None]],
    ) -> None:
        self._run = run
        self._shares = shares
        self._clock = clock
        self._call_later = call_later
        self._max_bytes = max_bytes
        """fetch.max.bytes"""

    # -- ShareAcknowledge ------------------------------------------------------------------------------------------

    def acknowledge(
        self, request: ShareAcknowledgeRequest, version: int, may_read: MayRead
    ) -> Slices[ShareAcknowledgeResponse]:
        """Acknowledge records; with the final epoch, release the others and end the session."""
        member = session_key(request.group_id, request.member_id)
        if isinstance(member, Refusal):
            return ShareAcknowledgeResponse(error_code=member.error, error_message=member.message)
        sessions = self._shares.sessions
        try:
            if request.share_session_epoch != FINAL_EPOCH:
                sessions.resume(member, request.share_session_epoch)
            elif sessions.get(member) is None:
                raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        except KafkaError as error:
            return ShareAcknowledgeResponse(error_code=error.code, error_message=str(error))
        batches = yield from batches_of(request.topics)
        renews = may_renew(version, is_renewal=request.is_renew_ack)
        work = Acknowledgements(self._shares.partitions, member, batches, may_read=may_read, renews=renews)
        yield from work.begin()
        outcomes = yield from work.outcomes()
        if request.share_session_epoch == FINAL_EPOCH:
            yield from self._end_session(member)
        return self._acknowledged(member, outcomes)

    def _acknowledged(
        self, member: SessionKey, outcomes: dict[SharedTopicPartition, Refusal]
    ) -> ShareAcknowledgeResponse:
        topics: dict[bytes, share_acknowledge.ShareAcknowledgeTopicResponse] = {}
        for name, outcome in outcomes.items():
            topic = topics.setdefault(
                name.topic_id, share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=name.topic_id)
            )
            topic.partitions.append(
                share_acknowledge.PartitionData(
                    partition_index=name.partition,
                    error_code=outcome.error,
                    error_message=outcome.message or None,
                )
            )
        return ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._shares.settings(member.group_id).limits.lock_duration_ms,
            responses=list(topics.values()),
        )

    # -- ShareFetch ------------------------------------------------------------------------------------------------

    def fetch(
        self, request: ShareFetchRequest, version: int, connection: Connection, may_read: MayRead
    ) -> Slices[ShareFetchResponse]:
        """Acknowledge and acquire records; open, use or end the member's session."""
        member = session_key(request.group_id, request.member_id)
        if isinstance(member, Refusal):
            return _refused(member)
        refusal = _check_renewal(request, version)
        if refusal is not None:
            return _refused(refusal)
        batches = yield from batches_of(request.topics)
        acknowledged: Batches = {name: rows for name, rows in batches.items() if rows}
        try:
            session = self._session(member, request, batches, connection, acknowledges=bool(acknowledged))
        except KafkaError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                # As in Kafka, so that the client does not retry at once.
                yield from self._idle(request.max_wait_ms, connection)
            return ShareFetchResponse(error_code=error.code, error_message=str(error))
        is_renewal = may_renew(version, is_renewal=request.is_renew_ack)
        work = Acknowledgements(self._shares.partitions, member, acknowledged, may_read=may_read, renews=is_renewal)
        yield from work.begin()
        outcome = _Outcome()
        if session is not None and not is_renewal:
            for name in tuple(session.partitions):
                if not may_read(name.topic_id):
                    outcome.errors[name] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                yield
        if session is not None and not is_renewal:
            yield from self._poll(session, request, connection, outcome)
        outcome.acknowledged = yield from work.outcomes()
        if request.share_session_epoch == FINAL_EPOCH:
            yield from self._end_session(member)
        return self._fetched(member, outcome)

    def _session(
        self,
        member: SessionKey,
        request: ShareFetchRequest,
        batches: Batches,
        connection: Connection,
        *,
        acknowledges: bool,
    ) -> ShareSession | None:
        """The session of a fetch; None for a fetch that ends it."""
        self._track(connection)
        sessions = self._shares.sessions
        epoch = request.share_session_epoch
        if epoch == FINAL_EPOCH:
            if sessions.get(member) is None:
                raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
            return None
        if epoch == INITIAL_EPOCH:
            return sessions.open(member, id(connection), batches, acknowledges=acknowledges)
        forgotten = [
            SharedTopicPartition(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        return sessions.resume(member, epoch, batches, forgotten)

    def _track(self, connection: Connection) -> None:
        """End the waits and the sessions of the connection when it is lost: one callback per connection."""
        if _TRACKED in connection.state:
            return
        connection.state[_TRACKED] = True
        name = id(connection)

        def lost() -> None:
            waiting = connection.state.get(_WAITING)
            if isinstance(waiting, _Wakeup):
                waiting.wake()
            members = [session.key for session in self._shares.sessions.close_connection(name)]
            self._start(self._release(members))

        connection.on_close(lost)

    def end_member(self, member: SessionKey) -> None:
        """End the session of a member that is not in its group any more, and release its records."""
        if self._shares.sessions.get(member) is not None:
            self._shares.sessions.close(member)
        self._start(self._release([member]))

    def _end_session(self, member: SessionKey) -> Slices[None]:
        if self._shares.sessions.get(member) is not None:
            self._shares.sessions.close(member)
            yield from self._release([member])

    def _start(self, work: Slices[None]) -> None:
        self._run(work).on_done(_log_unhandled)

    def _release(self, members: Iterable[SessionKey]) -> Slices[None]:
        """Release the records of members whose sessions ended."""
        shares = self._shares
        for member in members:
            for shared in shares.partitions.of_group(member.group_id):
                if shares.sessions.get(member) is not None:
                    break  # A new session has records of its own.
                if not shared.closed:
                    shared.release(member.member_id)
                yield
            if not shares.sessions.has_members(member.group_id):
                shares.partitions.drop_group(member.group_id)
            yield

    # -- long poll -------------------------------------------------------------------------------------------------

    def _idle(self, wait_ms: int, connection: Connection) -> Slices[None]:
        yield from _wait(_Wakeup((), min(max(wait_ms, 0), LONGEST_WAIT_MS), self._call_later), connection)

    def _poll(
        self, session: ShareSession, request: ShareFetchRequest, connection: Connection, outcome: _Outcome
    ) -> Slices[None]:
        """Acquire records of the session's partitions; wait for them if there are too few."""
        if request.max_records <= 0 or request.max_bytes <= 0 or not session.partitions:
            return
        deadline_ms = self._clock.monotonic_ms() + min(max(request.max_wait_ms, 0), LONGEST_WAIT_MS)
        found = yield from self._load(session, outcome)
        while found and not outcome.errors and not connection.closed:
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            has_enough = yield from self._peek(session, found, request, outcome)
            if remaining_ms <= 0 or has_enough or outcome.errors:
                break
            yield from _wait(_Wakeup(found.values(), remaining_ms, self._call_later), connection)
        # No member would acknowledge what a lost connection acquires.
        if not connection.closed:
            yield from self._acquire(session, found, request, outcome)

    def _load(self, session: ShareSession, outcome: _Outcome) -> Slices[dict[SharedTopicPartition, SharedPartition]]:
        """The share partitions, in another order for each request, so that none is starved."""
        names = list(session.partitions)
        start = session.epoch % len(names)
        found: dict[SharedTopicPartition, SharedPartition] = {}
        for name in (*names[start:], *names[:start]):
            yield
            if name in outcome.errors:
                continue
            try:
                shared = self._shares.partitions.find(ShareKey(session.key.group_id, *name))
                if isinstance(shared, Completion):
                    shared = yield from result_of(shared)
                found[name] = shared
            except KafkaError as error:
                outcome.errors[name] = error
        return found

    def _peek(
        self,
        session: ShareSession,
        found: dict[SharedTopicPartition, SharedPartition],
        request: ShareFetchRequest,
        outcome: _Outcome,
    ) -> Slices[bool]:
        """Whether the partitions have `min_bytes`; looks no further than necessary."""
        wanted = min(request.min_bytes, self._max_bytes)
        isolation_level = self._shares.settings(session.key.group_id).isolation_level
        size = 0
        for name, shared in found.items():
            yield
            if size >= wanted:
                return True
            try:
                size += shared.peek(request.max_bytes, isolation_level)
            except KafkaError as error:
                outcome.errors[name] = error
        return size >= wanted

    def _acquire(
        self,
        session: ShareSession,
        found: dict[SharedTopicPartition, SharedPartition],
        request: ShareFetchRequest,
        outcome: _Outcome,
    ) -> Slices[None]:
        isolation_level = self._shares.settings(session.key.group_id).isolation_level
        mode = AcquireMode(request.share_acquire_mode)
        records, size = request.max_records, min(request.max_bytes, self._max_bytes)
        for name, shared in found.items():
            yield
            if records <= 0 or size <= 0:
                return
            if name in outcome.errors:
                continue
            wanted = Acquisition(session.key.member_id, records, request.batch_size, mode)
            try:
                delivery = shared.acquire(wanted, size, isolation_level)
            except KafkaError as error:
                outcome.errors[name] = error
                continue
            if delivery is not None:
                outcome.deliveries[name] = delivery
                records -= sum(piece.last - piece.first + 1 for piece in delivery.acquired)
                size -= len(delivery.records)

    def _fetched(self, member: SessionKey, outcome: _Outcome) -> ShareFetchResponse:
        topics: dict[bytes, share_fetch.ShareFetchableTopicResponse] = {}
        for name in {**outcome.deliveries, **outcome.errors, **outcome.acknowledged}:
            topic = topics.setdefault(name.topic_id, share_fetch.ShareFetchableTopicResponse(topic_id=name.topic_id))
            topic.partitions.append(_partition_data(name, outcome))
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=self._shares.settings(member.group_id).limits.lock_duration_ms,
            responses=list(topics.values()),
        )


def _partition_data(name: SharedTopicPartition, outcome: _Outcome) -> share_fetch.PartitionData:
    data = share_fetch.PartitionData(partition_index=name.partition)
    delivery = outcome.deliveries.get(name)
    if delivery is not None:
        data.records = delivery.records
        data.acquired_records = [
            share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in delivery.acquired
        ]
    error = outcome.errors.get(name)
    if error is not None:
        is_forbidden = error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        data.error_code, data.error_message = error.code, None if is_forbidden else str(error)
    acknowledged = outcome.acknowledged.get(name)
    if acknowledged is not None:
        data.acknowledge_error_code = acknowledged.error
        data.acknowledge_error_message = acknowledged.message or None
    return data


def _log_unhandled(done: Completion[None]) -> None:
    if done.error is not None:
        logger.error("Failed to release the records of a share session", exc_info=done.error)


class _Zero(NamedTuple):
    name: str
    value: int


def _refused(refusal: Refusal) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=refusal.error, error_message=refusal.message)


def _check_renewal(request: ShareFetchRequest, version: int) -> Refusal | None:
    """A fetch with renewals must not fetch. KIP-1222."""
    if request.share_acquire_mode not in AcquireMode._value2member_map_:
        return Refusal(ErrorCode.INVALID_REQUEST, f"Unknown share acquire mode {request.share_acquire_mode}")
    if not may_renew(version, is_renewal=request.is_renew_ack):
        return None
    fields = (
        _Zero("maxBytes", request.max_bytes),
        _Zero("minBytes", request.min_bytes),
        _Zero("maxRecords", request.max_records),
        _Zero("maxWaitMs", request.max_wait_ms),
    )
    wrong = [f"{field.name} must be set to 0, " for field in fields if field.value]
    return Refusal(ErrorCode.INVALID_REQUEST, "".join(wrong) + "if isRenewAck is true.") if wrong else None
