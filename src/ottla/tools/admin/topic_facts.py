"""The state of topics: partitions with replicas, offsets and sizes, and the settings.

The number of records is the difference of the latest and the earliest offset. It includes the gaps that compaction
and transactions leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients import admin as api
from ottla.clients.errors import BrokerError, UnsupportedByBroker
from ottla.common.ids import TopicPartition
from ottla.metadata.mirrors import MIRROR_SETTING, STATE_SETTING, is_read_only_state
from ottla.tools.admin.leaderless import active_brokers, cannot_lead, way_out

MIRROR_SETTINGS: Final = (MIRROR_SETTING, STATE_SETTING)


class Facts(NamedTuple):
    """The state of a topic: its description, its settings by name, and a row for each partition."""

    topic: api.TopicDescription
    configs: dict[str, api.ConfigEntry]
    partitions: list[dict[str, Any]]

    def summary(self) -> dict[str, Any]:
        """Return the topic as one row. A sum is None if the value of a partition is unknown."""
        policy = self.configs.get("cleanup.policy")
        return {
            "topic": self.topic.name,
            "topic_id": self.topic.topic_id,
            "internal": self.topic.is_internal,
            "partition_count": len(self.partitions),
            "replication_factor": self.topic.replication_factor,
            "records": _sum(row["records"] for row in self.partitions),
            "size": _sum(row["size"] for row in self.partitions),
            "size_of_replicas": _sum(row["size_of_replicas"] for row in self.partitions),
            "cleanup_policy": policy.value if policy else None,
            "under_replicated": sum(len(row["isr"]) < len(row["replicas"]) for row in self.partitions),
            "without_leader": sum(row["leader"] is None for row in self.partitions),
        }

    @property
    def mirror(self) -> tuple[str, str] | None:
        """The mirror of the topic, and the topic's state in it; None if it has none."""
        return mirror_of(self.configs)

    def overrides(self) -> dict[str, str | None]:
        """Return the settings that were set for this topic."""
        return {name: entry.value for name, entry in self.configs.items() if entry.source is api.ConfigSource.TOPIC}


def mirror_of(configs: Mapping[str, api.ConfigEntry]) -> tuple[str, str] | None:
    """Return the mirror of a topic with these settings, and the topic's state in it; None if it has none."""
    name, state = configs.get(MIRROR_SETTING), configs.get(STATE_SETTING)
    return (name.value, state.value) if name and name.value and state and state.value else None


def copies_of(configs: Mapping[api.ConfigResource, Mapping[str, api.ConfigEntry]]) -> dict[str, str]:
    """Return the topics that clients cannot write, since they are copies, each with its mirror."""
    mirrors = {resource.name: mirror_of(settings) for resource, settings in configs.items()}
    return {name: found[0] for name, found in mirrors.items() if found is not None and is_read_only_state(found[1])}


def copied_topics(admin: api.Admin, names: Iterable[str]) -> dict[str, str]:
    """Return `copies_of` these topics, without topics whose settings the user may not read."""
    resources = [api.ConfigResource.topic(name) for name in sorted(names)]
    return copies_of(_reported(admin.describe_configs, resources, names=MIRROR_SETTINGS)) if resources else {}


def facts_of(admin: api.Admin, names: Sequence[str]) -> list[Facts]:
    """Read the state of topics, in this order. Settings, offsets and sizes that a broker does not report are None."""
    if not names:
        return []
    topics = admin.describe_topics(names)
    led = [TopicPartition(t.name, p.partition) for t in topics.values() for p in t.partitions if p.leader is not None]
    partitions = [TopicPartition(t.name, p.partition) for t in topics.values() for p in t.partitions]
    earliest = _reported(admin.list_offsets, dict.fromkeys(led, api.OffsetSpec.EARLIEST)) if led else {}
    latest = _reported(admin.list_offsets, dict.fromkeys(led, api.OffsetSpec.LATEST)) if led else {}
    configs = _reported(admin.describe_configs, [api.ConfigResource.topic(name) for name in names])
    sizes: dict[TopicPartition, dict[int | None, int]] = {}
    for node_id, directories in _reported(admin.describe_log_dirs, partitions=partitions).items():
        for directory in directories:
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes.setdefault(partition, {})[node_id] = replica.size

    # Only a partition without a leader, or with an offline replica in sync, needs the list of brokers.
    described = [partition for topic in topics.values() for partition in topic.partitions]
    active = (
        active_brokers(admin) if any(p.leader is None or {*p.isr} & {*p.offline_replicas} for p in described) else ()
    )

    def row(topic: str, partition: api.PartitionDescription) -> dict[str, Any]:
        key = TopicPartition(topic, partition.partition)
        first, last = earliest.get(key), latest.get(key)
        return {
            "partition": partition.partition,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "offline": list(partition.offline_replicas),
            "eligible": list(partition.eligible_leader_replicas),
            "last_known_leader": list(partition.last_known_elr),
            "cannot_lead": cannot_lead(partition, active),
            "way_out": way_out(partition, active),
            "earliest": first.offset if first else None,
            "latest": last.offset if last else None,
            "records": last.offset - first.offset if first and last else None,
            "size": sizes.get(key, {}).get(partition.leader),
            "size_of_replicas": sum(sizes[key].values()) if key in sizes else None,
        }

    return [
        Facts(
            topics[name],
            configs.get(api.ConfigResource.topic(name), {}),
            [row(name, p) for p in topics[name].partitions],
        )
        for name in names
    ]


def _reported(call: Callable[..., Mapping[Any, Any]], *arguments: Any, **options: Any) -> Mapping[Any, Any]:
    """Return the results that brokers report: old ones lack some APIs, and the user may lack some authorizations."""
    try:
        return call(*arguments, **options)
    except api.PartialFailure as failure:
        return failure.results
    except (BrokerError, UnsupportedByBroker):
        return {}


def _sum(numbers: Iterator[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)
