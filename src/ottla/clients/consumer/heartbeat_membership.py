"""One member of a group whose partitions the broker assigns, as a state machine. It does no I/O and reads no clock.

All of the protocol is one request, the heartbeat. It joins (epoch 0), keeps the session alive, reports what the member
owns, and leaves. The response has the member's epoch, and the assignment if it changed. `MOVES` is the
table of legal transitions:

    UNSUBSCRIBED -> JOINING -> RECONCILING -> ACKNOWLEDGING -> STABLE -> RECONCILING ...

RECONCILING waits for the user's poll: only a `Duty`, which `duty` returns within poll, takes partitions away or adds
them. The broker assigns a partition to another member only after this one has acknowledged that it revoked it, so no
record is processed by two members, and the positions are committed before a partition is revoked. Partitions that stay
are read on meanwhile.

A member that the coordinator removed (FENCED), or that left because the user did not poll in time (STALE), loses its
partitions without a commit (`Duty.kind` "lost"), because another member may own them already. Then it joins again.

Assignments name topics by id. A topic whose name is unknown is adopted after a metadata refresh; it does not delay the
other topics, and above all not a revocation.

The caller is as in group_member.py. KIP-848, KIP-1082 (the client chooses its member id).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum
from typing import Final

from ottla.clients.cluster import ClusterView
from ottla.clients.consumer.effects import EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.group_member import NO_GENERATION, Duty, GroupMember, Pause
from ottla.clients.consumer.heartbeat_requests import (
    JOIN_EPOCH,
    HeartbeatRequests,
    Sent,
    Subscribed,
    TopicIdPartition,
)
from ottla.clients.consumer.requests import COORDINATOR_MOVED
from ottla.clients.consumer.settings import GroupSettings
from ottla.clients.errors import ClientError, UnsupportedByBroker, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

logger = logging.getLogger("ottla.clients.consumer")


class MemberState(Enum):
    """The state of the member, by the names of Kafka's Java client."""

    UNSUBSCRIBED = "not a member"
    JOINING = "the first heartbeat, with epoch 0, is in flight or due"
    RECONCILING = "has an assignment that differs from what it owns, and waits for a poll to adopt it"
    ACKNOWLEDGING = "has adopted an assignment; the heartbeat that says so is due"
    STABLE = "owns what it was assigned"
    PREPARE_LEAVING = "will leave, after a poll has revoked its partitions"
    LEAVING = "the heartbeat that leaves the group is in flight"
    FENCED = "was removed by the coordinator, and joins again after a poll has dropped its partitions"
    STALE = "left because the user did not poll in time, and joins again after a poll has dropped its partitions"
    FATAL = "cannot be a member; polls raise the reason"

    __hash__ = object.__hash__


_S = MemberState
MEMBERS: Final = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})
"""The states of a member, or of one that is about to be a member, that does not leave."""
HEARTBEATS: Final = MEMBERS | {_S.PREPARE_LEAVING}
"""The states that need heartbeats: a listener may take longer than the session timeout."""
JOINED: Final = frozenset({_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING})
"""The states in which the group knows the member by its epoch, so that it may commit."""
_OUT: Final = frozenset({_S.PREPARE_LEAVING, _S.FENCED, _S.STALE, _S.FATAL, _S.UNSUBSCRIBED})

MOVES: Final[dict[MemberState, frozenset[MemberState]]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
    _S.JOINING: _OUT | {_S.RECONCILING},
    _S.RECONCILING: _OUT | {_S.ACKNOWLEDGING},
    _S.ACKNOWLEDGING: _OUT | {_S.RECONCILING, _S.STABLE},
    _S.STABLE: _OUT | {_S.RECONCILING},
    _S.PREPARE_LEAVING: frozenset({_S.LEAVING, _S.FENCED, _S.FATAL, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED}),
    _S.FENCED: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
    _S.STALE: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
    _S.FATAL: frozenset({_S.UNSUBSCRIBED}),
}

_DROPS = frozenset({MemberState.FENCED, MemberState.STALE, MemberState.FATAL})
"""In these states the partitions are lost: another member may own them."""


