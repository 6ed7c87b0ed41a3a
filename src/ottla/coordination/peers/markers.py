"""Sends the ends of transactions to the brokers that lead their partitions, for this node's transaction coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError, error_code
from ottla.common.ids import by_topic
from ottla.common.slices import Slices, result_of
from ottla.coordination.transactions.markers import MarkerPorts, write_markers
from ottla.log.transaction_marker import TransactionEnd
from ottla.metadata.image import NO_LEADER
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.coordination.peers.batching import PeerQueue
    from ottla.metadata.image import MetadataImage
    from ottla.protocol.message import Message

# Leaders are looked up in a microsecond each: a yield for each one would cost as much.
LOOKED_UP_AT_ONCE = 32

TopicPartition: TypeAlias = tuple[str, int]
Outcomes: TypeAlias = dict[TopicPartition, ErrorCode]


class Markers(NamedTuple):
    """The end of a transaction in partitions that one broker leads."""

    end: TransactionEnd
    partitions: tuple[TopicPartition, ...]


class MarkerKind:
    """WriteTxnMarkers. The response has one result per producer id, so that a request has one marker of each."""

    least_version = 1

    def group(self, _question: Markers) -> object:
        """All markers may be in one request."""
        return None

    def key(self, question: Markers) -> object:
        """The producer id."""
        return question.end.producer_id

    def request(self, batch: list[Markers]) -> WriteTxnMarkersRequest:
        """One marker for each question."""
        return WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=end.producer_id,
                    producer_epoch=end.producer_epoch,
                    transaction_result=end.commit,
                    topics=[
                        WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                        for name, indexes in by_topic(partitions).items()
                    ],
                    coordinator_epoch=end.coordinator_epoch,
                    transaction_version=end.transaction_version,
                )
                for end, partitions in batch
            ]
        )

    def answers(self, batch: list[Markers], response: Message) -> list[Outcomes]:
        """The outcome of each partition that the response names."""
        assert isinstance(response, WriteTxnMarkersResponse)
        found: dict[int, Outcomes] = {}
        for marker in response.markers:
            outcomes = found.setdefault(marker.producer_id, {})
            for topic in marker.topics:
                for row in topic.partitions:
                    outcomes[topic.name, row.partition_index] = _retried_if_unknown(error_code(row.error_code))
        return [found.get(question.end.producer_id, {}) for question in batch]

    def failure(self, question: Markers, error: KafkaError) -> Outcomes:
        """The same error for all partitions."""
        return dict.fromkeys(question.partitions, error.code)


def _retried_if_unknown(error: ErrorCode) -> ErrorCode:
    """A broker that does not know the partition yet has older metadata: that does not mean that it was deleted."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error


class MarkerQueues(Protocol):
    """The part of `PeerRequests` that is used here."""

    @property
    def markers(self) -> PeerQueue[Markers, Outcomes]: ...


class RemoteMarkerPorts(MarkerPorts, Protocol):
    """The parts of this node, and the way to the other brokers."""

    @property
    def node_id(self) -> int: ...

    @property
    def metadata(self) -> MetadataShell: ...

    @property
    def peers(self) -> MarkerQueues: ...


def write_everywhere(
    node: RemoteMarkerPorts, end: TransactionEnd, partitions: Iterable[TopicPartition]
) -> Slices[Outcomes]:
    """Write the marker into each partition, wherever it is led; returns the outcomes once all are known.

    A partition that the metadata does not have is UNKNOWN_TOPIC_OR_PARTITION, and one without a leader
    LEADER_NOT_AVAILABLE. No other outcome means that it was deleted.
    """
    led, outcomes = yield from _by_leader(node.metadata.image, partitions)
    here = led.pop(node.node_id, [])
    asked: list[Completion[Outcomes]] = []
    if led:
        asked = [node.peers.markers.ask(node_id, Markers(end, tuple(rows))) for node_id, rows in led.items()]
    if here:
        written = yield from write_markers(node, end, here)
        outcomes.update((row, _retried_if_unknown(error)) for row, error in written.items())
    for answer in asked:
        outcomes.update((yield from result_of(answer)))
    return outcomes


def _by_leader(
    image: MetadataImage, partitions: Iterable[TopicPartition]
) -> Slices[tuple[dict[int, list[TopicPartition]], Outcomes]]:
    led: dict[int, list[TopicPartition]] = {}
    outcomes: Outcomes = {}
    for number, (name, index) in enumerate(partitions, 1):
        topic = image.topics_by_name.get(name)
        partition = topic.partitions.get(index) if topic is not None else None
        if partition is None:
            outcomes[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.leader == NO_LEADER:
            outcomes[name, index] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            led.setdefault(partition.leader, []).append((name, index))
        if not number % LOOKED_UP_AT_ONCE:
            yield
    return led, outcomes
