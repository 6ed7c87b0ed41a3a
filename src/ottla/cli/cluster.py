"""Show the cluster, explain what is wrong with it, and balance its brokers. Without a verb it shows the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.cli import cluster_balance, cluster_why
from ottla.cli.commands import Choice, DefaultGroup, Option, Options
from ottla.cli.connect import connect, connection_options
from ottla.cli.moving import REASSIGNMENT_COLUMNS, node_ids
from ottla.cli.output import Column, Output, moment, number, output_options, size
from ottla.common import units
from ottla.tools.admin.cluster_facts import TROUBLES, cluster_facts
from ottla.tools.admin.leaderless import PAGE

EXAMPLES = """
ottla cluster
ottla cluster why
ottla cluster balance
ottla cluster -b 127.0.0.1:9092 --json | jq '.brokers[].host'
ottla cluster --only log-dirs
ottla cluster --only partitions --only moves
"""

COMMAND = DefaultGroup(__doc__, EXAMPLES, shared=[*output_options(), *connection_options()])
COMMAND.default = "show"

_PARTS = ("brokers", "features", "quorum", "log-dirs", "partitions", "moves")


@COMMAND.verb(
    "show",
    Option("--only PART", f"only this part: {', '.join(_PARTS)}", multiple=True, type=Choice(_PARTS)),
    examples="""
    ottla cluster show
    ottla cluster --only log-dirs
    """,
    summary="show brokers, features, quorum, disks, partitions in trouble",
)
def _show(options: Options) -> None:
    """Show the cluster: its id and controller, brokers, features, the metadata quorum, log directories.

    Below them, if there are any: partitions in trouble (offline, under or at min.insync.replicas, with replicas that
    cannot lead, under-replicated), and partitions that are moving to other brokers.
    """
    output, facts = Output(options), cluster_facts(connect(options))
    if output.json:
        output.object(facts if not options.only else {name: facts[name.replace("-", "_")] for name in options.only})
        return
    shown = options.only or _PARTS
    if not options.only:
        parts = [
            units.plural(len(facts["brokers"]), "broker"),
            f"controller {facts['controller']}",
            units.plural(facts["topic_count"], "topic"),
            units.plural(facts["partition_count"], "partition"),
            *([f"level {facts['release']}"] if facts["release"] else []),
        ]
        output.line(f"{output.style.bold(facts['cluster_id'])}  {', '.join(parts)}")
    for name in shown:
        rows = facts[name.replace("-", "_")]
        if len(shown) > 1 and (rows or name not in _RARE):
            output.line()
        if rows:
            output.table(_COLUMNS[name], rows)
        elif name in options.only:
            output.note(_RARE.get(name, ""))
    if "partitions" in shown and any(row["way_out"] for row in facts["partitions"]):
        output.note(f"Partitions without a leader: {PAGE}")
    for part, problem in facts["unknown"].items():
        output.note(f"{part}: {problem}")


def _address(row: Mapping[str, Any]) -> str:
    return f"[{row['host']}]:{row['port']}" if ":" in row["host"] else f"{row['host']}:{row['port']}"


def _state(row: Mapping[str, Any]) -> str:
    return "fenced" if row["fenced"] else "up, controller" if row["controller"] else "up"


# Parts that are shown only if they have rows, and the note of `--only` without rows.
_RARE = {
    "partitions": "Every partition has a leader, and all of its replicas are in sync.",
    "moves": "No partition is moving.",
}

_COLUMNS = {
    "moves": REASSIGNMENT_COLUMNS,
    "partitions": [
        Column("topic", "PARTITIONS IN TROUBLE", narrow=True),
        number("partition", "NUMBER"),
        Column("state", colour=lambda state: "yellow" if state in TROUBLES[2:] else "red"),
        Column("leader", right=True),
        node_ids("replicas"),
        node_ids("isr", "IN SYNC"),
        number("min_isr", "MIN"),
        Column("cannot_lead", colour=lambda nodes: "red" if nodes else None, optional=True),
        Column("way_out", "NEXT STEP", optional=True),
    ],
    "brokers": [
        Column("node_id", "BROKER", right=True),
        Column("host", "ADDRESS", cell=_address),
        Column("rack", optional=True),
        Column("fenced", "STATE", cell=_state, colour=lambda fenced: "red" if fenced else "green"),
        number("leader_count", "LEADS"),
        number("replica_count", "REPLICAS"),
        size("size"),
    ],
    "features": [
        Column("feature"),
        Column("level", right=True),
        Column("highest", "SUPPORTED", right=True, cell=lambda row: f"{row['lowest']}-{row['highest']}"),
    ],
    "quorum": [
        Column("node_id", "QUORUM", right=True),
        Column("role", colour=lambda role: "green" if role == "leader" else None),
        number("leader_epoch", "EPOCH"),
        number("log_end_offset", "END"),
        number("lag"),
        moment("last_caught_up_ms", "CAUGHT UP"),
    ],
    "log-dirs": [
        Column("node_id", "BROKER", right=True),
        Column("path", "LOG DIRECTORY", narrow=True),
        number("replica_count", "REPLICAS"),
        size("size"),
        size("free"),
        size("total", "DISK"),
    ],
}

COMMAND.verb("why", *cluster_why.PARAMETERS, examples=cluster_why.EXAMPLES, summary="explain what is wrong with it")(
    cluster_why.why
)
COMMAND.verb(
    "balance",
    *cluster_balance.PARAMETERS,
    examples=cluster_balance.EXAMPLES,
    summary="even out bytes, replicas and leaders between brokers",
)(cluster_balance.balance)
