"""The replicas of a cluster and their moves between brokers: where they are, which moves are complete, their rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ottla.clients import admin as api
from ottla.common.ids import TopicPartition
from ottla.tools.admin.placement import Moves, Target
from ottla.tools.admin.throttle import remove_throttle, set_throttle, throttle_for


def replicas_of(admin: api.Admin, topics: Iterable[str] | None = None) -> dict[TopicPartition, list[int]]:
    """The replicas of each partition of the topics (default: all); of a moving partition its future replicas."""
    names = [topic.name for topic in admin.list_topics(include_internal=True)] if topics is None else list(topics)
    if not names:
        return {}
    moving = admin.list_partition_reassignments()
    found = {}
    for name, topic in admin.describe_topics(names).items():
        for each in topic.partitions:
            partition = TopicPartition(name, each.partition)
            move = moving.get(partition)
            removing = set(move.removing) if move is not None else set()
            found[partition] = [node_id for node_id in each.replicas if node_id not in removing]
    return found


def targets_of(admin: api.Admin) -> list[Target]:
    """The brokers that are up."""
    cluster = admin.describe_cluster(include_fenced=True)
    return [Target(broker.node_id, broker.rack) for broker in cluster.brokers if not broker.is_fenced]


def finished_moves(admin: api.Admin, in_flight: Moves) -> list[TopicPartition]:
    """Return the moves that are complete."""
    moving = admin.list_partition_reassignments()
    topics = admin.describe_topics({partition.topic for partition in in_flight})
    finished = []
    for partition, wanted in in_flight.items():
        # A broker that has not heard of the move yet still shows the old replicas.
        if partition not in moving and set(topics[partition.topic].partitions[partition.partition].replicas) == set(
            wanted
        ):
            finished.append(partition)
    return finished


@contextmanager
def throttled(
    admin: api.Admin, rate: int | None, moves: Moves, before: Mapping[TopicPartition, Sequence[int]]
) -> Iterator[None]:
    """Limit the rate of the moves. After an interruption the limit stays, because the moves go on."""
    if rate is None:
        yield
        return
    throttle = throttle_for(admin, rate, moves, before)
    set_throttle(admin, throttle)
    yield
    remove_throttle(admin, throttle)
