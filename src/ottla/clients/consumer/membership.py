"""A member of a classic group as a state machine: no I/O, no clock; what to send comes out, answers go in.

`MOVES` is the table. PREPARING and ADOPTING wait for the user: only `duty` (called from poll) takes partitions away or
hands them over, so that no record is processed by two members and a commit comes before the partition goes. Everything
else goes on between polls, heartbeats above all. KIP-62, KIP-345, KIP-394, KIP-429, KIP-792.

    OUTSIDE -> PREPARING -> JOINING -> [ASSIGNING ->] SYNCING -> ADOPTING -> STABLE -> PREPARING ...

The caller: `advance` after every event and at `next_timer_ms`, obey its effects in order; `duty` in each poll until it
is None, do what it says, then `duty_done`; `polling(True/False)` around each poll.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.consumer.assignors import Assignor, Member
from ottla.clients.consumer.effects import COORDINATOR, Effect, ForgetCoordinator, Refresh, Send
from ottla.clients.errors import BrokerError, BrokerUnavailable, ClientError, InconsistentGroupProtocol, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.wire import DecodeError

logger = logging.getLogger("ottla.clients.consumer")

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 0
JOIN_GRACE_MS = 5_000
NO_GENERATION = -1


class State(Enum):
    """Where the member stands."""

    OUTSIDE = "no member, or not any more"
    PREPARING = "wants to join, and waits for the user's poll to give up partitions first"
    JOINING = "JoinGroup is under way"
    ASSIGNING = "leads the group, and needs metadata to assign"
    SYNCING = "SyncGroup is under way"
    ADOPTING = "has an assignment, and waits for the user's poll to take it over"
    STABLE = "reads"
    FAILED = "cannot be a member; polls raise why"

    __hash__ = object.__hash__


MOVES: dict[State, frozenset[State]] = {
    State.OUTSIDE: frozenset({State.PREPARING, State.FAILED}),
    State.PREPARING: frozenset({State.JOINING, State.OUTSIDE, State.FAILED}),
    State.JOINING: frozenset({State.ASSIGNING, State.SYNCING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.ASSIGNING: frozenset({State.SYNCING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.SYNCING: frozenset({State.ADOPTING, State.JOINING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.ADOPTING: frozenset({State.STABLE, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.STABLE: frozenset({State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.FAILED: frozenset({State.OUTSIDE}),
}
_BEATS = frozenset({State.PREPARING, State.ASSIGNING, State.SYNCING, State.ADOPTING, State.STABLE})
_ON_THE_WAY = frozenset({State.JOINING, State.ASSIGNING, State.SYNCING, State.ADOPTING})
_MEMBER_GONE = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


_BACKOFF = Backoff(100, 1_000)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How a member behaves; times in ms."""

    group_id: str
    assignors: tuple[Assignor, ...]
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rack: str = ""
    backoff: Backoff = _BACKOFF

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept during a rebalance: only if every assignor that may be chosen can do that."""
        return all(assignor.cooperative for assignor in self.assignors)


@dataclass(frozen=True, slots=True)
class Duty:
    """What the user's side has to do now: tell the listener, after a commit if `revoked`."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[TopicPartition, ...]


