"""What request handlers use of the broker: one small Protocol for each kind of handler.

A handler names the Protocol that it needs, so that its signature shows what it can touch, and a test can pass a stub.
`Broker` satisfies all of them (`tests/unit/broker/test_handlers.py`). Handlers import this module for type checking
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ottla.broker.auto_topic_creation import AutoTopicCreation
    from ottla.broker.broker import FlushThreads
    from ottla.broker.envelope import Client
    from ottla.broker.forwarding import Forwarding
    from ottla.broker.response_cache import ResponseCache
    from ottla.cluster.control.connections import BrokerConnections
    from ottla.cluster.lost_brokers import LostBrokers
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.common.clock import Clock
    from ottla.common.work import Worker
    from ottla.config import BrokerConfig, Listener, TopicResolver
    from ottla.coordination.group_runtime import GroupRuntime
    from ottla.coordination.peers.requests import PeerRequests
    from ottla.coordination.shares.groups import ShareGroups
    from ottla.coordination.transactions.producer_ids import ProducerIds
    from ottla.coordination.transactions.runtime import TransactionRuntime
    from ottla.log import LogManager
    from ottla.metadata.image import Endpoint, MetadataImage
    from ottla.network.closing_order import ClosedFirst
    from ottla.partitions.fetch_session import FetchSessionCache
    from ottla.partitions.partitions import Partitions
    from ottla.partitions.replication.directory_moves import DirectoryMoves
    from ottla.partitions.replication.quotas import ReplicationQuotas
    from ottla.protocol.frames import RequestHeader


class HasMetadata(Protocol):
    """The metadata log and its image."""

    @property
    def metadata(self) -> MetadataShell: ...


class HasGroups(Protocol):
    """The group coordinator."""

    @property
    def groups(self) -> GroupRuntime: ...


class ConsumerGroupPorts(HasGroups, Protocol):
    """The group coordinator, and whether it serves groups of the consumer protocol."""

    def serves_consumer_groups(self) -> bool: ...


class HasShares(Protocol):
    """What this node does for share groups."""

    @property
    def shares(self) -> ShareGroups: ...


class HasPartitions(Protocol):
    """The partitions that this node leads."""

    @property
    def partitions(self) -> Partitions: ...


class ShareGroupPorts(HasGroups, HasShares, Protocol):
    """The group coordinator, what this node does for share groups, and whether it serves them."""

    def serves_share_groups(self) -> bool: ...


class ShareLeaderPorts(ShareGroupPorts, HasPartitions, Protocol):
    """For the requests of members to the leaders of their partitions."""

    def address(self, node_id: int, listener: str) -> tuple[str, int, str | None] | None: ...


class HasTransactions(Protocol):
    """The transaction coordinator."""

    @property
    def transactions(self) -> TransactionRuntime: ...


class HasNodeId(Protocol):
    """This node's id."""

    @property
    def node_id(self) -> int: ...


class HasConfig(Protocol):
    """The broker's settings."""

    @property
    def config(self) -> BrokerConfig: ...


class HasClock(Protocol):
    """The clock."""

    @property
    def clock(self) -> Clock: ...


class HasLogs(Protocol):
    """The log manager."""

    @property
    def logs(self) -> LogManager: ...


class HasResponseCache(Protocol):
    """Cached responses."""

    @property
    def response_cache(self) -> ResponseCache: ...


class HasClusterId(Protocol):
    """The cluster's id."""

    @property
    def cluster_id(self) -> str: ...


class HasControllerListeners(Protocol):
    """The listeners of the controller."""

    @property
    def controller_endpoints(self) -> list[Listener]: ...


class ApiVersionsPorts(HasMetadata, HasResponseCache, Protocol):
    """For `handlers/api_versions.py`."""

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]: ...

    def is_controller_listener(self, listener: str) -> bool: ...


class BrokerRequestPorts(HasMetadata, HasClock, Protocol):
    """For the handlers of requests from brokers and controllers."""


class BrokerSessionPorts(BrokerRequestPorts, Protocol):
    """For `handlers/broker_registration.py` and `handlers/broker_heartbeat.py`."""

    @property
    def broker_connections(self) -> BrokerConnections: ...


class EnvelopePorts(HasMetadata, Protocol):
    """For `handlers/envelope.py`."""

    def handle_forwarded(self, client: Client, data: bytes) -> tuple[RequestHeader, Any]: ...


class ControllerPorts(HasMetadata, HasNodeId, Protocol):
    """For handlers that change topics."""


