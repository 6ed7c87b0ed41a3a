"""Health of one node, for probes and for rolling restarts: is it alive, is it ready, may it stop now?

`read` asks the node itself, with an asyncio admin client, and `read_for_stop` also the active controller; the rest are
decisions without I/O. Readiness needs no controller: a node stays ready while the quorum elects one. A node that does
not answer has no health: it is starting, has ended or is broken, which only the time since its start tells apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.clients import admin as api
from ottla.clients.admin.settings import read_settings
from ottla.clients.errors import UnknownTopicOrPartition, UnsupportedByBroker
from ottla.common import health
from ottla.common.health import Health, Standing, some
from ottla.common.ids import METADATA_TOPIC, TopicPartition
from ottla.tools import late

MIN_ISR: Final = "min.insync.replicas"
CAUGHT_UP_WITHIN_MS: Final = 10_000
"""A voter that was at the end of the metadata log within this time can take part in the next election."""


@dataclass(frozen=True)
class Facts:
    """The state of a cluster as one of its nodes knows it.

    Partitions and directories are empty unless the node is a registered and unfenced broker. `read` skips
    `min_isr` (by topic) and `quorum`.
    """

    node: int
    now_ms: int
    cluster: api.ClusterDescription
    partitions: Mapping[TopicPartition, api.PartitionDescription]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    quorum: api.Quorum | None = None
    directories: tuple[api.LogDirectory, ...] = ()

    def own(self) -> Iterator[tuple[TopicPartition, api.PartitionDescription]]:
        """Yield the partitions that have a replica on this node."""
        return ((name, each) for name, each in self.partitions.items() if self.node in each.replicas)


async def only_broker(settings: Mapping[str, object]) -> int | None:
    """Return the id of the only broker, when a node answers; None if there are several. Raises ClientError.

    Needs no admin client, whose import takes more time than the rest of a probe.
    """
    cluster = late.Cluster(read_settings(settings, None, {}).network)
    try:
        await cluster.start()
        nodes = list(cluster.view.nodes)
        return nodes[0] if len(nodes) == 1 else None
    finally:
        await cluster.close()


async def node_of(admin: api.AsyncAdmin, timeout_s: float) -> int | None:
    """Return the id of the only broker; None if the cluster has several, or none is registered."""
    brokers = (await _cluster(admin, timeout_s)).brokers
    return brokers[0].node_id if len(brokers) == 1 else None


async def read(admin: api.AsyncAdmin, node: int, timeout_s: float, now_ms: int) -> Facts:
    """Read what readiness needs. Raises ClientError."""
    facts = Facts(node, now_ms, await _cluster(admin, timeout_s), {})
    if _why_not_serving(facts):
        return facts  # it may not have the metadata yet
    # All topics in one request: a topic that is deleted meanwhile is not an error.
    topics = await admin.describe_topics(None, timeout_s=timeout_s)
    directories = await admin.describe_log_dirs([node], timeout_s=timeout_s)
    partitions = {
        TopicPartition(name, each.partition): each
        for name, topic in sorted(topics.items())
        for each in topic.partitions
    }
    return replace(facts, partitions=partitions, directories=tuple(directories.get(node, ())))


async def read_for_stop(admin: api.AsyncAdmin, facts: Facts, timeout_s: float) -> Facts:
    """Add what `obstacles` needs: the quorum, and the settings of the node's topics. Raises ClientError."""
    resources = [api.ConfigResource.topic(name) for name in sorted({name.topic for name, _ in facts.own()})]
    settings: Mapping[api.ConfigResource, Mapping[str, api.ConfigEntry]]
    try:
        settings = await admin.describe_configs(resources, names=[MIN_ISR], timeout_s=timeout_s) if resources else {}
    except api.PartialFailure as failure:
        # Topics that were deleted meanwhile do not need the node.
        if not all(isinstance(error, UnknownTopicOrPartition) for error in failure.errors.values()):
            raise
        settings = failure.results
    min_isr = {key.name: int(rows[MIN_ISR].value or 1) for key, rows in settings.items()}
    return replace(facts, min_isr=min_isr, quorum=await admin.describe_quorum(timeout_s=timeout_s))


async def _cluster(admin: api.AsyncAdmin, timeout_s: float) -> api.ClusterDescription:
    try:
        return await admin.describe_cluster(include_fenced=True, timeout_s=timeout_s)
    except UnsupportedByBroker:
        return await admin.describe_cluster(timeout_s=timeout_s)


def _why_not_serving(facts: Facts) -> str:
    """Return why the node is not a broker that serves clients: not registered, or fenced; "" if it is one."""
    return health.why_not_serving({each.node_id: each.is_fenced for each in facts.cluster.brokers}.get(facts.node))


def readiness(facts: Facts) -> Health:
    """Return the state of the node: ready if it is unfenced, all its disks work and all its replicas are in sync."""
    failed = sum(bool(each.error) for each in facts.directories)
    behind = [name for name, each in facts.own() if facts.node not in each.isr]
    return health.readiness(Standing(facts.node, _why_not_serving(facts), failed, behind))


def obstacles(facts: Facts) -> tuple[str, ...]:
    """Return why the node should not stop: partitions would become unwritable, or the quorum would lose its majority.

    A partition with one replica, and a quorum of one or two voters, cannot be spared the stop of their node. What the
    stop would cost is unknown for a node that is neither an unfenced broker nor a voter, and with invisible replicas.
    """
    known = _why_not_serving(facts)
    if known and not _is_voter(facts):
        return (f"the node {known}, and it is not a voter of the metadata quorum",)
    behind, unwritable = [], []
    for name, each in facts.own():
        if len(each.replicas) == 1:
            continue
        if len(each.isr) < len(each.replicas):
            behind.append(name)
        left = set(each.isr) - {facts.node}
        # A topic that needs all replicas is unwritable without any one of them, whenever the node stops.
        if len(left) < min(facts.min_isr.get(name.topic, 1), len(each.replicas) - 1):
            unwritable.append(name)
    found = []
    stored = {name for each in facts.directories for name in each.replicas if name.topic != METADATA_TOPIC}
    if hidden := sorted(stored - facts.partitions.keys()):
        found.append(some("replicas of this node are not visible to this user, who needs the right Describe", hidden))
    if behind:
        found.append(some("partitions with a replica on this node are under-replicated", behind))
    if unwritable:
        found.append(some("partitions would have too few in-sync replicas", unwritable))
    return (*found, *_quorum_obstacles(facts))


def _is_voter(facts: Facts) -> bool:
    return facts.quorum is not None and facts.node in {each.node_id for each in facts.quorum.voters}


def _quorum_obstacles(facts: Facts) -> Iterator[str]:
    quorum = facts.quorum
    if quorum is None:
        yield "the metadata quorum is not known"
        return
    if len(quorum.voters) < 3 or not _is_voter(facts):
        return
    current = {
        each.node_id
        for each in quorum.voters
        if each.node_id == quorum.leader or facts.now_ms - each.last_caught_up_ms <= CAUGHT_UP_WITHIN_MS
    }
    needed = len(quorum.voters) // 2 + 1
    if len(current - {facts.node}) < needed:
        behind = ", ".join(str(each.node_id) for each in quorum.voters if each.node_id not in current)
        yield f"the metadata quorum needs {needed} other voters, and these are not caught up: {behind}"
