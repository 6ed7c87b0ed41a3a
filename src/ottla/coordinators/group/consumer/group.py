"""A consumer group (KIP-848): its members, their subscriptions and the owner of each partition.

Only replay changes it, with `put`, `remove`, `put_expression` and `remove_expression`, and the epochs in `state`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ottla.common.expressions import Matcher
from ottla.common.ids import Uuid
from ottla.coordinators.group.assignors import Partitions
from ottla.coordinators.group.consumer.member import ConsumerMember
from ottla.coordinators.group.modern import ModernGroup, TopicCounts

NO_MEMBER = ConsumerMember("")


class ResolvedExpression(NamedTuple):
    """The topics that matched a regular expression, in the metadata of `version`, at a wall-clock time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class MatchingJob:
    """The progress of matching the expressions of one group with the names of topics, by `matching`."""

    __slots__ = ("matched", "matchers", "may_describe", "names", "version")

    def __init__(
        self,
        names: Iterable[str],
        version: int,
        matchers: dict[str, Matcher],
        may_describe: Callable[[str], bool] | None = None,
    ) -> None:
        """`may_describe` says which topics the member that starts the job may know; None for all."""
        self.may_describe = may_describe
        self.names: Iterator[str] = iter(names)
        self.version = version
        self.matchers = matchers
        self.matched: dict[str, set[str]] = {regex: set() for regex in matchers}


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """The group."""

    __slots__ = (
        "assignors",
        "classic_protocols",
        "expression_counts",
        "expressions",
        "has_partition_metadata",
        "owners",
        "static_ids",
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_ids: dict[str, str] = {}
        """The member id of each instance id."""
        self.owners: dict[Uuid, dict[int, str]] = {}
        """The member that owns each partition, also while it gives the partition up."""
        self.assignors: Counter[str] = Counter()
        """How many members prefer each server-side assignor."""
        self.expressions: dict[str, ResolvedExpression] = {}
        self.expression_counts: Counter[str] = Counter()
        """How many members subscribe by each regular expression."""
        self.classic_protocols: Counter[str] = Counter()
        """How many members of the classic protocol support each of its protocols."""
        self.has_partition_metadata = False
        """Whether Kafka 4.0 wrote a record of the group's topics, which must be deleted."""

    # -- queries -----------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """Kafka's name of the state. O(members)."""
        if not self.members:
            return "Empty"
        if not self.state.is_assigned:
            return "Assigning"
        epoch = self.target.epoch
        return "Stable" if all(m.is_reconciled(epoch) for m in self.members.values()) else "Reconciling"

    @property
    def classic_count(self) -> int:
        """How many members use the classic protocol. O(members)."""
        return sum(member.classic is not None for member in self.members.values())

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with this instance id, or None."""
        member_id = None if instance_id is None else self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def owner(self, topic_id: Uuid, partition: int) -> str | None:
        """The member that owns a partition, or None."""
        return self.owners.get(topic_id, {}).get(partition)

    def target_of(self, member: ConsumerMember) -> Partitions:
        """The target of a member; a static member that returned has the target of its former member id."""
        if member.instance_id is None:
            return self.target.of(member.member_id)
        return self.target.of(self.static_ids.get(member.instance_id, ""))

    def subscribed_topics(self, member: ConsumerMember) -> frozenset[str]:
        """The topics to which `member` subscribes; an expression that is not resolved matches none."""
        resolved = self.expressions.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def preferred_assignor(self, before: ConsumerMember, after: ConsumerMember) -> str | None:
        """The assignor that most members prefer, if the member `before` becomes `after`; None without preferences."""
        counts = self.assignors.copy()
        if before.assignor is not None and before.member_id in self.members:
            counts[before.assignor] -= 1
        if after.assignor is not None:
            counts[after.assignor] += 1
        counts = +counts
        return max(sorted(counts), key=counts.__getitem__) if counts else None

    def topics_after(self, before: ConsumerMember, after: ConsumerMember) -> TopicCounts:
        """The group's topics if the member `before` becomes `after`."""
        topics = self.state.topics.copy()
        topics.replace(before.topic_names, after.topic_names)
        regex = before.topic_regex
        if regex and regex != after.topic_regex and self.expression_counts[regex] == 1 and regex in self.expressions:
            topics.replace_matches(self.expressions[regex].topics, ())
        return topics

    # -- replay ------------------------------------------------------------------------------------------------

    def put(self, member: ConsumerMember) -> None:
        """Add a member, or replace its previous value."""
        before = self.members.get(member.member_id, NO_MEMBER)
        self._count(before, member)
        self._release(before)
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self.members[member.member_id] = member

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, NO_MEMBER)
        self._release(member)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]

    def _count(self, before: ConsumerMember, after: ConsumerMember) -> None:
        if before.topic_names != after.topic_names:
            self.state.topics.replace(before.topic_names, after.topic_names)
        for member, sign in ((before, -1), (after, 1)):
            if member.assignor is not None:
                self.assignors[member.assignor] += sign
            if member.topic_regex:
                self.expression_counts[member.topic_regex] += sign
            if member.classic is not None:
                for name, _ in member.classic.protocols:
                    self.classic_protocols[name] += sign
        if before.topic_regex != after.topic_regex:
            self.expression_counts = +self.expression_counts

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.revoking):
            for topic_id, partitions in owned.items():
                by_partition = self.owners.get(topic_id, {})
                for partition in partitions:
                    if by_partition.get(partition) == member.member_id:
                        del by_partition[partition]
                if not by_partition:
                    self.owners.pop(topic_id, None)

    def put_expression(self, regex: str, resolved: ResolvedExpression) -> None:
        """Store the topics that match a regular expression."""
        before = self.expressions.get(regex)
        self.state.topics.replace_matches(() if before is None else before.topics, resolved.topics)
        self.expressions[regex] = resolved

    def remove_expression(self, regex: str) -> None:
        """Remove a regular expression, if it exists."""
        before = self.expressions.pop(regex, None)
        if before is not None:
            self.state.topics.replace_matches(before.topics, ())

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        members = self.members.values()
        owners: dict[Uuid, dict[int, str]] = {}
        for member in members:
            assert self.members[member.member_id] is member
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    assert partitions, "a topic without partitions"
                    for partition in partitions:
                        other = owners.setdefault(topic_id, {}).setdefault(partition, member.member_id)
                        assert other == member.member_id, f"{other} and {member.member_id} own partition {partition}"
        assert owners == self.owners
        assert self.static_ids == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        names = Counter(topic for member in members for topic in member.topic_names)
        assert self.state.topics.by_name == names
        matches = Counter(topic for resolved in self.expressions.values() for topic in resolved.topics)
        assert self.state.topics.by_regex == matches
        assert +self.expression_counts == Counter(m.topic_regex for m in members if m.topic_regex)
        assert +self.assignors == Counter(m.assignor for m in members if m.assignor is not None)
        super().validate()
