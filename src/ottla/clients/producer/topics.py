"""What the producer takes from the cluster's metadata about a topic that it sends to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.producer.batch import TopicQueues
from ottla.clients.producer.metadata_refresh import View
from ottla.clients.producer.partition import FITS, PartitionQueue
from ottla.common.ids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.clients.producer.core import ProducerCore


def learn(topic: str, queues: TopicQueues, view: View, owner: ProducerCore) -> bool:
    """Bring the queues of a topic up to date; False while its partitions are not known."""
    partitions = view.partitions(topic) or ()
    topic_id = view.topic_id(topic)
    if partitions and queues.topic_id != topic_id:
        if queues.topic_id not in {None, ZERO_UUID}:
            _made_anew(queues, max(partitions) + 1)
        queues.topic_id = topic_id
    count = max(partitions, default=-1) + 1
    if count > len(queues.queues):
        # What waits for a partition that was gone: a second queue beside it would begin the same sequence.
        gone = owner.unfinished_queues(topic)
        for index in range(len(queues.queues), count):
            queues.queues.append(gone.get(index) or PartitionQueue(topic, index, owner))
    queues.available = [queue for queue in queues.queues if view.leader(topic, queue.partition) is not None]
    for queue in queues.queues:
        queue.too_large = FITS  # perhaps the topic's limit was raised
    # Records without a key do not wait for a leader where another partition has one.
    if queues.queues and (queues.sticky is None or (queues.available and queues.sticky not in queues.available)):
        queues.next_sticky()
    return bool(queues.queues)


def _made_anew(queues: TopicQueues, count: int) -> None:
    """Another topic of the same name: it knows nothing of this producer, and may have fewer partitions.

    What is on its way goes to it, as with Kafka's producer; batches of a partition that it does not have time out.
    """
    for queue in queues.queues:
        queue.is_known = False
        queue.renumber = queue.producer_id >= 0
    del queues.queues[count:]
