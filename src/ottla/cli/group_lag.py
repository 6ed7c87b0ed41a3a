"""`ottla group lag`: how far groups are behind the ends of their partitions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ottla.cli.commands import Option, Options
from ottla.cli.connect import connect
from ottla.cli.names import existing_groups, name_parameters
from ottla.cli.output import Column, Output, number, one_line
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.tools.admin.group_lag import GroupLag, read_lag

_LONGEST_INTERVAL_S = 86_400
PARAMETERS = [
    *name_parameters("group", optional=True),
    Option("-t, --total", "one row per group"),
    Option("--by-topic", "one row per topic"),
    Option("-w, --watch", "refresh until Ctrl-C"),
    Option("--interval SECONDS", "time between refreshes; default: 2", type=float, default=2.0),
    Option("--fail-above N", "exit code 1 if a group is more than N records behind", type=int),
]
EXAMPLES = """
ottla group lag billing
ottla group lag billing --watch
ottla group lag --total                     every group
ottla group lag billing --fail-above 1000   for a health check
"""


def show_lag(options: Options) -> None:
    """Show the lag of groups: committed and end offsets of each partition, the member that reads it, and totals.

    A share group's offset is where it starts: records after it may be processed already. A partition of a member
    without a committed offset is shown without lag.
    """
    output = Output(options)
    if not 0.1 <= options.interval <= _LONGEST_INTERVAL_S:  # also false for NaN
        limits = f"from 0.1 to {_LONGEST_INTERVAL_S:,} seconds"
        raise Failure(f"--interval is {options.interval:g}; it must be {limits}", exit_code=2)
    admin = connect(options)
    names = existing_groups(admin, options, optional=True)
    before: dict[Any, tuple[float, int]] = {}
    while options.watch:
        lags = [read_lag(admin, name) for name in names]
        _add_rates(lags, before)
        if output.stream.isatty():
            now = units.moment(units.now_ms())
            output.line("\x1b[H\x1b[2J" + output.style.dim(f"{now}  Ctrl-C ends"))
        _show(output, lags, options)
        output.stream.flush()
        time.sleep(options.interval)
    lags = [read_lag(admin, name) for name in names]
    _show(output, lags, options)
    if options.fail_above is not None:
        _check_limit(lags, options.fail_above)


def columns(lag: GroupLag) -> list[Column]:
    """Return the columns for the partitions of a group."""
    offset = number("committed", "START" if lag.group.type is api.GroupType.SHARE else None)
    found = [Column("topic", narrow=True), number("partition"), offset, number("end"), LAG]
    if any("per_second" in row for row in lag.rows):
        found.append(number("per_second", "READ/S"))
    return [*found, Column("client", narrow=True, optional=True), Column("host", optional=True)]


def headline(output: Output, lag: GroupLag) -> None:
    """Print a line about the whole group."""
    summary, style = lag.summary(), output.style
    state = summary["state"]
    colour = state_colour(state)
    parts = [getattr(style, colour)(state) if colour else state]
    if summary["type"] != "classic":
        epoch = "" if lag.group.epoch is None else f" at epoch {lag.group.epoch}"
        parts.append(f"{summary['type']} group{epoch}")
    parts.append(units.plural(summary["member_count"], "member"))
    if summary["assignor"]:
        parts.append(summary["assignor"])
    parts.append(f"lag {units.count(summary['lag'])} in {units.plural(summary['partition_count'], 'partition')}")
    output.line(f"{style.bold(one_line(summary['group']))}  {', '.join(parts)}")


def state_colour(state: str) -> str | None:
    """Return the colour of a group's state."""
    return {"Stable": "green", "Empty": "dim", "Dead": "red"}.get(state, "yellow")


LAG = Column("lag", right=True, show=units.count, colour=lambda lag: "yellow" if lag else None)


def _show(output: Output, lags: Sequence[GroupLag], options: Options) -> None:
    if options.total:
        totals = [Column("group", narrow=True), Column("state", colour=state_colour)]
        totals += [number("member_count", "MEMBERS"), number("partition_count", "PARTITIONS"), LAG]
        output.table(totals, [each.summary() for each in lags])
        return
    if output.json:
        output.table([], [row for each in lags for row in (_topics(each) if options.by_topic else each.rows)])
        return
    for each in output.parts(lags):
        headline(output, each)
        if each.rows:
            output.line()
            if options.by_topic:
                by_topic = [Column("topic", narrow=True), number("partition_count", "PARTITIONS"), LAG]
                output.table(by_topic, _topics(each))
            else:
                output.table(columns(each), each.rows)


def _topics(lag: GroupLag) -> list[dict[str, Any]]:
    totals: dict[str, dict[str, Any]] = {}
    for row in lag.rows:
        topic = row["topic"]
        each = totals.setdefault(topic, {"group": row["group"], "topic": topic, "partition_count": 0, "lag": 0})
        each["partition_count"] += 1
        each["lag"] += row["lag"] or 0
    return list(totals.values())


def _add_rates(lags: Sequence[GroupLag], before: dict[Any, tuple[float, int]]) -> None:
    """Add the records per second of each partition since the previous refresh."""
    now = time.monotonic()
    for each in lags:
        for row in each.rows:
            key, committed = (row["group"], row["topic"], row["partition"]), row["committed"]
            if committed is None:
                continue
            then, at = before.get(key, (now, committed))
            row["per_second"] = round((committed - at) / (now - then)) if now > then else None
            before[key] = (now, committed)


def _check_limit(lags: Sequence[GroupLag], limit: int) -> None:
    """Raise Failure if the lag of a group is above the limit."""
    behind = {each.group.group_id: each.summary()["lag"] for each in lags}
    late = [name for name, lag in behind.items() if lag > limit]
    if late:
        more = f", and {units.plural(len(late) - 1, 'other group')}" if len(late) > 1 else ""
        raise Failure(f"{late[0]} is {behind[late[0]]:,} records behind, more than {limit:,}{more}")
