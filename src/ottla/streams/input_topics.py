"""The inputs of pipelines before a run, from the brokers: their partitions, and the ends of their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.clients.admin import Admin, OffsetSpec
from ottla.clients.admin.core import PartialFailure
from ottla.clients.errors import UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.streams.declarations import Pipeline
from ottla.streams.errors import StreamsError


def count_partitions(client: Mapping[str, str], pipelines: Sequence[Pipeline]) -> dict[str, int]:
    """Return the number of partitions of each input. Raises StreamsError if a topic does not exist."""
    users: dict[str, list[str]] = {}
    for each in pipelines:
        for given in each.inputs.values():
            users.setdefault(given.topic, []).append(each.name)
    with Admin(dict(client)) as admin:
        try:
            described = admin.describe_topics(list(users))
        except PartialFailure as failure:
            missing = {topic for topic, error in failure.errors.items() if isinstance(error, UnknownTopicOrPartition)}
            if missing != set(failure.errors):
                raise
            raise StreamsError(
                *(f"Pipeline {users[topic][0]!r}: the topic {topic!r} does not exist" for topic in sorted(missing)),
                f"Create {'it' if len(missing) == 1 else 'them'} first: ottla topic create {' '.join(sorted(missing))}",
            ) from None
    return {name: len(topic.partitions) for name, topic in described.items()}


def log_offsets(
    client: Mapping[str, object], topics: Mapping[str, int], starts: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return where a new checkpoint starts and where the log ends, by topic and partition.

    `topics` has the number of partitions of each; `starts` are other offsets than the first ones. Raises exceptions of
    clients.
    """
    partitions = [TopicPartition(topic, each) for topic, count in topics.items() for each in range(count)]
    with Admin(client) as admin:
        firsts = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for each in partitions:
        start = max(starts.get(each.topic, {}).get(str(each.partition), 0), firsts[each].offset)
        found.setdefault(each.topic, {})[each.partition] = (start, ends[each].offset)
    return found


def committed_offsets(
    client: Mapping[str, object], group: str, topics: Mapping[str, int]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Return how far the last run of a query came, by its group, and where the log ends; nothing if it is not known.

    After a crash, the checkpoint may be one micro-batch further. Raises exceptions of clients.
    """
    with Admin(client) as admin:
        committed = admin.list_group_offsets(group)
    starts: dict[str, dict[str, int]] = {}
    for tp, row in committed.items():
        starts.setdefault(tp.topic, {})[str(tp.partition)] = row.offset
    return log_offsets(client, topics, starts) if topics.keys() <= starts.keys() else {}