class Membership:
    """One member of one group."""

    def __init__(self, options: GroupOptions) -> None:
        self.options = options
        self.state = State.OUTSIDE
        self.member_id = ""
        self.generation = NO_GENERATION
        self.topics: frozenset[str] = frozenset()
        self.owned: frozenset[TopicPartition] = frozenset()
        self.error: ClientError | None = None
        self.kicked: str | None = None
        """Why the member left the group by itself; None again once it has rejoined."""
        self._assigned: frozenset[TopicPartition] = frozenset()
        # The last assignment and its generation: what a sticky member claims.
        self._last_assignment: tuple[tuple[TopicPartition, ...], int] = ((), NO_GENERATION)
        self._in_flight = False
        self._epoch = 0  # of the questions: an answer to an older one is nobody's
        self._not_before_ms = 0.0
        self._failures = 0
        self._rejoin = False
        self._lost = False
        self._revoked = False
        self._protocol = ""
        self._members: list[Member] = []
        self._leads = False
        self._counts: dict[str, int] = {}
        self._refreshed = False
        self._beating = False
        self._next_beat_ms = 0.0
        self._polling = False
        self._polled_ms: float | None = None
        self._effects: list[Effect] = []

    # -- the user's side ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str]) -> None:
        """Want these topics; a change makes the group rebalance at the next poll."""
        new = frozenset(topics)
        if new != self.topics:
            self.topics = new
            self._rejoin = True

    def polling(self, value: bool, now_ms: float) -> None:
        """The user is in poll, or leaves it."""
        self._polling = value
        self._polled_ms = now_ms

    def duty(self) -> Duty | None:
        """What must be done before this poll can hand over records; None if nothing."""
        if self.state is State.STABLE and self._rejoin:
            self._move(State.PREPARING)
        if not self.topics and self.state in _ON_THE_WAY:  # else it became a member that nobody polls for
            self._epoch += 1
            self._in_flight = False
            self._move(State.PREPARING)
        if self.state is State.OUTSIDE and (self.topics or self.owned):
            self._move(State.PREPARING)
        if self.state is State.PREPARING:
            duty = self._duty_before_joining()
            if duty is None and self.topics:
                self._move(State.JOINING)
            elif duty is None:
                self._effects += self._leaving("unsubscribed")
                self._reset()
                self._move(State.OUTSIDE)
            return duty
        if self.state is State.ADOPTING:
            gone = self.owned - self._assigned
            if gone:
                return Duty("revoked", tuple(sorted(gone)))
            return Duty("assigned", tuple(sorted(self._assigned - self.owned)))
        return None

    def _duty_before_joining(self) -> Duty | None:
        if self._lost:
            leaving, kind = self.owned, "lost"
        elif self.options.cooperative:
            leaving, kind = frozenset(tp for tp in self.owned if tp.topic not in self.topics), "revoked"
        else:
            leaving, kind = self.owned, "revoked"
        return Duty(kind, tuple(sorted(leaving))) if leaving else None  # type: ignore[arg-type]

    def duty_done(self, duty: Duty, now_ms: float) -> None:
        """The listener was told."""
        if duty.kind != "assigned":
            self.owned -= frozenset(duty.partitions)
            if self.state is State.ADOPTING:
                self._revoked = True
            elif not self.owned:
                self._lost = False
            return
        if self.state is not State.ADOPTING:
            return  # the group moved on while the listener ran
        self.owned |= frozenset(duty.partitions)
        self._move(State.STABLE)
        self.kicked = None
        if self._revoked:
            # What was given up can go to its new owner in the next round only.
            self._revoked = False
            self._rejoin = True
        self._next_beat_ms = min(self._next_beat_ms, now_ms + self.options.heartbeat_interval_ms)

    def leave(self) -> list[Effect]:
        """Stop being a member, as close and unsubscribe do; a static member only falls silent, its place is kept."""
        effects = self._leaving("the consumer is being closed")
        self._reset()
        self.owned = self._assigned = frozenset()
        if self.state is not State.OUTSIDE:
            self._move(State.OUTSIDE)
        return effects

    def member_lost(self, code: int, asked_by: tuple[int, str]) -> None:
        """The answer to a commit says that the member is out or that the group goes on without it.

        `asked_by`: generation and member id of the request; who has joined again since is not meant.
        """
        if asked_by != (self.generation, self.member_id):
            return
        if code in _MEMBER_GONE and self.state in (State.STABLE, State.ADOPTING, State.PREPARING):
            self._gone(code)

    def led_topics(self) -> frozenset[str]:
        """The topics of the whole group if this member leads it: it watches their partitions."""
        return frozenset(self._counts) if self._leads else frozenset()

    # -- events ------------------------------------------------------------------------------------------------

    def advance(self, now_ms: float, view: ClusterView) -> list[Effect]:
        """Everything that is to be sent now."""
        self._check_poll_interval(now_ms)
        if self._leads and self.state is State.STABLE and self._counts != self._count(view, self._counts):
            logger.info("Group %s: partitions were added or topics came or went", self.options.group_id)
            self._rejoin = True
        if self.state is State.JOINING and not self._in_flight and now_ms >= self._not_before_ms:
            self._join()
        if self.state is State.ASSIGNING and not self._in_flight:
            self._assign(view)
        if (
            self.state in _BEATS
            and self.generation != NO_GENERATION
            and not self._beating
            and now_ms >= self._next_beat_ms
        ):
            self._beat(now_ms)
        effects, self._effects = self._effects, []
        return effects

    def next_timer_ms(self) -> float | None:
        """When to call `advance` at the latest, if nothing happens."""
        times = []
        if self.state is State.JOINING and not self._in_flight:
            times.append(self._not_before_ms)
        if self.state in _BEATS and self.generation != NO_GENERATION and not self._beating:
            times.append(self._next_beat_ms)
        if self._is_member() and not self._polling and self._polled_ms is not None:
            times.append(self._polled_ms + self.options.max_poll_interval_ms)
        return min(times, default=None)

    def _is_member(self) -> bool:
        return self.state not in (State.OUTSIDE, State.FAILED) and bool(self.member_id)

    def _check_poll_interval(self, now_ms: float) -> None:
        if self._polling or self._polled_ms is None or not self._is_member():
            return
        late_ms = now_ms - self._polled_ms
        if late_ms < self.options.max_poll_interval_ms:
            return
        self.kicked = (
            f"no poll for {late_ms / 1000:.1f} s, more than max.poll.interval.ms "
            f"({self.options.max_poll_interval_ms}): the member left its group. Poll more often, take fewer records at "
            "a time (max.poll.records), or raise max.poll.interval.ms"
        )
        logger.warning("Group %s: %s", self.options.group_id, self.kicked)
        self._effects += self._leaving("max.poll.interval.ms has passed")
        self._reset()
        self._lost = bool(self.owned)
        self._move(State.OUTSIDE)

    # -- joining -----------------------------------------------------------------------------------------------

    def _join(self) -> None:
        options = self.options
        self._rejoin = False
        self._in_flight = True
        self._epoch += 1
        epoch = self._epoch
        request = JoinGroupRequest(
            group_id=options.group_id,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=a.name, metadata=self._subscription(a)) for a in options.assignors
            ],
        )

        def then(outcome: Any, now_ms: float) -> None:
            if epoch == self._epoch:
                self._joined(outcome, now_ms)

        timeout_ms = options.max_poll_interval_ms + JOIN_GRACE_MS
        self._effects.append(Send(COORDINATOR, request, then, timeout_ms))

    def _subscription(self, assignor: Assignor) -> bytes:
        subscription = ConsumerProtocolSubscription(
            topics=sorted(self.topics),
            user_data=assignor.user_data(*self._last_assignment),
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(sorted(self.owned)).items()
            ],
            generation_id=self._last_assignment[1],
            rack_id=self.options.rack or None,
        )
        return encode_subscription(subscription, SUBSCRIPTION_VERSION)

    def _joined(self, outcome: JoinGroupResponse | ClientError, now_ms: float) -> None:
        self._in_flight = False
        if isinstance(outcome, ClientError):
            self._retry(outcome, now_ms)
            return
        code = outcome.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = outcome.member_id
            return
        if code in _MEMBER_GONE:
            self._gone(code)
            return
        if code:
            self._retry(error_for(code), now_ms)
            return
        self._failures = 0
        self.member_id, self.generation = outcome.member_id, outcome.generation_id
        self._protocol = outcome.protocol_name or ""
        self._next_beat_ms = now_ms + self.options.heartbeat_interval_ms
        self._leads = outcome.leader == outcome.member_id
        if not self._leads or outcome.skip_assignment:
            self._sync({})
            return
        try:
            self._members = [_member(row.member_id, row.group_instance_id, row.metadata) for row in outcome.members]
        except DecodeError as error:
            self._fail(InconsistentGroupProtocol(f"A member's subscription cannot be read: {error}"))
            return
        self._refreshed = False
        self._move(State.ASSIGNING)

    def _assign(self, view: ClusterView) -> None:
        topics = frozenset(topic for member in self._members for topic in member.topics)
        if not self._refreshed and any(topic not in view.topics for topic in topics):
            self._in_flight = True
            epoch = self._epoch

            def then(_outcome: ClientError | None, _now_ms: float) -> None:
                if epoch == self._epoch:
                    self._in_flight = False
                    self._refreshed = True

            self._effects.append(Refresh(topics, then))
            return
        assignor = next((a for a in self.options.assignors if a.name == self._protocol), None)
        if assignor is None:
            self._fail(
                InconsistentGroupProtocol(f"The group chose {self._protocol!r}, which this member did not offer")
            )
            return
        self._counts = self._count(view, topics)
        counts = {topic: count for topic, count in self._counts.items() if count}
        self._sync({m: _encode(partitions) for m, partitions in assignor.assign(counts, self._members).items()})

    @staticmethod
    def _count(view: ClusterView, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(view.partitions(topic) or ()) for topic in topics}

    def _sync(self, assignments: dict[str, bytes]) -> None:
        self._move(State.SYNCING)
        self._in_flight = True
        epoch = self._epoch
        request = SyncGroupRequest(
            group_id=self.options.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()],
        )

        def then(outcome: Any, now_ms: float) -> None:
            if epoch == self._epoch:
                self._synced(outcome, now_ms)

        self._effects.append(Send(COORDINATOR, request, then, self.options.max_poll_interval_ms + JOIN_GRACE_MS))

    def _synced(self, outcome: SyncGroupResponse | ClientError, now_ms: float) -> None:
        self._in_flight = False
        if isinstance(outcome, ClientError) or outcome.error_code:
            error = outcome if isinstance(outcome, ClientError) else error_for(outcome.error_code)
            if isinstance(error, BrokerError) and error.code in _MEMBER_GONE:
                self._gone(error.code)
                return
            self._move(State.JOINING)
            if not (isinstance(error, BrokerError) and error.code == ErrorCode.REBALANCE_IN_PROGRESS):
                self._retry(error, now_ms)
            return
        try:
            rows = decode_assignment(outcome.assignment).assigned_partitions if outcome.assignment else []
        except DecodeError as error:
            self._fail(InconsistentGroupProtocol(f"The assignment cannot be read: {error}"))
            return
        self._assigned = frozenset(TopicPartition(row.topic, p) for row in rows for p in row.partitions)
        self._last_assignment = (tuple(sorted(self._assigned)), self.generation)
        self._revoked = False
        self._move(State.ADOPTING)

    def _retry(self, error: ClientError, now_ms: float) -> None:
        """In JOINING: join again after a while, or give up if that cannot help."""
        self._in_flight = False
        code = error.code if isinstance(error, BrokerError) else None
        if code is None or code in COORDINATOR_MOVED:
            self._effects.append(ForgetCoordinator())
        # A name that does not resolve now, or a stranger at the address, is no end for one that was a member.
        passes = error.retriable or isinstance(error, BrokerUnavailable) or code == ErrorCode.REBALANCE_IN_PROGRESS
        if not passes:
            self._fail(error)
            return
        self._failures += 1
        self._not_before_ms = now_ms + self.options.backoff.delay_ms(self._failures, 0.5)

    # -- staying -----------------------------------------------------------------------------------------------

    def _beat(self, now_ms: float) -> None:
        self._beating = True
        self._next_beat_ms = now_ms + self.options.heartbeat_interval_ms
        generation, member_id = self.generation, self.member_id
        request = HeartbeatRequest(
            group_id=self.options.group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.options.instance_id,
        )

        def then(outcome: Any, now_ms: float) -> None:
            self._beating = False
            if (generation, member_id) == (self.generation, self.member_id):
                self._beaten(outcome, now_ms)

        self._effects.append(Send(COORDINATOR, request, then, self.options.session_timeout_ms))

    def _beaten(self, outcome: Any, now_ms: float) -> None:
        if isinstance(outcome, ClientError):
            self._effects.append(ForgetCoordinator())
            self._next_beat_ms = now_ms + self.options.backoff.initial_ms
            return
        code = outcome.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is not State.JOINING:  # that was sent after the heartbeat, and is what it asks for
                self._rejoin = True
            if self.state is State.STABLE:
                self._move(State.PREPARING)
        elif code in _MEMBER_GONE:
            self._gone(code)
        elif code in COORDINATOR_MOVED or (code and error_for(code).retriable):
            self._effects.append(ForgetCoordinator())
            self._next_beat_ms = now_ms + self.options.backoff.initial_ms
        elif code:
            self._fail(error_for(code))

    def _gone(self, code: int) -> None:
        """The group went on without this member: what it had may be another's already.

        Who is only of an old generation is still known by its id; with another one the group would wait for both.
        """
        logger.info("Group %s: this member is not in it any more, joins again", self.options.group_id)
        member_id = self.member_id if code == ErrorCode.ILLEGAL_GENERATION else ""
        self._reset()
        self.member_id = member_id
        self._lost = bool(self.owned)
        if self.state is not State.PREPARING and (self.state is not State.JOINING or self._lost):
            self._move(State.PREPARING)

    def _fail(self, error: ClientError) -> None:
        self.error = error
        self._lost = bool(self.owned)
        self._move(State.FAILED)

    def _reset(self) -> None:
        self._epoch += 1
        self._in_flight = False
        self._not_before_ms = 0.0
        self.member_id = ""
        self.generation = NO_GENERATION
        self._last_assignment = (self._last_assignment[0], NO_GENERATION)
        self._leads = False
        self._rejoin = False

    def _leaving(self, reason: str) -> list[Effect]:
        # Also after an error that ended it all: the others should not have to wait for its session to run out.
        if self.state is State.OUTSIDE or not self.member_id or self.options.instance_id is not None:
            return []
        request = LeaveGroupRequest(
            group_id=self.options.group_id,
            member_id=self.member_id,
            members=[MemberIdentity(member_id=self.member_id, reason=reason)],
        )
        return [Send(COORDINATOR, request, lambda _outcome, _now_ms: None)]

    def _move(self, state: State) -> None:
        assert state in MOVES[self.state], f"{self.state.name} -> {state.name}"
        self.state = state

    def validate(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        if self.state in (State.ADOPTING, State.STABLE):
            assert self.member_id
            assert self.generation >= 0
        if self.state is State.STABLE and not self._rejoin:
            assert self.owned == self._assigned, f"owns {self.owned}, was given {self._assigned}"
        if self.state in (State.JOINING, State.ASSIGNING, State.SYNCING) and not self.options.cooperative:
            assert not self.owned, "an eager member joins with empty hands"
        assert (self.state is State.FAILED) == (self.error is not None)


def _member(member_id: str, instance_id: str | None, metadata: bytes) -> Member:
    row = decode_subscription(metadata)
    owned = tuple(TopicPartition(o.topic, p) for o in row.owned_partitions for p in o.partitions)
    return Member(member_id, tuple(row.topics), instance_id, owned, row.generation_id, row.user_data)


def _encode(partitions: Iterable[TopicPartition]) -> bytes:
    rows = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=ps)
        for topic, ps in by_topic(sorted(partitions)).items()
    ]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=rows), ASSIGNMENT_VERSION)
