"""The busiest topics, partitions and groups of a cluster, from the difference of two samples.

Records are counted by the ends of the logs, and bytes by the size of the leader's replica (DescribeLogDirs). So records
of compacted topics and transaction markers count, and bytes are missing in an interval in which retention deletes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.clients import admin as api
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.ids import TopicPartition


class Sample(NamedTuple):
    """The ends and leaders' sizes of all partitions, and the committed offsets of all groups, at one time."""

    at_ms: int
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int]
    leaders: Mapping[TopicPartition, int]
    groups: Mapping[str, Mapping[TopicPartition, int]]


@dataclass(frozen=True)
class Frame:
    """The rows of one frame, the busiest first: `topics`, `partitions`, `groups`. Rates are per second."""

    at_ms: int
    seconds: float
    records_per_s: float
    bytes_per_s: float
    topics: list[dict[str, Any]]
    partitions: list[dict[str, Any]]
    groups: list[dict[str, Any]]


def read_sample(admin: api.Admin) -> Sample:
    """Read a sample. Partitions without a leader, and parts that the user may not read, are omitted."""
    names = [topic.name for topic in admin.list_topics(include_internal=True)]
    described = _settled(lambda: admin.describe_topics(names)) if names else {}
    leaders = {
        TopicPartition(name, each.partition): each.leader
        for name, topic in described.items()
        for each in topic.partitions
        if each.leader is not None
    }
    ends = _settled(lambda: admin.list_offsets(dict.fromkeys(leaders, api.OffsetSpec.LATEST))) if leaders else {}
    sizes: dict[TopicPartition, int] = {}
    for node, directories in _settled(admin.describe_log_dirs).items():
        for directory in directories:
            sizes |= {
                partition: replica.size
                for partition, replica in directory.replicas.items()
                if leaders.get(partition) == node and not replica.is_future
            }
    listed = [each.group_id for each in admin.list_groups() if each.type is not api.GroupType.SHARE]
    groups = _settled(lambda: admin.list_offsets_of_groups(listed)) if listed else {}
    return Sample(
        units.now_ms(),
        {partition: at.offset for partition, at in ends.items()},
        sizes,
        leaders,
        {name: {partition: at.offset for partition, at in rows.items()} for name, rows in groups.items()},
    )


def _settled(call: Any) -> Mapping[Any, Any]:
    """Return the results of a call that may fail for some things, or for all."""
    try:
        found: Mapping[Any, Any] = call()
    except api.PartialFailure as failure:
        return failure.results
    except ClientError:
        return {}
    return found


def frame(before: Sample, now: Sample, most: int) -> Frame:
    """Compare two samples; each list has at most `most` rows."""
    seconds = max(0.001, (now.at_ms - before.at_ms) / 1000)
    partitions = []
    topics: dict[str, dict[str, Any]] = {}
    for partition, end in now.ends.items():
        records = max(0, end - before.ends.get(partition, end)) / seconds
        size = now.sizes.get(partition)
        grown = max(0, size - before.sizes.get(partition, size)) / seconds if size is not None else 0.0
        row = {**partition._asdict(), "leader": now.leaders.get(partition), "records_per_s": records}
        partitions.append({**row, "bytes_per_s": grown, "size": size})
        total = topics.setdefault(
            partition.topic, {"topic": partition.topic, "records_per_s": 0.0, "bytes_per_s": 0.0, "size": 0}
        )
        total["records_per_s"] += records
        total["bytes_per_s"] += grown
        total["size"] += size or 0
    for row in partitions:
        of_topic = topics[row["topic"]]["records_per_s"]
        row["share"] = row["records_per_s"] / of_topic if of_topic else 0.0
    return Frame(
        now.at_ms,
        seconds,
        sum(row["records_per_s"] for row in topics.values()),
        sum(row["bytes_per_s"] for row in topics.values()),
        _busiest(topics.values(), "records_per_s", "topic", most),
        _busiest((row for row in partitions if row["records_per_s"]), "records_per_s", "topic", most),
        _busiest(_groups(before, now, seconds), "lag", "group", most),
    )


def _groups(before: Sample, now: Sample, seconds: float) -> Iterable[dict[str, Any]]:
    for name, offsets in now.groups.items():
        earlier = before.groups.get(name, {})
        found: dict[str, float] = defaultdict(float)
        for partition, offset in offsets.items():
            found["lag"] += max(0, now.ends.get(partition, offset) - offset)
            found["read_per_s"] += max(0, offset - earlier.get(partition, offset)) / seconds
        yield {"group": name, "lag": int(found["lag"]), "read_per_s": found["read_per_s"]}


def _busiest(rows: Iterable[dict[str, Any]], key: str, name: str, most: int) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (-row[key], row[name], row.get("partition", 0)))[:most]
