"""Plans about the cluster: brokers, log directories, features, the metadata quorum, producers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ottla import __version__
from ottla.clients.admin.core import Call, Plan, Route
from ottla.clients.admin.model import (
    BrokerDescription,
    ClusterDescription,
    Features,
    LogDirectory,
    ProducerDescription,
    Quorum,
    QuorumReplica,
    ReplicaDescription,
    VersionRange,
)
from ottla.clients.errors import BrokerError, error_for
from ottla.common.ids import METADATA_TOPIC, TopicPartition, by_topic
from ottla.protocol.message import Message
from ottla.protocol.messages import (
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    unregister_broker,
    update_features,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def describe(include_fenced: bool) -> Plan[ClusterDescription]:
    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, ClusterDescription | BrokerError]]:
        if response.error_code:
            yield keys[0], error_for(response.error_code, response.error_message)
            return
        rows = sorted(response.brokers, key=lambda row: row.broker_id)
        brokers = tuple(BrokerDescription(r.broker_id, r.host, r.port, r.rack, r.is_fenced) for r in rows)
        controller = response.controller_id if response.controller_id >= 0 else None
        yield keys[0], ClusterDescription(response.cluster_id, controller, brokers)

    request = describe_cluster.DescribeClusterRequest(include_fenced_brokers=include_fenced)
    return (yield Call(Route.ANY, ["the cluster"], lambda _: request, read)).one()  # type: ignore[no-any-return]


def log_directories(
    brokers: Iterable[int] | None, partitions: Iterable[TopicPartition] | None
) -> Call[int, tuple[LogDirectory, ...]]:
    wanted = None
    if partitions is not None:
        wanted = [describe_log_dirs.DescribableLogDirTopic(*item) for item in by_topic(partitions).items()]

    def read(response: Any, nodes: Sequence[int]) -> Iterator[tuple[int, tuple[LogDirectory, ...] | BrokerError]]:
        if response.error_code:
            yield nodes[0], error_for(response.error_code)
            return
        # An offline directory does not hide the others.
        yield nodes[0], tuple(_directory(row) for row in response.results)

    request = describe_log_dirs.DescribeLogDirsRequest(wanted)
    return Call(Route.BROKERS, None if brokers is None else list(brokers), lambda _: request, read)


def _directory(row: describe_log_dirs.DescribeLogDirsResult) -> LogDirectory:
    replicas = {
        TopicPartition(topic.name, p.partition_index): ReplicaDescription(
            p.partition_size, p.offset_lag, p.is_future_key
        )
        for topic in row.topics
        for p in topic.partitions
    }
    error = error_for(row.error_code) if row.error_code else None
    return LogDirectory(row.log_dir, row.total_bytes, row.usable_bytes, dict(sorted(replicas.items())), error)


def features() -> Plan[Features]:
    """Return the features that any broker reports."""
    return (yield _features(Route.ANY, ["the features"])).one()  # type: ignore[no-any-return]


def features_of(brokers: Iterable[int]) -> Call[int, Features]:
    """Return the features that each broker reports."""
    return _features(Route.BROKERS, list(brokers))


def _features(route: Route, keys: list[Any]) -> Call[Any, Features]:
    def read(response: Any, keys: Sequence[Any]) -> Iterator[tuple[Any, Features | BrokerError]]:
        if response.error_code:
            yield keys[0], error_for(response.error_code)
            return
        finalized = {
            row.name: VersionRange(row.min_version_level, row.max_version_level) for row in response.finalized_features
        }
        supported = {row.name: VersionRange(row.min_version, row.max_version) for row in response.supported_features}
        yield keys[0], Features(response.finalized_features_epoch, finalized, supported)

    request = api_versions.ApiVersionsRequest("ottla", __version__)
    return Call(route, keys, lambda _: request, read)


def alter_features(levels: Mapping[str, int], downgrade: bool, validate_only: bool) -> Call[str, None]:
    """Set the levels of features; 0 disables a feature."""

    def request(names: Sequence[str]) -> Message:
        how = SAFE_DOWNGRADE if downgrade else UPGRADE
        rows = [update_features.FeatureUpdateKey(name, levels[name], downgrade, how) for name in names]
        return update_features.UpdateFeaturesRequest(30_000, rows, validate_only)

    def read(response: Any, names: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        # From version 2 on all updates succeed or fail together, so the response has one error.
        error = error_for(response.error_code, response.error_message) if response.error_code else None
        rows = {row.feature: row for row in response.results}
        for name in names:
            row = rows.get(name)
            yield name, error_for(row.error_code, row.error_message) if row and row.error_code else error

    return Call(Route.CONTROLLER, list(levels), request, read)


def quorum() -> Plan[Quorum]:
    module = describe_quorum

    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, Quorum | BrokerError]]:
        if response.error_code:
            yield keys[0], error_for(response.error_code, response.error_message)
            return
        for row in (row for topic in response.topics for row in topic.partitions):  # one
            if row.error_code:
                yield keys[0], error_for(row.error_code, row.error_message)
                return
            voters, observers = _replicas(row.current_voters), _replicas(row.observers)
            yield keys[0], Quorum(row.leader_id, row.leader_epoch, row.high_watermark, voters, observers)

    request = module.DescribeQuorumRequest([module.RequestTopicData(METADATA_TOPIC, [module.RequestPartitionData(0)])])
    return (yield Call(Route.CONTROLLER, ["the quorum"], lambda _: request, read)).one()  # type: ignore[no-any-return]


def _replicas(rows: Iterable[describe_quorum.ReplicaState]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(row.replica_id, row.log_end_offset, row.last_fetch_timestamp, row.last_caught_up_timestamp)
        for row in rows
    )


def producers(partitions: Iterable[TopicPartition]) -> Call[TopicPartition, tuple[ProducerDescription, ...]]:
    def request(keys: Sequence[TopicPartition]) -> Message:
        topics = [describe_producers.TopicRequest(*item) for item in by_topic(keys).items()]
        return describe_producers.DescribeProducersRequest(topics)

    def read(
        response: Any, _: object
    ) -> Iterator[tuple[TopicPartition, tuple[ProducerDescription, ...] | BrokerError]]:
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                if row.error_code:
                    yield key, error_for(row.error_code, row.error_message)
                else:
                    yield key, tuple(_producer(p) for p in row.active_producers)

    return Call(Route.LEADERS, list(partitions), request, read)


def _producer(row: describe_producers.ProducerState) -> ProducerDescription:
    start = row.current_txn_start_offset
    return ProducerDescription(
        row.producer_id,
        row.producer_epoch,
        row.last_sequence,
        row.last_timestamp,
        start if start >= 0 else None,
        row.coordinator_epoch,
    )


def unregister(broker: int) -> Plan[None]:
    def read(response: Any, keys: Sequence[str]) -> Iterator[tuple[str, BrokerError | None]]:
        yield keys[0], error_for(response.error_code, response.error_message) if response.error_code else None

    request = unregister_broker.UnregisterBrokerRequest(broker)
    return (yield Call(Route.CONTROLLER, [f"broker {broker}"], lambda _: request, read)).one()  # type: ignore[no-any-return]
