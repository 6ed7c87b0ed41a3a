"""The partitions of a topic as the producer sees them, kept up to date from the metadata of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from ottla.clients.producer._encoder import Partitions
from ottla.clients.producer.metadata_refresh import View
from ottla.clients.producer.partition_queue import NO_LIMIT, PartitionQueue
from ottla.clients.producer.runtime import Runtime
from ottla.common.ids import ZERO_UUID, Uuid

UnfinishedQueues = Mapping[tuple[str, int], PartitionQueue]  # by topic and partition


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

    def learn(self, topic: str, view: View, runtime: Runtime, unfinished: UnfinishedQueues) -> bool:
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
