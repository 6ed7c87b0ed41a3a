"""The changes of one request in a consumer group: the records to write, and how members reach their next state.

A `Change` collects records and log lines in their order. The group itself changes when the records are replayed; until
then the methods compute with the group as it is and the member as it will be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors import ASSIGNORS, GroupSpec, MemberSpec, Partitions
from ottla.coordinators.group.consumer import records as encode
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import ConsumerMember, MemberState
from ottla.coordinators.group.consumer.reconciliation import Goal, reconcile
from ottla.coordinators.group.modern import TopicCounts
from ottla.coordinators.group.modern.change import ModernChange
from ottla.coordinators.group.timer_keys import Kind

ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class Change(ModernChange[ConsumerGroup]):
    """Records and log lines of one request for `group`, at the time `now`."""

    # -- members and epochs --------------------------------------------------------------------------------------

    def update_member(self, before: ConsumerMember, after: ConsumerMember) -> bool:
        """Write what a member says of itself if it is new or differs; returns whether its topic names differ."""
        if before == after and after.member_id in self.group.members:
            return False
        self.records.append(encode.member_record(self.group.group_id, after))
        return before.topic_names != after.topic_names

    def replace_member(self, before: ConsumerMember, after: ConsumerMember) -> None:
        """Write a static member under the member id with which it returned; it keeps target and partitions.

        The id may be the same. Then there is nothing to delete: that would also end the session that begins now.
        """
        group_id = self.group.group_id
        if after.member_id != before.member_id:
            self.records += encode.TYPES.member_tombstones(group_id, before.member_id)
        self.records.append(encode.member_record(group_id, after))
        self.records.append(encode.target_record(group_id, after.member_id, self.group.target.of(before.member_id)))
        self.records.append(encode.current_record(group_id, after))

    def remove_members(self, members: Collection[ConsumerMember]) -> None:
        """Write that members left, and the group's next epoch."""
        group = self.group
        left: dict[str, int] = {}
        topics = group.state.topics.copy()
        for member in members:
            self.records += encode.TYPES.member_tombstones(group.group_id, member.member_id)
            topics.replace(member.topic_names, ())
            if member.topic_regex:
                left[member.topic_regex] = left.get(member.topic_regex, 0) + 1
        for regex, count in left.items():
            if group.expression_counts[regex] == count:
                self.records.append(encode.expression_tombstone(group.group_id, regex))
                if regex in group.expressions:
                    topics.replace_matches(group.expressions[regex].topics, ())
        self.next_epoch(topics)

    def next_epoch(self, topics: TopicCounts, *, only_if_topics_changed: bool = False) -> None:
        """Write the group's next epoch, with the hash of its topics."""
        group = self.group
        topics_hash = self.begin_epoch(topics, only_if_topics_changed=only_if_topics_changed)
        if topics_hash is not None:
            self.records.append(encode.epoch_record(group.group_id, self.epoch, topics_hash))
        if group.has_partition_metadata:
            self.records.append(encode.partition_metadata_tombstone(group.group_id))

    # -- the way of a member to its partitions -------------------------------------------------------------------

    def advance(
        self,
        before: ConsumerMember,
        after: ConsumerMember,
        owned: dict[Uuid, frozenset[int]] | None,
        *,
        has_new_subscription: bool,
    ) -> ConsumerMember:
        """Assign partitions for the group's epoch if it is time, and bring the member closer to its target."""
        interval_ms = self.core.config.consumer.assignment_interval_ms
        if self.epoch > self.group.target.epoch and self.may_assign(ASSIGNMENT_INTERVAL, interval_ms):
            target_epoch, target = self.epoch, self._assign(before, after)
        else:
            target_epoch, target = self.group.target.epoch, self.group.target_of(after)
        return self._reconcile(after, target_epoch, target, owned, has_new_subscription=has_new_subscription)

    def _assign(self, before: ConsumerMember, after: ConsumerMember) -> Partitions:
        """Compute and write the target assignment of the group's epoch; returns the member's part."""
        group, config = self.group, self.core.config.consumer
        name = group.preferred_assignor(before, after) or config.assignors[0]
        assignor = ASSIGNORS.get(name)
        if assignor is None:
            message = f"Failed to compute a new target assignment for epoch {self.epoch}: no assignor {name!r}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        update = group.target.compute(assignor, self._spec(after))
        self.log("Computed a new target assignment for epoch %d with '%s' assignor.", self.epoch, name)
        for member_id, part in update.changed.items():
            self.records.append(encode.target_record(group.group_id, member_id, part))
        self.records.append(encode.TYPES.target_epoch_record(group.group_id, self.epoch, self.now.wall_ms))
        return update.of(after.member_id)

    def _spec(self, after: ConsumerMember) -> GroupSpec:
        """The group's members, with `after` as it will be. Equal subscriptions are resolved once."""
        group, topics = self.group, self.core.topics
        replaced = group.static_ids.get(after.instance_id) if after.instance_id is not None else None
        ids_of: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
        members: dict[str, MemberSpec] = {}
        names: set[str] = set()
        for member in (*group.members.values(), after):
            if member.member_id == replaced != after.member_id:
                continue
            subscription = (member.topic_names, member.topic_regex)
            if subscription not in ids_of:
                subscribed = group.subscribed_topics(member)
                names |= subscribed
                ids_of[subscription] = topics.ids(subscribed)
            target = group.target_of(after) if member is after else group.target.of(member.member_id)
            members[member.member_id] = MemberSpec(ids_of[subscription], target, member.instance_id)
        same_topics = len({spec.topic_ids for spec in members.values()}) <= 1
        return GroupSpec(members, topics.partition_counts(names), same_topics, first=after.member_id)

    def _reconcile(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Partitions,
        owned: dict[Uuid, frozenset[int]] | None,
        *,
        has_new_subscription: bool,
    ) -> ConsumerMember:
        if not has_new_subscription and member.is_reconciled(target_epoch):
            return member
        topic_ids = self.core.topics.ids(self.group.subscribed_topics(member))
        goal = Goal(self.group, target_epoch, target, topic_ids, owned, has_new_subscription)
        after = reconcile(member, goal)
        if after == member:
            return member
        self.records.append(encode.current_record(self.group.group_id, after))
        if after.classic is None:
            self._watch_revocation(after)
        return after

    def _watch_revocation(self, member: ConsumerMember) -> None:
        """Limit the time that a member has for giving up partitions."""
        key = (Kind.REBALANCE, self.group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.core.timers.set(key, self.now.monotonic_ms + member.rebalance_timeout_ms)
        else:
            self.core.timers.cancel(key)


def owned_partitions(rows: Iterable[tuple[Uuid, Iterable[int]]]) -> dict[Uuid, frozenset[int]]:
    """The partitions that a request reports, by topic id."""
    owned: dict[Uuid, frozenset[int]] = {}
    for topic_id, partitions in rows:
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(partitions)
    return owned
