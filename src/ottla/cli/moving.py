"""Moves partitions between brokers and shows the progress: for `ottla broker` and `ottla topic reassign`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from ottla.cli.commands import Option, Options, require_positive, yes_option
from ottla.cli.names import confirm
from ottla.cli.output import Column, Output, number
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools import values
from ottla.tools.admin.cluster_facts import reassignment_rows
from ottla.tools.admin.placement import Moves
from ottla.tools.admin.replicas import finished_moves, throttled
from ottla.tools.progress import Progress

POLL_S = 0.3


def moving_options() -> list[Option]:
    """The options of commands that move partitions."""
    return [
        Option("--throttle RATE", "bytes per second that each broker sends and receives for it, such as 20MiB"),
        Option("--at-once N", "move at most N partitions at a time; default: 50", type=int, default=50),
        Option("--no-wait", "start all moves at once and return; `ottla topic reassign --status` shows them"),
        Option("--dry-run", "only show where the replicas would be"),
        yes_option(),
    ]


def move(admin: api.Admin, options: Options, question: str, moves: Moves, before: Mapping[TopicPartition, Any]) -> bool:
    """Show or execute the moves, and wait until they are complete; returns whether they are."""
    output = Output(options)
    require_positive(options, "--at-once")
    if options.throttle and options.no_wait:
        problem = "--throttle and --no-wait exclude each other"
        raise Failure(problem, "The limit is removed when the moves are complete: wait for them.", exit_code=2)
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
    with throttled(admin, throttle, moves, before), output.progress(len(moves), "partitions") as bar:
        move_in_batches(admin, moves, options.at_once, bar)
    output.changed(f"{units.plural(len(moves), 'partition')} moved", {"moved": len(moves)})
    return True


def move_in_batches(
    admin: api.Admin, moves: Moves, at_once: int, bar: Progress, is_stopping: Callable[[], bool] = lambda: False
) -> int:
    """Execute the moves, at most `at_once` at a time; returns how many are complete.

    When `is_stopping()`, it starts no further moves and waits for those that have started.
    """
    waiting, in_flight = iter(moves.items()), dict[TopicPartition, list[int]]()
    complete = 0
    while True:
        started = {} if is_stopping() else dict(islice(waiting, at_once - len(in_flight)))
        if started:
            admin.alter_partition_reassignments(started)
            in_flight |= started
        if not in_flight:
            return complete
        time.sleep(POLL_S)
        finished = finished_moves(admin, in_flight)
        for partition in finished:
            del in_flight[partition]
        complete += len(finished)
        bar.advance(len(finished))


def _row(partition: TopicPartition, before: Sequence[int], after: Sequence[int]) -> dict[str, Any]:
    topic, index = partition
    return {"topic": topic, "partition": index, "before": list(before), "after": list(after)}


def node_ids(key: str, heading: str | None = None) -> Column:
    """A column with a list of node ids."""
    return Column(key, heading, cell=lambda row: ",".join(map(str, row[key])) or "-")


_COLUMNS = [Column("topic", narrow=True), number("partition"), node_ids("before", "NOW"), node_ids("after", "THEN")]


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
