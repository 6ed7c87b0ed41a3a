"""Dead letters: the topics that have them, the letters with origin and reason, and their redrive with a preview."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from ottla.clients import Consumer, Record, TopicPartition
from ottla.clients.errors import ProducerFenced, UnknownTopicOrPartition
from ottla.common import units
from ottla.console.calls import Call, Done, Problem, slow_page
from ottla.console.masking import MASKED
from ottla.console.view import Cell, Column, Facts, Field, Form, Link, Page, Table, moment, number, text, url
from ottla.tools.dead_letter_topics import DeadLetterTopic, Finder
from ottla.tools.dead_letters import DeadLetter, Plan, read_letter
from ottla.tools.follow import Follower, Limits, Stopping
from ottla.tools.progress import Progress
from ottla.tools.redrive import Counts, Filter, Redrive, Rules, read_redriven, summary

_CRUMB: Final = ("Dead letters", "/dead-letters")
_FRESH_S: Final = 30.0
_SAMPLE: Final = 200
_NEWEST: Final = 1_000
_SHOWN: Final = 100
_MOST: Final = 10_000
_READ_S: Final = 10.0
_RUN_S: Final = 30.0
_INIT_S: Final = 20.0
_TRANSACTION_MS: Final = 60_000


def listing(call: Call) -> Page:
    """List the topics with dead letters."""

    def read() -> tuple[list[DeadLetterTopic], list[str]]:
        notes: list[str] = []
        with slow_page(), _consumer(call) as consumer, _stopping_after(_READ_S) as stopping:
            found = Finder(call.admin, consumer, notes.append).find(_SAMPLE, stopping)
        if stopping.asked:
            notes.append(f"the search ended after {_READ_S:.0f} seconds; there may be more")
        return found, notes

    masks, user = call.settings.masks, call.session.user
    found, notes = call.session.cached.get("dead letters", read, _FRESH_S)
    # A writer without exceptions gives its message as the reason, and a message may quote fields that are masked.
    found = [
        each._replace(reasons=Counter({MASKED: each.letters})) if masks.of(user, each.name) else each for each in found
    ]
    rows = [
        [
            Cell(each.name, url("dead-letters", each.name)),
            number(each.letters),
            moment(each.oldest_ms),
            moment(each.newest_ms),
            text(_most(each.writers)),
            text(_most(each.reasons)),
        ]
        for each in found
    ]
    columns = [
        Column("Topic"),
        Column("Letters", right=True),
        Column("Oldest"),
        Column("Newest"),
        Column("Written by"),
        Column("Reasons"),
    ]
    data = [{**each._asdict(), "writers": dict(each.writers), "reasons": dict(each.reasons)} for each in found]
    empty = "There are no topics for dead letters."
    return Page(
        "Dead letters",
        {"topics": data, "notes": notes},
        [Table(columns, rows, empty=empty, note="; ".join(notes))],
        command=call.command("dlq", "list"),
        section="dead-letters",
    )


def letters(call: Call) -> Page:
    """Show the newest letters of a topic, with their origin and reason."""
    topic, chosen = call.params["topic"], _filter(call)
    is_masked = bool(call.settings.masks.of(call.session.user, topic))
    first, end = _spans(call, topic)
    each = max(1, _NEWEST // max(1, len(end)))
    starts = {tp: max(first[tp], end[tp] - each) for tp in end}
    found: list[dict[str, Any]] = []
    count = 0

    def take(records: Sequence[Record[bytes, bytes]]) -> None:
        # Rows instead of records, because values may be large.
        nonlocal count
        count += len(records)
        read = ((record, read_letter(record.headers)) for record in records)
        found.extend(_row(record, letter, is_masked=is_masked) for record, letter in read if chosen.accepts(letter))

    with slow_page(), _consumer(call) as consumer, _stopping_after(_READ_S) as stopping:
        Follower(consumer, take, Limits(ends=end), stopping).run(starts)
    found.sort(key=lambda row: (-row["timestamp_ms"], row["partition"], -row["offset"]))
    data = found[:_SHOWN]
    note = f"{len(found):,} of the newest {count:,} letters match; at most {_SHOWN} are shown."
    return Page(
        topic,
        {"topic": topic, "letters": data, "read": count, "matching": len(found)},
        [_filter_form(url("dead-letters", topic), chosen), _letter_table(topic, data, note)],
        command=call.command("dlq", "show", topic, *_words(chosen)),
        crumbs=[_CRUMB],
        actions=[
            Link("Records", url("topics", topic, "messages")),
            *([Link("Redrive", _redrive_url(topic, chosen))] if call.may_change else []),
        ],
        section="dead-letters",
    )


def redrive(call: Call) -> Page | Done:
    """Preview a redrive, and execute it by a POST with the same filter."""
    topic, chosen = call.params["topic"], _filter(call)
    call.check_may_change()
    dry_run = not call.form
    counts, is_whole = _run(call, topic, chosen, dry_run=dry_run)
    data = {
        "topic": topic,
        "dry_run": dry_run,
        "complete": is_whole,
        "redriven": dict(counts.redriven),
        "left": {why.name.lower(): count for why, count in counts.left.items()},
        "redriven_before": counts.before,
        "not_chosen": counts.not_chosen,
    }
    if not dry_run:
        call.session.cached.forget()
        return Done(url("dead-letters", topic), "redriven" if is_whole else "redriven-part", data)
    limit = "" if is_whole else f" There are more: a redrive here ends after {_MOST:,} letters or {_RUN_S:.0f} s."
    facts = Facts([(name, number(count)) for name, count in counts.redriven.most_common()], title="Letters by topic")
    execute = Form(
        url("dead-letters", topic, "redrive"),
        f"Redrive {units.plural(counts.total, 'letter')}",
        [
            Field("reason", "", chosen.reason or "", type="hidden"),
            Field("origin", "", chosen.origin or "", type="hidden"),
        ],
        note="Each letter is written to its original topic once; a consumer group remembers which ones. "
        "No letter is deleted.",
        tone="danger",
    )
    parts: list[Any] = [_filter_form(url("dead-letters", topic, "redrive"), chosen), facts]
    return Page(
        f"Redrive {topic}",
        data,
        [*parts, execute] if counts.total else parts,
        command=call.command("dlq", "redrive", topic, *_words(chosen)),
        crumbs=[_CRUMB, (topic, url("dead-letters", topic))],
        lead=f"A redrive now: {summary(counts, dry_run=True)}.{limit}",
        section="dead-letters",
    )


def _run(call: Call, topic: str, chosen: Filter, *, dry_run: bool) -> tuple[Counts, bool]:
    """Redrive letters, or count them; returns the counts, and whether the end of the topic was reached."""
    group = f"ottla.redrive.{topic}"
    partitions = {each.name: each.partitions for each in call.admin.list_topics()}
    first, end = _spans(call, topic)
    rules = Rules(chosen, Plan(), partitions, limit=_MOST)
    with ExitStack() as stack:
        stack.enter_context(slow_page())
        consumer = stack.enter_context(_consumer(call))
        producer = None
        if not dry_run:
            options = {"transactional.id": group, "transaction.timeout.ms": _TRANSACTION_MS, "acks": "all"}
            producer = stack.enter_context(call.session.producer(**options, **{"enable.idempotence": True}))
            producer.init_transactions(_INIT_S)
        stopping = stack.enter_context(_stopping_after(_RUN_S))
        redriven = read_redriven(call.admin, group, list(end), stable=not dry_run)
        run = Redrive(producer, group, redriven, rules, stopping, Progress("letters", shown=False))
        starts = run.start_at(first)
        ends = {tp: max(end[tp], starts[tp]) for tp in end}
        follower = Follower(consumer, run.take, Limits(ends=ends), stopping)
        try:
            follower.run(starts)
            if not follower.corrupt:
                run.finish(end)
        except ProducerFenced as error:
            raise Problem(409, "Another redrive of this topic has begun, so this one ended") from error
    return run.counts, not (stopping.asked or run.is_full or follower.corrupt)


@contextmanager
def _stopping_after(seconds: float) -> Iterator[Stopping]:
    """Return a Stopping that is asked to stop after some seconds: a page must end."""
    stopping = Stopping()

    def ask() -> None:
        stopping.asked = True

    timer = threading.Timer(seconds, ask)
    timer.daemon = True
    timer.start()
    try:
        yield stopping
    finally:
        timer.cancel()


def _consumer(call: Call) -> AbstractContextManager[Consumer[bytes, bytes]]:
    """Return a consumer of letters. The letter of an aborted transaction is not one."""
    return call.session.consumer(**{"isolation.level": "read_committed"})


def _spans(call: Call, topic: str) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the first offsets and the ends. Raises Problem."""
    with _consumer(call) as consumer:
        try:
            tps = [TopicPartition(topic, partition) for partition in consumer.partitions_of(topic)]
        except UnknownTopicOrPartition:
            raise Problem(404, f"There is no topic {topic[:80]}") from None
        return consumer.beginning_offsets(tps), consumer.end_offsets(tps)