class ConfigPorts(ControllerPorts, Protocol):
    """For handlers that change settings."""

    @property
    def static_config(self) -> BrokerConfig: ...

    @property
    def forwarding(self) -> Forwarding: ...

    def is_controller_listener(self, listener: str) -> bool: ...


class DeleteRecordsPorts(HasPartitions, HasLogs, Protocol):
    """For `handlers/delete_records.py`."""

    @property
    def flush_threads(self) -> FlushThreads: ...


class DescribeClusterPorts(HasMetadata, HasNodeId, HasClusterId, HasControllerListeners, Protocol):
    """For `handlers/describe_cluster.py`."""

    def is_controller_listener(self, listener: str) -> bool: ...

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None: ...

    def controller_id(self, available: Collection[int]) -> int: ...


class DescribeConfigsPorts(HasMetadata, HasNodeId, HasConfig, Protocol):
    """For `handlers/describe_configs.py`."""

    def topic_resolver(self, image: MetadataImage) -> TopicResolver: ...


class AlterReplicaLogDirsPorts(Protocol):
    """For `handlers/alter_replica_log_dirs.py`."""

    @property
    def directory_moves(self) -> DirectoryMoves: ...


class DescribeLogDirsPorts(HasPartitions, HasLogs, HasMetadata, HasNodeId, Protocol):
    """For `handlers/describe_log_dirs.py`."""


class DescribeQuorumPorts(HasMetadata, HasControllerListeners, Protocol):
    """For `handlers/describe_quorum.py`."""


class DescribeTopicPartitionsPorts(HasMetadata, HasConfig, Protocol):
    """For `handlers/describe_topic_partitions.py`."""

    def endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]: ...


class HasAddresses(Protocol):
    """The addresses of the nodes."""

    def address(self, node_id: int, listener: str) -> tuple[str, int, str | None] | None: ...


class FetchPorts(HasPartitions, HasClock, HasConfig, HasAddresses, Protocol):
    """For `handlers/fetch.py`."""

    @property
    def closed_first(self) -> ClosedFirst: ...

    @property
    def fetch_sessions(self) -> FetchSessionCache: ...

    @property
    def replication_quotas(self) -> ReplicationQuotas: ...

    @property
    def worker(self) -> Worker: ...


class AddPartitionsPorts(HasTransactions, HasMetadata, Protocol):
    """For `handlers/add_partitions_to_txn.py`."""


class GroupTransactionPorts(HasGroups, HasTransactions, Protocol):
    """For `handlers/add_offsets_to_txn.py`."""


class TxnOffsetCommitPorts(HasGroups, HasTransactions, HasMetadata, HasPartitions, HasConfig, Protocol):
    """For `handlers/txn_offset_commit.py`."""


class InitProducerIdPorts(HasTransactions, Protocol):
    """For `handlers/init_producer_id.py`."""

    @property
    def producer_ids(self) -> ProducerIds: ...


class FindCoordinatorPorts(ShareGroupPorts, HasTransactions, Protocol):
    """For `handlers/find_coordinator.py`."""

    def live_endpoint(self, node_id: int, listener: str) -> Endpoint | None: ...


class MarkerPorts(HasPartitions, HasGroups, Protocol):
    """For `transaction_markers.py`."""


class RemoteMarkerPorts(MarkerPorts, HasMetadata, HasNodeId, Protocol):
    """For `peers/markers.py`."""

    @property
    def peers(self) -> PeerRequests: ...


class MetadataPorts(HasMetadata, HasNodeId, HasClusterId, HasConfig, HasResponseCache, Protocol):
    """For `handlers/metadata.py`."""

    @property
    def auto_topic_creation(self) -> AutoTopicCreation: ...

    @property
    def lost_brokers(self) -> LostBrokers: ...

    @property
    def worker(self) -> Worker: ...

    def endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]: ...

    def listed_endpoints(self, listener: str) -> list[tuple[int, str, int, str | None]]: ...

    def controller_id(self, available: Collection[int]) -> int: ...


class OffsetPorts(HasGroups, HasMetadata, Protocol):
    """For the handlers of committed offsets."""


class ShareOffsetPorts(ShareGroupPorts, HasMetadata, HasPartitions, Protocol):
    """For the handlers of the start offsets of share groups."""

    @property
    def peers(self) -> PeerRequests: ...


class ProducePorts(HasPartitions, HasClock, HasConfig, HasTransactions, HasAddresses, Protocol):
    """For `handlers/produce.py`."""
