"""The consumer's core: four state machines without I/O or clock, and the subscription that they share.

- `FetchCore` has the positions, the fetches and the buffered records.
- `GroupMember` is this consumer's place in its group: `Membership` in a classic group, `HeartbeatMembership` with
  group.protocol=consumer. Without a group.id there is none.
- `Commits` looks up and commits the group's offsets. Without a group.id there is none.
- `TopicMetadata` refreshes the view of the cluster.

The caller holds one lock around every call. On the network's side, it calls `advance` after each event and at
`next_timer_ms`, carries out the effects in order, and passes each outcome to `complete`. On the user's side, each poll
is `begin_poll`; then, until there are records or the time is over, `duty` (carry it out, then `duty_done`),
`raise_error`, `fill`, or wait for `is_ready`; and at last `end_poll`.

Invariants (`validate`): an automatic commit commits only records that an earlier poll returned; a partition that is
not assigned has neither a position nor a buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.clients.cluster import ClusterView, check_topics
from ottla.clients.consumer.collectors import Collector
from ottla.clients.consumer.commits import Commits, GroupMembership
from ottla.clients.consumer.effects import Effect, EffectId, Outbox, Outcome, Owner, earliest
from ottla.clients.consumer.fetch_core import FetchCore
from ottla.clients.consumer.group_member import NO_GENERATION, Duty
from ottla.clients.consumer.heartbeat_membership import HeartbeatMembership
from ottla.clients.consumer.heartbeat_requests import ConsumerHeartbeats
from ottla.clients.consumer.membership import Membership
from ottla.clients.consumer.positions import Phase
from ottla.clients.consumer.record import Record
from ottla.clients.consumer.settings import ConsumerSettings, GroupSettings
from ottla.clients.consumer.subscription import Subscription, SubscriptionPattern, TopicMatcher
from ottla.clients.consumer.timings import RebalanceTimes
from ottla.clients.consumer.topic_metadata import TopicMetadata
from ottla.clients.errors import ConfigurationError
from ottla.clients.offsets import GroupMetadata, OffsetAndMetadata
from ottla.common.ids import TopicPartition


def _member(settings: GroupSettings, outbox: Outbox, member_id: str) -> GroupMembership:
    if settings.is_broker_assigned:
        return HeartbeatMembership(settings, outbox, ConsumerHeartbeats(settings), member_id)
    return Membership(settings, outbox)


class ConsumerCore:
    """One consumer. No other consumer has its `member_id`."""

    def __init__(self, settings: ConsumerSettings, view: ClusterView, member_id: str) -> None:
        self._settings = settings
        self.view = view
        self._view_version = -1
        self.outbox = Outbox()
        self.subscription = Subscription(exclude_internal_topics=settings.exclude_internal_topics)
        self.fetch = FetchCore(settings.fetch, view, self.outbox)
        self.metadata = TopicMetadata(view, settings.fetch.backoff, self.outbox)
        self.membership: GroupMembership | None = None
        self.commits: Commits | None = None
        if settings.group is not None:
            self.membership = _member(settings.group, self.outbox, member_id)
            self.commits = Commits(settings.group, self.fetch, self.membership, self.subscription, self.outbox)
        self.rebalances = RebalanceTimes()
        self._polling = False
        self._last_membership = (NO_GENERATION, "")

    # -- what to read ------------------------------------------------------------------------------------------

    def subscribe(self, topics: Iterable[str] | None, pattern: TopicMatcher | SubscriptionPattern | None) -> None:
        if self.membership is None:
            raise ConfigurationError("subscribe needs a group.id; without one use assign")
        if self.subscription.is_manual and len(self.fetch.positions):
            raise ConfigurationError("This consumer has partitions from assign(): call unsubscribe() first")
        if isinstance(pattern, SubscriptionPattern) and not self.membership.settings.is_broker_assigned:
            raise ConfigurationError("A SubscriptionPattern needs group.protocol=consumer; without it use re.compile")
        chosen = frozenset(topics or ())
        check_topics(chosen)
        self.subscription.subscribe(chosen, pattern)
        self._view_version = -1
        self.metadata.expedite(is_due=self.subscription.pattern is not None)
        self._follow_view()
        self.outbox.needs_advance = True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        if self.subscription.is_group_managed:
            raise ConfigurationError("This consumer is subscribed to topics: call unsubscribe() first")
        wanted = {TopicPartition(*tp) for tp in partitions}
        topics = frozenset(tp.topic for tp in wanted)
        check_topics(topics)
        self.subscription.assign(topics)
        self._assign(wanted)
        self._view_version = -1
        if self._polling:  # a poll of another thread or task waits for these partitions
            self.fetch.want()
        self.metadata.expedite()

    def unsubscribe(self) -> None:
        """Read nothing. The duties that follow revoke the partitions that the group assigned."""
        if self.subscription.is_manual or self.membership is None:
            self._assign(())
        else:
            self.membership.subscribe(())
        self.subscription.clear()
        self.outbox.needs_advance = True

    def _assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.fetch.assign(partitions)
        if self.commits is not None:
            self.commits.forget_unassigned()

    def _follow_view(self) -> None:
        if self.view.version == self._view_version:
            return
        self._view_version = self.view.version
        if self.subscription.is_manual:
            self.metadata.check_partitions(self.fetch.positions.assigned())
        elif self.membership is not None:
            self.subscription.match_pattern(self.view)
            self.membership.subscribe(self.subscription.topics, self.subscription.broker_pattern)

    # -- poll --------------------------------------------------------------------------------------------------

    def begin_poll(self, now_ms: float) -> None:
        """Begin a poll: the records that earlier polls returned count as processed."""
        self.settle()
        self._polling = True
        if self.subscription.is_manual:
            self.fetch.want()
        if self.commits is not None:
            self.commits.begin_poll(now_ms)
        if self.membership is not None:
            self.membership.polling(True, now_ms)

    def end_poll(self, now_ms: float) -> None:
        self._polling = False
        if self.membership is not None:
            self.membership.polling(False, now_ms)

    def settle(self) -> None:
        self.fetch.delivery.settle(as_processed=self._settings.stores_offsets)

    def store(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Count the records below these offsets as processed. Raises NotAssigned, ValueError, ConfigurationError."""
        if self._settings.stores_offsets:
            raise ConfigurationError("store_offsets needs enable.auto.offset.store=false")
        states = {self.fetch.positions.of(tp): row.offset for tp, row in offsets.items()}
        for state, offset in states.items():
            if state.phase is not Phase.FETCH or offset > state.offset:
                raise ValueError(f"Offset {offset} of {state.tp} is beyond the records that poll has returned")
        for state, offset in states.items():
            state.progress = state.progress._replace(processed=offset)

    def duty(self) -> Duty | None:
        if self.membership is None or self.subscription.is_manual:
            return None
        previous = self.membership.state
        duty = self.membership.duty()
        if self.membership.state is not previous:
            self.outbox.needs_advance = True
        return duty

    def begin_duty(self, duty: Duty) -> None:
        if duty.kind == "assigned":
            self._assign({*self.fetch.positions.assigned(), *duty.partitions})

    def duty_done(self, duty: Duty, now_ms: float) -> None:
        assert self.membership is not None
        self.membership.duty_done(duty, now_ms)
        self._assign(self.membership.owned)
        self.fetch.want()

    def raise_error(self) -> None:
        error, self.outbox.poll_error = self.outbox.poll_error, None
        if error is None and self.membership is not None:
            error = self.membership.error
        if error is not None:
            raise error.with_traceback(None)  # each poll raises the membership's

    @property
    def is_ready(self) -> bool:
        if self.outbox.poll_error is not None:
            return True
        if self.membership is not None and not self.subscription.is_manual and self.membership.needs_poll:
            return True
        return self.fetch.delivery.is_ready

    def fill(self, collector: Collector) -> None:
        self.fetch.delivery.fill(collector)

    # -- offsets to commit ---------------------------------------------------------------------------------------

    @property
    def auto_commits(self) -> bool:
        return self._settings.group is not None and self._settings.group.auto_commit_interval_ms is not None

    def processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {} if self.commits is None else self.commits.processed()

    def returned(self, pending: Iterable[Record[Any, Any]] = ()) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that `commit` without arguments commits: those after all records that polls returned.

        `pending` are returned records that the user has not seen yet; they are excluded. With
        enable.auto.offset.store=false the result is the stored offsets.
        """
        if not self._settings.stores_offsets:
            return self.processed()
        positions = self.fetch.positions
        offsets = {s.tp: OffsetAndMetadata(s.offset, s.read.epoch) for s in positions if s.phase is Phase.FETCH}
        seen: set[TopicPartition] = set()
        for record in pending:
            tp = record.topic_partition
            if tp not in seen and tp in offsets:
                seen.add(tp)
                offsets[tp] = OffsetAndMetadata(record.offset)
        return offsets

    def required_commits(self) -> Commits:
        """Return the machine of committed offsets. Raises ConfigurationError without a group.id."""
        if self.commits is None:
            raise ConfigurationError("This consumer has no group.id, so it has no committed offsets")
        return self.commits

    def group_metadata(self) -> GroupMetadata:
        """Return the consumer's membership, or its last one, if the group has removed the consumer since.

        A broker refuses offsets that are committed as a removed member. Without a generation it would take them as
        offsets of a program that is not in the group, and they would overwrite the offsets of the partitions' next
        owner.
        """
        member = self.membership
        if member is None:
            return GroupMetadata("")
        self._note_membership(member)
        settings = member.settings
        return GroupMetadata(settings.group_id, *self._last_membership, settings.instance_id, settings.commit_metadata)

    def _note_membership(self, member: GroupMembership) -> None:
        """Call this before anything that may end the membership."""
        if member.generation != NO_GENERATION or not self.subscription.is_group_managed:
            self._last_membership = (member.generation, member.member_id)

    @property
    def member_id(self) -> str:
        return self.membership.member_id if self.membership is not None else ""

    # -- the network's side ------------------------------------------------------------------------------------

    def advance(self, now_ms: float) -> list[Effect]:
        self.outbox.needs_advance = False
        if self.membership is not None:
            self._note_membership(self.membership)
        self._follow_view()
        subscription = self.subscription
        watched = frozenset[str]() if self.membership is None else self.membership.watched_topics()
        self.metadata.advance(
            now_ms,
            topics=None if subscription.pattern is not None else subscription.topics | watched,
            requested=subscription.topics if subscription.pattern is None else frozenset(),
        )
        if self.membership is not None:
            self.membership.advance(now_ms, self.view)
            member = self.membership
            self.rebalances.observe(now_ms, member.state, member.rebalances_in, member.rebalanced_in)
        if self.commits is not None:
            self.commits.advance(now_ms)
        else:
            for state in self.fetch.unpositioned(now_ms)[0]:
                self.fetch.lookup.reset(state)
        self.fetch.advance(now_ms)
        return self.outbox.take()

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        if self.membership is not None:
            self._note_membership(self.membership)
        owner = effect_id.owner
        if owner is Owner.METADATA:
            self.metadata.complete(effect_id, outcome, now_ms)
        elif owner is Owner.MEMBERSHIP:
            assert self.membership is not None
            self.membership.complete(effect_id, outcome, now_ms)
        elif owner is Owner.COMMITS:
            assert self.commits is not None
            self.commits.complete(effect_id, outcome, now_ms)
        else:
            self.fetch.complete(effect_id, outcome, now_ms)

    def next_timer_ms(self) -> float | None:
        return earliest(
            self.metadata.next_timer_ms,
            None if self.membership is None else self.membership.next_timer_ms(),
            None if self.commits is None else self.commits.next_timer_ms(),
            self.fetch.next_timer_ms(),
        )

    def leave(self) -> list[Effect]:
        if self.membership is not None:
            self.membership.leave()
        return self.outbox.take()

    def subscribed_topics(self) -> frozenset[str]:
        subscription = self.subscription
        if subscription.broker_pattern is not None and self.membership is not None:
            return frozenset(tp.topic for tp in self.membership.owned)
        return subscription.topics if subscription.is_group_managed else frozenset()

    def committed_offset(self, tp: TopicPartition) -> int | None:
        return None if self.commits is None else self.commits.committed_offset(tp)

    def validate(self) -> None:
        self.fetch.validate()
        if self.membership is not None:
            self.membership.validate()
