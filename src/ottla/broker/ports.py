"""The parts of the broker that request handlers use: one small Protocol for each kind of handler.

A handler names the Protocol that it needs, so that its signature shows what it can touch, and a test can pass a stub.
`Broker` satisfies all of them (`tests/unit/broker/test_handlers.py`). Handlers import this module for type checking
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.forwarding import DecisionPorts

if TYPE_CHECKING:
    from ottla.broker.broker import ConnectionsOfBrokers
    from ottla.broker.contracts.contracts import Contracts
    from ottla.broker.controller_client import ControllerClient
    from ottla.broker.mirrors.mirrors import Mirrors
    from ottla.broker.response_cache import ResponseCache
    from ottla.broker.security import Security
    from ottla.broker.telemetry.receiver import ClientTelemetry
    from ottla.cluster.metadata.log import MetadataShell
    from ottla.cluster.metadata.options import NodeIdentity
    from ottla.cluster.node.endpoints import NodeEndpoints
    from ottla.cluster.node.schedulers import Schedulers
    from ottla.cluster.node.settings import NodeSettings
    from ottla.common.clock import Clock
    from ottla.coordination.group_runtime import GroupRuntime
    from ottla.coordination.peers.requests import PeerRequests
    from ottla.coordination.shares.groups import ShareGroups
    from ottla.coordination.transactions.producer_ids import ProducerIds
    from ottla.coordination.transactions.runtime import TransactionRuntime
    from ottla.log import LogManager
    from ottla.partitions.fetch_session import FetchSessionCache
    from ottla.partitions.partitions import Partitions
    from ottla.partitions.replication.directory_moves import DirectoryMoves
    from ottla.partitions.replication.quotas import ReplicationQuotas


class HasMetadata(Protocol):
    """The metadata log and its image."""

    @property
    def metadata(self) -> MetadataShell: ...


class HasSettings(Protocol):
    """The node's settings and the levels of features."""

    @property
    def settings(self) -> NodeSettings: ...


class HasEndpoints(Protocol):
    """The addresses of the nodes."""

    @property
    def endpoints(self) -> NodeEndpoints: ...


class HasClock(Protocol):
    """The clock."""

    @property
    def clock(self) -> Clock: ...


class HasSchedulers(Protocol):
    """The threads, the timers, and the worker of long requests."""

    @property
    def schedulers(self) -> Schedulers: ...


class HasNodeId(Protocol):
    """This node's id."""

    @property
    def node_id(self) -> int: ...


class HasIdentity(Protocol):
    """This node and its cluster."""

    @property
    def identity(self) -> NodeIdentity: ...


class HasLogs(Protocol):
    """The log manager."""

    @property
    def logs(self) -> LogManager: ...


class HasPartitions(Protocol):
    """The partitions that this node leads."""

    @property
    def partitions(self) -> Partitions: ...


class HasResponseCache(Protocol):
    """Cached responses."""

    @property
    def response_cache(self) -> ResponseCache: ...


class HasTelemetry(Protocol):
    """The metrics of clients; None if this node does not receive them."""

    @property
    def telemetry(self) -> ClientTelemetry | None: ...


class HasSecurity(Protocol):
    """The authorizer of this node, and its other protections."""

    @property
    def security(self) -> Security: ...


class HasController(Protocol):
    """The way to the active controller."""

    @property
    def controller(self) -> ControllerClient: ...


class HasConnections(Protocol):
    """The connections that other brokers opened."""

    @property
    def connections(self) -> ConnectionsOfBrokers: ...


class HasGroups(Protocol):
    """The group coordinator."""

    @property
    def groups(self) -> GroupRuntime: ...


class HasShares(Protocol):
    """The share groups of this node."""

    @property
    def shares(self) -> ShareGroups: ...


class HasTransactions(Protocol):
    """The transaction coordinator."""

    @property
    def transactions(self) -> TransactionRuntime: ...


class HasContracts(Protocol):
    """The schema validation of this node."""

    @property
    def contracts(self) -> Contracts: ...


class HasPeers(Protocol):
    """The requests to other brokers."""

    @property
    def peers(self) -> PeerRequests: ...


class GroupPorts(HasGroups, HasSecurity, Protocol):
    """The group coordinator, and the rights of clients."""


class TransactionPorts(HasTransactions, HasSecurity, Protocol):
    """The transaction coordinator, and the rights of clients."""


class PartitionPorts(HasPartitions, HasSecurity, Protocol):
    """The partitions that this node leads, and the rights of clients."""


class AdminPorts(HasMetadata, HasSecurity, Protocol):
    """The metadata log, and the rights of clients."""


class ConsumerGroupPorts(GroupPorts, HasSettings, Protocol):
    """The group coordinator, and whether it serves groups of the consumer protocol."""


