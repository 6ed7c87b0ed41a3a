"""The topics of a producer and their partitions, from the metadata of the cluster, and when to request it.

Metadata is requested if a leader or topic is missing, or if it has reached its maximum age. At most one request is in
flight. After a response or a failure the next request waits for the backoff, which grows as long as the responses do
not help. Exception: a topic that was never requested is requested immediately. The core reports results with `received`
and `failed`, and reads `next_ms` in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

from ottla.clients.cluster import ClusterView
from ottla.clients.errors import ClientError
from ottla.clients.producer._encoder import Partitions
from ottla.clients.producer.batch import NO_LIMIT, PartitionQueue
from ottla.clients.producer.runtime import Runtime
from ottla.common.ids import ZERO_UUID, Uuid

FOREVER_MS = 1 << 62
UnfinishedQueues = Mapping[tuple[str, int], PartitionQueue]  # by topic and partition


class MetadataRefresh:
    """Which topics need metadata, when to request it, and the last error."""

    def __init__(self, max_age_ms: int, backoff_ms: Callable[[int], int]) -> None:
        self.missing: set[str] = set()  # topics that are unknown or have partitions without a leader
        self.version = 0  # number of responses
        self.failures = 0  # in a row, including responses that did not help
        self.problem: ClientError | None = None  # why the last request failed
        self._max_age_ms = max_age_ms
        self._backoff_ms = backoff_ms
        self._is_requesting = False
        self._requested: set[str] = set()
        self._expires_at_ms = FOREVER_MS
        self._not_before_ms = 0

    def next_ms(self) -> int:
        """When the next request is due; `FOREVER_MS` while one is in flight."""
        if self._is_requesting:
            return FOREVER_MS
        if not self.missing:
            return max(self._expires_at_ms, self._not_before_ms)
        has_new_topic = self.problem is None and not self.missing <= self._requested
        return 0 if has_new_topic else self._not_before_ms

    def sent(self, topics: Iterable[str]) -> None:
        self._is_requesting = True
        self._requested = set(topics)

    def received(self, missing: Iterable[str], now_ms: int) -> None:
        """A response arrived; the topics in `missing` are still unknown or without a leader."""
        self._is_requesting = False
        self.problem = None
        self.version += 1
        self.missing = set(missing)
        self._expires_at_ms = now_ms + self._max_age_ms
        self.failures = self.failures + 1 if self.missing else 0
        # The backoff also follows a good response: the election of a leader takes time.
        self._not_before_ms = now_ms + self._backoff_ms(max(self.failures - 1, 0))

    def failed(self, error: ClientError, now_ms: int) -> None:
        self._is_requesting = False
        self.problem = error
        self._not_before_ms = now_ms + self._backoff_ms(self.failures)
        self.failures += 1


class TopicPartitions(Partitions):
    """The queues of a topic's partitions, and which of them takes records without a key (KIP-480)."""

    __slots__ = ("_available", "_random", "topic_id")

    queues: list[PartitionQueue]
    sticky: PartitionQueue | None

    def __init__(self, random: Random, choose: Callable[[bytes | None, int], int] | None = None) -> None:
        super().__init__(choose)
        self._random = random
        self._available: list[PartitionQueue] = []  # partitions with a leader
        self.topic_id: Uuid | None = None  # None until the topic was seen

    def is_sticky(self, key: bytes | None) -> bool:
        """Whether a record with this key goes to the sticky partition."""
        return key is None if self.choose is None else self.choose(key, len(self.queues)) < 0

    def next_sticky(self) -> PartitionQueue:
        """Choose another partition for records without a key: one that has a leader if possible."""
        choice = self._available or self.queues
        while True:
            chosen = choice[int(self._random.random() * len(choice))]
            if chosen is not self.sticky or len(choice) == 1:
                self.sticky = chosen
                return chosen

    def leave(self, queue: PartitionQueue) -> None:
        """Move on from `queue` after a batch of it was sent, even if records with keys keep it busy."""
        if self.sticky is queue:
            self.next_sticky()

    def learn(self, topic: str, view: ClusterView, runtime: Runtime, unfinished: UnfinishedQueues) -> bool:
        """Update the queues from the metadata; False while the partitions of the topic are unknown.

        `unfinished` has the queues with batches that have no outcome yet. A partition that disappeared and returns gets
        its old queue: a second queue beside it would start the same sequence of numbers.
        """
        partitions = view.partitions(topic) or ()
        topic_id = view.topic_id(topic)
        if partitions and self.topic_id != topic_id:
            if self.topic_id not in {None, ZERO_UUID}:
                self._reset_for_recreated_topic(max(partitions) + 1)
            self.topic_id = topic_id
        for index in range(len(self.queues), max(partitions, default=-1) + 1):
            self.queues.append(unfinished.get((topic, index)) or PartitionQueue(topic, index, runtime))
        self._available = [queue for queue in self.queues if view.leader(topic, queue.partition) is not None]
        for queue in self.queues:
            queue.too_large = NO_LIMIT  # the limit of the topic may have been raised
        # Records without a key avoid a partition without a leader if another partition has one.
        if self.queues and (self.sticky is None or (self._available and self.sticky not in self._available)):
            self.next_sticky()
        return bool(self.queues)

    def _reset_for_recreated_topic(self, count: int) -> None:
        """Forget what the brokers of the deleted topic knew; the new topic may have fewer partitions.

        As with Kafka's producer, records in flight go to the new topic. Batches of a partition that it does not have
        expire.
        """
        for queue in self.queues:
            queue.is_known = False
            queue.renumber = queue.producer_id >= 0
        del self.queues[count:]
