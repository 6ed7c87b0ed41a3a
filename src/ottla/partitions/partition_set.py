"""A set of partitions, grouped by topic, in the order in which their topics were added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice


class PartitionSet:
    """Topic names and partition indices."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def __contains__(self, partition: tuple[str, int]) -> bool:
        topic, index = partition
        return index in self._by_topic.get(topic, ())

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return chain.from_iterable(((topic, index) for index in indices) for topic, indices in self._by_topic.items())

    def first(self, count: int) -> list[tuple[str, int]]:
        """The first `count` partitions."""
        return list(islice(self, count))

    def has_topic(self, topic: str) -> bool:
        """Whether any partition of the topic is in the set."""
        return topic in self._by_topic

    def add(self, topic: str, indices: Iterable[int]) -> None:
        """Add partitions of one topic."""
        added = dict.fromkeys(indices)
        if added:
            self._by_topic.setdefault(topic, {}).update(added)

    def discard(self, topic: str, index: int) -> None:
        """Remove a partition if it is in the set."""
        indices = self._by_topic.get(topic)
        if indices is not None:
            indices.pop(index, None)
            if not indices:
                del self._by_topic[topic]

    def discard_topic(self, topic: str) -> None:
        """Remove all partitions of a topic."""
        self._by_topic.pop(topic, None)

    def clear(self) -> None:
        """Remove all partitions."""
        self._by_topic.clear()
