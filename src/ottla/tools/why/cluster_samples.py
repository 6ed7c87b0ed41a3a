"""Samples of a cluster: what the protocol shows about it, at the start and the end of an observation."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ottla.clients import admin as api
from ottla.clients.errors import BrokerError, ClientError, UnsupportedByBroker
from ottla.common.ids import TopicPartition
from ottla.tools.why.model import Watch

ANSWER_S: Final = 5.0
"""How long one broker or the controller may take to answer: one that is paused must not hold up the report."""
MOVED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
MIN_ISR: Final = "min.insync.replicas"
T = TypeVar("T")


@dataclass(frozen=True)
class ClusterSample:
    """The cluster at one time. `silent` has the brokers without log directories in the answer, with the reason."""

    at_ms: int
    cluster: api.ClusterDescription
    topics: Mapping[str, api.TopicDescription]
    moves: Mapping[TopicPartition, api.Reassignment]
    quorum: api.Quorum | None
    directories: Mapping[int, Sequence[api.LogDirectory]]
    silent: Mapping[int, ClientError] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def active(self) -> frozenset[int]:
        """The brokers that are registered and not fenced."""
        return frozenset(each.node_id for each in self.cluster.brokers if not each.is_fenced)

    def size(self, partition: TopicPartition, node: int) -> int | None:
        """The bytes of a replica; None if they are unknown."""
        for directory in self.directories.get(node, ()):
            replica = directory.replicas.get(partition)
            if replica is not None and not replica.is_future:
                return replica.size
        return None


@dataclass(frozen=True)
class ClusterObservation:
    """Two samples, and the settings and features at the end. The settings have the names of this module."""

    first: ClusterSample
    last: ClusterSample
    topic_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[int, api.Features] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """The time between the samples."""
        return (self.last.at_ms - self.first.at_ms) / 1000


async def observe_cluster(admin: api.AsyncAdmin, watch: Watch) -> ClusterObservation:
    """Sample a cluster twice, `watch.seconds` apart."""
    first = await sample(admin, watch.now_ms())
    await watch.pause(watch.seconds)
    last = await sample(admin, watch.now_ms())
    topics = [api.ConfigResource.topic(name) for name in last.topics]
    brokers = [api.ConfigResource.broker(node) for node in sorted(last.active - last.silent.keys())]
    of_brokers = await _settings(admin, brokers, RATES)
    return ClusterObservation(
        first,
        last,
        await _settings(admin, topics, (MIN_ISR, *MOVED)),
        {int(name): rows for name, rows in of_brokers.items()},
        await read_features(admin, [int(each.name) for each in brokers]),
    )


async def sample(admin: api.AsyncAdmin, now_ms: int) -> ClusterSample:
    """Read the cluster once. Parts that a broker does not support, or the user may not read, are `unknown`."""
    unknown: dict[str, str] = {}
    try:
        cluster = await admin.describe_cluster(include_fenced=True)
    except UnsupportedByBroker:
        cluster = await admin.describe_cluster()
    names = [each.name for each in await admin.list_topics(include_internal=True)]
    active = [each.node_id for each in cluster.brokers if not each.is_fenced]
    topics = await _read(unknown, "partitions", admin.describe_topics(names), {}) if names else {}
    quorum = await _read(unknown, "quorum", admin.describe_quorum(timeout_s=ANSWER_S), None)
    moves = await _read(unknown, "moves", admin.list_partition_reassignments(timeout_s=ANSWER_S), {})
    directories, silent = await _by_broker(admin.describe_log_dirs(active, timeout_s=ANSWER_S), active)
    return ClusterSample(now_ms, cluster, topics, moves, quorum, directories, silent, unknown)


async def _read(unknown: dict[str, str], part: str, call: Awaitable[T], otherwise: T) -> T:
    """Return the result of a call, or `otherwise`; the reason is noted in `unknown`."""
    try:
        return await call
    except ClientError as error:
        unknown[part] = " ".join(str(error).split())
        return otherwise


async def _by_broker(
    call: Awaitable[dict[int, T]], brokers: Sequence[int]
) -> tuple[dict[int, T], Mapping[int, ClientError]]:
    """Return the results by broker, and the errors of the others."""
    try:
        return await call, {}
    except api.PartialFailure as failure:
        return dict(failure.results), failure.errors
    except (BrokerError, ClientError) as error:
        return {}, dict.fromkeys(brokers, error)


async def _settings(
    admin: api.AsyncAdmin, resources: Sequence[api.ConfigResource], names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return settings by the name of the resource; resources that cannot be read are omitted."""
    if not resources:
        return {}
    try:
        found = await admin.describe_configs(resources, timeout_s=ANSWER_S)
    except api.PartialFailure as failure:
        found = dict(failure.results)
    except ClientError:
        return {}
    return {
        resource.name: {name: entries[name].value or "" for name in names if name in entries}
        for resource, entries in found.items()
    }


async def read_features(admin: api.AsyncAdmin, brokers: Sequence[int]) -> dict[int, api.Features]:
    """Return the features of each broker that answers."""
    if not brokers:
        return {}
    found, _ = await _by_broker(admin.describe_features_of(brokers, timeout_s=ANSWER_S), brokers)
    return found
