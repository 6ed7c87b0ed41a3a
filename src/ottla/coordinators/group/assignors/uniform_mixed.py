"""The assignor `uniform` for members that subscribe to different topics.

1. Each member keeps its partitions of the topics to which it still subscribes.
2. Free partitions go to the subscriber with the fewest partitions. Topics with many partitions per subscriber come
   first, because their subscribers can compensate least later.
3. Topic by topic, partitions move from the subscriber with the most to the one with the fewest partitions, until the
   two differ by at most one. This repeats until no topic moves a partition, at most `MOST_ROUNDS` times: subscriptions
   that overlap may need very many rounds for a perfect balance.
"""

from __future__ import annotations

import heapq

from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors.spec import GroupSpec, TargetPartitions, frozen

MOST_ROUNDS = 16


def assign_mixed(spec: GroupSpec) -> TargetPartitions:
    """Assign all partitions of the subscribed topics. O(topics * members) per round, apart from heaps."""
    return _Balancer(spec).assign()


class _Balancer:
    """The assignment under construction. Members are numbers: the first member, then the others by their ids."""

    def __init__(self, spec: GroupSpec) -> None:
        self._member_ids = sorted(spec.members, key=lambda member_id: (member_id != spec.first, member_id))
        self._counts = spec.partition_counts
        self._subscribers: dict[Uuid, list[int]] = {}
        self._owned: list[dict[Uuid, set[int]]] = []
        self._load: list[int] = []
        for number, member_id in enumerate(self._member_ids):
            member = spec.members[member_id]
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(number)
            kept = {topic_id: set(p) for topic_id, p in member.assigned.items() if topic_id in member.topic_ids}
            self._owned.append(kept)
            self._load.append(sum(map(len, kept.values())))
        self._topics = sorted(self._subscribers, key=self._urgency)

    def _urgency(self, topic_id: Uuid) -> tuple[float, int, Uuid]:
        subscribers = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscribers, subscribers, topic_id

    def assign(self) -> TargetPartitions:
        for topic_id in self._topics:
            self._assign_free(topic_id)
        shared = [topic_id for topic_id in self._topics if len(self._subscribers[topic_id]) > 1]
        for _ in range(MOST_ROUNDS):
            if not sum([self._balance(topic_id) for topic_id in shared]):
                break
        return {member_id: frozen(owned) for member_id, owned in zip(self._member_ids, self._owned, strict=True)}

    def _assign_free(self, topic_id: Uuid) -> None:
        subscribers = self._subscribers[topic_id]
        taken: set[int] = set()
        for number in subscribers:
            taken |= self._owned[number].get(topic_id, set())
        lightest = [(self._load[number], number) for number in subscribers]
        heapq.heapify(lightest)
        for partition in range(self._counts[topic_id]):
            if partition not in taken:
                load, number = lightest[0]
                self._give(number, topic_id, partition)
                heapq.heapreplace(lightest, (load + 1, number))

    def _balance(self, topic_id: Uuid) -> int:
        """Move partitions of one topic from loaded to light subscribers; returns how many were moved."""
        subscribers, load = self._subscribers[topic_id], self._load
        loads = [load[number] for number in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        lightest = [(load[number], number) for number in subscribers]
        heaviest = [(-load[number], -number) for number in subscribers if self._owned[number].get(topic_id)]
        heapq.heapify(lightest)
        heapq.heapify(heaviest)
        moved = 0
        while heaviest:
            most, donor = -heaviest[0][0], -heaviest[0][1]
            least, receiver = lightest[0]
            # The heaps differ on a member only if it is between the two loads, where neither is used any more.
            if most - least <= 1:
                break
            partition = max(self._owned[donor][topic_id])
            self._owned[donor][topic_id].remove(partition)
            load[donor] -= 1
            self._give(receiver, topic_id, partition)
            moved += 1
            heapq.heapreplace(lightest, (least + 1, receiver))
            if self._owned[donor][topic_id]:
                heapq.heapreplace(heaviest, (-(most - 1), -donor))
            else:
                heapq.heappop(heaviest)
        return moved

    def _give(self, number: int, topic_id: Uuid, partition: int) -> None:
        self._owned[number].setdefault(topic_id, set()).add(partition)
        self._load[number] += 1
