"""Why a group makes no progress, or what is wrong with the cluster: observations of some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from ottla.clients.admin import AsyncAdmin
from ottla.common import units
from ottla.console.calls import Call, slow_page
from ottla.console.pages.groups import CRUMB, name_of
from ottla.console.view import Cell, Column, Link, Page, Table, moment, number, text, url
from ottla.tools.why.cluster import explain_cluster
from ottla.tools.why.group import explain_group
from ottla.tools.why.model import ClusterReport, Finding, GroupReport, Severity, Watch
from ottla.tools.why.records import PositionReader

R = TypeVar("R")
DEFAULT_S: Final = 6
_CLUSTER_S: Final = 3
_MOST_S: Final = 30
_TONES: Final[dict[Severity, str]] = {"ok": "ok", "info": "dim", "warning": "warning", "critical": "critical"}


def group(call: Call) -> Page:
    """Observe a group and explain it."""
    name = name_of(call)
    seconds = call.number("seconds", DEFAULT_S, _MOST_S)

    async def explained() -> GroupReport:
        # A record at a position is shown without decoding it, so rules about its fields cannot be applied.
        reader = PositionReader(call.session.consumer_settings(), masked=bool(call.settings.masks.rules))
        async with AsyncAdmin(call.session.admin_settings()) as admin:
            return await explain_group(admin, name, Watch(seconds, asyncio.sleep), reader)

    report = observed(explained())
    parts: list[Any] = [finding_table(report.findings)]
    if report.partitions:
        parts.append(_partition_table(report))
    return Page(
        f"Why {name}?",
        report.as_dict(),
        parts,
        command=call.command("group", "why", name, "--watch", str(seconds)),
        crumbs=[CRUMB, (name, url("group", id=name))],
        actions=[Link("Observe again", url("group", "why", id=name, seconds=seconds))],
        lead=f"{report.state}, {units.plural(report.member_count, 'member')}, observed for {report.watched_s:.0f} s.",
        tone=_TONES[report.severity],
        section="groups",
    )


def cluster(call: Call) -> Page:
    """Observe the cluster and explain its troubles."""
    seconds = call.number("seconds", _CLUSTER_S, _MOST_S)

    async def explained() -> ClusterReport:
        async with AsyncAdmin(call.session.admin_settings()) as admin:
            return await explain_cluster(admin, Watch(seconds, asyncio.sleep))

    report = observed(explained())
    parts = [finding_table(report.findings), *unknown_table(report.unknown)]
    return Page(
        "What is wrong with the cluster?",
        report.as_dict(),
        parts,
        command=call.command("cluster", "why", "--watch", str(seconds)),
        crumbs=[("Overview", "/")],
        actions=[Link("Observe again", url("why", seconds=seconds))],
        lead=f"{units.plural(report.broker_count, 'broker')}, controller {report.controller}, "
        f"observed for {report.watched_s:.0f} s.",
        # Parts that this user may not read hide their troubles.
        tone="warning" if report.unknown and report.severity in ("ok", "info") else _TONES[report.severity],
        section="overview",
    )


def observed(explained: Coroutine[Any, Any, R]) -> R:
    """Run an observation. Raises Problem if too many run."""
    try:
        with slow_page():
            return asyncio.run(explained)
    finally:
        explained.close()


def unknown_table(unknown: Mapping[str, str]) -> list[Table]:
    """Return the parts of the cluster that could not be read."""
    rows = [[text(part), text(reason)] for part, reason in unknown.items()]
    return [Table([Column("Part"), Column("Reason")], rows, title="Not reported")] if rows else []


def finding_table(findings: Sequence[Finding], title: str = "Causes") -> Table:
    """Return causes with their next steps."""
    rows = [
        [Cell(each.severity, tone=_TONES[each.severity]), Cell(each.subject), Cell(each.cause), Cell(each.next_step)]
        for each in findings
    ]
    columns = [Column("Severity"), Column("Subject"), Column("Cause"), Column("Next step")]
    return Table(columns, rows, title=title, empty="No cause was found.")


def _partition_table(report: GroupReport) -> Table:
    rows = []
    for each in report.partitions:
        record = each.record
        shown = "" if record is None else f"{record.key or ''}={record.value or ''}"
        rows.append(
            [
                Cell(f"{each.topic}/{each.partition}", url("topics", each.topic)),
                text(each.code),
                number(each.position),
                number(each.lag),
                text(None if each.lag_s is None else units.duration(1000 * each.lag_s)),
                text(None if each.read_per_s is None else f"{each.read_per_s:,.1f}"),
                text(None if each.written_per_s is None else f"{each.written_per_s:,.1f}"),
                text(each.client)._replace(title=each.member),
                moment(None if record is None else record.timestamp_ms),
                _record_cell(each.topic, each.partition, shown, None if record is None else record.offset),
            ]
        )
    columns = [
        Column("Partition"),
        Column("Cause"),
        *(Column(name, right=True) for name in ("Position", "Lag", "Behind", "Read/s", "Written/s")),
        Column("Client"),
        Column("Record's time"),
        Column("Record at the position", mono=True),
    ]
    return Table(columns, rows, title="Partitions")


def _record_cell(topic: str, partition: int, shown: str, offset: int | None) -> Cell:
    if offset is None:
        return Cell("-", tone="dim")
    return Cell(shown if shown != "=" else f"offset {offset:,}", url("topics", topic, "messages", partition, offset))
