"""The parts of one node, for handlers to use; `composition` creates them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker import late

if TYPE_CHECKING:
    from ottla.broker.contracts.contracts import Contracts
    from ottla.broker.controller_client import ControllerClient
    from ottla.broker.mirrors.mirrors import Mirrors
    from ottla.broker.response_cache import ResponseCache
    from ottla.broker.security import Security
    from ottla.broker.telemetry.receiver import ClientTelemetry
    from ottla.cluster.control.connections import BrokerConnections
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.metadata.options import NodeIdentity
    from ottla.cluster.node.endpoints import NodeEndpoints
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.clock import Clock
    from ottla.coordination.coordinators import Coordinators
    from ottla.coordination.group_runtime import GroupRuntime
    from ottla.coordination.peers.requests import PeerRequests
    from ottla.coordination.shares.groups import ShareGroups
    from ottla.coordination.transactions.producer_ids import ProducerIds
    from ottla.coordination.transactions.runtime import TransactionRuntime
    from ottla.log import LogManager
    from ottla.metadata.image import MetadataImage
    from ottla.network.closing_order import ClosedFirst
    from ottla.partitions.fetch_session import FetchSessionCache
    from ottla.partitions.partitions import Partitions
    from ottla.partitions.replication.directory_moves import DirectoryMoves
    from ottla.partitions.replication.quotas import ReplicationQuotas


class ConnectionsOfBrokers(NamedTuple):
    """The connections that other brokers opened to this node, for heartbeats and for fetches of followers."""

    heartbeats: BrokerConnections
    followers: ClosedFirst


class Caches(NamedTuple):
    """State that this node keeps for its clients."""

    fetch_sessions: FetchSessionCache
    responses: ResponseCache
    telemetry: ClientTelemetry | None


class Copying(NamedTuple):
    """The parts that copy partitions from other disks of this node and from other clusters."""

    directory_moves: DirectoryMoves
    mirrors: Mirrors


@dataclass(slots=True)
class Broker:
    """The parts of one node."""

    identity: NodeIdentity
    settings: NodeSettings
    metadata: MetadataShell
    endpoints: NodeEndpoints
    clock: Clock
    schedulers: Schedulers
    logs: LogManager
    partitions: Partitions
    copying: Copying
    replication_quotas: ReplicationQuotas
    coordinators: Coordinators
    controller: ControllerClient
    connections: ConnectionsOfBrokers
    caches: Caches
    security: Security

    @property
    def node_id(self) -> int:
        """This node's id."""
        return self.identity.node_id

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """The fetch sessions of clients and followers."""
        return self.caches.fetch_sessions

    @property
    def directory_moves(self) -> DirectoryMoves:
        """The moves of replicas between the disks of this node."""
        return self.copying.directory_moves

    @property
    def mirrors(self) -> Mirrors:
        """The copies of topics of other clusters."""
        return self.copying.mirrors

    @property
    def response_cache(self) -> ResponseCache:
        """Encoded responses that depend only on the metadata."""
        return self.caches.responses

    @property
    def telemetry(self) -> ClientTelemetry | None:
        """The metrics of clients; None if this node does not receive them."""
        return self.caches.telemetry

    @property
    def groups(self) -> GroupRuntime:
        """The group coordinator."""
        return self.coordinators.groups

    @property
    def shares(self) -> ShareGroups:
        """The share groups of this node."""
        return self.coordinators.shares

    @property
    def transactions(self) -> TransactionRuntime:
        """The transaction coordinator."""
        return self.coordinators.transactions

    @property
    def producer_ids(self) -> ProducerIds:
        """The producer ids for clients of this node."""
        return self.coordinators.producer_ids

    @property
    def peers(self) -> PeerRequests:
        """The requests to other brokers."""
        return self.coordinators.peers

    @property
    def contracts(self) -> Contracts:
        """The schema validation of this node, which is created at its first use."""
        if self.security.contracts is None:
            self.security.contracts = late.create_contracts(self, self.settings.static)
            self.security.on_close.append(self.security.contracts.close)
        return self.security.contracts

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """Notify the parts of a new image: first quotas and settings, then partitions before coordinators."""
        self.security.publish(old, new)
        if old is None or old.configs is not new.configs:
            self.replication_quotas.publish(new)
            self.settings.follow(new, self.logs.log_directories())
            if self.telemetry is not None:
                self.telemetry.publish(old, new)
        self.endpoints.lost_brokers.publish(old, new)
        self.partitions.publish(old, new)
        self.directory_moves.metadata_published(new)
        if old is not None:
            self.coordinators.publish(old, new)
        self.mirrors.publish(old, new)

    def directory_failed(self, path: str) -> None:
        """Take the replicas in a failed log directory offline."""
        self.partitions.directory_failed(path)
        self.directory_moves.directory_failed(path)

    def close(self) -> None:
        """Fail waiting requests and close the partitions; their logs stay open."""
        for callback in self.security.on_close:
            callback()
        self.mirrors.close()
        self.coordinators.close()
        self.controller.close()
        self.partitions.close()