def _filter(call: Call) -> Filter:
    given = call.form or call.query
    if given.get("reason") and call.settings.masks.of(call.session.user, call.params["topic"]):
        raise Problem(403, "Reasons of this topic are masked for you", "Filter by the original topic.")
    return Filter(given.get("reason") or None, given.get("origin") or None)


def _filter_form(action: str, chosen: Filter) -> Form:
    fields = [
        Field("reason", "Reason", chosen.reason or "", hint="a part of the exception, its message or the stage"),
        Field("origin", "Original topic", chosen.origin or ""),
    ]
    return Form(action, "Filter", fields, method="get")


def _words(chosen: Filter) -> list[str]:
    reason = [] if chosen.reason is None else ["--reason", chosen.reason]
    return [*reason, *([] if chosen.origin is None else ["--origin", chosen.origin])]


def _redrive_url(topic: str, chosen: Filter) -> str:
    return url("dead-letters", topic, "redrive", reason=chosen.reason, origin=chosen.origin)


def _row(record: Record[bytes, bytes], letter: DeadLetter, *, is_masked: bool) -> dict[str, Any]:
    """Return a letter as data. A message of an exception may quote fields that are masked."""
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "writer": letter.writer,
        "origin": letter.origin,
        "reason": letter.exception.rpartition(".")[2] if is_masked else letter.reason,
        "redrives": letter.redrives,
        "value_size": None if record.value is None else len(record.value),
    }


def _letter_table(topic: str, rows: list[dict[str, Any]], note: str) -> Table:
    cells = [
        [
            Cell(
                f"{row['partition']}@{row['offset']}",
                url("topics", topic, "messages", row["partition"], row["offset"]),
            ),
            moment(row["timestamp_ms"]),
            text(row["origin"]),
            text(row["reason"])._replace(title=row["reason"]),
            text(row["writer"]),
            number(row["redrives"]),
        ]
        for row in rows
    ]
    columns = [
        Column("Letter"),
        Column("Time"),
        Column("Origin", mono=True),
        Column("Reason"),
        Column("Written by"),
        Column("Redriven", right=True),
    ]
    return Table(columns, cells, empty="No letter matches.", note=note)


def _most(counts: Counter[str]) -> str:
    return ", ".join(name for name, _ in counts.most_common(3))
