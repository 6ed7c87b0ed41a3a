"""`ottla cluster balance`: evens out bytes, replicas and leaders between the brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.cli.commands import Option, Options, require_positive, usage_error, yes_option
from ottla.cli.connect import connect
from ottla.cli.moving import POLL_S, move_in_batches, node_ids
from ottla.cli.names import confirm
from ottla.cli.output import Column, Output, number, size
from ottla.clients import admin as api
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools import values
from ottla.tools.admin import balance_run
from ottla.tools.admin.balance import balanced, busiest, copied
from ottla.tools.admin.balance_run import Measured, Run
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.placement import Moves
from ottla.tools.admin.throttle import remove_throttle, set_throttle, throttle_for
from ottla.tools.follow import stopping_on_interrupt

THROTTLE = "50MiB"
_CANCEL_S = 60.0

PARAMETERS = [
    Option("--plan", "only show the moves; the default"),
    Option("--execute", "move the partitions, or continue an interrupted run"),
    Option("--cancel", "cancel the moves of an interrupted run, and remove its throttle"),
    Option("--throttle RATE", f"bytes per second that each broker sends and receives for it; default: {THROTTLE}"),
    Option("--at-once N", "move at most N partitions at a time; default: 10", type=int, default=10),
    Option("--at-most SIZE", "copy at most this many bytes between brokers, such as 100GiB"),
    yes_option(),
]
EXAMPLES = """
ottla cluster balance
ottla cluster balance --at-most 100GiB --json | jq '.moves[].topic'
ottla cluster balance --execute --throttle 20MiB --yes
ottla cluster balance --cancel
"""


def balance(options: Options) -> int:
    """Even out bytes, replicas and preferred leaders between the brokers with few moves.

    It shows the moves and changes nothing, unless `--execute` is given. A partition keeps its number of replicas, and
    at least as many racks. Partitions with a replica that is down or not in sync stay where they are.

    The moves are throttled. Ctrl-C starts no further moves, waits for those that have started and removes the throttle.
    After a crash, `--execute` continues the run, and `--cancel` ends it.
    """
    if options.plan + options.execute + options.cancel > 1:
        raise usage_error("--plan, --execute and --cancel exclude each other")
    require_positive(options, "--at-once")
    rate = values.size_of(options.throttle or THROTTLE, "--throttle")
    most = values.size_of(options.at_most, "--at-most") if options.at_most else None
    admin, output = connect(options), Output(options)
    if not (options.execute or options.cancel):
        _plan(admin, output, rate, most)
        return 0
    with balance_run.alone(admin.describe_cluster().cluster_id):
        if options.cancel:
            _cancel(admin, output)
            return 0
        return _execute(admin, output, options, rate, most)


def _plan(admin: api.Admin, output: Output, rate: int, most: int | None) -> None:
    measured = balance_run.measure(admin)
    run = balance_run.load(measured.cluster_id)
    if run is None:
        _show(output, measured, _moves(measured, most), rate)
        if measured.moving:
            output.note(
                f"{units.plural(len(measured.moving), 'partition')} moving already: the plan leaves them alone."
            )
        return
    left, lost = balance_run.remaining(run, measured)
    _show(output, measured, left, run.throttle.rate, run)
    _report_lost(output, lost)
    output.note("A run was interrupted: --execute continues it and removes its throttle, --cancel cancels it.")


def _moves(measured: Measured, most: int | None) -> Moves:
    return balanced(measured.replicas, measured.sizes, measured.targets, fixed=measured.unready, most_bytes=most)


def _execute(admin: api.Admin, output: Output, options: Options, rate: int, most: int | None) -> int:
    measured = balance_run.measure(admin)
    run = balance_run.load(measured.cluster_id)
    if run is not None:
        if options.throttle and rate != run.throttle.rate:
            problem = f"the interrupted run has a throttle of {units.size(run.throttle.rate)}/s"
            raise Failure(problem, "Continue it without --throttle, or end it first: ottla cluster balance --cancel")
        moves, lost = balance_run.remaining(run, measured)
        _report_lost(output, lost)
        output.note(f"Continuing an interrupted run: {units.plural(len(moves), 'partition')} left.")
    else:
        if measured.moving:
            count = units.plural(len(measured.moving), "partition")
            raise Failure(f"{count} already moving", "`ottla topic reassign --status` shows them.")
        moves = _moves(measured, most)
        if not moves:
            _done(output, 0, "The cluster is balanced: nothing has to move.")
            return 0
        if not output.json:
            _show(output, measured, moves, rate)
        question = f"Move {units.plural(len(moves), 'partition')}?"
        confirm(question, "nothing was moved", "--yes moves without asking.", yes=options.yes)
        before = {each: measured.replicas[each] for each in moves}
        run = Run(before, moves, throttle_for(admin, rate, moves, before))
        balance_run.save(measured.cluster_id, run)
    try:
        complete, stopped = _move(admin, output, options, moves, run)
        _elect(admin, output, run)
        remove_throttle(admin, run.throttle)
    except (ClientError, KeyboardInterrupt):
        output.warn("the throttle remains: repeat --execute to continue, or --cancel cancels the moves")
        raise
    balance_run.forget(measured.cluster_id)
    left = len(moves) - complete
    text = f"{units.plural(complete, 'partition')} moved" + (f", {left} not started" if left else "")
    _done(output, complete, f"{text}; the throttle is removed")
    return 130 if stopped else 0


def _move(admin: api.Admin, output: Output, options: Options, moves: Moves, run: Run) -> tuple[int, bool]:
    """Execute the moves; returns how many are complete, and whether Ctrl-C asked to stop."""
    with stopping_on_interrupt() as stopping, output.progress(len(moves), "partitions") as bar:
        told = False

        def is_stopping() -> bool:
            nonlocal told
            if stopping.asked and not told:
                told = True
                bar.clear()
                output.note("Waiting for the moves that have started. Ctrl-C again leaves them and the throttle.")
            return stopping.asked

        set_throttle(admin, run.throttle)
        return move_in_batches(admin, moves, options.at_once, bar, is_stopping), stopping.asked


def _elect(admin: api.Admin, output: Output, run: Run) -> None:
    """Give the moved partitions to their preferred leaders."""
    described = admin.describe_topics(_existing(admin, run))
    partitions = [
        partition
        for partition, new in run.after.items()
        if partition.topic in described
        and (now := described[partition.topic].partitions[partition.partition]).leader != new[0]
        and list(now.replicas) == new
    ]
    if not partitions:
        return
    _, errors = outcomes(admin.elect_leaders, partitions)
    if errors:
        output.note(
            f"{units.plural(len(errors), 'preferred leader')} not elected: `ottla topic elect-leaders` retries."
        )


def _existing(admin: api.Admin, run: Run) -> list[str]:
    known = {topic.name for topic in admin.list_topics(include_internal=True)}
    return sorted({each.topic for each in run.after} & known)


def _cancel(admin: api.Admin, output: Output) -> None:
    measured = balance_run.measure(admin)
    run = balance_run.load(measured.cluster_id)
    if run is None:
        output.note("No run was interrupted. `ottla topic reassign TOPIC --cancel` cancels other moves.")
        if output.json:
            output.object({"cancelled": 0})
        return
    own = [each for each in balance_run.remaining(run, measured)[0] if each in measured.moving]
    if own:
        _, errors = outcomes(admin.alter_partition_reassignments, dict.fromkeys(own))
        deadline = time.monotonic() + _CANCEL_S
        while still := set(own) & admin.list_partition_reassignments().keys():
            if time.monotonic() > deadline:
                reason = f": {next(iter(errors.values()))}" if errors else ""
                raise Failure(f"{units.plural(len(still), 'partition')} still moving{reason}", "Repeat --cancel.")
            time.sleep(POLL_S)
    remove_throttle(admin, run.throttle)
    balance_run.forget(measured.cluster_id)
    text = f"{units.plural(len(own), 'move')} cancelled; the throttle is removed"
    output.changed(text, {"cancelled": len(own)})


def _done(output: Output, count: int, text: str) -> None:
    output.changed(text, {"moved": count}, made=count > 0)


def _report_lost(output: Output, lost: list[TopicPartition]) -> None:
    if lost:
        output.note(
            f"{units.plural(len(lost), 'move')} cannot be continued, such as {lost[0]}: "
            "the topic was deleted, another tool moved it, or a broker is down."
        )


def _show(output: Output, measured: Measured, moves: Moves, rate: int, run: Run | None = None) -> None:
    before = measured.replicas if run is None else measured.replicas | {each: run.before[each] for each in moves}
    size_to_copy = copied(moves, before, measured.sizes)
    took_ms = busiest(moves, before, measured.sizes) * 1000 // rate
    now, then = measured.loads({each: before[each] for each in moves}), measured.loads(moves)
    racks = {target.node_id: target.rack for target in measured.targets}
    brokers = [_broker_row(node_id, racks[node_id], now[node_id], then[node_id]) for node_id in sorted(now)]
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "before": list(before[each]),
            "after": new,
            "size": measured.sizes.get(each, 0) * len(set(new) - set(before[each])),
        }
        for each, new in sorted(moves.items())
    ]
    if output.json:
        output.object(
            {
                "cluster_id": measured.cluster_id,
                "interrupted": run is not None,
                "brokers": brokers,
                "moves": rows,
                "size": size_to_copy,
                "throttle": rate,
                "duration_ms": took_ms,
            }
        )
        return
    output.table(_BROKERS, brokers)
    if not moves:
        output.note("The cluster is balanced: nothing has to move." if run is None else "No move is left.")
        return
    output.line()
    output.table(_MOVES, rows)
    output.line()
    output.line(
        f"{units.plural(len(moves), 'partition')}, {units.size(size_to_copy)} to copy, "
        f"about {units.duration(took_ms)} at a throttle of {units.size(rate)}/s for each broker"
    )


def _broker_row(node_id: int, rack: str | None, now: Any, then: Any) -> dict[str, Any]:
    pairs = {name: {"before": getattr(now, name), "after": getattr(then, name)} for name in now._fields}
    return {"node_id": node_id, "rack": rack, **pairs}


def _pair(key: str, heading: str, show: Callable[[int], str]) -> list[Column]:
    """Two columns: the value now, and after the moves."""
    return [
        Column(key, heading, lambda value: show(value["before"]), right=True),
        Column(key, "THEN", lambda value: show(value["after"]), right=True),
    ]


_BROKERS = [
    Column("node_id", "BROKER", right=True),
    Column("rack", optional=True),
    *_pair("size", "SIZE", units.size),
    *_pair("replicas", "REPLICAS", units.count),
    *_pair("leaders", "LEADS", units.count),
]
_MOVES = [
    Column("topic", narrow=True),
    number("partition"),
    node_ids("before", "NOW"),
    node_ids("after", "THEN"),
    size("size", "TO COPY"),
]
