"""Nodes: brokers and their log directories, the metadata quorum, and partitions that are moving."""

from __future__ import annotations

from typing import Any

from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.console.calls import Call, Done, Problem
from ottla.console.pages.overview import broker_table, facts, trouble_table
from ottla.console.view import Cell, Column, Field, Form, Link, Page, Table, moment, number, size, text, url


def _tabs(current: str) -> list[Link]:
    names = (("nodes", "Brokers", "/nodes"), ("quorum", "Quorum", "/nodes/quorum"), ("moves", "Moves", "/nodes/moves"))
    return [Link(name, href, current=current == key) for key, name, href in names]


def nodes(call: Call) -> Page:
    """Show the brokers."""
    found = facts(call)
    parts = [broker_table(found["brokers"]), _directories(found["log_dirs"])]
    if found["partitions"]:
        parts.append(trouble_table(found["partitions"]))
    return Page(
        "Nodes",
        {"brokers": found["brokers"], "log_dirs": found["log_dirs"], "partitions": found["partitions"]},
        parts,
        command=call.command("cluster", "--only", "brokers"),
        tabs=_tabs("nodes"),
        section="nodes",
    )


def _directories(directories: list[dict[str, Any]]) -> Table:
    rows = []
    for each in directories:
        used = 1 - each["free"] / each["total"] if each["total"] and each["free"] is not None else None
        full = Cell("-", tone="dim") if used is None else Cell(f"{used:.0%}", bar=used, tone=_fullness(used))
        rows.append(
            [
                number(each["node_id"]),
                text(each["path"]),
                number(each["replica_count"]),
                size(each["size"]),
                size(each["free"]),
                full,
            ]
        )
    columns = [
        Column("Node", right=True),
        Column("Path", mono=True),
        Column("Replicas", right=True),
        Column("Size", right=True),
        Column("Free", right=True),
        Column("Disk used", right=True),
    ]
    return Table(columns, rows, title="Log directories", empty="The brokers report no log directories.")


def _fullness(used: float) -> str:
    return "critical" if used > 0.95 else "warning" if used > 0.85 else ""


def quorum(call: Call) -> Page:
    """Show the metadata quorum."""
    rows = facts(call)["quorum"]
    cells = [
        [
            number(row["node_id"]),
            Cell(row["role"], tone="strong" if row["role"] == "leader" else ""),
            number(row["log_end_offset"]),
            number(row["lag"]),
            moment(row["last_fetch_ms"]),
            moment(row["last_caught_up_ms"]),
        ]
        for row in rows
    ]
    columns = [
        Column("Node", right=True),
        Column("Role"),
        Column("Log end", right=True),
        Column("Lag", right=True),
        Column("Last fetch"),
        Column("Last caught up"),
    ]
    return Page(
        "Nodes",
        {"quorum": rows},
        [Table(columns, cells, empty="The brokers report no quorum.")],
        command=call.command("cluster", "--only", "quorum"),
        tabs=_tabs("quorum"),
        section="nodes",
    )


def moves(call: Call) -> Page:
    """Show moving partitions, with the bytes that new replicas have of the leader's."""
    moving = call.admin.list_partition_reassignments()
    rows = progress(call, moving) if moving else []
    cells = [
        [
            Cell(f"{row['topic']}/{row['partition']}", url("topics", row["topic"])),
            Cell(", ".join(map(str, row["adding"])) or "-"),
            Cell(", ".join(map(str, row["removing"])) or "-"),
            Cell("-", tone="dim") if row["progress"] is None else Cell(f"{row['progress']:.0%}", bar=row["progress"]),
            Cell("cancel", url("nodes", "moves", "cancel", topic=row["topic"])) if call.may_change else Cell(""),
        ]
        for row in rows
    ]
    columns = [Column("Partition"), Column("To"), Column("From"), Column("Progress", right=True), Column("")]
    return Page(
        "Nodes",
        {"moves": rows},
        [Table(columns, cells, empty="No partition is moving.")],
        command=call.command("cluster", "--only", "moves"),
        tabs=_tabs("moves"),
        lead=f"{units.plural(len(rows), 'partition')} moving." if rows else "",
        section="nodes",
    )


def cancel(call: Call) -> Page | Done:
    """Cancel the moves of a topic, after a question."""
    call.check_may_change()
    topic = call.query.get("topic", "")
    moving = [tp for tp in call.admin.list_partition_reassignments() if tp.topic == topic]
    if not moving:
        raise Problem(404, f"No partition of {topic[:80]!r} is moving", "The moves may have ended.")
    rows = [tp._asdict() for tp in moving]
    if call.form.get("confirm"):
        call.admin.alter_partition_reassignments(dict.fromkeys(moving))
        call.session.cached.forget()
        return Done("/nodes/moves", "move-cancelled", {"cancelled": rows})
    form = Form(
        url("nodes", "moves", "cancel", topic=topic),
        f"Cancel {units.plural(len(moving), 'move')}",
        [Field("confirm", "", "1", "hidden")],
        note="The replicas stay where they were; what was copied so far is deleted.",
        tone="danger",
    )
    return Page(
        f"Cancel the moves of {topic}?",
        {"topic": topic, "moves": rows},
        [form],
        command=call.command("topic", "reassign", topic, "--cancel"),
        crumbs=[("Nodes", "/nodes"), ("Moves", "/nodes/moves")],
        section="nodes",
    )


def progress(call: Call, moving: dict[TopicPartition, Any]) -> list[dict[str, Any]]:
    """Return a row for each moving partition: the size of the smallest new replica, as a share of the largest."""
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for node, directories in call.admin.describe_log_dirs(partitions=list(moving)).items():
        for directory in directories:
            for tp, replica in directory.replicas.items():
                sizes.setdefault(tp, {})[node] = replica.size
    rows = []
    for tp, move in sorted(moving.items()):
        known = sizes.get(tp, {})
        largest = max(known.values(), default=0)
        new = [known.get(node, 0) for node in move.adding]
        share = min(new) / largest if new and largest else None
        rows.append(
            {
                **tp._asdict(),
                "replicas": list(move.replicas),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "progress": share,
            }
        )
    return rows
