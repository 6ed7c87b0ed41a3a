"""The overview: the cluster's health in one sentence, and the partitions in trouble."""

from __future__ import annotations

import time
from typing import Any, Final

from ottla.common import units
from ottla.console.calls import Call
from ottla.console.view import Cell, Column, Facts, Link, Page, Table, number, size, text, url
from ottla.tools.admin.cluster_facts import cluster_facts

FRESH_S: Final = 10.0
_MOST_ROWS: Final = 100
_TONES: Final = {"offline": "critical", "under min ISR": "critical"}


def facts(call: Call) -> dict[str, Any]:
    """Return the state of the cluster, at most some seconds old."""

    def read() -> dict[str, Any]:
        return {**cluster_facts(call.admin), "as_of_ms": time.time_ns() // 1_000_000}

    return call.session.cached.get("cluster", read, FRESH_S)


def health(found: dict[str, Any]) -> tuple[str, str]:
    """Return the health in one sentence, and its tone."""
    brokers = [broker for broker in found["brokers"] if not broker["fenced"]]
    fenced = len(found["brokers"]) - len(brokers)
    states = [row["state"] for row in found["partitions"]]
    offline = states.count("offline")
    below = states.count("under min ISR")
    if offline:
        return f"{units.plural(offline, 'partition')} cannot be read or written: no replica leads.", "critical"
    if below:
        return (
            f"{units.plural(below, 'partition')} cannot be written: fewer replicas in sync than required.",
            "critical",
        )
    if fenced:
        return f"{units.plural(fenced, 'broker')} of {len(found['brokers'])} is fenced; all partitions work.", "warning"
    if states:
        return f"{units.plural(len(states), 'partition')} has fewer replicas in sync than it should.", "warning"
    if found["moves"]:
        return f"All partitions work; {units.plural(len(found['moves']), 'partition')} is moving.", "ok"
    parts = f"{units.plural(len(brokers), 'broker')}, {units.plural(found['partition_count'], 'partition')}"
    return f"Healthy: {parts}, each with a leader and all replicas in sync.", "ok"


def trouble_table(rows: list[dict[str, Any]]) -> Table:
    """Return the partitions in trouble, the worst first."""
    return Table(
        [
            Column("Partition"),
            Column("State"),
            Column("Leader", right=True),
            Column("In sync"),
            Column("Replicas"),
            Column("Min", right=True),
        ],
        [
            [
                text(f"{row['topic']}/{row['partition']}", url("topics", row["topic"])),
                Cell(row["state"], tone=_TONES.get(row["state"], "warning")),
                text(row["leader"]),
                text(", ".join(map(str, row["isr"]))),
                text(", ".join(map(str, row["replicas"]))),
                number(row["min_isr"]),
            ]
            for row in rows[:_MOST_ROWS]
        ],
        title="Partitions in trouble",
        note=f"The worst {_MOST_ROWS} of {len(rows):,}." if len(rows) > _MOST_ROWS else "",
    )


def broker_table(brokers: list[dict[str, Any]]) -> Table:
    """Return the brokers with their share of leaders."""
    most = max((broker["leader_count"] for broker in brokers), default=0) or 1
    rows = [
        [
            Cell(str(broker["node_id"]), None if broker["fenced"] else url("nodes", broker["node_id"], "settings")),
            Cell(f"{broker['host']}:{broker['port']}"),
            Cell("fenced", tone="critical") if broker["fenced"] else Cell("running", tone="ok"),
            Cell("controller" if broker["controller"] else "", tone="strong"),
            text(broker["rack"]),
            number(broker["leader_count"])._replace(bar=broker["leader_count"] / most),
            number(broker["replica_count"]),
            size(broker["size"]),
        ]
        for broker in brokers
    ]
    columns = [
        Column("Node"),
        Column("Address", mono=True),
        Column("State"),
        Column(""),
        Column("Rack"),
        Column("Leaders", right=True),
        Column("Replicas", right=True),
        Column("Size", right=True),
    ]
    return Table(columns, rows, title="Brokers")


def overview(call: Call) -> Page:
    """Show the health of the cluster."""
    found = facts(call)
    sentence, tone = health(found)
    sizes = [broker["size"] for broker in found["brokers"]]
    total = None if None in sizes else sum(sizes)
    summary = Facts(
        [
            ("Brokers", Cell(f"{len(found['brokers']):,}", "/nodes")),
            ("Controller", text(found["controller"], "/nodes/quorum")),
            ("Topics", Cell(f"{found['topic_count']:,}", "/topics")),
            ("Partitions", number(found["partition_count"])),
            ("Size of all replicas", size(total)),
            ("Metadata version", text(found["release"])),
            ("Cluster id", text(found["cluster_id"])),
        ]
    )
    parts: list[Any] = [summary, broker_table(found["brokers"])]
    if found["partitions"]:
        parts.append(trouble_table(found["partitions"]))
    if found["unknown"]:
        rows = [[text(part), text(reason)] for part, reason in found["unknown"].items()]
        parts.append(Table([Column("Part"), Column("Reason")], rows, title="Not reported"))
    return Page(
        "Overview",
        {"health": sentence, "severity": tone, **found},
        parts,
        command=call.command("cluster"),
        actions=[Link("Why?", "/why"), Link("Ready for production?", "/check")],
        lead=sentence,
        tone=tone,
        section="overview",
    )
