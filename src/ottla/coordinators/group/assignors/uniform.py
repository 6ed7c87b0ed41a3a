"""The assignor `uniform`: a balanced assignment that moves few partitions.

If all members subscribe to the same topics, the numbers of partitions of two members differ by at most one, and the
members keep as many of their partitions as this allows. Otherwise `uniform_mixed` balances as far as the subscriptions
allow.

If a member leaves, its partitions have no owner until the heirs send their next heartbeat. Therefore the member whose
heartbeat computes the assignment is the first heir.
"""

from __future__ import annotations

from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors.spec import GroupSpec, TargetPartitions, frozen
from ottla.coordinators.group.assignors.uniform_mixed import assign_mixed


def assign_uniformly(spec: GroupSpec) -> TargetPartitions:
    """Assign all partitions of the subscribed topics."""
    if not spec.members:
        return {}
    return _assign_same_topics(spec) if spec.same_topics else assign_mixed(spec)


def _assign_same_topics(spec: GroupSpec) -> TargetPartitions:
    """Keep up to a quota of each member's partitions, then fill the members below their quota.

    O(members + partitions), apart from sorting.
    """
    topic_ids = next(iter(spec.members.values())).topic_ids
    total = sum(spec.partition_counts[topic_id] for topic_id in topic_ids)
    quota, extra = divmod(total, len(spec.members))
    assigned = {
        (topic_id, partition)
        for member in spec.members.values()
        for topic_id, partitions in member.assigned.items()
        for partition in partitions
    }
    free = [
        (topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in range(spec.partition_counts[topic_id])
        if (topic_id, partition) not in assigned
    ]
    order = sorted(spec.members, key=lambda member_id: (member_id != spec.first, member_id))
    counts = {
        member_id: sum(len(parts) for topic, parts in spec.members[member_id].assigned.items() if topic in topic_ids)
        for member_id in order
    }
    # The members that have more than the quota keep one more, as far as there are such shares.
    with_extra = frozenset(sorted(order, key=lambda member_id: counts[member_id] <= quota)[:extra])
    kept: dict[str, dict[Uuid, set[int]]] = {}
    room: dict[str, int] = {}
    for member_id in order:
        room[member_id] = quota + (member_id in with_extra)
        mine: dict[Uuid, set[int]] = {}
        for topic_id, partitions in sorted(spec.members[member_id].assigned.items()):
            if topic_id not in topic_ids:
                continue
            ordered = sorted(partitions)
            mine[topic_id] = set(ordered[: room[member_id]])
            free += [(topic_id, partition) for partition in ordered[room[member_id] :]]
            room[member_id] -= len(mine[topic_id])
        kept[member_id] = mine
    next_free = iter(free)
    for member_id, mine in kept.items():
        for _ in range(room[member_id]):
            topic_id, partition = next(next_free)
            mine.setdefault(topic_id, set()).add(partition)
    return {member_id: frozen(mine) for member_id, mine in kept.items()}
