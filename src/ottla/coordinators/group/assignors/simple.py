"""The assignor `simple` of share groups: members share partitions if there are more members than partitions.

Each partition gets a member, and each member gets a partition. A member keeps its partitions as long as it and they
are not above their quotas, which divide members and partitions evenly.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors.spec import GroupSpec, MemberSpec, Partitions, TargetPartitions, frozen

T = TypeVar("T", bound=Hashable)


class _Least(Generic[T]):
    """Finds the item with the lowest count. The counts are shared, and only grow."""

    def __init__(self, items: Iterable[T], counts: Mapping[T, int]) -> None:
        self._counts = counts
        self._heap: list[tuple[int, T]] = [(counts[item], item) for item in items]
        heapq.heapify(self._heap)

    def find(self) -> T | None:
        """The item, None if there are no items."""
        while self._heap:
            count, item = self._heap[0]
            if count == self._counts[item]:
                return item
            heapq.heapreplace(self._heap, (self._counts[item], item))
        return None


def assign_simply(spec: GroupSpec, assignable: Partitions) -> TargetPartitions:
    """Assign the `assignable` partitions of the subscribed topics. O((members * topics + partitions) * log)."""
    subscribed = {topic for member in spec.members.values() for topic in member.topic_ids}
    partitions = [
        (topic, partition)
        for topic in sorted(subscribed & assignable.keys())
        for partition in sorted(assignable[topic])
    ]
    if not partitions:
        return {}
    sharers = dict.fromkeys(partitions, 0)
    loads = dict.fromkeys(sorted(spec.members), 0)
    taken: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in loads}

    def give(member_id: str, item: tuple[Uuid, int]) -> None:
        loads[member_id] += 1
        sharers[item] += 1
        taken[member_id].setdefault(item[0], set()).add(item[1])

    for member_id, item in _kept(spec.members, sharers):
        give(member_id, item)
    subscribers: dict[Uuid, _Least[str]] = {}
    for item in partitions:
        if not sharers[item]:
            topic = item[0]
            if topic not in subscribers:
                ids = [member_id for member_id in loads if topic in spec.members[member_id].topic_ids]
                subscribers[topic] = _Least(ids, loads)
            least = subscribers[topic].find()
            if least is not None:
                give(least, item)
    choices: dict[frozenset[Uuid], _Least[tuple[Uuid, int]]] = {}
    for member_id, load in loads.items():
        if not load:
            topics = spec.members[member_id].topic_ids
            if topics not in choices:
                choices[topics] = _Least([item for item in partitions if item[0] in topics], sharers)
            rarest = choices[topics].find()
            if rarest is not None:
                give(member_id, rarest)
    return {member_id: frozen(parts) for member_id, parts in taken.items()}


def _kept(
    members: Mapping[str, MemberSpec], sharers: Mapping[tuple[Uuid, int], int]
) -> list[tuple[str, tuple[Uuid, int]]]:
    """The assignments that remain: within the quotas of the partition and of the member."""
    most_sharers = -(-len(members) // len(sharers))
    most_partitions = -(-len(sharers) * most_sharers // len(members))
    counts = dict.fromkeys(sharers, 0)
    kept: list[tuple[str, tuple[Uuid, int]]] = []
    for member_id in sorted(members):
        member = members[member_id]
        room = most_partitions
        owned = ((topic, index) for topic in sorted(member.assigned) for index in sorted(member.assigned[topic]))
        for item in owned:
            if room and item[0] in member.topic_ids and counts.get(item, most_sharers) < most_sharers:
                counts[item] += 1
                room -= 1
                kept.append((member_id, item))
    return kept
