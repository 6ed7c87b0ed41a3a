"""The topics to which a group's members subscribe, counted, so that a change of one member costs only its topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping


class TopicCounts:
    """How many members subscribe to each topic by name, and how many resolved regular expressions match it."""

    __slots__ = ("by_name", "by_regex")

    def __init__(self, by_name: Mapping[str, int] | None = None, by_regex: Mapping[str, int] | None = None) -> None:
        # Invariant: no count is 0 or negative.
        self.by_name: Counter[str] = Counter(by_name or {})
        self.by_regex: Counter[str] = Counter(by_regex or {})

    def copy(self) -> TopicCounts:
        """A copy, to compute what a change would result in."""
        return TopicCounts(self.by_name, self.by_regex)

    def replace(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Count a member that subscribed to the topics `before` and now subscribes to `after`."""
        _replace(self.by_name, before, after)

    def replace_matches(self, before: Iterable[str], after: Iterable[str]) -> None:
        """Count a regular expression that matched the topics `before` and now matches `after`."""
        _replace(self.by_regex, before, after)

    def __contains__(self, topic: object) -> bool:
        return topic in self.by_name or topic in self.by_regex

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name.keys() | self.by_regex.keys() if self.by_regex else self.by_name)


def _replace(counts: Counter[str], before: Iterable[str], after: Iterable[str]) -> None:
    counts.update(after)
    for topic in before:
        if counts[topic] <= 1:
            del counts[topic]
        else:
            counts[topic] -= 1
