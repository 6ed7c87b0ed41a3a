"""The state that consumer and share groups have in common. Only replay changes its durable part."""

from __future__ import annotations

from typing import Generic, TypeVar

from ottla.coordinators.events import Moment
from ottla.coordinators.group.modern.subscriptions import TopicCounts
from ottla.coordinators.group.modern.target import TargetAssignment

M = TypeVar("M")

# How long a group relies on being notified of changed topics, before it compares its topics in any case.
METADATA_REFRESH_INTERVAL_MS = 3_600_000


class ModernState(Generic[M]):
    """Members of type M, epochs, target assignment and subscriptions of one group."""

    __slots__ = ("epoch", "group_id", "members", "metadata_hash", "refresh_epoch", "refresh_ms", "target", "topics")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, M] = {}
        self.target = TargetAssignment()
        self.topics = TopicCounts()
        # Not durable: when the topics are compared next, on the monotonic clock, and the epoch at the last comparison.
        self.refresh_ms: int | None = None
        self.refresh_epoch = 0

    @property
    def is_assigned(self) -> bool:
        """Whether the target assignment has the group's epoch."""
        return self.target.epoch >= self.epoch

    def must_compare_topics(self, now: Moment) -> bool:
        """Whether the topics may have changed since the last comparison."""
        return self.refresh_ms is None or now.monotonic_ms >= self.refresh_ms or self.epoch < self.refresh_epoch

    def compared_topics(self, now: Moment, epoch: int) -> None:
        """Note that the topics were compared when the group got `epoch`, which may not be written yet."""
        self.refresh_ms = now.monotonic_ms + METADATA_REFRESH_INTERVAL_MS
        self.refresh_epoch = epoch

    def request_comparison(self) -> None:
        """Compare the topics with the next heartbeat, because one of them changed."""
        self.refresh_ms = None


class ModernGroup(Generic[M]):
    """The methods of all groups with such a state; `members` and `target` are the state's."""

    __slots__ = ("members", "state", "target")

    def __init__(self, group_id: str) -> None:
        self.state: ModernState[M] = ModernState(group_id)
        self.members = self.state.members
        self.target = self.state.target

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.state.group_id

    @property
    def epoch(self) -> int:
        """The group's epoch."""
        return self.state.epoch

    @property
    def state_name(self) -> str:
        """Kafka's name of the state. O(members)."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to `topic`."""
        return topic in self.state.topics

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        raise NotImplementedError

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self.target.epoch <= self.epoch
