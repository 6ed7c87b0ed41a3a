"""The user's choice: topics shared with a group, or partitions assigned by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ottla.clients.cluster import ClusterView
from ottla.common.ids import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in the syntax of RE2 that the broker matches with the whole names of topics.

    Requires group.protocol=consumer. The broker looks for new topics regularly.
    """

    pattern: str


class TopicMatcher(Protocol):
    """Matches whole names of topics: a pattern of `re`, or of another library with the same method."""

    def fullmatch(self, string: str, /) -> object:
        """Return a true value if the whole name matches."""
        ...


class Subscription:
    """The topics, or the pattern of topics, of one consumer.

    With a pattern, `topics` are the topics that match it now. With a `broker_pattern`, `topics` is empty. After
    `assign`, `is_manual` is true and `topics` are the topics of the assigned partitions.
    """

    def __init__(self, *, exclude_internal_topics: bool = True) -> None:
        self._exclude_internal_topics = exclude_internal_topics
        self.pattern: TopicMatcher | None = None
        self.broker_pattern: str | None = None
        self.topics: frozenset[str] = frozenset()
        self.is_manual = False

    def subscribe(self, topics: frozenset[str], pattern: TopicMatcher | SubscriptionPattern | None) -> None:
        self.clear()
        if isinstance(pattern, SubscriptionPattern):
            self.broker_pattern = pattern.pattern
        elif pattern is not None:
            self.pattern = pattern
        else:
            self.topics = topics

    def assign(self, topics: frozenset[str]) -> None:
        self.is_manual = True
        self.topics = topics

    def clear(self) -> None:
        self.pattern, self.broker_pattern, self.topics, self.is_manual = None, None, frozenset(), False

    @property
    def is_group_managed(self) -> bool:
        has_pattern = self.pattern is not None or self.broker_pattern is not None
        return not self.is_manual and (has_pattern or bool(self.topics))

    @property
    def is_set(self) -> bool:
        """Whether the user called `subscribe` or `assign`, even if there are no partitions."""
        return self.is_manual or self.is_group_managed

    def match_pattern(self, view: ClusterView) -> None:
        """Set `topics` to the known topics that match the pattern, if there is one."""
        if self.pattern is None:
            return
        names = [name for name in view.topics if self.pattern.fullmatch(name)]
        if self._exclude_internal_topics:
            names = [name for name in names if name not in INTERNAL_TOPICS]
        self.topics = frozenset(names)
