"""One member of a classic consumer group as a state machine. It does no I/O and reads no clock.

`MOVES` is the table of legal transitions:

    OUTSIDE -> PREPARING -> JOINING -> [ASSIGNING ->] SYNCING -> ADOPTING -> STABLE -> PREPARING ...

PREPARING and ADOPTING wait for the user's poll: only a `Duty`, which `duty` returns within poll, takes partitions away
or adds them. So no record is processed by two members, and the positions are committed before a partition is revoked.
All other states progress between polls; above all, heartbeats continue while the user processes records.

Eager and cooperative assignors differ in what is revoked:

- Eager: PREPARING revokes all partitions. The member joins without partitions, and ADOPTING assigns all new ones.
- Cooperative (KIP-429): PREPARING revokes only partitions of topics that are not subscribed any more. After the
  assignment, ADOPTING revokes the partitions that the member lost. If there were any, the member joins again, so that
  the leader can assign them to their new owner: a partition that moves needs two rebalances.

A member that the coordinator removed loses its partitions without a commit (`Duty.kind` "lost"), because another
member may own them already.

The caller is as in group_member.py. KIP-62, KIP-345, KIP-394, KIP-429, KIP-792.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.assignors import Assignor
from ottla.clients.consumer.effects import EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.group_leader import GroupLeader
from ottla.clients.consumer.group_member import NO_GENERATION, Duty, GroupMember
from ottla.clients.consumer.group_protocol import (
    decode_partitions,
    subscription_bytes,
)
from ottla.clients.consumer.requests import COORDINATOR_MOVED
from ottla.clients.consumer.settings import GroupSettings
from ottla.clients.errors import ClientError, InconsistentGroupProtocol, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.consumer_protocol import PROTOCOL_TYPE
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.protocol.wire import DecodeError

logger = logging.getLogger("ottla.clients.consumer")

JOIN_GRACE_MS: Final = 5_000
"""The coordinator may take the rebalance timeout to respond to JoinGroup; this is for the network."""


class State(Enum):
    OUTSIDE = "not a member"
    PREPARING = "will join, after a poll has revoked partitions"
    JOINING = "JoinGroup is in flight or due"
    ASSIGNING = "leads the group, and waits for metadata to assign partitions"
    SYNCING = "SyncGroup is in flight"
    ADOPTING = "has an assignment, and waits for a poll to adopt it"
    STABLE = "reads its partitions"
    FAILED = "cannot be a member; polls raise the reason"

    __hash__ = object.__hash__


MOVES: Final[dict[State, frozenset[State]]] = {
    State.OUTSIDE: frozenset({State.PREPARING, State.FAILED}),
    State.PREPARING: frozenset({State.JOINING, State.OUTSIDE, State.FAILED}),
    State.JOINING: frozenset({State.ASSIGNING, State.SYNCING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.ASSIGNING: frozenset({State.SYNCING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.SYNCING: frozenset({State.ADOPTING, State.JOINING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.ADOPTING: frozenset({State.STABLE, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.STABLE: frozenset({State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.FAILED: frozenset({State.OUTSIDE}),
}

_HEARTBEAT_STATES: Final = frozenset({State.PREPARING, State.ASSIGNING, State.SYNCING, State.ADOPTING, State.STABLE})
_REBALANCING: Final = frozenset({State.JOINING, State.ASSIGNING, State.SYNCING, State.ADOPTING})
_NOT_A_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class _Heartbeat(NamedTuple):
    """A heartbeat in flight, and the member that it was sent for."""

    id: EffectId
    generation: int
    member_id: str


class _Heartbeats:
    """The heartbeat in flight, if any, and when the next one is due."""

    __slots__ = ("due_ms", "in_flight")

    def __init__(self) -> None:
        self.in_flight: _Heartbeat | None = None
        self.due_ms = 0.0


class Membership(GroupMember[State]):
    """One member of one classic group."""

    moves = MOVES
    removed = _NOT_A_MEMBER
    commits_in = frozenset({State.STABLE, State.ADOPTING, State.PREPARING})
    rebalances_in = frozenset({State.JOINING, State.ASSIGNING, State.SYNCING})
    rebalanced_in = frozenset({State.ADOPTING, State.STABLE})

    def __init__(self, settings: GroupSettings, outbox: Outbox) -> None:
        super().__init__(settings, outbox, State.OUTSIDE)
        self.member_id = ""
        self.generation = NO_GENERATION
        self.topics: frozenset[str] = frozenset()
        self.owned: frozenset[TopicPartition] = frozenset()
        # The last assignment and its generation, which a sticky member claims when it joins again.
        self._last_assignment: tuple[tuple[TopicPartition, ...], int] = ((), NO_GENERATION)
        # JoinGroup, SyncGroup or a metadata refresh in flight. The outcome of any other id is ignored.
        self._in_flight: EffectId | None = None
        self._rejoin = False
        self._lost = False
        self._revoked = False
        self._protocol = ""
        self._leader: GroupLeader | None = None
        self._heartbeats = _Heartbeats()

    # -- the user's side ---------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Subscribe to these topics. A change causes a rebalance at the next poll."""
        assert pattern is None, "brokers match no patterns for classic groups"
        new = frozenset(topics)
        if new != self.topics:
            self.topics = new
            self._rejoin = True

    def duty(self) -> Duty | None:
        if self.state is State.STABLE and self._rejoin:
            self._move(State.PREPARING)
        if not self.topics and self.state in _REBALANCING:  # unsubscribed: do not become a member
            self._in_flight = None
            self._move(State.PREPARING)
        if self.state is State.OUTSIDE and (self.topics or self.owned):
            self._move(State.PREPARING)
        if self.state is State.PREPARING:
            duty = self._duty_before_joining()
            if duty is None and self.topics:
                self._move(State.JOINING)
            elif duty is None:
                self._send_leave("unsubscribed")
                self._reset()
                self._move(State.OUTSIDE)
            return duty
        if self.state is State.ADOPTING:
            revoked = self.owned - self._assigned
            if revoked:
                return Duty("revoked", tuple(sorted(revoked)))
            return Duty("assigned", tuple(sorted(self._assigned - self.owned)))
        return None

    def _duty_before_joining(self) -> Duty | None:
        revoked = self.owned
        if self.settings.cooperative and not self._lost:
            revoked = frozenset(tp for tp in self.owned if tp.topic not in self.topics)
        if not revoked:
            return None
        return Duty("lost" if self._lost else "revoked", tuple(sorted(revoked)))

    def duty_done(self, duty: Duty, now_ms: float) -> None:
        if duty.kind != "assigned":
            self.owned -= frozenset(duty.partitions)
            if self.state is State.ADOPTING:
                self._revoked = True
            elif not self.owned:
                self._lost = False
            return
        if self.state is not State.ADOPTING:
            return  # the group began another rebalance while the listener ran
        self.owned |= frozenset(duty.partitions)
        self._move(State.STABLE)
        self.leave_reason = None
        if self._revoked:
            # The next rebalance assigns the revoked partitions to their new owners.
            self._revoked = False
            self._rejoin = True
        self._heartbeats.due_ms = min(self._heartbeats.due_ms, now_ms + self.settings.heartbeat_interval_ms)

    def leave(self) -> None:
        """Leave the group because the consumer is closed. A static member sends nothing, so it keeps its place."""
        self._send_leave("the consumer is being closed")
        self._reset()
        self.owned = frozenset()
        if self.state is not State.OUTSIDE:
            self._move(State.OUTSIDE)

    def watched_topics(self) -> frozenset[str]:
        """Return the topics of the whole group if this member leads it: the leader watches their partitions."""
        return frozenset() if self._leader is None else frozenset(self._leader.counts)

    @property
    def needs_poll(self) -> bool:
        return self.state in (State.PREPARING, State.ADOPTING, State.FAILED) or (
            self.state is State.OUTSIDE and bool(self.topics)
        )

    # -- events ------------------------------------------------------------------------------------------------

    def advance(self, now_ms: float, view: ClusterView) -> None:
        self._check_poll_interval(now_ms)
        if self.state is State.STABLE and self._leader is not None and self._leader.has_changed(view):
            logger.info("Group %s: the partitions of subscribed topics changed, rebalancing", self.settings.group_id)
            self._rejoin = True
        if self.state is State.JOINING and self._in_flight is None and now_ms >= self._pause.until_ms:
            self._send_join()
        if self.state is State.ASSIGNING and self._in_flight is None and self._leader is not None:
            self._assign(view, self._leader)
        if self._sends_heartbeats and now_ms >= self._heartbeats.due_ms:
            self._send_heartbeat(now_ms)

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        heartbeat = self._heartbeats.in_flight
        if heartbeat is not None and effect_id == heartbeat.id:
            self._heartbeats.in_flight = None
            if (heartbeat.generation, heartbeat.member_id) == (self.generation, self.member_id):
                self._complete_heartbeat(outcome, now_ms)
            return
        if effect_id != self._in_flight:
            return
        self._in_flight = None
        if self.state is State.JOINING:
            self._complete_join(outcome, now_ms)
        elif self.state is State.SYNCING:
            self._complete_sync(outcome, now_ms)
        elif self.state is State.ASSIGNING and self._leader is not None:
            self._leader.is_refreshed = True

    def next_timer_ms(self) -> float | None:
        return earliest(
            self._pause.until_ms if self.state is State.JOINING and self._in_flight is None else None,
            self._heartbeats.due_ms if self._sends_heartbeats else None,
            self._poll_due_ms(),
        )

    @property
    def _is_member(self) -> bool:
        return self.state not in (State.OUTSIDE, State.FAILED) and bool(self.member_id)

    @property
    def _sends_heartbeats(self) -> bool:
        return (
            self.state in _HEARTBEAT_STATES and self.generation != NO_GENERATION and self._heartbeats.in_flight is None
        )

    @property
    def _assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._last_assignment[0])

    def _membership(self) -> tuple[int, str]:
        return self.generation, self.member_id

    def _expire(self) -> None:
        self._send_leave("max.poll.interval.ms has passed")
        self._reset()
        self._lost = bool(self.owned)
        self._move(State.OUTSIDE)

    # -- joining -----------------------------------------------------------------------------------------------

    def _send_join(self) -> None:
        settings = self.settings
        self._rejoin = False
        request = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=a.name, metadata=self._subscription(a)) for a in settings.assignors
            ],
        )
        timeout_ms = settings.max_poll_interval_ms + JOIN_GRACE_MS
        self._in_flight = self._send(request, timeout_ms=timeout_ms)

    def _subscription(self, assignor: Assignor) -> bytes:
        return subscription_bytes(
            self.topics,
            self.owned,
            user_data=assignor.user_data(*self._last_assignment),
            generation=self._last_assignment[1],
            rack=self.settings.rack or None,
        )

    def _complete_join(self, outcome: Outcome, now_ms: float) -> None:
        if isinstance(outcome, ClientError):
            self._retry_join(outcome, now_ms)
            return
        assert isinstance(outcome, JoinGroupResponse)
        code = outcome.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:  # KIP-394: join again with the id from the response
            self.member_id = outcome.member_id
            return
        if code in _NOT_A_MEMBER:
            self._handle_removal(code)
            return
        if code:
            self._retry_join(error_for(code), now_ms)
            return
        self._pause.succeeded()
        self.member_id, self.generation = outcome.member_id, outcome.generation_id
        self._protocol = outcome.protocol_name or ""
        self._heartbeats.due_ms = now_ms + self.settings.heartbeat_interval_ms
        if outcome.leader != outcome.member_id:
            self._leader = None
            self._send_sync({})
            return
        try:
            self._leader = GroupLeader(outcome, self._leader)
        except DecodeError as error:
            self._fail(InconsistentGroupProtocol(f"A member's subscription cannot be read: {error}"))
            return
        self._move(State.ASSIGNING)

    def _assign(self, view: ClusterView, leader: GroupLeader) -> None:
        """As the leader, compute the assignment of every member; refresh the metadata first if a topic is unknown.

        A leader that must not assign (KIP-814) only counts the partitions, to notice later that there are others.
        """
        if leader.needs_refresh(view):
            self._in_flight = self._outbox.refresh(Owner.MEMBERSHIP, leader.topics)
            return
        leader.count(view)
        if leader.only_counts:
            self._send_sync({})
            return
        assignor = next((a for a in self.settings.assignors if a.name == self._protocol), None)
        if assignor is None:
            self._fail(
                InconsistentGroupProtocol(f"The group chose {self._protocol!r}, which this member did not offer")
            )
            return
        self._send_sync(leader.assign(assignor))

    def _send_sync(self, assignments: dict[str, bytes]) -> None:
        self._move(State.SYNCING)
        request = SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()],
        )
        timeout_ms = self.settings.max_poll_interval_ms + JOIN_GRACE_MS
        self._in_flight = self._send(request, timeout_ms=timeout_ms)

    def _complete_sync(self, outcome: Outcome, now_ms: float) -> None:
        if isinstance(outcome, SyncGroupResponse) and outcome.error_code:
            outcome = error_for(outcome.error_code)
        if isinstance(outcome, ClientError):
            code = self._code(outcome)
            if code is not None and code in _NOT_A_MEMBER:
                self._handle_removal(code)
                return
            self._move(State.JOINING)
            if code != ErrorCode.REBALANCE_IN_PROGRESS:
                self._retry_join(outcome, now_ms)
            return
        assert isinstance(outcome, SyncGroupResponse)
        try:
            assigned = decode_partitions(outcome.assignment)
        except DecodeError as error:
            self._fail(InconsistentGroupProtocol(f"The assignment cannot be read: {error}"))
            return
        # A static member that returns with another subscription gets the assignment of the former one: join again once.
        wanted = sorted(tp for tp in assigned if tp.topic in self.topics)
        self._revoked = len(wanted) < len(assigned) and self._last_assignment[1] != self.generation
        self._last_assignment = (tuple(wanted), self.generation)
        self._move(State.ADOPTING)

    def _retry_join(self, error: ClientError, now_ms: float) -> None:
        """In JOINING: join again after a backoff, or fail if a retry cannot help."""
        code = self._code(error)
        if code is None or code in COORDINATOR_MOVED:
            self._outbox.forget_coordinator()
        if self._is_temporary(error) or code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._pause.failed(now_ms)
        else:
            self._fail(error)

    # -- heartbeats and leaving --------------------------------------------------------------------------------

    def _send_heartbeat(self, now_ms: float) -> None:
        self._heartbeats.due_ms = now_ms + self.settings.heartbeat_interval_ms
        request = HeartbeatRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
        )
        timeout_ms = self.settings.session_timeout_ms
        effect_id = self._send(request, timeout_ms=timeout_ms)
        self._heartbeats.in_flight = _Heartbeat(effect_id, self.generation, self.member_id)

    def _complete_heartbeat(self, outcome: Outcome, now_ms: float) -> None:
        if isinstance(outcome, ClientError):
            self._find_coordinator_again(now_ms)
            return
        assert isinstance(outcome, HeartbeatResponse)
        code = outcome.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is not State.JOINING:  # in JOINING, a newer JoinGroup already answers this request
                self._rejoin = True
            if self.state is State.STABLE:
                self._move(State.PREPARING)
        elif code in _NOT_A_MEMBER:
            self._handle_removal(code)
        elif code in COORDINATOR_MOVED or (code and error_for(code).retriable):
            self._find_coordinator_again(now_ms)
        elif code:
            self._fail(error_for(code))

    def _find_coordinator_again(self, now_ms: float) -> None:
        self._outbox.forget_coordinator()
        self._heartbeats.due_ms = now_ms + self.settings.backoff.initial_ms

    def _handle_removal(self, code: int) -> None:
        """Handle the group's removal of this member: its partitions may belong to another member already.

        After ILLEGAL_GENERATION the coordinator still knows the member by its id. With a new id, the group would wait
        for both members.
        """
        logger.info("Group %s: this member was removed from the group, joining again", self.settings.group_id)
        member_id = self.member_id if code == ErrorCode.ILLEGAL_GENERATION else ""
        self._reset()
        self.member_id = member_id
        self._lost = bool(self.owned)
        if self.state is not State.PREPARING and (self.state is not State.JOINING or self._lost):
            self._move(State.PREPARING)

    def _fail(self, error: ClientError) -> None:
        self.error = error
        self._in_flight = self._heartbeats.in_flight = None
        self._lost = bool(self.owned)
        self._move(State.FAILED)

    def _reset(self) -> None:
        self._in_flight = None
        self._pause.until_ms = 0.0
        self.member_id = ""
        self.generation = NO_GENERATION
        self._last_assignment = (self._last_assignment[0], NO_GENERATION)
        self._leader = None
        self._rejoin = False

    def _send_leave(self, reason: str) -> None:
        # A failed member leaves too, so that the other members need not wait for its session timeout.
        if self.state is State.OUTSIDE or not self.member_id or self.settings.instance_id is not None:
            return
        request = LeaveGroupRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            members=[MemberIdentity(member_id=self.member_id, reason=reason)],
        )
        self._send(request)

    def validate(self) -> None:
        if self.state in (State.ADOPTING, State.STABLE):
            assert self.member_id
            assert self.generation >= 0
        if self.state is State.STABLE and not self._rejoin:
            assert self.owned == self._assigned, f"owns {self.owned}, was assigned {self._assigned}"
        if self.state in (State.JOINING, State.ASSIGNING, State.SYNCING) and not self.settings.cooperative:
            assert not self.owned, "an eager member joins without partitions"
        assert (self.state is State.FAILED) == (self.error is not None)
