"""What the producer takes from the cluster's metadata about a topic that it sends to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.producer.batch import TopicQueues
from ottla.clients.producer.metadata_wish import View
from ottla.clients.producer.partition import FITS, PartitionQueue

if TYPE_CHECKING:
    from ottla.clients.producer.core import ProducerCore


def learn(topic: str, queues: TopicQueues, view: View, owner: ProducerCore) -> bool:
    """Bring the queues of a topic up to date; False while its partitions are not known."""
    partitions = view.partitions(topic) or ()
    for index in range(len(queues.queues), max(partitions, default=-1) + 1):
        queues.queues.append(PartitionQueue(topic, index, owner))
    queues.available = [queue for queue in queues.queues if view.leader(topic, queue.partition) is not None]
    for queue in queues.queues:
        queue.too_large = FITS  # perhaps the topic's limit was raised
    # Records without a key do not wait for a leader where another partition has one.
    if queues.queues and (queues.sticky is None or (queues.available and queues.sticky not in queues.available)):
        queues.next_sticky()
    return bool(queues.queues)
