"""Samples of a cluster: what the protocol shows about it, at the start and the end of an observation."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ottla.clients import admin as api
from ottla.clients.errors import (
    BrokerUnavailable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from ottla.common.ids import TopicPartition
from ottla.tools.why.model import Watch

ANSWER_S: Final = 5.0
"""How long one broker or the controller may take to answer: one that is paused must not hold up the report."""
MOVED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
MIN_ISR: Final = "min.insync.replicas"
_NO_ANSWER: Final = (BrokerUnavailable, ConnectionLost, RequestTimedOut)
K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True)
class ClusterSample:
    """The cluster at one time.

    `silent` has the brokers that do not answer, and `unknown` the parts that could not be read, with the reasons.
    `unanswered` has the unknown parts for which no node answered, so that a repetition may succeed.
    """

    at_ms: int
    cluster: api.ClusterDescription
    topics: Mapping[str, api.TopicDescription]
    moves: Mapping[TopicPartition, api.Reassignment]
    quorum: api.Quorum | None
    directories: Mapping[int, Sequence[api.LogDirectory]]
    silent: Mapping[int, ClientError] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    unanswered: frozenset[str] = frozenset()

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
    """Two samples, and the settings and features at the end; `unknown` has the parts that could not be read."""

    first: ClusterSample
    last: ClusterSample
    topic_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broker_settings: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[int, api.Features] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

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
    unknown: dict[str, str] = {}
    of_brokers = await read_settings(admin, brokers, unknown)
    return ClusterObservation(
        first,
        last,
        await read_settings(admin, topics, unknown),
        {int(name): rows for name, rows in of_brokers.items()},
        await read_features(admin, [int(each.name) for each in brokers], unknown),
        unknown,
    )


async def sample(admin: api.AsyncAdmin, now_ms: int) -> ClusterSample:
    """Read the cluster once. Parts that a broker does not support, or the user may not read, are `unknown`."""
    unknown, unanswered = dict[str, str](), set[str]()

    async def read(part: str, call: Awaitable[T], otherwise: T) -> T:
        try:
            return await call
        except ClientError as error:
            unknown[part] = _reason(error)
            if error.retriable or isinstance(error, _NO_ANSWER):
                unanswered.add(part)
            return otherwise

    try:
        cluster = await admin.describe_cluster(include_fenced=True)
    except UnsupportedByBroker:
        cluster = await admin.describe_cluster()
    names = [each.name for each in await admin.list_topics(include_internal=True)]
    active = [each.node_id for each in cluster.brokers if not each.is_fenced]
    topics = await read_topics(admin, names, unknown)
    quorum = await read("quorum", admin.describe_quorum(timeout_s=ANSWER_S), None)
    moves = await read("moves", admin.list_partition_reassignments(timeout_s=ANSWER_S), {})
    directories, errors = await _results(admin.describe_log_dirs(active, timeout_s=ANSWER_S), active)
    # A broker that answers with an error, for example to a user without the right to ask, is not silent.
    silent = {node: error for node, error in errors.items() if isinstance(error, _NO_ANSWER)}
    rest = {f"log directories of broker {node}": _reason(errors[node]) for node in errors.keys() - silent.keys()}
    unknown |= dict(sorted(rest.items()))
    return ClusterSample(
        now_ms, cluster, topics, moves, quorum, directories, silent, unknown, unanswered=frozenset(unanswered)
    )


def _reason(error: ClientError) -> str:
    return " ".join(str(error).split())


async def _results(call: Awaitable[Mapping[K, T]], keys: Sequence[K]) -> tuple[dict[K, T], dict[K, ClientError]]:
    """Return the results by key, and the errors of the others."""
    try:
        return dict(await call), {}
    except api.PartialFailure as failure:
        return dict(failure.results), dict(failure.errors)
    except ClientError as error:
        return {}, dict.fromkeys(keys, error)


async def read_topics(
    admin: api.AsyncAdmin, names: Sequence[str], unknown: dict[str, str]
) -> dict[str, api.TopicDescription]:
    """Return the topics that still exist."""
    if not names:
        return {}
    found, errors = await _results(admin.describe_topics(names), names)
    unknown |= {f"partitions of topic {name}": _reason(error) for name, error in errors.items() if not _deleted(error)}
    return found


def _deleted(error: ClientError) -> bool:
    """Whether a topic was deleted after it was listed."""
    return isinstance(error, UnknownTopicOrPartition)


async def read_settings(
    admin: api.AsyncAdmin, resources: Sequence[api.ConfigResource], unknown: dict[str, str]
) -> dict[str, dict[str, str]]:
    """Return the settings by the name of the resource; errors are noted in `unknown`."""
    if not resources:
        return {}
    found, errors = await _results(admin.describe_configs(resources, timeout_s=ANSWER_S), resources)
    unknown |= {f"settings of {each}": _reason(error) for each, error in errors.items() if not _deleted(error)}
    return {key.name: {name: each.value or "" for name, each in rows.items()} for key, rows in found.items()}


async def read_features(
    admin: api.AsyncAdmin, brokers: Sequence[int], unknown: dict[str, str]
) -> dict[int, api.Features]:
    """Return the features of each broker; errors are noted in `unknown`."""
    if not brokers:
        return {}
    found, errors = await _results(admin.describe_features_of(brokers, timeout_s=ANSWER_S), brokers)
    unknown |= {f"features of broker {node}": _reason(error) for node, error in errors.items()}
    return found
