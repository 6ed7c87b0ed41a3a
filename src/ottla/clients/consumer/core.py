"""The consumer's brain: positions, fetching, membership and commits as one state machine without I/O or clock.

The caller holds one lock around every call. On the network's side: `advance` after each event and at `next_timer_ms`;
obey the effects in order, hand each outcome to its `then`. On the user's side, in each poll: `begin_poll`; then until
there are records or time is up: `duty` (do it, `duty_done`), `raise_error`, `take`, else wait for `ready`; `end_poll`.

Invariants (`validate`): what is committed automatically was handed over by an earlier poll; what is buffered is bounded
by queued.max.bytes and one fetch of each broker; a partition that is not assigned has neither position nor buffer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.consumer.decoding import Fetched, span, without_collection
from ottla.clients.consumer.effects import COORDINATOR, Effect, ForgetCoordinator, Refresh, Send
from ottla.clients.consumer.fetching import FetchLimits, FetchSession, Wanted
from ottla.clients.consumer.membership import COORDINATOR_MOVED, Duty, GroupOptions, Membership, State
from ottla.clients.consumer.options import RESETS
from ottla.clients.consumer.positions import PartitionState, Phase, Positions
from ottla.clients.consumer.record import Record
from ottla.clients.errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    CorruptRecords,
    OffsetOutOfRange,
    RebalanceInProgress,
    UnknownMember,
    error_for,
)
from ottla.common.errors import ErrorCode
from ottla.common.ids import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

logger = logging.getLogger("ottla.clients.consumer")

# Newer ones name topics by id only.
NEWEST_OFFSETS_BY_NAME = 9
_LEADER_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position to commit: the offset of the next record to read, and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class ConsumerCore:
    """One consumer. `options` are read settings by Pythonic name."""

    def __init__(self, options: Mapping[str, Any], view: ClusterView) -> None:
        self.options = options
        self.view = view
        self.positions = Positions()
        self.pattern: re.Pattern[str] | None = None
        self.topics: frozenset[str] = frozenset()
        self.manual = False
        """Whether partitions were assigned by the user, not by a group."""
        self.backoff = Backoff(options["retry_backoff_ms"], options["retry_backoff_max_ms"])
        self.group_id: str | None = options["group_id"] or None
        self.membership: Membership | None = None
        if self.group_id is not None:
            self.membership = Membership(_group_options(self.group_id, options, self.backoff))
        self.isolation = int(options["isolation_level"] == "read_committed")
        self.error: ClientError | None = None
        """Raised by the next poll, once."""
        self._reset: int | None = RESETS[options["auto_offset_reset"]]
        self._limits = FetchLimits(
            options["fetch_min_bytes"], options["fetch_max_wait_ms"], self.isolation, options["client_rack"]
        )
        self._sessions: dict[int, FetchSession] = {}
        self._buffered_bytes = 0
        self._touched: set[TopicPartition] = set()
        self._refreshing = False
        self._refresh_not_before_ms = 0.0
        self._view_version = -1
        self._offsets_in_flight = False
        self._auto_commit = bool(options["enable_auto_commit"]) and self.group_id is not None
        self._committing = False
        self._commit_due_ms: float | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._effects: list[Effect] = []
        self._retry_ms: list[float] = []
        self.wants_advance = False
        """Whether a call of the user's side left something to do for `advance`."""

    # -- what to read ------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None) -> None:
        """Share these topics, or those whose whole name matches the pattern, with the group."""
        if self.membership is None:
            raise ConfigurationError("subscribe needs a group.id; without one use assign")
        if self.manual and len(self.positions):
            raise ConfigurationError("This consumer was assigned partitions by hand: unsubscribe first")
        self.manual = False
        if pattern is not None:
            self.pattern, self.topics = re.compile(pattern), frozenset()
        else:
            self.pattern, self.topics = None, frozenset(topics or ())
        self._view_version = -1
        self._refresh_not_before_ms = 0.0
        self._follow_view()
        self.wants_advance = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's say."""
        if self.subscribed:
            raise ConfigurationError("This consumer is subscribed to topics: unsubscribe first")
        wanted = {TopicPartition(*tp) for tp in partitions}
        self.manual = True
        self.topics = frozenset(tp.topic for tp in wanted)
        self._replace(wanted)
        self._refresh_not_before_ms = 0.0

    def unsubscribe(self) -> None:
        """Want nothing; the duties that follow give up what the group had given."""
        self.pattern, self.topics = None, frozenset()
        if self.manual or self.membership is None:
            self._replace(())
        else:
            self.membership.subscribe(())
        self.manual = False
        self.wants_advance = True

    @property
    def subscribed(self) -> bool:
        """Whether a group decides what is read."""
        return not self.manual and (bool(self.topics) or self.pattern is not None)

    def _replace(self, partitions: Iterable[TopicPartition]) -> None:
        self.positions.replace(partitions)
        self._buffered_bytes = sum(state.buffered_bytes for state in self.positions)
        self._touched = {tp for tp in self._touched if tp in self.positions}
        self._committed = {tp: offset for tp, offset in self._committed.items() if tp in self.positions}
        self.wants_advance = True

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read `tp` from `offset` on."""
        if offset < 0:
            raise ValueError(f"An offset is 0 or more, not {offset}")
        self._drop(tp).seek(offset)

    def reset(self, tp: TopicPartition, timestamp: int) -> None:
        """Read `tp` from a timestamp on; -1 is the end, -2 the beginning."""
        self._drop(tp).reset(timestamp)

    def _drop(self, tp: TopicPartition) -> PartitionState:
        state = self.positions.of(tp)
        self._buffered_bytes -= state.drop_buffer()
        self.wants_advance = True
        return state

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand over nothing of these until `resume`; positions and what is buffered stay."""
        for state in [self.positions.of(tp) for tp in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        for state in [self.positions.of(tp) for tp in partitions]:
            state.paused = False
        self.wants_advance = True

    def give_back(self, records: Iterable[Record]) -> None:
        """These were handed over last and not looked at: hand them over again."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(record.topic_partition, record.offset)
        for tp, offset in first.items():
            state = self.positions.get(tp)
            if state is not None:
                processed = state.processed
                self.seek(tp, offset)
                state.processed = None if processed is None else min(processed, offset)

    # -- poll --------------------------------------------------------------------------------------------------

    def begin_poll(self, now_ms: float) -> None:
        """The user polls: what earlier polls handed over counts as processed."""
        self.settle()
        if self._auto_commit and self._commit_due_ms is None:
            self._commit_due_ms = now_ms + self.options["auto_commit_interval_ms"]
            self.wants_advance = True
        if self.membership is not None:
            self.membership.polling(True, now_ms)

    def settle(self) -> None:
        """All that was handed over is processed."""
        for tp in self._touched:
            state = self.positions.get(tp)
            if state is not None and state.phase is Phase.FETCH:
                state.processed = state.offset
        self._touched.clear()

    def end_poll(self, now_ms: float) -> None:
        """The user has what he gets and goes off to work on it."""
        if self.membership is not None:
            self.membership.polling(False, now_ms)

    def duty(self) -> Duty | None:
        """What this poll has to do before it may hand over records."""
        if self.membership is None or self.manual:
            return None
        before = self.membership.state
        duty = self.membership.duty()
        if self.membership.state is not before:
            self.wants_advance = True
        return duty

    def duty_done(self, duty: Duty, now_ms: float) -> None:
        """It was done."""
        assert self.membership is not None
        self.membership.duty_done(duty, now_ms)
        self._replace(self.membership.owned)

    def begin_duty(self, duty: Duty) -> None:
        """The partitions of an assignment may be used by the listener already."""
        if duty.kind == "assigned":
            self._replace({*self.positions.assigned(), *duty.partitions})

    def raise_error(self) -> None:
        """Raise what keeps this poll from handing over records."""
        error, self.error = self.error, None
        if error is None and self.membership is not None and self.membership.state is State.FAILED:
            error = self.membership.error
        if error is not None:
            raise error

    @property
    def ready(self) -> bool:
        """Whether a poll would not have to wait."""
        if self.error is not None:
            return True
        membership = self.membership
        if membership is not None and not self.manual:
            state = membership.state
            if state in (State.PREPARING, State.ADOPTING, State.FAILED) or (
                state is State.OUTSIDE and membership.topics
            ):
                return True
        return any((s.buffered or s.error) and not s.paused for s in self.positions)

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` records that have arrived; their position moves. Raises CorruptRecords, a position's error."""
        with without_collection():
            return self._take(limit)

    def _take(self, limit: int) -> list[Record]:
        taken: list[Record] = []
        for state in self.positions:
            if state.paused:
                continue
            if state.error is not None:
                if taken:
                    break
                raise state.error
            if state.buffered:
                try:
                    self._take_of(state, limit, taken)
                except CorruptRecords as error:
                    if not taken:
                        raise
                    self.error = error
                if len(taken) >= limit or self.error is not None:
                    break
        if taken:
            self._rotate(taken[-1].topic_partition)
        return taken

    def _take_of(self, state: PartitionState, limit: int, taken: list[Record]) -> None:
        while state.buffered and len(taken) < limit:
            fetched = state.buffered[0]
            try:
                rows = fetched.take(limit - len(taken))
            except CorruptRecords as error:
                self._corrupt(state, fetched, error)
                continue
            state.offset = fetched.next_offset
            state.epoch = fetched.epoch
            if rows:
                taken += rows
            self._touched.add(state.tp)
            if fetched.exhausted:
                self._finish(state)

    def _finish(self, state: PartitionState) -> None:
        size = state.buffered.popleft().size
        state.buffered_bytes -= size
        self._buffered_bytes -= size
        self.wants_advance = True

    def _corrupt(self, state: PartitionState, fetched: Fetched, error: CorruptRecords) -> None:
        """Fetch it once more: the network may have done it. Then go on after the batch, with or without an error."""
        if state.refetched_at != error.offset:
            position, processed = state.offset, state.processed
            self.seek(state.tp, position)
            state.refetched_at, state.processed = error.offset, processed
            return
        state.offset = fetched.next_offset
        if fetched.exhausted:
            self._finish(state)
        if self.options["on_corrupt_records"] == "raise":
            raise error
        logger.error("Skipped: %s", error)

    def _rotate(self, last: TopicPartition) -> None:
        """The next poll begins with another partition."""
        self.positions.move_to_end(last)

    # -- the network's side ------------------------------------------------------------------------------------

    def advance(self, now_ms: float) -> list[Effect]:
        """Everything that is to be sent now."""
        self.wants_advance = False
        self._retry_ms = []
        self._follow_view()
        self._plan_refresh(now_ms)
        if self.membership is not None:
            self._effects += self.membership.advance(now_ms, self.view)
            self._plan_auto_commit(now_ms)
        self._plan_positions(now_ms)
        self._plan_fetches(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def next_timer_ms(self) -> float | None:
        """When to call `advance` at the latest, if nothing happens."""
        times = [*self._retry_ms]
        if not self._refreshing and (self.topics or self.pattern is not None):
            times.append(max(self.view.refresh_due_at_ms(), self._refresh_not_before_ms))
        if self.membership is not None:
            timer = self.membership.next_timer_ms()
            if timer is not None:
                times.append(timer)
        if self._commit_due_ms is not None and not self._committing:
            times.append(self._commit_due_ms)
        return min(times, default=None)

    def _wait(self, until_ms: float) -> None:
        self._retry_ms.append(until_ms)

    # -- metadata ----------------------------------------------------------------------------------------------

    def _follow_view(self) -> None:
        if self.view.version == self._view_version:
            return
        self._view_version = self.view.version
        if self.membership is None or self.manual:
            return
        if self.pattern is not None:
            names = [name for name in self.view.topics if self.pattern.fullmatch(name)]
            if self.options["exclude_internal_topics"]:
                names = [name for name in names if name not in INTERNAL_TOPICS]
            self.topics = frozenset(names)
        self.membership.subscribe(self.topics)

    def _topics_of_interest(self) -> frozenset[str] | None:
        if self.pattern is not None:
            return None
        led = frozenset() if self.membership is None else self.membership.led_topics()
        return self.topics | led

    def _plan_refresh(self, now_ms: float) -> None:
        topics = self._topics_of_interest()
        if self._refreshing or (topics is not None and not topics):
            return
        missing = topics is not None and any(topic not in self.view.topics for topic in topics)
        due = self.view.stale(now_ms) or missing or (topics is None and self._view_version < 0)
        if topics is None and not self.view.topics and not self.topics:
            due = True
        if not due:
            return
        if now_ms < self._refresh_not_before_ms:
            self._wait(self._refresh_not_before_ms)
            return
        self._refreshing = True

        def then(outcome: ClientError | None, now_ms: float) -> None:
            self._refreshing = False
            self._refresh_not_before_ms = now_ms + self.backoff.initial_ms
            # A cluster that was never reached is likely no cluster; one that was will come back.
            if outcome is not None and not (outcome.retriable and self.view.nodes):
                self.error = outcome
            for topic in self.topics if self.pattern is None else ():
                code = self.view.topic_errors.get(topic, 0)
                if code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    self.error = error_for(code, f"Topic {topic!r}: {ErrorCode(code).text}")
                if code:  # it may appear, but hardly at once
                    self._refresh_not_before_ms = now_ms + self.backoff.max_ms

        self._effects.append(Refresh(topics, then))

    # -- positions ---------------------------------------------------------------------------------------------

    def _plan_positions(self, now_ms: float) -> None:
        committed: list[PartitionState] = []
        resets: dict[int, list[PartitionState]] = {}
        for state in self.positions:
            if state.phase is Phase.FETCH or state.asking or state.error is not None:
                continue
            if now_ms < state.not_before_ms:
                self._wait(state.not_before_ms)
                continue
            if state.phase is Phase.COMMITTED and self.group_id is None:
                self._without_position(state)
            if state.phase is Phase.COMMITTED:
                committed.append(state)
            elif state.phase is Phase.RESET:
                leader = self.view.leader(*state.tp)
                if leader is not None:
                    resets.setdefault(leader, []).append(state)
        if committed and not self._offsets_in_flight:
            self._ask_committed(committed)
        for node, states in resets.items():
            self._ask_reset(node, states)

    def _without_position(self, state: PartitionState) -> None:
        if self._reset is None:
            state.error = OffsetOutOfRange(
                f"{state.tp} has no committed offset and auto.offset.reset is none: seek, or change that",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )
        else:
            state.reset(self._reset)

    def _ask_committed(self, states: list[PartitionState]) -> None:
        asked = {state.tp: state.version for state in states}
        for state in states:
            state.asking = True
        self._offsets_in_flight = True

        def then(outcome: Any, now_ms: float) -> None:
            self._offsets_in_flight = False
            self.wants_advance = True
            current = [s for tp, version in asked.items() if (s := self.positions.get(tp)) and s.version == version]
            for state in current:
                state.asking = False
            try:
                if isinstance(outcome, ClientError):
                    raise outcome
                rows = self.read_offsets(outcome)
            except ClientError as error:
                if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
                    self._effects.append(ForgetCoordinator())
                if not error.retriable:
                    self.error = error
                for state in current:
                    state.not_before_ms = now_ms + self.backoff.initial_ms
                return
            for state in current:
                row = rows.get(state.tp)
                if row is None:
                    self._without_position(state)
                else:
                    state.seek(row.offset, row.leader_epoch)
                    self._committed[state.tp] = row.offset

        self._effects.append(Send(COORDINATOR, self.ask_offsets(asked), then, max_version=NEWEST_OFFSETS_BY_NAME))

    def ask_offsets(self, partitions: Iterable[TopicPartition]) -> OffsetFetchRequest:
        """The request for the group's committed offsets; at most version NEWEST_OFFSETS_BY_NAME."""
        topics = _by_topic(partitions)
        return OffsetFetchRequest(
            group_id=self.group_id or "",
            topics=[OffsetFetchRequestTopic(name=t, partition_indexes=ps) for t, ps in topics.items()],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group_id or "",
                    topics=[OffsetFetchRequestTopics(name=t, partition_indexes=ps) for t, ps in topics.items()],
                )
            ],
            require_stable=True,
        )

    @staticmethod
    def read_offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets, without the partitions that have none. Raises BrokerError."""
        topics: list[Any] = list(response.topics)
        codes = [response.error_code]
        for group in response.groups:
            codes.append(group.error_code)
            topics += group.topics
        found = {}
        for topic in topics:
            for row in topic.partitions:
                codes.append(row.error_code)
                if row.committed_offset >= 0:
                    tp = TopicPartition(topic.name, row.partition_index)
                    found[tp] = OffsetAndMetadata(row.committed_offset, row.committed_leader_epoch, row.metadata or "")
        code = next((code for code in codes if code), 0)
        if code:
            raise error_for(code)
        return found

    def list_offsets_request(self, wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        """The request for the offsets of timestamps, to one leader."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for tp, timestamp in wanted.items():
            epoch = self.view.leader_epoch(*tp)
            row = ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp)
            topics.setdefault(tp.topic, []).append(row)
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self.isolation,
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
            timeout_ms=self.options["request_timeout_ms"],
        )

    def _ask_reset(self, node: int, states: list[PartitionState]) -> None:
        asked = {state.tp: state.version for state in states}
        wanted = {state.tp: state.reset_timestamp for state in states}
        for state in states:
            state.asking = True

        def then(outcome: Any, now_ms: float) -> None:
            self.wants_advance = True
            current = {tp: s for tp, version in asked.items() if (s := self.positions.get(tp)) and s.version == version}
            for state in current.values():
                state.asking = False
                state.not_before_ms = now_ms + self.backoff.initial_ms
            if isinstance(outcome, ClientError):
                self.view.invalidate()
                if not outcome.retriable:
                    self.error = outcome
                return
            for topic in outcome.topics:
                for row in topic.partitions:
                    found = current.get(TopicPartition(topic.name, row.partition_index))
                    if found is not None:
                        self._position_found(found, row.error_code, row.offset, row.leader_epoch)

        self._effects.append(Send(node, self.list_offsets_request(wanted), then))

    def _position_found(self, state: PartitionState, code: int, offset: int, epoch: int) -> None:
        if code:
            self.view.invalidate()
            error = error_for(code)
            if not error.retriable:
                state.error = error
        elif offset < 0:  # nothing is as new as the timestamp: the end
            state.reset(-1)
        else:
            state.seek(offset, epoch)

    # -- fetching ----------------------------------------------------------------------------------------------

    def _plan_fetches(self, now_ms: float) -> None:
        wanted, full = self._wanted(now_ms)
        room = self.options["queued_max_bytes"] - self._buffered_bytes
        for node in {*wanted, *self._sessions}:
            session = self._sessions.get(node)
            if session is None:
                session = self._sessions[node] = FetchSession(self._limits)
            rows = wanted.get(node)
            # A fetch that leaves out what is full would wait for the others and hold up what is read the fastest.
            if not rows or session.in_flight or node in full or room <= 0 or node not in self.view.nodes:
                continue
            if now_ms < session.not_before_ms:
                self._wait(session.not_before_ms)
                continue
            self._fetch(node, session, rows, min(self.options["fetch_max_bytes"], room))

    def _wanted(self, now_ms: float) -> tuple[dict[int, dict[TopicPartition, Wanted]], set[int]]:
        most = self.options["max_partition_fetch_bytes"]
        wanted: dict[int, dict[TopicPartition, Wanted]] = {}
        full: set[int] = set()
        for state in self.positions:
            if not state.fetchable:
                continue
            if now_ms < state.not_before_ms:
                self._wait(state.not_before_ms)
                continue
            leader = self.view.leader(*state.tp)
            if leader is None:
                continue
            node = leader
            if state.preferred >= 0 and now_ms < state.preferred_until_ms and state.preferred in self.view.nodes:
                node = state.preferred
            if state.buffered_bytes >= most:
                full.add(node)
                continue
            topic_id, epoch = self.view.topic_id(state.tp.topic), self.view.leader_epoch(*state.tp)
            wanted.setdefault(node, {})[state.tp] = Wanted(topic_id, state.fetch_offset, most, epoch)
        return wanted, full

    def _fetch(self, node: int, session: FetchSession, rows: dict[TopicPartition, Wanted], max_bytes: int) -> None:
        request, max_version = session.build(rows, max_bytes)
        asked = {tp: state.version for tp in rows if (state := self.positions.get(tp)) is not None}
        ids = {row.topic_id: tp.topic for tp, row in rows.items()}

        def then(outcome: Any, now_ms: float) -> None:
            self.wants_advance = True
            if isinstance(outcome, ClientError):
                session.failed()
                session.not_before_ms = now_ms + self.backoff.initial_ms
                self.view.invalidate()
                if not outcome.retriable:
                    self.error = outcome
                return
            self._fetched(node, session, outcome, rows, asked, ids, now_ms)

        timeout_ms = self.options["request_timeout_ms"] + self.options["fetch_max_wait_ms"]
        self._effects.append(Send(node, request, then, timeout_ms, max_version))

    def _fetched(
        self,
        node: int,
        session: FetchSession,
        response: FetchResponse,
        rows: Mapping[TopicPartition, Wanted],
        asked: Mapping[TopicPartition, int],
        ids: Mapping[bytes, str],
        now_ms: float,
    ) -> None:
        if not session.answered(response):
            session.not_before_ms = now_ms + (self.backoff.initial_ms if response.error_code not in _SESSION else 0)
            return
        for topic in response.responses:
            name = topic.topic or ids.get(topic.topic_id, "")
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                state = self.positions.get(tp)
                if state is not None and tp in asked and state.version == asked[tp] and state.phase is Phase.FETCH:
                    self._fetched_of(node, state, row, rows[tp].offset, now_ms)

    def _fetched_of(self, node: int, state: PartitionState, row: PartitionData, offset: int, now_ms: float) -> None:
        if row.error_code:
            self._fetch_refused(node, state, row.error_code, offset, now_ms)
            return
        state.high_watermark, state.log_start_offset = row.high_watermark, row.log_start_offset
        state.last_stable_offset = row.last_stable_offset
        if row.preferred_read_replica >= 0:
            state.preferred = row.preferred_read_replica
            state.preferred_until_ms = now_ms + self.options["metadata_max_age_ms"]
        if not row.records:
            return
        buffer = memoryview(row.records)
        next_offset, end = span(buffer)
        if end == 0:
            state.error = CorruptRecords(
                f"{state.tp} at offset {offset}: no whole batch within {len(buffer)} bytes; raise "
                "max.partition.fetch.bytes and fetch.max.bytes if the record is larger",
                topic=state.tp.topic, partition=state.tp.partition, offset=offset,
            )  # fmt: skip
            return
        aborted = [(r.producer_id, r.first_offset) for r in row.aborted_transactions or ()] if self.isolation else []
        check = self.options["check_crcs"]
        state.buffered.append(Fetched(state.tp, state.make, buffer[:end], offset, aborted=aborted, check_crcs=check))
        state.buffered_bytes += end
        self._buffered_bytes += end
        state.fetch_offset = max(state.fetch_offset, next_offset)

    def _fetch_refused(self, node: int, state: PartitionState, code: int, offset: int, now_ms: float) -> None:
        state.not_before_ms = now_ms + self.backoff.initial_ms
        if code in _LEADER_MOVED:
            state.preferred = -1
            self.view.invalidate()
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.preferred == node and node != self.view.leader(*state.tp):
                state.preferred = -1  # a follower may be behind: ask the leader
            elif state.buffered:
                pass  # hand over what there is first
            elif self._reset is None:
                state.error = OffsetOutOfRange(
                    f"{state.tp}: offset {offset} is not in the log (any more) and auto.offset.reset is none: seek",
                    code=ErrorCode.OFFSET_OUT_OF_RANGE,
                )
            else:
                logger.warning("%s: offset %d is not in the log; reset as auto.offset.reset says", state.tp, offset)
                state.reset(self._reset)
        elif not error_for(code).retriable:
            state.error = error_for(code, f"{state.tp}: {error_for(code)}")

    # -- commits -----------------------------------------------------------------------------------------------

    def handed_over(self, left: Iterable[Record] = ()) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions after all that was handed over, but for `left`."""
        offsets = {s.tp: OffsetAndMetadata(s.offset, s.epoch) for s in self.positions if s.phase is Phase.FETCH}
        seen: set[TopicPartition] = set()
        for record in left:
            tp = record.topic_partition
            if tp not in seen and tp in offsets:
                seen.add(tp)
                offsets[tp] = OffsetAndMetadata(record.offset)
        return offsets

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions after what earlier polls handed over, where that is not committed yet."""
        return {
            s.tp: OffsetAndMetadata(s.processed, s.epoch if s.processed == s.offset else -1)
            for s in self.positions
            if s.processed is not None and s.phase is Phase.FETCH and self._committed.get(s.tp) != s.processed
        }

    @property
    def commits_by_itself(self) -> bool:
        """Whether auto-commit is on."""
        return self._auto_commit

    def commit_request(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> OffsetCommitRequest:
        """The request that commits; at most version NEWEST_OFFSETS_BY_NAME.

        Raises UnknownMember or RebalanceInProgress if a group decides what is read and this consumer is not in it: the
        broker would take the commit as one from outside, and another member's position would be lost.
        """
        member = self.membership
        as_member = member is not None and (self.subscribed or bool(member.member_id))
        if as_member and member is not None and member.generation < 0:
            if member.kicked is not None:
                raise UnknownMember(f"Nothing was committed: {member.kicked}")
            raise RebalanceInProgress("Nothing was committed: this consumer is not in its group (now); poll first")
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for tp, row in offsets.items():
            topics.setdefault(tp[0], []).append(
                OffsetCommitRequestPartition(
                    partition_index=tp[1],
                    committed_offset=row.offset,
                    committed_leader_epoch=row.leader_epoch,
                    committed_metadata=row.metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=self.group_id or "",
            generation_id_or_member_epoch=member.generation if as_member and member is not None else -1,
            member_id=member.member_id if as_member and member is not None else "",
            group_instance_id=self.options["group_instance_id"] if as_member else None,
            topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

    def committed(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], response: OffsetCommitResponse
    ) -> ClientError | None:
        """Take note of a commit's answer; the error if there is one."""
        error: ClientError | None = None
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if not row.error_code:
                    self._committed[tp] = offsets[tp].offset
                    continue
                if self.membership is not None:
                    self.membership.member_lost(row.error_code)
                text = ErrorCode(row.error_code).text if row.error_code in _CODES else str(row.error_code)
                why = self.membership.kicked if self.membership is not None else None
                error = error_for(
                    row.error_code, f"Offset {offsets[tp].offset} of {tp} is not committed: {why or text}"
                )
        return error

    def _plan_auto_commit(self, now_ms: float) -> None:
        if self._commit_due_ms is None or self._committing or now_ms < self._commit_due_ms:
            return
        self._commit_due_ms = now_ms + self.options["auto_commit_interval_ms"]
        offsets = self.processed()
        membership = self.membership
        if not offsets or (membership is not None and self.subscribed and membership.generation < 0):
            return
        self._committing = True

        def then(outcome: Any, now_ms: float) -> None:
            self._committing = False
            error = outcome if isinstance(outcome, ClientError) else self.committed(offsets, outcome)
            if error is None:
                return
            if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
                self._effects.append(ForgetCoordinator())
            logger.info("Auto-commit failed, will be tried again: %s", error)
            self._commit_due_ms = min(self._commit_due_ms or now_ms, now_ms + self.backoff.max_ms)

        request = self.commit_request(offsets)
        self._effects.append(Send(COORDINATOR, request, then, max_version=NEWEST_OFFSETS_BY_NAME))

    def validate(self) -> None:
        """Raise AssertionError if the parts contradict each other."""
        for state in self.positions:
            state.validate()
        assert self._buffered_bytes == sum(state.buffered_bytes for state in self.positions)
        if self.membership is not None:
            self.membership.validate()


_SESSION = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
_CODES = frozenset(int(code) for code in ErrorCode)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _group_options(group_id: str, options: Mapping[str, Any], backoff: Backoff) -> GroupOptions:
    return GroupOptions(
        group_id=group_id,
        assignors=tuple(options["partition_assignment_strategy"]),
        instance_id=options["group_instance_id"] or None,
        session_timeout_ms=options["session_timeout_ms"],
        heartbeat_interval_ms=options["heartbeat_interval_ms"],
        max_poll_interval_ms=options["max_poll_interval_ms"],
        rack=options["client_rack"],
        backoff=backoff,
    )