class _Heartbeats:
    """The heartbeat in flight, if any, and the last one that was sent."""

    __slots__ = ("in_flight", "interval_ms", "sent", "sent_ms")

    def __init__(self) -> None:
        self.in_flight: EffectId | None = None
        self.sent: Sent | None = None
        """The fields that the coordinator knows; None if uncertain, so that the next heartbeat has all fields."""
        self.sent_ms = 0.0
        self.interval_ms = 0.0


class HeartbeatMembership(GroupMember[MemberState]):
    """One member of one group. No other member may have its `member_id`."""

    moves = MOVES
    removed = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
    commits_in = JOINED
    rebalances_in = frozenset({_S.RECONCILING})
    rebalanced_in = frozenset({_S.ACKNOWLEDGING, _S.STABLE})

    def __init__(self, settings: GroupSettings, outbox: Outbox, requests: HeartbeatRequests, member_id: str) -> None:
        super().__init__(settings, outbox, MemberState.UNSUBSCRIBED)
        self._requests = requests
        self._id = member_id
        self._epoch = JOIN_EPOCH
        self._subscription = Subscribed()
        self._owned: dict[TopicIdPartition, TopicPartition] = {}
        self._target: frozenset[TopicIdPartition] = frozenset()
        # The part of the target that is not owned and whose names are known, and what a running duty adds of it.
        self._resolved: dict[TopicIdPartition, TopicPartition] = {}
        self._adopting: dict[TopicIdPartition, TopicPartition] = {}
        self._has_revoked = False
        self._heartbeats = _Heartbeats()
        self._leave: EffectId | None = None
        self._refresh: EffectId | None = None
        self._refresh_pause = Pause(settings.backoff)

    # -- the user's side ---------------------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        return "" if self.state is MemberState.UNSUBSCRIBED else self._id

    @property
    def generation(self) -> int:
        return self._epoch if self.state in JOINED and self._epoch > JOIN_EPOCH else NO_GENERATION

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._owned.values())

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        """Subscribe to these topics, or to those that match a pattern of the broker (RE2 syntax).

        The next heartbeat, which is due at once, tells the coordinator.
        """
        self._subscription = Subscribed(frozenset(topics), pattern)

    def duty(self) -> Duty | None:
        if self.state in MEMBERS and self._subscription.is_empty:
            self._move(MemberState.PREPARE_LEAVING)
        if self.state in _DROPS and self._owned:
            return Duty("lost", tuple(sorted(self.owned)))
        if self.state is MemberState.PREPARE_LEAVING:
            if self._owned:
                return Duty("revoked", tuple(sorted(self.owned)))
            self._send_leave()
            self._move(MemberState.LEAVING)
        elif self.state is MemberState.RECONCILING:
            return self._reconciliation()
        elif self.state in _DROPS and self._subscription.is_empty:
            self.leave()
        elif self._may_join:
            self._join()
        return None

    @property
    def _may_join(self) -> bool:
        """Whether a poll begins to join the group, now that nothing of the previous membership is left."""
        if self.state not in (MemberState.UNSUBSCRIBED, MemberState.FENCED, MemberState.STALE):
            return False
        return self._leave is None and not self._subscription.is_empty

    def _reconciliation(self) -> Duty | None:
        revoked = [tp for key, tp in self._owned.items() if key not in self._target]
        if revoked:
            return Duty("revoked", tuple(sorted(revoked)))
        self._adopting = dict(self._resolved)
        if self._adopting or self._has_revoked or self._target <= self._owned.keys():
            return Duty("assigned", tuple(sorted(self._adopting.values())))
        return None

    def duty_done(self, duty: Duty, now_ms: float) -> None:  # noqa: ARG002 - part of the interface
        if duty.kind == "assigned":
            # Also if the member was removed meanwhile: a later duty reports these partitions as lost.
            self._owned.update(self._adopting)
            self._adopting = {}
        else:
            lost = frozenset(duty.partitions)
            self._owned = {key: tp for key, tp in self._owned.items() if tp not in lost}
        if self.state is MemberState.RECONCILING:
            self._has_revoked = duty.kind == "revoked"
            if duty.kind == "assigned":
                self._resolved = {}
                self.leave_reason = None
                self._move(MemberState.ACKNOWLEDGING)
        elif self.state in (MemberState.ACKNOWLEDGING, MemberState.STABLE) and not self._is_reconciled:
            self._move(MemberState.RECONCILING)

    def leave(self) -> None:
        """Leave the group at once, without duties. A static member keeps its place until its session ends."""
        is_known = self.state in MEMBERS or self.state is MemberState.PREPARE_LEAVING or self._leave is not None
        if is_known or (self.state is MemberState.FATAL and self._epoch > JOIN_EPOCH):
            self._send_leave()
        self._owned, self._target, self.error = {}, frozenset(), None
        if self.state is not MemberState.UNSUBSCRIBED:
            self._move(MemberState.UNSUBSCRIBED)

    def watched_topics(self) -> frozenset[str]:
        """Return the topics of the assignment: with a pattern of the broker, they are not in the subscription."""
        return frozenset(tp.topic for tp in self._owned.values())

    @property
    def needs_poll(self) -> bool:
        if self.state is MemberState.RECONCILING:
            return self._reconciliation() is not None
        if self.state in (MemberState.PREPARE_LEAVING, MemberState.FATAL) or (self.state in _DROPS and self._owned):
            return True
        return self._may_join or (self.state in MEMBERS and self._subscription.is_empty)

    # -- events ------------------------------------------------------------------------------------------------

    def advance(self, now_ms: float, view: ClusterView) -> None:
        self._check_poll_interval(now_ms)
        if self.state is MemberState.RECONCILING:
            self._resolve(now_ms, view)
        due_ms = self._heartbeat_due_ms()
        if due_ms is not None and now_ms >= due_ms:
            self._send_heartbeat(now_ms)

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        if effect_id == self._leave:
            self._leave = None
            if self.state is MemberState.LEAVING:
                self._move(MemberState.UNSUBSCRIBED)
        elif effect_id == self._refresh:
            self._refresh = None
            self._refresh_pause.failed(now_ms)
        elif effect_id == self._heartbeats.in_flight:
            self._heartbeats.in_flight = None
            self._complete_heartbeat(outcome, now_ms)

    def next_timer_ms(self) -> float | None:
        return earliest(
            self._heartbeat_due_ms(),
            self._poll_due_ms(),
            self._refresh_due_ms(),
        )

    def _refresh_due_ms(self) -> float | None:
        if self.state is not MemberState.RECONCILING or self._refresh is not None:
            return None
        return self._refresh_pause.until_ms or None

    @property
    def _is_member(self) -> bool:
        return self.state in MEMBERS

    def _membership(self) -> tuple[int, str]:
        return self.generation, self.member_id

    def _expire(self) -> None:
        self._send_leave()
        self._move(MemberState.STALE)

    def _resolve(self, now_ms: float, view: ClusterView) -> None:
        """Find the names of the assigned topics; refresh the metadata for those that are unknown."""
        wanted = self._target - self._owned.keys()
        named = {key: view.topic_name(key.topic_id) for key in wanted}
        self._resolved = {key: TopicPartition(name, key.partition) for key, name in named.items() if name is not None}
        if len(self._resolved) == len(wanted):
            self._refresh_pause = Pause(self.settings.backoff)
        elif self._refresh is None and now_ms >= self._refresh_pause.until_ms:
            topics = None if self._subscription.pattern is not None else self._subscription.topics
            self._refresh = self._outbox.refresh(Owner.MEMBERSHIP, topics)

    # -- heartbeats --------------------------------------------------------------------------------------------

    def _heartbeat_due_ms(self) -> float | None:
        """When the next heartbeat is due; None if none can be sent. One is in flight at a time."""
        if self.state not in HEARTBEATS or self._heartbeats.in_flight is not None:
            return None
        sent = self._heartbeats.sent
        if self.state in (MemberState.JOINING, MemberState.ACKNOWLEDGING) or sent is None:
            return self._pause.until_ms
        if self.state in MEMBERS and sent.subscription != self._subscription:
            return self._pause.until_ms
        return max(self._pause.until_ms, self._heartbeats.sent_ms + self._heartbeats.interval_ms)

    def _join(self) -> None:
        self._move(MemberState.JOINING)
        self._epoch = JOIN_EPOCH
        self._heartbeats.sent = None
        self._target = frozenset()
        self._has_revoked = False

    def _send_heartbeat(self, now_ms: float) -> None:
        previous = self._heartbeats.sent
        if previous is not None and self.state is MemberState.ACKNOWLEDGING:
            # Report the owned partitions even if they are the same: the coordinator waits for that.
            previous = previous._replace(owned=None)
        fields = Sent(self._subscription, frozenset(self._owned))
        request, min_version = self._requests.heartbeat(self._id, self._epoch, fields, previous)
        self._heartbeats.in_flight = self._send(request, min_version=min_version)
        self._heartbeats.sent, self._heartbeats.sent_ms = fields, now_ms
        if self.state is MemberState.ACKNOWLEDGING:
            self._move(MemberState.STABLE if self._is_reconciled else MemberState.RECONCILING)

    @property
    def _is_reconciled(self) -> bool:
        return self._owned.keys() == self._target

    def _complete_heartbeat(self, outcome: Outcome, now_ms: float) -> None:
        if isinstance(outcome, (ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)):
            if not outcome.error_code:
                self._apply(outcome)
                return
            error: ClientError = error_for(outcome.error_code, outcome.error_message)
        else:
            assert isinstance(outcome, ClientError)
            error = outcome
        # The coordinator may or may not have taken the fields: send all of them again.
        self._heartbeats.sent = None
        self._handle_error(error, now_ms)

    def _apply(self, response: ConsumerGroupHeartbeatResponse | ShareGroupHeartbeatResponse) -> None:
        self._pause.succeeded()
        self._heartbeats.interval_ms = response.heartbeat_interval_ms
        # A broker that serves only version 0 may choose the id.
        self._id = response.member_id or self._id
        self._epoch = response.member_epoch
        if response.assignment is not None:
            rows = response.assignment.topic_partitions
            self._target = frozenset(TopicIdPartition(row.topic_id, p) for row in rows for p in row.partitions)
            self._resolved, self._refresh_pause.until_ms = {}, 0.0
        if self.state is MemberState.PREPARE_LEAVING:
            return
        if self.state is MemberState.JOINING:
            self._move(MemberState.RECONCILING)
        elif self.state is MemberState.RECONCILING and self._is_reconciled:
            self._move(MemberState.ACKNOWLEDGING)
        elif self.state is not MemberState.RECONCILING and not self._is_reconciled:
            self._move(MemberState.RECONCILING)

    def _handle_error(self, error: ClientError, now_ms: float) -> None:
        code = self._code(error)
        if code is None or code in COORDINATOR_MOVED:
            self._outbox.forget_coordinator()
        if code is not None and code in self.removed:
            # A member that joins already must not be removed over and over without a pause.
            if self.state is MemberState.JOINING:
                self._pause.failed(now_ms)
            self._handle_removal(code)
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._outbox.poll_error = error  # retried, because an ACL may be added
            self._pause.failed(now_ms, self.settings.backoff.max_ms)
        elif self._is_temporary(error):
            self._pause.failed(now_ms)
        else:
            self._fail(error, code)

    def _handle_removal(self, code: int) -> None:
        logger.info("Group %s: this member was removed (error %s), joining again", self.settings.group_id, code)
        self._heartbeats.in_flight = None
        self._move(MemberState.FENCED)

    def _fail(self, error: ClientError, code: ErrorCode | None) -> None:
        if isinstance(error, UnsupportedByBroker):
            code = ErrorCode.UNSUPPORTED_VERSION
        advice = None if code is None else self._requests.advice.get(code)
        if code is not None and advice is not None:
            advice = advice.format(group=self.settings.group_id, instance=self.settings.instance_id)
            text = f"{error}: {advice}"
            error = UnsupportedByBroker(text) if code == ErrorCode.UNSUPPORTED_VERSION else error_for(code, text)
        self.error = error
        self._move(MemberState.FATAL)

    def _send_leave(self) -> None:
        self._heartbeats.in_flight = None  # its response would be about a membership that has ended
        self._leave = self._send(self._requests.leave(self._id))

    def validate(self) -> None:
        if self.state in JOINED:
            assert self._epoch > JOIN_EPOCH
        if self.state is MemberState.STABLE:
            assert self._is_reconciled, f"owns {self._owned}, was assigned {self._target}"
        if self.state in (MemberState.JOINING, MemberState.UNSUBSCRIBED):
            assert not self._owned, "a member joins without partitions"
        assert (self.state is MemberState.FATAL) == (self.error is not None)
