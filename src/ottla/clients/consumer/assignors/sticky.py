"""The sticky assignors: balanced assignments that move as few partitions as possible.

`distribute` has three steps:

1. Each member claims the partitions of its previous assignment. If two members claim a partition, the claim of the
   later generation wins; between equal generations neither wins.
2. Each unclaimed partition goes to the subscriber with the fewest partitions.
3. While one member has at least two partitions more than another subscriber of one of its topics, that partition moves.

Every existing partition with a subscriber is assigned exactly once. The cost is O(partitions x members) per step.
`cooperative-sticky` omits partitions that move to another member from the result: their owner must revoke them first,
and the following rebalance assigns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ottla.clients.consumer.assignors.base import NO_GENERATION, Assignment, Assignor, Member, in_order, subscribers
from ottla.common.ids import TopicPartition, by_topic
from ottla.protocol.message import Int32, Message, Struct, since
from ottla.protocol.wire import DecodeError


class StickyUserData(Message, versions="0-1"):
    """The last assignment of a sticky member. KIP-54; the generation is from KIP-341."""

    previous_assignment: list[StickyTopic] = []
    generation: Int32 = since(1, default=NO_GENERATION)


class StickyTopic(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class StickyAssignor(Assignor):
    """The eager assignor: all members stop during a rebalance. The claims are in the user data."""

    name: ClassVar[str] = "sticky"

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Return the last assignment and its generation; None before the first assignment."""
        if generation == NO_GENERATION:
            return None
        rows = [StickyTopic(topic=topic, partitions=partitions) for topic, partitions in by_topic(owned).items()]
        return StickyUserData(previous_assignment=rows, generation=generation).encode(1)

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignment:
        return distribute(partition_counts, members, {m.member_id: _claim_in_user_data(m.user_data) for m in members})


class CooperativeStickyAssignor(Assignor):
    """The cooperative assignor: members keep reading their partitions. A partition that moves needs two rebalances."""

    name: ClassVar[str] = "cooperative-sticky"
    cooperative: ClassVar[bool] = True

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        """Return the generation, for leaders that do not read it from the subscription."""
        return generation.to_bytes(4, "big", signed=True)

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignment:
        """Return the partitions of every member, without those that another member must revoke first."""
        claims = {m.member_id: (m.owned, _generation_of(m)) for m in members}
        result = distribute(partition_counts, members, claims)
        owners = {tp: m.member_id for m in members for tp in m.owned}
        return {
            member_id: [tp for tp in partitions if owners.get(tp, member_id) == member_id]
            for member_id, partitions in result.items()
        }


Claim = tuple[Sequence[TopicPartition], int]


def _claim_in_user_data(data: bytes | None) -> Claim:
    """Decode a claim. Invalid user data claims nothing, as in Kafka."""
    if not data:
        return (), NO_GENERATION
    for version in (1, 0):
        try:
            decoded = StickyUserData.decode(data, version)
        except DecodeError:
            continue
        partitions = [TopicPartition(row.topic, p) for row in decoded.previous_assignment for p in row.partitions]
        return partitions, decoded.generation
    return (), NO_GENERATION


def _generation_of(member: Member) -> int:
    if member.generation != NO_GENERATION or member.user_data is None or len(member.user_data) < 4:
        return member.generation
    return int.from_bytes(member.user_data[:4], "big", signed=True)


def distribute(
    partition_counts: Mapping[str, int], members: Sequence[Member], claims: Mapping[str, Claim]
) -> Assignment:
    """Assign every existing partition that has a subscriber exactly once."""
    readers = {topic: [m.member_id for m in ms] for topic, ms in subscribers(members).items()}
    counts = {topic: partition_counts.get(topic, 0) for topic in readers}
    order = [m.member_id for m in in_order(members)]
    owner = _settle_claims(claims, order, readers, counts)
    result: Assignment = {member_id: [] for member_id in order}
    for tp in sorted(owner):
        result[owner[tp]].append(tp)
    # Topics with few subscribers come first, while those subscribers have few partitions.
    for topic in sorted(counts, key=lambda name: (len(readers[name]), name)):
        for partition in range(counts[topic]):
            tp = TopicPartition(topic, partition)
            if tp not in owner:
                result[min(readers[topic], key=lambda m: len(result[m]))].append(tp)
    _balance(result, readers)
    return result


def _settle_claims(
    claims: Mapping[str, Claim], order: Sequence[str], readers: Mapping[str, list[str]], counts: Mapping[str, int]
) -> dict[TopicPartition, str]:
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    allowed = {topic: frozenset(ids) for topic, ids in readers.items()}
    for member_id in order:
        partitions, generation = claims[member_id]
        for tp in partitions:
            if not 0 <= tp.partition < counts.get(tp.topic, 0) or member_id not in allowed[tp.topic]:
                continue
            held = best.get(tp)
            if held is None or generation > held[0]:
                best[tp] = (generation, member_id)
            elif generation == held[0] and held[1] != member_id:
                best[tp] = (generation, None)
    return {tp: member_id for tp, (_, member_id) in best.items() if member_id is not None}


def _balance(result: Assignment, readers: Mapping[str, list[str]]) -> None:
    """Move partitions from the members with the most partitions until no move improves the balance."""
    while _move_one(result, readers):
        pass


def _move_one(result: Assignment, readers: Mapping[str, list[str]]) -> bool:
    lightest = min(map(len, result.values()), default=0)
    for giver in sorted(result, key=lambda m: -len(result[m])):
        load = len(result[giver])
        if load - lightest < 2:
            return False
        takers = {
            topic: min(readers[topic], key=lambda m: len(result[m])) for topic in {tp.topic for tp in result[giver]}
        }
        for index in reversed(range(load)):
            taker = takers[result[giver][index].topic]
            if load - len(result[taker]) >= 2:
                result[taker].append(result[giver].pop(index))
                return True
    return False
