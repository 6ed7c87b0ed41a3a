"""Reports to the controller in which log directory each replica is (Kafka's AssignmentsManager). KIP-858.

The controller elects no leader in a directory that the broker did not register, and needs it to elect other leaders
when a directory fails, perhaps before it was reported. It knows the directory of a new replica if the broker has only
one. It does not know the directory of a replica whose disk was replaced: the new disk has another id.

After a change of the metadata, of a replica's directory, or when a log was opened, the replicas are compared with the
metadata a moment later. A topic that agreed is compared again only after it changed, so that a comparison costs 0.1 us
for each topic of the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.ids import TopicPartition, Uuid
from ottla.common.values import value
from ottla.metadata.features import DIRECTORIES_FROM
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)

if TYPE_CHECKING:
    from ottla.cluster.control.lifecycle import Sender
    from ottla.common.completion import Completion
    from ottla.common.timers import CallLater, TimerHandle
    from ottla.metadata.image import MetadataImage, TopicImage

logger = logging.getLogger(__name__)

DELAY_S = 0.5
TIMEOUT_S = 30.0
# Kafka's limit for one request.
MOST_PER_REQUEST = 2_250


@value
class AssignmentPorts:
    """The broker's parts. `directory_of` returns where a replica's log is, perhaps offline; None if there is none."""

    channel: Sender
    call_later: CallLater
    image: Callable[[], MetadataImage]
    broker_epoch: Callable[[], int]
    directory_of: Callable[[TopicPartition], Uuid | None]


class _Replica(NamedTuple):
    topic_id: Uuid
    partition: int
    directory: Uuid


class DirectoryAssignments:
    """Compares and reports. Not thread safe: use it on the event loop."""

    def __init__(self, node_id: int, ports: AssignmentPorts) -> None:
        self._node_id = node_id
        self._ports = ports
        self._timer: TimerHandle | None = None
        self._in_flight = False
        self._closed = False
        # The topics, by name, in which the metadata shows the right directory of each replica of this node.
        self._agreed: dict[str, TopicImage] = {}

    def metadata_published(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Called with each published image."""
        if old is None or old.topics_by_id is not new.topics_by_id or old.features is not new.features:
            self._plan()

    def changed(self, topic_partition: TopicPartition) -> None:
        """Compare a replica soon, because its log was opened or moved to another directory."""
        self._agreed.pop(topic_partition.topic, None)
        self._plan()

    def _plan(self) -> None:
        if not (self._closed or self._timer is not None or self._in_flight):
            self._timer = self._ports.call_later(DELAY_S, self._compare)

    def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _compare(self) -> None:
        self._timer = None
        if self._ports.image().metadata_version < DIRECTORIES_FROM:
            return
        wrong = []
        for replica in self._differing():
            wrong.append(replica)
            if len(wrong) == MOST_PER_REQUEST:
                break
        if wrong:
            self._in_flight = True
            request = self._request(wrong)
            self._ports.channel.send(request, timeout_s=TIMEOUT_S).on_done(self._answered)

    def _differing(self) -> Iterator[_Replica]:
        """The replicas whose directory differs from the metadata."""
        topics = self._ports.image().topics_by_name
        for name in self._agreed.keys() - topics.keys():
            del self._agreed[name]
        for name, topic in topics.items():
            if self._agreed.get(name) is topic:
                continue
            agrees = True
            for index, partition in topic.partitions.items():
                if self._node_id not in partition.replicas:
                    continue
                where = self._ports.directory_of(TopicPartition(name, index))
                if where is not None and partition.directory_of(self._node_id) != where:
                    agrees = False
                    yield _Replica(topic.topic_id, index, where)
            if agrees:
                self._agreed[name] = topic

    def _request(self, replicas: list[_Replica]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, list[int]]] = {}
        for topic_id, index, directory in replicas:
            directories.setdefault(directory, {}).setdefault(topic_id, []).append(index)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._ports.broker_epoch(),
            directories=[
                RequestDirectoryData(directory, [_topic(*item) for item in topics.items()])
                for directory, topics in directories.items()
            ],
        )

    def _answered(self, done: Completion[Any]) -> None:
        self._in_flight = False
        try:
            code = done.result().error_code
        except KafkaError as error:
            code = error.code
        if code:
            logger.info("Failed to report the directories of replicas: error %d", code)
        # Compares again: errors are retried, and there may be more replicas than fit into one request.
        self._plan()


def _topic(topic_id: Uuid, indexes: list[int]) -> RequestTopicData:
    return RequestTopicData(topic_id, [RequestPartitionData(index) for index in indexes])
