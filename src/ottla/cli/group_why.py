"""`ottla group why`: explains why a group makes no progress."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ottla.cli.commands import Option, Options
from ottla.cli.connect import client_settings, connect
from ottla.cli.names import existing_groups, name_parameters
from ottla.cli.output import Column, Output, number, one_line
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.tools.why.group import explain_group
from ottla.tools.why.model import Finding, GroupReport, Severity, Watch
from ottla.tools.why.records import PositionReader

_LONGEST_S: Final = 3600.0
_PARTS: Final = 3
_COLOURS: Final[dict[Severity, str]] = {"ok": "green", "info": "dim", "warning": "yellow", "critical": "red"}


def watch_option(default_s: float) -> Option:
    """Return the option `--watch`."""
    text = f"observe for so long between the first and the last sample; default: {default_s:g}"
    return Option("--watch SECONDS", text, type=float, default=default_s)


PARAMETERS = [
    *name_parameters("group"),
    watch_option(6.0),
    Option("--no-records", "do not show keys and values of records"),
]
EXAMPLES = """
ottla group why billing
ottla group why billing --no-records
ottla group why billing --json | jq -r '.findings[] | .code'
"""


def why(options: Options) -> None:
    """Explain why groups make no progress: the cause of each partition, and the next step.

    It takes samples for some seconds, because one sample does not show whether a position moves. Members usually commit
    every 5 seconds, so a shorter observation proves little. The command reads the record at each position with a
    consumer of its own, and changes nothing.
    """
    output, watch = Output(options), checked_watch(options)
    names = existing_groups(connect(options), options)
    for report in output.parts(asyncio.run(_explain(options, names, watch))):
        if output.json:
            output.object(report.as_dict())
        else:
            _show(output, report)


def checked_watch(options: Options) -> Watch:
    """Return the observation that --watch names. Raises Failure."""
    if not 0 <= options.watch <= _LONGEST_S:  # also false for NaN
        raise Failure(f"--watch is {options.watch:g}; it must be from 0 to {_LONGEST_S:,.0f} seconds", exit_code=2)
    return Watch(options.watch, asyncio.sleep)


async def _explain(options: Options, names: list[str], watch: Watch) -> list[GroupReport]:
    reader = PositionReader(client_settings(options, "consumer"), masked=options.no_records)
    async with api.AsyncAdmin(client_settings(options)) as admin:
        return list(await asyncio.gather(*(explain_group(admin, name, watch, reader) for name in names)))


def show_findings(output: Output, findings: tuple[Finding, ...]) -> None:
    """Print findings with their causes and next steps."""
    for each in findings:
        label = getattr(output.style, _COLOURS[each.severity])(f"{each.severity} {each.code}")
        output.line(f"{label}  {output.style.bold(one_line(each.subject))}")
        output.line(f"  {one_line(each.cause)}")
        if each.next_step:
            output.line(f"  next: {one_line(each.next_step)}")


def show_unknown(output: Output, unknown: Mapping[str, str]) -> None:
    """Print the parts that could not be read: a note for each reason."""
    by_reason: dict[str, list[str]] = {}
    for part, reason in unknown.items():
        by_reason.setdefault(reason, []).append(part)
    for reason, parts in by_reason.items():
        more = f" and {len(parts) - _PARTS} more" if len(parts) > _PARTS else ""
        output.note(one_line(f"{', '.join(parts[:_PARTS])}{more}: {reason}"))


def _show(output: Output, report: GroupReport) -> None:
    parts = [report.state, f"{report.type} group", units.plural(report.member_count, "member")]
    watched = f"observed for {report.watched_s:.0f} s"
    output.line(f"{output.style.bold(one_line(report.group))}  {', '.join([*parts, watched])}")
    output.line()
    show_findings(output, report.findings)
    if report.partitions:
        output.line()
        output.table(_COLUMNS, [_row(each) for each in report.as_dict()["partitions"]])


def _row(row: dict[str, Any]) -> dict[str, Any]:
    record = row["record"]
    shown = "" if record is None else f"{units.size(record['size'])} {record['key'] or ''}={record['value'] or ''}"
    at_ms = None if record is None else record["timestamp_ms"]
    return {**row, "record": shown, "time": at_ms, "lag_ms": None if row["lag_s"] is None else 1000 * row["lag_s"]}


_COLUMNS = [
    Column("topic", narrow=True),
    number("partition"),
    Column("code", "CAUSE"),
    number("position"),
    number("lag"),
    Column("lag_ms", "BEHIND", units.duration, right=True),
    Column("read_per_s", "READ/S", lambda rate: "-" if rate is None else f"{rate:,.1f}", right=True),
    Column("written_per_s", "WRITTEN/S", lambda rate: "-" if rate is None else f"{rate:,.1f}", right=True),
    Column("client", narrow=True, optional=True),
    Column("host", optional=True),
    Column("time", "RECORD'S TIME", units.moment),
    Column("record", "RECORD AT POSITION", narrow=True, optional=True),
]