class ShareGroupPorts(GroupPorts, HasShares, HasSettings, Protocol):
    """The group coordinator, what this node does for share groups, and whether it serves them."""


class StreamsGroupPorts(GroupPorts, HasSettings, HasController, HasClock, Protocol):
    """The group coordinator, whether it serves streams groups, and the creation of their internal topics."""


class ShareLeaderPorts(ShareGroupPorts, HasMetadata, HasPartitions, HasEndpoints, Protocol):
    """For the requests of members to the leaders of their partitions."""


class ApiVersionsPorts(HasMetadata, HasResponseCache, HasEndpoints, HasTelemetry, Protocol):
    """For `handlers/api_versions.py`."""


class BrokerRequestPorts(HasMetadata, HasClock, Protocol):
    """For the handlers of requests from brokers and controllers."""


class BrokerSessionPorts(BrokerRequestPorts, HasConnections, Protocol):
    """For `handlers/broker_registration.py` and `handlers/broker_heartbeat.py`."""


class ControllerPorts(AdminPorts, HasNodeId, Protocol):
    """For handlers that change topics."""


class ConfigPorts(DecisionPorts, HasSettings, HasSecurity, Protocol):
    """For handlers that change settings."""


class TokenPorts(DecisionPorts, HasSecurity, HasSettings, HasClock, Protocol):
    """For the handlers that create, renew and expire delegation tokens."""


class DescribeTokenPorts(HasSecurity, HasSettings, Protocol):
    """For `handlers/describe_delegation_token.py`."""


class AclPorts(DecisionPorts, HasSchedulers, Protocol):
    """For handlers that change access control lists."""


class DescribeAclsPorts(HasMetadata, HasSecurity, Protocol):
    """For `handlers/describe_acls.py`."""


class DeleteRecordsPorts(PartitionPorts, HasLogs, HasSchedulers, Protocol):
    """For `handlers/delete_records.py`."""


class DescribeClusterPorts(AdminPorts, HasNodeId, HasIdentity, HasEndpoints, Protocol):
    """For `handlers/describe_cluster.py`."""


class DescribeConfigsPorts(AdminPorts, HasNodeId, HasSettings, Protocol):
    """For `handlers/describe_configs.py`."""

    @property
    def mirrors(self) -> Mirrors: ...


class AlterReplicaLogDirsPorts(Protocol):
    """For `handlers/alter_replica_log_dirs.py`."""

    @property
    def directory_moves(self) -> DirectoryMoves: ...


class DescribeLogDirsPorts(HasPartitions, HasLogs, HasMetadata, HasNodeId, Protocol):
    """For `handlers/describe_log_dirs.py`."""


class DescribeQuorumPorts(HasMetadata, HasEndpoints, Protocol):
    """For `handlers/describe_quorum.py`."""


class DescribeTopicPartitionsPorts(AdminPorts, HasSettings, HasEndpoints, Protocol):
    """For `handlers/describe_topic_partitions.py`."""


class FetchPorts(
    PartitionPorts, HasMetadata, HasClock, HasSettings, HasEndpoints, HasConnections, HasSchedulers, Protocol
):
    """For `handlers/fetch.py`."""

    @property
    def fetch_sessions(self) -> FetchSessionCache: ...

    @property
    def replication_quotas(self) -> ReplicationQuotas: ...


class AddPartitionsPorts(TransactionPorts, HasMetadata, Protocol):
    """For `handlers/add_partitions_to_txn.py`."""


class GroupTransactionPorts(HasGroups, HasTransactions, Protocol):
    """For `handlers/add_offsets_to_txn.py`."""


class TxnOffsetCommitPorts(GroupPorts, HasTransactions, HasMetadata, HasPartitions, HasSettings, Protocol):
    """For `handlers/txn_offset_commit.py`."""


class InitProducerIdPorts(TransactionPorts, Protocol):
    """For `handlers/init_producer_id.py`."""

    @property
    def producer_ids(self) -> ProducerIds: ...


class FindCoordinatorPorts(ShareGroupPorts, HasTransactions, HasEndpoints, Protocol):
    """For `handlers/find_coordinator.py`."""


class MetadataPorts(
    AdminPorts,
    HasNodeId,
    HasIdentity,
    HasSettings,
    HasResponseCache,
    HasController,
    HasEndpoints,
    HasSchedulers,
    Protocol,
):
    """For `handlers/metadata.py`."""


class OffsetPorts(GroupPorts, HasMetadata, Protocol):
    """For the handlers of committed offsets."""


class ShareOffsetPorts(ShareGroupPorts, HasMetadata, HasPartitions, HasPeers, Protocol):
    """For the handlers of the start offsets of share groups."""


class ProducePorts(
    PartitionPorts, HasMetadata, HasClock, HasSettings, HasTransactions, HasEndpoints, HasContracts, Protocol
):
    """For `handlers/produce.py`."""
