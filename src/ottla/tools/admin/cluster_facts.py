"""The state of a cluster: brokers, features, the quorum, log directories, partitions in trouble, and moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ottla.clients import admin as api
from ottla.clients.errors import BrokerError, UnsupportedByBroker
from ottla.common.ids import TopicPartition
from ottla.metadata.features import METADATA_VERSION_NAMES
from ottla.tools.admin.leaderless import cannot_lead, way_out
from ottla.tools.admin.outcomes import outcomes


def cluster_facts(admin: api.Admin) -> dict[str, Any]:
    unknown: dict[str, str] = {}

    def reported(part: str, call: Callable[[], Any]) -> Any:
        # Old brokers lack some APIs, and the user may not be authorized for all of them.
        try:
            return call()
        except (BrokerError, UnsupportedByBroker) as error:
            unknown[part] = " ".join(str(error).split())
            return None

    try:
        cluster = admin.describe_cluster(include_fenced=True)
    except UnsupportedByBroker:
        cluster = admin.describe_cluster()
    topics, failed = outcomes(admin.describe_topics, None)
    unknown.update((f"topic {name}", " ".join(str(error).split())) for name, error in failed.items())
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(node for partition in partitions for node in partition.replicas)
    directories = reported("log directories", admin.describe_log_dirs) or {}
    for node, rows in directories.items():
        for each in rows:
            if each.error is not None:
                unknown[f"log directory {each.path} of broker {node}"] = " ".join(str(each.error).split())
    active = {broker.node_id for broker in cluster.brokers if not broker.is_fenced}
    troubled = reported("partitions", lambda: _troubled(admin, topics, active)) or []
    moves = reported("moves", admin.list_partition_reassignments) or {}
    features = reported("features", admin.describe_features)
    quorum = reported("quorum", admin.describe_quorum)
    # A broker of a KRaft cluster names any broker as the controller, because clients may send requests to each.
    controller = quorum.leader if quorum else cluster.controller
    brokers = [
        {
            "node_id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.node_id == controller,
            "fenced": broker.is_fenced,
            "leader_count": leaders[broker.node_id],
            "replica_count": replicas[broker.node_id],
            "size": _used(directories.get(broker.node_id)),
        }
        for broker in cluster.brokers
    ]
    level = features.finalized.get("metadata.version") if features else None
    return {
        "cluster_id": cluster.cluster_id,
        "controller": controller,
        "release": _release(level.highest) if level else None,
        "topic_count": len(topics),
        "partition_count": len(partitions),
        "brokers": brokers,
        "features": _feature_rows(features) if features else [],
        "quorum": _quorum_rows(quorum) if quorum else [],
        "log_dirs": _directory_rows(directories),
        "partitions": troubled,
        "moves": reassignment_rows(moves),
        "unknown": unknown,
    }


def _troubled(admin: api.Admin, topics: Mapping[str, Any], active: Collection[int]) -> list[dict[str, Any]]:
    """The partitions that lack a leader or replicas in sync, or have replicas that cannot lead, the worst first."""
    replicated = [name for name, topic in topics.items() if topic.replication_factor > 1]
    least: dict[str, int] = {}
    if replicated:
        configs = admin.describe_configs([api.ConfigResource.topic(name) for name in replicated], names=[_MIN_ISR])
        least = {resource.name: int(entries[_MIN_ISR].value or 1) for resource, entries in configs.items()}
    rows = []
    for name, topic in topics.items():
        for each in topic.partitions:
            stuck = cannot_lead(each, active)
            state = _trouble(each, least.get(name, 1), stuck)
            if state is not None:
                rows.append(
                    {
                        "topic": name,
                        "partition": each.partition,
                        "state": state,
                        "leader": each.leader,
                        "replicas": list(each.replicas),
                        "isr": list(each.isr),
                        "min_isr": least.get(name, 1),
                        "cannot_lead": stuck,
                        "way_out": way_out(each, active),
                    }
                )
    return sorted(rows, key=lambda row: (TROUBLES.index(row["state"]), row["topic"], row["partition"]))


_MIN_ISR = "min.insync.replicas"
TROUBLES = ("offline", "under min ISR", "at min ISR", "cannot lead", "under-replicated")


def _trouble(partition: Any, least: int, stuck: Collection[int] = ()) -> str | None:
    if partition.leader is None:
        return "offline"
    in_sync, replicas = len(partition.isr), len(partition.replicas)
    if in_sync < least and replicas > 1:
        return "under min ISR"
    if in_sync == least and replicas > 1:
        return "at min ISR"
    if stuck:
        return "cannot lead"
    return "under-replicated" if in_sync < replicas else None


def _used(directories: Any) -> int | None:
    if directories is None:
        return None
    return sum(int(replica.size) for directory in directories for replica in directory.replicas.values())


def _release(level: int) -> str | None:
    """Return the name of a level of metadata.version."""
    return METADATA_VERSION_NAMES.get(level)


def _feature_rows(features: api.Features) -> list[dict[str, Any]]:
    return [
        {
            "feature": name,
            "level": features.finalized[name].highest if name in features.finalized else 0,
            "lowest": supported.lowest,
            "highest": supported.highest,
        }
        for name, supported in sorted(features.supported.items())
    ]


def _quorum_rows(quorum: api.Quorum) -> list[dict[str, Any]]:
    roles = (("voter", quorum.voters), ("observer", quorum.observers))
    end = max((replica.log_end_offset for replica in quorum.voters), default=0)
    return [
        {
            "node_id": replica.node_id,
            "role": "leader" if replica.node_id == quorum.leader else role,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "log_end_offset": replica.log_end_offset,
            "lag": end - replica.log_end_offset,
            "last_fetch_ms": replica.last_fetch_ms if replica.last_fetch_ms >= 0 else None,
            "last_caught_up_ms": replica.last_caught_up_ms if replica.last_caught_up_ms >= 0 else None,
        }
        for role, replicas in roles
        for replica in replicas
    ]


def _directory_rows(directories: Any) -> list[dict[str, Any]]:
    return [
        {
            "node_id": node_id,
            "path": directory.path,
            "replica_count": len(directory.replicas),
            "size": sum(replica.size for replica in directory.replicas.values()),
            "free": directory.usable_bytes if directory.usable_bytes >= 0 else None,
            "total": directory.total_bytes if directory.total_bytes >= 0 else None,
        }
        for node_id, rows in sorted(directories.items())
        for directory in rows
    ]


def reassignment_rows(moving: Mapping[TopicPartition, Any]) -> list[dict[str, Any]]:
    """One row for each partition that is moving."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for partition, move in sorted(moving.items())
    ]
