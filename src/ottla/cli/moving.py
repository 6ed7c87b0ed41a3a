"""Moves partitions between brokers and shows the progress: for `ottla broker` and `ottla topic reassign`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from ottla.cli.commands import Option, Options, require_positive, yes_option
from ottla.cli.names import all_topics, confirm
from ottla.cli.output import Column, Output, number
from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.tools import values
from ottla.tools.admin.cluster_facts import reassignment_rows
from ottla.tools.admin.placement import Moves, Target
from ottla.tools.late import api

if TYPE_CHECKING:
    from collections.abc import Iterator

POLL_S = 0.3
# Records of a throttled replica, and which of them are throttled.
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def moving_options() -> list[Option]:
    """The options of commands that move partitions."""
    return [
        Option("--throttle RATE", "bytes per second that each broker sends and receives for it, such as 20MiB"),
        Option("--at-once N", "move at most N partitions at a time; default: 50", type=int, default=50),
        Option("--no-wait", "start the moves and return; `ottla topic reassign --status` shows them"),
        Option("--dry-run", "only show where the replicas would be"),
        yes_option(),
    ]


def replicas_of(admin: api.Admin, topics: Iterable[str] | None = None) -> dict[TopicPartition, list[int]]:
    """The replicas of each partition of the topics (default: all); of a moving one those that it will have."""
    names = list(all_topics(admin) if topics is None else topics)
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


def move(admin: api.Admin, options: Options, question: str, moves: Moves, before: Mapping[TopicPartition, Any]) -> bool:
    """Show or execute the moves, and wait until they are complete; returns whether they are."""
    output = Output(options)
    require_positive(options, "--at-once")
    throttle = values.size_of(options.throttle, "--throttle") if options.throttle else None
    if not moves:
        output.note("Nothing has to move.")
        return True
    if options.dry_run:
        rows = [_row(each, before[each], new) for each, new in moves.items()]
        output.table(_COLUMNS, rows)
        return False
    confirm(question, "nothing was moved", "--yes moves without asking.", yes=options.yes)
    if options.no_wait:
        admin.alter_partition_reassignments(moves)
        output.done(f"{units.plural(len(moves), 'partition')} started to move", {"started": len(moves)})
        return False
    with _throttled(admin, throttle, moves, before), output.progress(len(moves), "partitions") as bar:
        waiting, in_flight = iter(moves.items()), dict[TopicPartition, list[int]]()
        while True:
            started = dict(islice(waiting, options.at_once - len(in_flight)))
            if started:
                admin.alter_partition_reassignments(started)
                in_flight |= started
            if not in_flight:
                break
            time.sleep(POLL_S)
            finished = _finished(admin, in_flight)
            for partition in finished:
                del in_flight[partition]
            bar.advance(len(finished))
    output.changed(f"{units.plural(len(moves), 'partition')} moved", {"moved": len(moves)})
    return True


def _row(partition: TopicPartition, before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    topic, index = partition
    return {"topic": topic, "partition": index, "before": list(before), "after": list(after)}


def node_ids(key: str, heading: str | None = None) -> Column:
    """A column with a list of node ids."""
    return Column(key, heading, cell=lambda row: ",".join(map(str, row[key])) or "-")


_COLUMNS = [Column("topic", narrow=True), number("partition"), node_ids("before", "NOW"), node_ids("after", "THEN")]


def _finished(admin: api.Admin, in_flight: Moves) -> list[TopicPartition]:
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
def _throttled(
    admin: api.Admin, rate: int | None, moves: Moves, before: Mapping[TopicPartition, Sequence[int]]
) -> Iterator[None]:
    """Limit the rate of the moves. After an interruption the limit stays, because the moves go on."""
    if rate is None:
        yield
        return
    brokers = sorted({node_id for each, new in moves.items() for node_id in (*before[each], *new)})
    resources = [api.ConfigResource.broker(node_id) for node_id in brokers]
    by_topic: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, index), new in moves.items():
        sources, sinks = by_topic.setdefault(topic, ([], []))
        old = before[TopicPartition(topic, index)]
        sources += [f"{index}:{node_id}" for node_id in old]
        sinks += [f"{index}:{node_id}" for node_id in new if node_id not in old]
    topics = {
        api.ConfigResource.topic(name): dict(zip(_REPLICAS, map(",".join, parts), strict=True))
        for name, parts in by_topic.items()
    }
    admin.alter_configs(topics)
    admin.alter_configs({resource: dict.fromkeys(_RATES, str(rate)) for resource in resources})
    yield
    admin.alter_configs({resource: dict.fromkeys(_RATES) for resource in resources})
    admin.alter_configs({resource: dict.fromkeys(_REPLICAS) for resource in topics})


def show_moving(admin: api.Admin, output: Output) -> None:
    """Print the partitions that are moving."""
    output.table(
        REASSIGNMENT_COLUMNS, reassignment_rows(admin.list_partition_reassignments()), empty="No partition is moving."
    )


REASSIGNMENT_COLUMNS = [
    Column("topic", "MOVING", narrow=True),
    number("partition"),
    node_ids("replicas"),
    node_ids("adding"),
    node_ids("removing"),
]
