"""The user's choice of what to read: topics shared with a group, or partitions assigned by hand."""

from __future__ import annotations

import re

from ottla.clients.cluster import ClusterView
from ottla.common.ids import INTERNAL_TOPICS


class Subscription:
    """The topics, or the pattern of topics, of one consumer.

    With a pattern, `topics` are the topics that match it now. After `assign`, `is_manual` is true and `topics` are the
    topics of the assigned partitions.
    """

    def __init__(self, *, exclude_internal_topics: bool = True) -> None:
        self._exclude_internal_topics = exclude_internal_topics
        self.pattern: re.Pattern[str] | None = None
        self.topics: frozenset[str] = frozenset()
        self.is_manual = False

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Share these topics with the group, or the topics whose whole name matches the pattern."""
        self.is_manual = False
        self.pattern, self.topics = pattern, frozenset() if pattern is not None else topics

    def assign(self, topics: frozenset[str]) -> None:
        """Note the topics of partitions that were assigned by hand."""
        self.is_manual = True
        self.topics = topics

    def clear(self) -> None:
        """Read nothing."""
        self.pattern, self.topics, self.is_manual = None, frozenset(), False

    @property
    def is_group_managed(self) -> bool:
        """Whether the group assigns the partitions."""
        return not self.is_manual and (bool(self.topics) or self.pattern is not None)

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
