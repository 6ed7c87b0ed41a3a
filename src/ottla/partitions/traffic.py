"""The records and bytes that clients and followers append and fetch, by topic: plain counters for the metrics.

The partitions of a topic on this node share one `TopicTraffic`, so that an append costs additions to attributes and no
look-up. The counters of a deleted topic are added to the sum of all deleted topics, so that totals only grow.
"""

from __future__ import annotations


class TopicTraffic:
    """The counters of one topic since the start of the node."""

    __slots__ = (
        "batches",
        "bytes_in",
        "bytes_out",
        "failed_batches",
        "failed_fetches",
        "fetches",
        "messages_in",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.batches = self.failed_batches = self.fetches = self.failed_fetches = 0

    @property
    def is_used(self) -> bool:
        """Whether any counter is not 0."""
        return any(getattr(self, name) for name in self.__slots__)

    def add(self, other: TopicTraffic) -> None:
        """Add the counters of another topic."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """The traffic of all topics of this node."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicTraffic] = {}
        self.deleted = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """The counters of a topic."""
        traffic = self.by_topic.get(topic)
        if traffic is None:
            traffic = self.by_topic[topic] = TopicTraffic()
        return traffic

    def forget(self, topic: str) -> None:
        """Add the counters of a deleted topic to the sum of all deleted topics."""
        traffic = self.by_topic.pop(topic, None)
        if traffic is not None:
            self.deleted.add(traffic)
