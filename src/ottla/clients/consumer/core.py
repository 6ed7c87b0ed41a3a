"""The consumer's brain: reading, membership and commits as one state machine without I/O or clock.

The caller holds one lock around every call. On the network's side: `advance` after each event and at `next_timer_ms`;
obey the effects in order, hand each outcome to its `then`. On the user's side, in each poll: `begin_poll`; then until
there are records or time is up: `duty` (do it, `duty_done`), `raise_error`, `fill`, else wait for `ready`; `end_poll`.

Invariants (`validate`): what is committed automatically was handed over by an earlier poll; what is buffered is bounded
by queued.max.bytes and one fetch of each broker; a partition that is not assigned has neither position nor buffer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.clients.cluster import Backoff, ClusterView, check_topics
from ottla.clients.consumer.decoding import Fetched, without_collection
from ottla.clients.consumer.effects import COORDINATOR, Effect, ForgetCoordinator, Refresh, Send
from ottla.clients.consumer.membership import COORDINATOR_MOVED, Duty, GroupOptions, Membership, State
from ottla.clients.consumer.positions import PartitionState, Phase
from ottla.clients.consumer.reading import Reading
from ottla.clients.consumer.record import Record
from ottla.clients.consumer.requests import (
    NEWEST_OFFSETS_BY_NAME,
    Committer,
    GroupMetadata,
    OffsetAndMetadata,
    commit_request,
)
from ottla.clients.consumer.sinks import RecordSink, Sink
from ottla.clients.errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    CorruptRecords,
    RebalanceInProgress,
    UnknownMember,
    UnknownTopicOrPartition,
    error_for,
)
from ottla.common.errors import ErrorCode
from ottla.common.ids import INTERNAL_TOPICS, TopicPartition
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

logger = logging.getLogger("ottla.clients.consumer")

RECOMMIT_MS = 3_600_000
"""So often auto-commit also commits what did not move: a broker forgets a position that was committed long ago."""
Held = Mapping[TopicPartition, PartitionState | None]
_NOTHING: Held = {}
_CODES = frozenset(int(code) for code in ErrorCode)


class ConsumerCore(Reading):
    """One consumer. `options` are read settings by Pythonic name."""

    def __init__(self, options: Mapping[str, Any], view: ClusterView) -> None:
        super().__init__(options, view)
        self.pattern: re.Pattern[str] | None = None
        self.topics: frozenset[str] = frozenset()
        self.manual = False
        """Whether partitions were assigned by the user, not by a group."""
        self.membership: Membership | None = None
        if self.group_id is not None:
            self.membership = Membership(_group_options(self.group_id, options, self.backoff))
        self._polling = False
        self._touched: set[TopicPartition] = set()
        self._refreshing = False
        self._refresh_not_before_ms = 0.0
        self._view_version = -1
        self._auto_commit = bool(options["enable_auto_commit"]) and self.group_id is not None
        self._stores_itself: bool = options["enable_auto_offset_store"]
        self.problems: dict[str, ClientError | None] = {}
        """By subject, what began to keep partitions from being read, None for what ended; the shell takes them."""
        self.records_consumed = self.bytes_consumed = 0
        self._committing = False
        self._commit_due_ms: float | None = None
        self._recommit_ms = 0.0

    # -- what to read ------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None) -> None:
        """Share these topics, or those whose whole name matches the pattern, with the group."""
        if self.membership is None:
            raise ConfigurationError("subscribe needs a group.id; without one use assign")
        if self.manual and len(self.positions):
            raise ConfigurationError("This consumer was assigned partitions by hand: unsubscribe first")
        chosen = frozenset(topics or ())
        check_topics(chosen)
        self.manual = False
        if pattern is not None:
            self.pattern, self.topics = re.compile(pattern), frozenset()
        else:
            self.pattern, self.topics = None, chosen
        self._view_version = -1
        self._refresh_not_before_ms = 0.0
        self._follow_view()
        self.wants_advance = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group's say."""
        if self.subscribed:
            raise ConfigurationError("This consumer is subscribed to topics: unsubscribe first")
        wanted = {TopicPartition(*tp) for tp in partitions}
        chosen = frozenset(tp.topic for tp in wanted)
        check_topics(chosen)
        self.manual = True
        self.topics = chosen
        self._replace(wanted)
        self._view_version = -1
        if self._polling:  # another task's poll waits for just this
            self.want()
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
    def wants_something(self) -> bool:
        """Whether it was subscribed, or assigned partitions (perhaps none)."""
        return self.manual or self.subscribed

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

    def seek(self, tp: TopicPartition, offset: int, epoch: int = -1) -> None:
        """Read `tp` from `offset` on; `epoch` is the leader epoch of the record before it, if that is known."""
        if offset < 0:
            raise ValueError(f"An offset is 0 or more, not {offset}")
        self._drop(tp).seek(offset, epoch)

    def reset(self, tp: TopicPartition, timestamp: int) -> None:
        """Read `tp` from a timestamp on; -1 is the end, -2 the beginning."""
        self._drop(tp).reset(timestamp)

    def _drop(self, tp: TopicPartition) -> PartitionState:
        state = self.positions.of(tp)
        self._buffered_bytes -= state.drop_buffer()
        self.wants_advance = True
        return state

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand over nothing of these until `resume`; positions stay, and what is buffered while there is room."""
        for state in [self.positions.of(tp) for tp in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        for state in [self.positions.of(tp) for tp in partitions]:
            state.paused = False
        self.wants_advance = True

    def give_back(self, records: Iterable[Record[Any, Any]]) -> None:
        """These were handed over last and not looked at: hand them over again."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(record.topic_partition, record.offset)
        for tp, offset in first.items():
            state = self.positions.get(tp)
            if state is not None:
                processed, settled = state.processed, state.settled
                self.seek(tp, offset)
                state.processed = None if processed is None else min(processed, offset)
                state.settled = None if settled is None else min(settled, offset)

    def take_back(self) -> None:
        """This poll did not hand over what it took: it was interrupted, wherever that was."""
        for state in self.positions:
            if state.phase is Phase.FETCH and state.settled is not None:
                processed = state.processed
                state.seek(state.settled)
                state.processed = processed
            else:
                state.drop_buffer()
        self._buffered_bytes = 0
        self.wants_advance = True

    # -- poll --------------------------------------------------------------------------------------------------

    def begin_poll(self, now_ms: float) -> None:
        """The user polls: what earlier polls handed over counts as processed."""
        self.settle()
        self._polling = True
        if self.manual:
            self.want()
        if self._auto_commit and self._commit_due_ms is None:
            self._commit_due_ms = now_ms + self.options["auto_commit_interval_ms"]
            self._recommit_ms = now_ms + RECOMMIT_MS
            self.wants_advance = True
        if self.membership is not None:
            self.membership.polling(True, now_ms)

    def settle(self) -> None:
        """All that was handed over is processed."""
        for tp in self._touched:
            state = self.positions.get(tp)
            if state is not None and state.phase is Phase.FETCH:
                state.settled = state.offset
                if self._stores_itself:
                    state.processed = state.offset
        self._touched.clear()

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Count these partitions as processed up to the offsets. Raises NotAssigned, ValueError, ConfigurationError."""
        if self._stores_itself:
            raise ConfigurationError("store_offsets needs enable.auto.offset.store=false")
        states = {self.positions.of(tp): row.offset for tp, row in offsets.items()}
        for state, offset in states.items():
            if state.phase is not Phase.FETCH or offset > state.offset:
                raise ValueError(f"Offset {offset} of {state.tp} is beyond what was handed over")
        for state, offset in states.items():
            state.processed = offset

    def end_poll(self, now_ms: float) -> None:
        """The user has what he gets and goes off to work on it."""
        self._polling = False
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
        self.want()

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

    def take(self, limit: int) -> list[Record[Any, Any]]:
        """Up to `limit` records that have arrived; otherwise as `fill`."""
        sink = RecordSink(limit)
        self.fill(sink)
        return sink.records

    def fill(self, sink: Sink) -> None:
        """Give `sink` what has arrived; the positions move. Raises CorruptRecords, a position's error."""
        sink.expect(self._buffered_bytes)
        with without_collection():
            self._fill(sink)
        self.records_consumed += len(sink)

    def _fill(self, sink: Sink) -> None:
        last: TopicPartition | None = None
        for state in self.positions:
            if state.paused:
                continue
            if state.error is not None:
                if len(sink):
                    break
                raise state.error
            if state.buffered:
                before = len(sink)
                try:
                    self._fill_from(state, sink)
                except CorruptRecords as error:
                    if not len(sink):
                        raise
                    self.error = error
                if len(sink) > before:
                    last = state.tp
                if sink.full or self.error is not None:
                    break
        if last is not None:
            self._rotate(last)

    def _fill_from(self, state: PartitionState, sink: Sink) -> None:
        while state.buffered and not sink.full:
            fetched = state.buffered[0]
            try:
                sink.take(fetched)
            except CorruptRecords as error:
                self._corrupt(state, fetched, error)
                continue
            state.offset = fetched.next_offset
            if fetched.epoch >= 0:
                state.epoch = fetched.epoch
            self._touched.add(state.tp)
            if fetched.exhausted:
                self._finish(state)

    def _finish(self, state: PartitionState) -> None:
        size = state.buffered.popleft().size
        self.bytes_consumed += size
        state.buffered_bytes -= size
        self._buffered_bytes -= size
        self.wants_advance = True

    def _corrupt(self, state: PartitionState, fetched: Fetched, error: CorruptRecords) -> None:
        """Fetch it once more: the network may have done it. Then go on after the batch, with or without an error."""
        if state.refetched_at != error.offset:
            position, processed, settled = state.offset, state.processed, state.settled
            self.seek(state.tp, position)
            state.refetched_at, state.processed, state.settled = error.offset, processed, settled
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

    # -- metadata ----------------------------------------------------------------------------------------------

    def _follow_view(self) -> None:
        if self.view.version == self._view_version:
            return
        self._view_version = self.view.version
        if self.manual:
            self._look_for_partitions()
        if self.membership is None or self.manual:
            return
        if self.pattern is not None:
            names = [name for name in self.view.topics if self.pattern.fullmatch(name)]
            if self.options["exclude_internal_topics"]:
                names = [name for name in names if name not in INTERNAL_TOPICS]
            self.topics = frozenset(names)
        self.membership.subscribe(self.topics)

    def _look_for_partitions(self) -> None:
        """Report assigned partitions that a known topic does not have."""
        for tp in self.positions.assigned():
            partitions = self.view.partitions(tp.topic)
            if partitions is None:
                continue
            text = f"Partition {tp} does not exist: {tp.topic} has partitions 0 to {len(partitions) - 1}"
            self.problems[f"Partition {tp}"] = None if tp.partition in partitions else UnknownTopicOrPartition(text)

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
                self.problems[f"Topic {topic}"] = None
                if code:  # it may appear, but hardly at once
                    self._refresh_not_before_ms = now_ms + self.backoff.max_ms
                    text = f"Topic {topic} cannot be read: {ErrorCode(code).text}"
                    self.problems[f"Topic {topic}"] = error_for(code, text)

        self._effects.append(Refresh(topics, then))

    # -- commits -----------------------------------------------------------------------------------------------

    def handed_over(self, left: Iterable[Record[Any, Any]] = ()) -> dict[TopicPartition, OffsetAndMetadata]:
        """What `commit` without offsets commits: the positions after all that was handed over, but for `left`.

        With enable.auto.offset.store=false it is what was stored.
        """
        if not self._stores_itself:
            return self.processed()
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

    def held(self, partitions: Iterable[TopicPartition]) -> Held:
        """These as they are ours now, for `commit_request`: one that went and came back is not the same."""
        return {tp: self.positions.get(tp) for tp in partitions}

    def commit_request(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], held: Held = _NOTHING
    ) -> OffsetCommitRequest:
        """The request that commits; at most version NEWEST_OFFSETS_BY_NAME.

        Raises IllegalGeneration if the group gave one of `held` to another since the offsets were chosen: tried again
        with the new generation, the commit would undo what the other has committed. Raises UnknownMember or
        RebalanceInProgress if a group decides what is read and this consumer is not in it: the broker would take the
        commit as one from outside, and another member's position would be lost.
        """
        member = self.membership
        as_member = member is not None and (self.subscribed or bool(member.member_id))
        if as_member and member is not None and member.generation < 0:
            if member.kicked is not None:
                raise UnknownMember(f"Nothing was committed: {member.kicked}")
            raise RebalanceInProgress("Nothing was committed: this consumer is not in its group (now); poll first")
        for tp, state in held.items() if self.subscribed else ():
            if state is not None and self.positions.get(tp) is not state:
                why = f"Nothing was committed: {tp} is not this consumer's any more, the group rebalanced meanwhile"
                raise error_for(ErrorCode.ILLEGAL_GENERATION, why)
        by = Committer(self.group_id or "")
        if as_member and member is not None:
            instance_id = self.options["group_instance_id"]
            by = Committer(self.group_id or "", member.generation, member.member_id, instance_id)
        return commit_request(by, offsets)

    def committed(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> ClientError | None:
        """Take note of a commit's answer; the error if there is one."""
        error: ClientError | None = None
        offsets = {
            TopicPartition(topic.name, row.partition_index): row.committed_offset
            for topic in request.topics
            for row in topic.partitions
        }
        by = (request.generation_id_or_member_epoch, request.member_id)
        for topic in response.topics:
            for row in topic.partitions:
                tp = TopicPartition(topic.name, row.partition_index)
                if not row.error_code:
                    self._committed[tp] = offsets[tp]
                    continue
                if self.membership is not None:
                    self.membership.member_lost(row.error_code, by)
                text = ErrorCode(row.error_code).text if row.error_code in _CODES else str(row.error_code)
                why = self.membership.kicked if self.membership is not None else None
                error = error_for(row.error_code, f"Offset {offsets[tp]} of {tp} is not committed: {why or text}")
                if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    error.retriable = False  # it was deleted; the others are committed all the same
        return error

    def _plan_auto_commit(self, now_ms: float) -> None:
        if self._commit_due_ms is None or self._committing or now_ms < self._commit_due_ms:
            return
        self._commit_due_ms = now_ms + self.options["auto_commit_interval_ms"]
        if now_ms >= self._recommit_ms:
            self._recommit_ms = now_ms + RECOMMIT_MS
            self._committed.clear()
        offsets = self.processed()
        membership = self.membership
        if not offsets or (membership is not None and self.subscribed and membership.generation < 0):
            return
        self._committing = True

        def then(outcome: Any, now_ms: float) -> None:
            self._committing = False
            error = outcome if isinstance(outcome, ClientError) else self.committed(request, outcome)
            if error is None:
                return
            if not isinstance(error, BrokerError) or error.code in COORDINATOR_MOVED:
                self._effects.append(ForgetCoordinator())
            logger.info("Auto-commit failed, will be tried again: %s", error)
            self._commit_due_ms = min(self._commit_due_ms or now_ms, now_ms + self.backoff.max_ms)

        request = self.commit_request(offsets)
        self._effects.append(Send(COORDINATOR, request, then, max_version=NEWEST_OFFSETS_BY_NAME))

    def group_metadata(self) -> GroupMetadata:
        """The consumer's place in its group."""
        group_id, instance_id = self.group_id or "", self.options["group_instance_id"] or None
        if self.membership is None:
            return GroupMetadata(group_id, instance_id=instance_id)
        return GroupMetadata(group_id, self.membership.generation, self.membership.member_id, instance_id)

    def take_problems(self) -> dict[str, ClientError | None]:
        """The problems that began or ended since the last call."""
        problems, self.problems = self.problems, {}
        return problems

    def validate(self) -> None:
        """Raise AssertionError if the parts contradict each other."""
        for state in self.positions:
            state.validate()
        assert self._buffered_bytes == sum(state.buffered_bytes for state in self.positions)
        if self.membership is not None:
            self.membership.validate()


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
