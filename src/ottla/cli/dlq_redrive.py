"""`ottla dlq redrive`: write dead letters back to their topics."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Final

from ottla import clients
from ottla.cli.commands import Options
from ottla.cli.connect import client_settings, connect
from ottla.cli.dlq_filters import Scope, find_scope, open_consumer
from ottla.cli.names import all_topics, check_exists, confirm
from ottla.cli.output import Column, Output, number
from ottla.clients.errors import ProducerFenced
from ottla.common import units
from ottla.common.failure import Failure
from ottla.tools.dead_letters import Left, Plan
from ottla.tools.follow import Follower, Limits, Stopping, stopping_on_interrupt
from ottla.tools.progress import Progress
from ottla.tools.redrive import Filter, Redrive, Rules, edit_with, read_redriven, summary

_INIT_S: Final = 60.0
# The broker aborts the transaction of a redrive that was killed after this time, unless the next one does so before.
_TRANSACTION_MS: Final = 60_000


def redrive(options: Options) -> int:
    """Write dead letters back to their topics, each once: a transaction has the records and remembers, in a consumer
    group, which letters were redriven. So a redrive that was killed continues where it ended, and other filters find
    the letters that are left. Only letters that exist at the start are read, and none is deleted.

    Exit code 1: chosen letters were left in the topic.
    """
    output, admin = Output(options), connect(options)
    group = options.group or f"ottla.redrive.{options.topic}"
    known = all_topics(admin)
    check_exists(options.topic, known, "topic")
    if options.to is not None:
        check_exists(options.to, known, "topic")
        if options.to == options.topic:
            raise Failure("--to is the dead letter topic itself", exit_code=2)
    rules = Rules(
        Filter(options.reason, options.origin),
        _plan(options),
        {name: topic.partitions for name, topic in known.items()},
        edit_with(options.edit) if options.edit else None,
        options.limit,
    )
    with ExitStack() as open_until_end:
        stopping = open_until_end.enter_context(stopping_on_interrupt())
        consumer = open_until_end.enter_context(open_consumer(options))
        scope = find_scope(consumer, options)
        producer = None
        if not options.dry_run:
            _ask(options, scope, group)
            producer = open_until_end.enter_context(_open_producer(options, group))
            producer.init_transactions(_INIT_S)
        redriven = read_redriven(admin, group, list(scope.ends), stable=producer is not None)
        bar = Progress("letters", shown=not output.json)
        run = Redrive(producer, group, redriven, rules, stopping, bar)
        with bar.cleared():
            corrupt = _read(consumer, scope, run, stopping, bar)
    _report(output, options, group, run)
    if stopping.asked and not run.is_full:
        return 130
    return 1 if run.counts.left or corrupt else 0


def _read(consumer: clients.Consumer, scope: Scope, run: Redrive, stopping: Stopping, bar: Progress) -> int:
    """Read and redrive; returns the number of corrupt batches."""
    if run.is_full:
        return 0
    starts = run.start_at(scope.starts)
    ends = {tp: max(end, starts[tp]) for tp, end in scope.ends.items()}
    follower = Follower(consumer, run.take, Limits(ends=ends), stopping, bar)
    try:
        follower.run(starts)
        if not follower.corrupt:
            run.finish(scope.ends)
    except ProducerFenced as error:
        raise Failure(
            "another redrive with the same group has begun, so this one ended",
            "The other redrive continues after the last transaction of this one.",
        ) from error
    return follower.corrupt


def _plan(options: Options) -> Plan:
    headers = []
    for word in options.set_header:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise Failure(f"--set-header {word!r} is not of the form NAME=VALUE", exit_code=2)
        headers.append((name, os.fsencode(value)))
    return Plan(
        options.to,
        options.same_partition,
        options.original_timestamp,
        options.keep_headers,
        tuple(headers),
        options.max_replays,
    )


def _ask(options: Options, scope: Scope, group: str) -> None:
    offsets = sum(end - scope.starts[tp] for tp, end in scope.ends.items())
    confirm(
        f"Redrive up to {units.plural(offsets, 'letter')} of {options.topic} to "
        f"{options.to or 'their original topics'}, remembered by group {group}?",
        "nothing was redriven",
        "--dry-run shows what would be written; --yes writes without asking.",
        yes=options.yes,
    )


def _open_producer(options: Options, group: str) -> clients.Producer:
    settings = client_settings(options, "producer")
    settings |= {"transactional.id": group, "transaction.timeout.ms": _TRANSACTION_MS, "acks": "all"}
    settings["enable.idempotence"] = True
    return clients.Producer(settings)


def _report(output: Output, options: Options, group: str, run: Redrive) -> None:
    counts = run.counts
    if output.json:
        output.object(
            {
                "topic": options.topic,
                "group": group,
                "dry_run": options.dry_run,
                "redriven": dict(counts.redriven),
                "left": {why.name.lower(): counts.left[why] for why in Left if counts.left[why]},
                "redriven_before": counts.before,
                "not_chosen": counts.not_chosen,
            }
        )
        return
    rows = [{"to": topic, "letters": count} for topic, count in counts.redriven.most_common()]
    if rows:
        output.table([Column("to", narrow=True), number("letters")], rows)
    output.line(summary(counts, dry_run=options.dry_run))
    if not options.dry_run:
        output.note(f"Group {group} remembers the redriven letters; `ottla group delete {group}` forgets them.")
