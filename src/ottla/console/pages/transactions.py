"""Transactions: the list, the hanging ones (KIP-664), and their abort."""

from __future__ import annotations

from typing import Any, Final

from ottla.clients import admin as api
from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.console.calls import Call, Done, Problem, whole
from ottla.console.pages.topics import known_topics, page_of, pager_links
from ottla.console.view import Cell, Column, Field, Form, Link, Page, Table, moment, number, text, url
from ottla.tools.admin.hanging import active_producers, check_not_copied, hanging

_FRESH_S: Final = 3.0
_HANGING_FRESH_S: Final = 30.0
_OPEN_FOR_MS: Final = 15 * 60 * 1000
_MOST_PARTITIONS: Final = 2000
_PER_REQUEST: Final = 500


def _tabs(current: str) -> list[Link]:
    return [
        Link("All", "/transactions", current=current == "all"),
        Link("Hanging", "/transactions/hanging", current=current == "hanging"),
    ]


def listing(call: Call) -> Page:
    """List transactional ids."""
    wanted = call.query.get("filter", "")
    listed = call.session.cached.get("transactions", call.admin.list_transactions, _FRESH_S)
    found = [each for each in listed if wanted.casefold() in each.transactional_id.casefold()]
    shown, paging = page_of(call, found)
    rows = [
        [
            Cell(each.transactional_id),
            Cell(each.state.value, tone="ok" if each.state is api.TransactionState.ONGOING else "dim"),
            number(each.producer_id),
            number(each.coordinator),
        ]
        for each in shown
    ]
    columns = [
        Column("Transactional id"),
        Column("State"),
        Column("Producer", right=True),
        Column("Coordinator", right=True),
    ]
    return Page(
        "Transactions",
        {
            "transactions": [
                {
                    "transactional_id": each.transactional_id,
                    "state": each.state.value,
                    "producer_id": each.producer_id,
                    "coordinator": each.coordinator,
                }
                for each in shown
            ],
            **paging,
        },
        [Table(columns, rows, empty="There is no transactional id.")],
        command=call.command("txn", "list"),
        tabs=_tabs("all"),
        section="transactions",
        template="list.html",
        more={
            "filter": wanted,
            "links": pager_links(call, paging, filter=wanted),
            "noun": units.plural(paging["total"], "transactional id"),
            "kept": {},
        },
    )


def _find(call: Call) -> tuple[list[dict[str, Any]], bool]:
    partitions = [TopicPartition(each.name, index) for each in known_topics(call) for index in range(each.partitions)]
    before_ms = units.now_ms() - _OPEN_FOR_MS
    rows: list[dict[str, Any]] = []
    for start in range(0, min(len(partitions), _MOST_PARTITIONS), _PER_REQUEST):
        chunk = partitions[start : min(start + _PER_REQUEST, _MOST_PARTITIONS)]
        is_open = [row for row, _ in active_producers(call.admin, chunk) if row["start_offset"] is not None]
        rows += hanging(call.admin, [row for row in is_open if row["last_timestamp_ms"] < before_ms])
    return rows, len(partitions) <= _MOST_PARTITIONS


def hanging_page(call: Call) -> Page:
    """Show open transactions that no coordinator will end."""
    found, is_complete = call.session.cached.get("hanging", lambda: _find(call), _HANGING_FRESH_S)
    rows = []
    for row in found:
        place = {"topic": row["topic"], "partition": row["partition"], "start": row["start_offset"]}
        rows.append(
            [
                Cell(f"{row['topic']}/{row['partition']}", url("topics", row["topic"])),
                number(row["start_offset"]),
                number(row["producer_id"]),
                text(row["transactional_id"]),
                moment(row["last_timestamp_ms"]),
                Cell("abort", url("transactions", "abort", **place)) if call.may_change else Cell(""),
            ]
        )
    columns = [
        Column("Partition"),
        Column("Open from", right=True),
        Column("Producer", right=True),
        Column("Transactional id"),
        Column("Last record"),
        Column(""),
    ]
    note = "" if is_complete else f"Only the first {_MOST_PARTITIONS:,} partitions were searched."
    return Page(
        "Transactions",
        {"hanging": found, "is_complete": is_complete},
        [Table(columns, rows, empty="No transaction hangs.", note=note)],
        command=call.command("txn", "find-hanging"),
        tabs=_tabs("hanging"),
        lead="They have been open for more than 15 minutes, and no coordinator will end them: readers with "
        "read_committed wait."
        if found
        else "",
        tone="warning",
        section="transactions",
    )


def abort(call: Call) -> Page | Done:
    """Abort a hanging transaction."""
    given = call.form or call.query
    topic, partition = given.get("topic", ""), whole("partition", given.get("partition", ""), 2**31 - 1)
    start = whole("start", given.get("start", ""))
    call.check_may_change()
    tp = TopicPartition(topic, partition)
    if not call.form:
        fields = [("topic", topic), ("partition", str(partition)), ("start", str(start))]
        form = Form(
            "/transactions/abort",
            "Abort the transaction",
            [Field(name, "", value, type="hidden") for name, value in fields],
            note=f"Its records in {tp} from offset {start} on are never delivered to readers with read_committed.",
            tone="danger",
        )
        return Page(
            f"Abort the transaction in {tp}?",
            {"topic": topic, "partition": partition, "start_offset": start},
            [form],
            command=call.command("txn", "abort", f"{topic}/{partition}", "--start-offset", str(start)),
            crumbs=[("Transactions", "/transactions")],
            section="transactions",
        )
    found = [pair for pair in active_producers(call.admin, [tp]) if pair[0]["start_offset"] == start]
    if not found or not hanging(call.admin, [found[0][0]]):
        check_not_copied(call.admin, topic)
        raise Problem(409, "No transaction hangs there: its coordinator ended it, or will end it")
    call.admin.abort_transaction(tp, found[0][1])
    call.session.cached.forget()
    return Done("/transactions/hanging", "aborted", {"topic": topic, "partition": partition, "start_offset": start})
