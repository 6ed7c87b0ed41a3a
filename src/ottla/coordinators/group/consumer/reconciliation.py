"""The way of a member to its target assignment, one heartbeat at a time.

A member first gives up the partitions that it shall not have: it stays in its epoch until it no longer reports them.
Then it enters the epoch of the target assignment, and gets those partitions that no other member owns. It gets the
others as their owners give them up. So a partition has at most one owner at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.consumer.group import ConsumerGroup
from ottla.coordinators.group.consumer.member import NOTHING_OWNED, ConsumerMember, MemberState, Owned

NO_PARTITIONS: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Goal:
    """The assignment that a member shall reach, and the knowledge about the member."""

    group: ConsumerGroup
    epoch: int
    """The epoch of the target assignment."""
    target: Partitions
    topic_ids: frozenset[Uuid]
    """The existing topics to which the member subscribes. Partitions of others are taken from it at once."""
    owned: Mapping[Uuid, frozenset[int]] | None
    """The partitions that the member reports; None if it reports nothing new."""
    has_new_subscription: bool = False


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Return the member's next state. Raises FENCED_MEMBER_EPOCH for a state of a later version of Kafka."""
    if member.state is MemberState.STABLE and member.epoch == goal.epoch:
        return _drop_unsubscribed(member, goal) if goal.has_new_subscription else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(goal, member.revoking):
        return _drop_unsubscribed(member, goal) if goal.has_new_subscription else member
    if member.state is MemberState.UNKNOWN:
        if goal.owned is None or goal.owned:
            message = "The consumer group member is in a unknown state. The member must abandon all its partitions and"
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, f"{message} rejoin.")
        return _next(member, goal, goal.epoch)
    return _next(member, goal, member.epoch)


def _owns_any(goal: Goal, revoking: Owned) -> bool:
    """Whether the member may still own one of these partitions."""
    if goal.owned is None:
        return True
    nothing: Mapping[int, int] = {}
    return any(not partitions.isdisjoint(revoking.get(topic, nothing)) for topic, partitions in goal.owned.items())


def _enter(member: ConsumerMember, epoch: int, state: MemberState, assigned: Owned, revoking: Owned) -> ConsumerMember:
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)


def _drop_unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Take partitions of topics to which the member no longer subscribes, before the next target assignment."""
    dropped = {topic: partitions for topic, partitions in member.assigned.items() if topic not in goal.topic_ids}
    if not dropped:
        return member
    assigned = {topic: partitions for topic, partitions in member.assigned.items() if topic in goal.topic_ids}
    revoking = dict(member.revoking)
    for topic, partitions in dropped.items():
        revoking[topic] = {**revoking.get(topic, {}), **partitions}
    if _owns_any(goal, revoking):
        return _enter(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return _enter(member, member.epoch, member.state, assigned, member.revoking)


def _next(member: ConsumerMember, goal: Goal, epoch: int) -> ConsumerMember:
    """Compute what the member keeps, gives up, gets and waits for."""
    assigned: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    free: list[tuple[Uuid, int]] = []
    is_waiting = False
    for topic in goal.target.keys() | member.assigned.keys():
        target = goal.target.get(topic, NO_PARTITIONS) if topic in goal.topic_ids else NO_PARTITIONS
        current = member.assigned.get(topic, {})
        kept = {partition: at for partition, at in current.items() if partition in target}
        if kept:
            assigned[topic] = kept
        if len(kept) < len(current):
            revoking[topic] = {partition: at for partition, at in current.items() if partition not in target}
        wanted = [partition for partition in target if partition not in kept]
        available = _available(member, goal.group, topic, wanted)
        is_waiting |= len(available) < len(wanted)
        free += [(topic, partition) for partition in available]
    if revoking and _owns_any(goal, revoking):
        return _enter(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic, partition in free:
        assigned.setdefault(topic, {})[partition] = goal.epoch
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _enter(member, goal.epoch, state, assigned, NOTHING_OWNED)


def _available(member: ConsumerMember, group: ConsumerGroup, topic: Uuid, wanted: Iterable[int]) -> list[int]:
    """The partitions that no other member owns. Those that this member was giving up are its own again."""
    owners = group.owners.get(topic, {})
    revoking = member.revoking.get(topic, {})
    return [partition for partition in wanted if partition not in owners or partition in revoking]
