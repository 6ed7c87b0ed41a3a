"""The assignor `range`: each member gets a range of each of its topics.

Topics with the same number of partitions are co-partitioned if all members subscribe to them: a member gets the same
partitions of each. Static members come first, in the order of their instance ids, so that a restart of all members
does not shuffle their partitions. The first members get one partition more if the numbers do not divide.
"""

from __future__ import annotations

from collections import Counter

from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors.spec import GroupSpec, TargetPartitions


def assign_ranges(spec: GroupSpec) -> TargetPartitions:
    """Assign ranges, without regard to the present assignment. O(members * topics + partitions)."""
    subscribers = Counter(topic_id for member in spec.members.values() for topic_id in member.topic_ids)
    quotas = {topic_id: divmod(spec.partition_counts[topic_id], count) for topic_id, count in subscribers.items()}
    members_served: Counter[Uuid] = Counter()
    next_partition = dict.fromkeys(subscribers, 0)
    target: TargetPartitions = {}
    for member_id in _in_order(spec):
        assigned = {}
        for topic_id in spec.members[member_id].topic_ids:
            quota, extra = quotas[topic_id]
            start = next_partition[topic_id]
            end = start + quota + (members_served[topic_id] < extra)
            members_served[topic_id] += 1
            next_partition[topic_id] = end
            if start < end:
                assigned[topic_id] = frozenset(range(start, end))
        target[member_id] = assigned
    return target


def _in_order(spec: GroupSpec) -> list[str]:
    """Static members by instance id, then dynamic members by member id."""

    def position(member_id: str) -> tuple[bool, str]:
        instance_id = spec.members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(spec.members, key=position)
