"""The share consumer's core: membership, share sessions, acquired records, acknowledgements. No I/O, no clock.

Records are acquired only while a poll waits, because the lock of an acquired record is limited in time. A record is in
`_buffer` (fetched) or `_held` (returned by a poll, not acknowledged yet). No fetch is sent while records are buffered,
and a fetch asks for as many records as its poll. An acknowledgement is queued for the broker that delivered the record.
It is sent with the next fetch of that broker, or by itself if there is none.

With share.acquire.mode=record_limit, one broker at a time is asked for records, as in Kafka's client. With
batch_optimized, a broker may deliver more than a poll returns. If locks end before further polls return the rest, whole
batches take too long to process: from then on the consumer limits the records too. Otherwise a record's delivery count
would grow although no poll returned it.

The caller holds one lock around every call. A poll is `begin_poll`; then, until there are records or the time is over,
`raise_error`, `fill`, or wait for `is_ready`; and at last `end_poll`. KIP-932, KIP-1206, KIP-1222.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.clients.cluster import ClusterView, Node, check_topics
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.consumer.effects import Effect, EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.heartbeat_membership import HeartbeatMembership, MemberState
from ottla.clients.consumer.heartbeat_requests import ShareHeartbeats, TopicIdPartition
from ottla.clients.consumer.record import Record
from ottla.clients.consumer.topic_metadata import TopicMetadata
from ottla.clients.errors import BrokerError, ClientError, error_for
from ottla.clients.share.acknowledgements import AcknowledgeType, CommitOutcome
from ottla.clients.share.buffer import AcquiredRecords, Parcel, Source
from ottla.clients.share.held import HeldRecords
from ottla.clients.share.session import How, ShareSessions, has_renewal
from ottla.clients.share.settings import ShareSettings
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from ottla.protocol.messages.share_fetch import PartitionData, ShareFetchResponse
from ottla.records.column_kernels import whole_batches

logger = logging.getLogger("ottla.clients.share")

_RENEW_VERSION: Final = 2
_LEADER_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_FATAL: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})


@dataclass(slots=True)
class _Queued:
    """Acknowledgements of one partition to be sent to one broker, and the commits that wait for their result."""

    tp: TopicPartition
    types: dict[int, int] = field(default_factory=dict)
    outcomes: list[CommitOutcome] = field(default_factory=list)

    def resolve(self, error: ClientError | None) -> None:
        for outcome in self.outcomes:
            outcome.resolve(self.tp, error)
        if error is not None:
            logger.warning("Acknowledgements of %d records of %s failed: %s", len(self.types), self.tp, error)


class _Sent(NamedTuple):
    node: int
    queued: dict[TopicIdPartition, _Queued]
    latest_ms: float | None
    """The latest time at which the broker acquires records for this fetch, if it answers within max.wait.ms."""


class ShareCore:
    """One share consumer. No other consumer has its `member_id`."""

    def __init__(self, settings: ShareSettings, view: ClusterView, member_id: str) -> None:
        self._settings = settings
        self._view = view
        self._member_id = member_id
        self.outbox = Outbox()
        self.membership = HeartbeatMembership(settings.group, self.outbox, ShareHeartbeats(settings.group), member_id)
        self.metadata = TopicMetadata(view, settings.group.backoff, self.outbox)
        self.topics: frozenset[str] = frozenset()
        self._polling = self._closing = False
        self._sessions = ShareSessions(settings.group.group_id, settings.acquire)
        self._in_flight: dict[EffectId, _Sent] = {}
        self._queue: dict[int, dict[TopicIdPartition, _Queued]] = {}
        self._buffer = AcquiredRecords()
        self._held = HeldRecords()
        self._how = How(settings.acquire.max_records, settings.acquire.is_strict)

    # -- the user's side ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Share these topics with the group; without topics, leave it."""
        self.topics = frozenset(topics)
        check_topics(self.topics)
        self.membership.subscribe(self.topics)
        self.metadata.expedite()
        self.outbox.needs_advance = True

    def begin_poll(self, now_ms: float, limit: int) -> None:
        """Begin a poll of `limit` records. It accepts the previous poll's records, or sends explicit acknowledgements.

        Raises ClientError if explicit acknowledgements are missing.
        """
        missing = self._held.unacknowledged()
        if self._settings.is_explicit and missing:
            tp, offset = missing[0]
            raise ClientError(
                f"{len(missing)} records of the previous poll are not acknowledged, the first is {tp} at offset "
                f"{offset}: call acknowledge() for each before the next poll"
            )
        self._polling = True
        self._how = self._how._replace(max_records=limit)
        self.membership.polling(True, now_ms)
        self.commit()
        self._carry_out_duties()
        self.outbox.needs_advance = True

    def end_poll(self, now_ms: float) -> None:
        self._polling = False
        self.membership.polling(False, now_ms)

    def raise_error(self) -> None:
        error, self.outbox.poll_error = self.outbox.poll_error, None
        error = error or self.membership.error
        if error is not None:
            raise error.with_traceback(None)  # each poll raises the membership's

    @property
    def is_ready(self) -> bool:
        waits = self.outbox.poll_error is None and self.membership.error is None
        return not waits or bool(self._buffer)

    def fill(self, now_ms: float) -> list[Record[Any, Any]]:
        """Return records that are still locked, at most as many as the poll wants. The user holds them from now on."""
        self._drop_expired(now_ms)
        taken: list[Record[Any, Any]] = []
        for record, acquired in self._buffer.take(self._how.max_records):
            self._held.add(record, acquired)
            taken.append(record)
        unreadable, self._buffer.unreadable = self._buffer.unreadable, []
        for source, types in unreadable:
            self._enqueue(source, types, None)
        if self._buffer.error is not None:
            self.outbox.poll_error, self._buffer.error = self._buffer.error, None
        return taken

    def _drop_expired(self, now_ms: float) -> None:
        dropped = self._buffer.drop_expired(now_ms)
        if dropped.total:
            self.outbox.needs_advance = True
        if dropped.decoded and not self._how.limits_records:
            self._how = self._how._replace(limits_records=True)
            logger.warning(
                "Acquiring at most as many records as a poll returns: the locks of further records of their batches "
                "ended before a poll returned them; share.acquire.mode=record_limit does so from the start"
            )

    def acknowledge(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge one record that a poll returned. Raises ClientError, NotAssigned."""
        if not self._settings.is_explicit:
            raise ClientError("acknowledge needs share.acknowledgement.mode=explicit")
        self._held.acknowledge(tp, offset, kind)

    def release(self, tp: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """Acknowledge a record that the user cannot see because it cannot be deserialized."""
        if self._held.has(tp, offset):
            self._held.acknowledge(tp, offset, kind)

    def give_back(self, records: Iterable[Record[Any, Any]]) -> None:
        for record in reversed(list(records)):
            self._buffer.give_back(record, self._held.give_back(record))

    def delivery_count(self, tp: TopicPartition, offset: int) -> int:
        """Return how often a held record was delivered, this time included. Raises NotAssigned."""
        return self._held.delivery_count(tp, offset)

    def commit(self) -> CommitOutcome:
        """Queue the acknowledgements so far; with implicit acknowledgement, for all returned records."""
        if not self._settings.is_explicit:
            self._held.accept_all()
        outcome = CommitOutcome()
        for source, types in self._held.take_acknowledgements():
            self._enqueue(source, types, outcome)
        self.outbox.needs_advance = True
        return outcome

    def _enqueue(self, source: Source, types: dict[int, int], outcome: CommitOutcome | None) -> None:
        queued = self._queue.setdefault(source.node, {}).setdefault(source.key, _Queued(source.tp))
        queued.types.update(types)
        if outcome is not None:
            outcome.expect()
            queued.outcomes.append(outcome)

    # -- closing -----------------------------------------------------------------------------------------------

    def begin_close(self, *, settle: bool) -> None:
        """Acquire no more records. With `settle`, accept (implicit) or send (explicit) what was acknowledged."""
        self._closing = True
        if settle or self._settings.is_explicit:
            self.commit()
        self.outbox.needs_advance = True

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._queue

    def leave(self) -> list[Effect]:
        """Close the share sessions, which releases the acquired records, and leave the group."""
        for node, session in self._sessions.items():
            if session.is_open and node in self._view.nodes:
                queued = self._queue.pop(node, {})
                types = {key: each.types for key, each in queued.items()}
                request = session.acknowledge(self._member_id, types, closes=True)
                self.outbox.send(Owner.FETCHES, node, request)
        self.membership.leave()
        return self.outbox.take()

    # -- the network's side ------------------------------------------------------------------------------------

    def advance(self, now_ms: float) -> list[Effect]:
        self.outbox.needs_advance = False
        watched = self.topics | self.membership.watched_topics()
        self.metadata.advance(now_ms, topics=watched, requested=self.topics)
        self.membership.advance(now_ms, self._view)
        if self.membership.state is not MemberState.STALE:  # only a poll ends that
            self._carry_out_duties()
            self.membership.advance(now_ms, self._view)
        wanted = self._wanted(now_ms)
        for node in {*wanted, *self._queue}:
            self._request(node, wanted.get(node, frozenset()), now_ms)
        return self.outbox.take()

    def _carry_out_duties(self) -> None:
        """Adopt assignments. Nothing is lost with a partition: its records can still be acknowledged."""
        while (duty := self.membership.duty()) is not None:
            self.membership.duty_done(duty, 0.0)

    def _wanted(self, now_ms: float) -> dict[int, frozenset[TopicIdPartition]]:
        wanted: dict[int, set[TopicIdPartition]] = {}
        if self._polling and not self._closing and not self.is_ready:
            for tp in self.membership.owned:
                leader = self._view.leader(*tp)
                if leader is None:
                    self._view.invalidate()
                else:
                    wanted.setdefault(leader, set()).add(TopicIdPartition(self._view.topic_id(tp.topic), tp.partition))
        nodes = [node for node in wanted if self._sessions.of(node).is_free(now_ms)]
        if self._how.limits_records:
            # One broker at a time, each in its turn: together they would acquire more than the poll returns.
            is_fetching = any(sent.latest_ms is not None for sent in self._in_flight.values())
            nodes = [] if is_fetching else self._sessions.in_turn(nodes)
        return {node: frozenset(wanted[node]) for node in nodes}

    def _request(self, node: int, wanted: frozenset[TopicIdPartition], now_ms: float) -> None:
        session = self._sessions.of(node)
        if not session.is_free(now_ms):
            return
        queued = self._queue.pop(node, {})
        if queued and not session.is_open:
            error = error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, "the session with the broker was lost")
            for each in queued.values():
                self._resolve(each, error)
            queued = {}
        types = {key: each.types for key, each in queued.items()}
        renews = has_renewal(types)
        request: Any
        latest_ms: float | None = None
        acquire = self._settings.acquire
        if wanted and not renews and types.keys() <= wanted:
            request = session.fetch(self._member_id, wanted, types, self._how)
            min_version = _RENEW_VERSION if acquire.is_strict else 0
            latest_ms = now_ms + acquire.max_wait_ms
            self._sessions.fetched_from = node
        elif types:
            request = session.acknowledge(self._member_id, types)
            min_version = _RENEW_VERSION if renews else 0
        else:
            return
        timeout_ms = self._settings.request_timeout_ms + acquire.max_wait_ms
        effect_id = self.outbox.send(Owner.FETCHES, node, request, timeout_ms=timeout_ms, min_version=min_version)
        self._in_flight[effect_id] = _Sent(node, queued, latest_ms)

    def next_timer_ms(self) -> float | None:
        wants = (self._polling and not self.is_ready) or bool(self._queue)
        return earliest(
            self.metadata.next_timer_ms,
            self.membership.next_timer_ms(),
            self._sessions.next_timer_ms() if wants else None,
        )

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        if effect_id.owner is Owner.METADATA:
            self.metadata.complete(effect_id, outcome, now_ms)
        elif effect_id.owner is Owner.MEMBERSHIP:
            self.membership.complete(effect_id, outcome, now_ms)
        else:
            sent = self._in_flight.pop(effect_id)
            self._sessions.of(sent.node).not_before_ms = 0.0
            if isinstance(outcome, ClientError):
                self._fail(sent, outcome, now_ms)
            else:
                assert isinstance(outcome, (ShareFetchResponse, ShareAcknowledgeResponse))
                self._apply(sent, outcome, now_ms)

    def _fail(self, sent: _Sent, error: ClientError, now_ms: float) -> None:
        session = self._sessions.of(sent.node)
        session.fail()
        self._buffer.drop_node(sent.node)
        session.not_before_ms = now_ms + self._settings.group.backoff.initial_ms
        self._view.invalidate()
        for queued in sent.queued.values():
            self._resolve(queued, error)
        if not error.retriable:
            self.outbox.poll_error = error

    def _apply(self, sent: _Sent, response: ShareFetchResponse | ShareAcknowledgeResponse, now_ms: float) -> None:
        session = self._sessions.of(sent.node)
        session.apply(response.error_code)
        if response.error_code:
            error = error_for(response.error_code, response.error_message)
            session.not_before_ms = now_ms + self._settings.group.backoff.initial_ms
            if not session.is_open:
                self._buffer.drop_node(sent.node)
            for queued in sent.queued.values():
                self._resolve(queued, error)
            if not error.retriable:
                self.outbox.poll_error = error
            return
        locked_until_ms = math.inf
        if sent.latest_ms is not None and response.acquisition_lock_timeout_ms > 0:
            # A response that was read late, for example after a pause of the process, must not extend the locks.
            locked_until_ms = min(now_ms, sent.latest_ms) + response.acquisition_lock_timeout_ms
        for endpoint in response.node_endpoints:
            self._view.add_node(Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack))
        left = dict(sent.queued)
        for topic in response.responses:
            for row in topic.partitions:
                key = TopicIdPartition(topic.topic_id, row.partition_index)
                queued_for = left.pop(key, None)
                if isinstance(row, PartitionData):
                    code, message = row.acknowledge_error_code, row.acknowledge_error_message
                    self._take(sent.node, key, row, now_ms, locked_until_ms)
                else:
                    code, message = row.error_code, row.error_message
                if queued_for is not None:
                    self._resolve(queued_for, error_for(code, message) if code else None)
        for queued in left.values():
            self._resolve(queued, BrokerError("The broker's answer has nothing about these acknowledgements"))

    def _resolve(self, queued: _Queued, error: ClientError | None) -> None:
        """Report the result of acknowledgements. The consumer does not hold a record whose renewal failed."""
        queued.resolve(error)
        if error is not None:
            self._held.acknowledgements_failed(queued.tp, queued.types)

    def _take(
        self, node: int, key: TopicIdPartition, row: PartitionData, now_ms: float, locked_until_ms: float
    ) -> None:
        name = self._view.topic_name(key.topic_id)
        if row.error_code:
            hint = row.current_leader
            if (
                row.error_code in _LEADER_MOVED
                and name is not None
                and self._view.set_leader(name, key.partition, hint.leader_id, hint.leader_epoch)
            ):
                return  # KIP-951: the response names the new leader
            self._sessions.of(node).not_before_ms = now_ms + self._settings.group.backoff.initial_ms
            self._view.invalidate()
            if row.error_code in _FATAL:
                self.outbox.poll_error = error_for(row.error_code, f"Topic {name}: {error_for(row.error_code)}")
            return
        if not row.acquired_records or name is None:
            return
        tp = TopicPartition(name, key.partition)
        buffer = memoryview(row.records or b"")
        _, end = whole_batches(buffer)
        acquired = tuple((a.first_offset, a.last_offset, a.delivery_count) for a in row.acquired_records)
        fetched = Fetched(tp, buffer[:end], acquired[0][0], check_crcs=self._settings.acquire.check_crcs)
        self._buffer.add(Parcel(Source(node, key, tp, locked_until_ms), fetched, acquired))

    def validate(self) -> None:
        self.membership.validate()
        self._held.validate(self._buffer.decoded)
