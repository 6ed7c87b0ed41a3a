"""The changes of one heartbeat in a share group: the records to write, and the member as it will be."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ottla.coordinators.group.assignors import GroupSpec, MemberSpec, Partitions, assign_simply
from ottla.coordinators.group.modern import TopicCounts
from ottla.coordinators.group.modern.change import ModernChange
from ottla.coordinators.group.share import records as encode
from ottla.coordinators.group.share.group import ShareGroup, ShareMember
from ottla.coordinators.group.share.states import union

ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"


class Change(ModernChange[ShareGroup]):
    """Records and log lines of one request for `group`, at the time `now`. The group changes when they are replayed."""

    def update_member(self, before: ShareMember, after: ShareMember) -> bool:
        """Write what a member says of itself; returns whether it is new or subscribes to other topics."""
        is_new = after.member_id not in self.group.members
        if is_new:
            self.log("Member %s joins the share group using the share protocol.", after.member_id)
        if is_new or before != after:
            self.records.append(encode.member_record(self.group.group_id, after))
        return is_new or before.topic_names != after.topic_names

    def next_epoch(self, topics: TopicCounts, *, only_if_topics_changed: bool = False) -> None:
        """Write the group's next epoch, with the hash of its topics."""
        topics_hash = self.begin_epoch(topics, only_if_topics_changed=only_if_topics_changed)
        if topics_hash is not None:
            self.records.append(encode.epoch_record(self.group.group_id, self.epoch, topics_hash))

    def advance(self, after: ShareMember, topics: TopicCounts, *, has_new_subscription: bool) -> ShareMember:
        """Start the group's next epoch if necessary, assign partitions if it is time, and move the member on.

        `topics` are the group's topics after the change.
        """
        group = self.group
        is_new_epoch = has_new_subscription or (group.state.is_assigned and self._has_unassigned_shares())
        if is_new_epoch or group.state.must_compare_topics(self.now):
            self.next_epoch(topics, only_if_topics_changed=not is_new_epoch)
        interval_ms = self.core.config.share.assignment_interval_ms
        if self.epoch > group.target.epoch and self.may_assign(ASSIGNMENT_INTERVAL, interval_ms):
            target_epoch, target = self.epoch, self._assign(after)
        else:
            target_epoch, target = group.target.epoch, group.target.of(after.member_id)
        if after.epoch == target_epoch and not has_new_subscription:
            return after
        topic_ids = self.core.topics.ids(after.topic_names)
        moved = replace(after, assigned={topic: parts for topic, parts in target.items() if topic in topic_ids})
        if moved.epoch != target_epoch:
            moved = replace(moved, epoch=target_epoch, previous_epoch=after.epoch)
        if moved != after:
            self.records.append(encode.current_record(group.group_id, moved))
        return moved

    def _has_unassigned_shares(self) -> bool:
        """Whether a subscribed partition has share state but no member, or no state but a member."""
        group = self.group
        topics = self.core.topics.ids(group.state.topics)
        assigned: Partitions = {}
        for part in group.target.by_member.values():
            assigned = union(assigned, part)
        nothing: frozenset[int] = frozenset()
        initialized = group.shares.initialized
        return any(assigned.get(topic, nothing) != initialized.get(topic, nothing) for topic in topics)

    def _assign(self, after: ShareMember) -> Partitions:
        """Compute and write the target assignment of the group's epoch; returns the member's part."""
        group, topics = self.group, self.core.topics
        members = {
            member.member_id: MemberSpec(topics.ids(member.topic_names), group.target.of(member.member_id))
            for member in (*group.members.values(), after)
        }
        subscribed = {topic for member in members.values() for topic in member.topic_ids}
        assignable = {topic: parts for topic, parts in group.shares.initialized.items() if topic in subscribed}
        spec = GroupSpec(members, {}, same_topics=False)
        update = group.target.compute(partial(assign_simply, assignable=assignable), spec)
        self.log("Computed a new target assignment for epoch %d with 'simple' assignor.", self.epoch)
        for member_id, part in update.changed.items():
            self.records.append(encode.target_record(group.group_id, member_id, part))
        self.records.append(encode.TYPES.target_epoch_record(group.group_id, self.epoch, self.now.wall_ms))
        return update.of(after.member_id)
