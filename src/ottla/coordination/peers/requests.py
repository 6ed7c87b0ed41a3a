"""All requests of this broker to other brokers, by kind. Connections are opened when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.common.errors import KafkaError
from ottla.coordination.peers.batching import PeerQueue
from ottla.coordination.peers.channels import PeerChannels
from ottla.coordination.peers.dead_letters import DeadLetterBatch, DeadLetterKind
from ottla.coordination.peers.end_offsets import EndOffsetKind
from ottla.coordination.peers.markers import MarkerKind, Markers
from ottla.coordination.peers.share_states import REQUEST_TYPES, ShareStateKind
from ottla.coordination.peers.transaction_partitions import AddPartitionsKind
from ottla.coordinators.share.events import Result
from ottla.coordinators.transaction.events import AddPartitions
from ottla.network.node_channel import DEFAULT_OPTIONS, ChannelOptions, NodeChannels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.coordination.peers.channels import Peers
    from ottla.coordination.peers.end_offsets import EndOffset
    from ottla.coordination.peers.markers import Outcomes
    from ottla.coordination.peers.transaction_partitions import Errors
    from ottla.metadata.image import Endpoint, MetadataImage


class PeerRequests:
    """The questions to other brokers. `connect(purpose)` opens the connections of one purpose."""

    def __init__(self, connect: Callable[[str], Peers], timeout_s: float) -> None:
        """`timeout_s` limits each request (request.timeout.ms)."""
        self._connect = connect
        self._timeout_s = timeout_s

    @cached_property
    def markers(self) -> PeerQueue[Markers, Outcomes]:
        """Ends of transactions, for the leaders of their partitions."""
        return PeerQueue(MarkerKind(), self._connect("txn-marker-sender"), self._timeout_s)

    @cached_property
    def transactions(self) -> PeerQueue[AddPartitions, Errors]:
        """Partitions of transactions, for their coordinators."""
        return PeerQueue(AddPartitionsKind(), self._connect("add-partitions-to-txn"), self._timeout_s)

    @cached_property
    def end_offsets(self) -> PeerQueue[tuple[str, int], EndOffset]:
        """High watermarks, from the leaders of partitions."""
        return PeerQueue(EndOffsetKind(), self._connect("partition-metadata"), self._timeout_s)

    @cached_property
    def dead_letters(self) -> PeerQueue[DeadLetterBatch, KafkaError | None]:
        """Batches for dead letter topics, for the leaders of their partitions."""
        return PeerQueue(DeadLetterKind(), self._connect("dead-letters"), self._timeout_s)

    @cached_property
    def share_states(self) -> Mapping[type, PeerQueue[Any, Result]]:
        """Share state, for its coordinators, by the type of the request."""
        peers = self._connect("persister")
        return {each: PeerQueue(ShareStateKind(each), peers, self._timeout_s) for each in REQUEST_TYPES}


class PeerConnections:
    """The connections of all purposes. `endpoint(node_id)` is the address of a broker that is alive, or None."""

    def __init__(
        self,
        node_id: int,
        endpoint: Callable[[int], Endpoint | None],
        options: ChannelOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._node_id = node_id
        self._endpoint = endpoint
        self._options = options
        self._channels: dict[str, PeerChannels] = {}

    def connect(self, purpose: str) -> Peers:
        """The brokers, on connections for this purpose."""
        channels = self._channels.get(purpose)
        if channels is None:
            nodes = NodeChannels(f"broker-{self._node_id}-{purpose}", options=self._options)
            channels = self._channels[purpose] = PeerChannels(nodes, self._endpoint)
        return channels

    def publish(self, image: MetadataImage) -> None:
        """Close the connections to brokers that are fenced or not registered: their requests fail now."""
        if self._channels:
            alive = [node_id for node_id, broker in image.brokers.items() if not broker.fenced]
            for channels in self._channels.values():
                channels.retain(alive)

    def close(self) -> None:
        """Close all connections; their requests fail."""
        for channels in self._channels.values():
            channels.retain(())
