"""Lag of groups: committed and end offsets of each partition, the member that reads it, and totals.

A share group's offset is where it starts: records after it may be processed already.

A partition of a member without a committed offset is shown without lag.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli import units
from ottla.cli.commands import Command, Option, Options
from ottla.cli.connect import connection_options, open_admin
from ottla.cli.group_offsets import read_offsets
from ottla.cli.names import existing_groups, name_parameters
from ottla.cli.output import Column, Output, number, one_line, output_options
from ottla.cli.terminal import Failure

if TYPE_CHECKING:
    from ottla.clients.admin import Admin, GroupDescription


class GroupLag(NamedTuple):
    """The state of a group, with a row for each partition."""

    group: "GroupDescription"
    rows: list[dict[str, Any]]

    def summary(self) -> dict[str, Any]:
        """Return the totals of the group as one row."""
        return {
            "group": self.group.group_id,
            "state": self.group.state.value,
            "type": self.group.type.value,
            "assignor": self.group.assignor or None,
            "member_count": len(self.group.members),
            "partition_count": len(self.rows),
            "lag": sum(row["lag"] or 0 for row in self.rows),
        }


_PARAMETERS = [
    *name_parameters("group", optional=True),
    Option("-t", "--total", is_flag=True, help="one row per group"),
    Option("--by-topic", is_flag=True, help="one row per topic"),
    Option("-w", "--watch", is_flag=True, help="refresh until Ctrl-C"),
    Option("--interval", type=float, default=2.0, metavar="SECONDS", help="time between refreshes; default: 2"),
    Option("--fail-above", type=int, metavar="N", help="exit code 1 if a group is more than N records behind"),
    *output_options(),
    *connection_options(),
]


def _lag(options: Options) -> int:
    output = Output(options)
    if options.interval < 0.1:
        raise Failure(f"--interval is {options.interval:g}; it must be at least 0.1 seconds", exit_code=2)
    with open_admin(options) as admin:
        names = existing_groups(admin, options, optional=True)
        if not options.watch:
            lags = [read_lag(admin, name) for name in names]
            _show(output, lags, options)
            return _verdict(lags, options.fail_above)
        before: dict[Any, tuple[float, int]] = {}
        while True:
            lags = [read_lag(admin, name) for name in names]
            _add_rates(lags, before)
            if output.stream.isatty():
                output.line("\x1b[H\x1b[2J" + output.style.dim(f"{units.moment(_now_ms())}  Ctrl-C ends"))
            _show(output, lags, options)
            output.stream.flush()
            time.sleep(options.interval)


COMMAND = Command(
    _lag,
    _PARAMETERS,
    "show the lag of groups",
    description=f"Show the lag of groups: {__doc__.partition(': ')[2]}",
    examples="""
    ottla group lag billing
    ottla group lag billing --watch
    ottla group lag --total                     every group
    ottla group lag billing --fail-above 1000   for a health check
    """,
)


def read_lag(admin: "Admin", name: str) -> GroupLag:
    """Read the state of a group: its members, committed offsets and end offsets."""
    from ottla.clients.admin import GroupType, OffsetSpec, PartialFailure
    from ottla.common.ids import TopicPartition

    def ends_of(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Any]:
        try:
            return admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)) if partitions else {}
        except PartialFailure as failure:
            return failure.results  # topics of committed offsets may be deleted

    group = admin.describe_group(name)
    readers = {partition: member for member in group.members for partition in member.assignment}
    committed = read_offsets(admin, name, is_share=group.type is GroupType.SHARE)
    # A partition of a share group has several readers.
    readers = {} if group.type is GroupType.SHARE else readers
    partitions = sorted({*committed, *readers})
    ends = ends_of(partitions)
    rows: list[dict[str, Any]] = []
    for partition in partitions:
        reader, end = readers.get(partition), ends.get(partition)
        at = committed.get(partition)
        rows.append(
            {
                "group": name,
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": at,
                "end": end.offset if end else None,
                "lag": max(0, end.offset - at) if end and at is not None else None,
                "member": reader.member_id if reader else None,
                "client": reader.client_id if reader else None,
                "host": reader.host.removeprefix("/") if reader else None,
            }
        )
    return GroupLag(group, rows)


def columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns for the partitions of a group."""
    found = [Column("topic", narrow=True), number("partition"), number("committed"), number("end"), LAG]
    if any("per_second" in row for row in rows):
        found.append(number("per_second", "READ/S"))
    if any(row["client"] for row in rows):
        found += [Column("client", narrow=True), Column("host")]
    return found


def headline(output: Output, lag: GroupLag) -> None:
    """A line about the whole group."""
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
    """How a group's state lags."""
    return {"Stable": "green", "Empty": "dim", "Dead": "red"}.get(state, "yellow")


LAG = Column("lag", right=True, show=units.count, colour=lambda lag: "yellow" if lag else None)


def _show(output: Output, lags: Sequence[GroupLag], options: Options) -> None:
    if options.total:
        columns_of = [Column("group", narrow=True), Column("state", colour=state_colour)]
        columns_of += [number("member_count", "MEMBERS"), number("partition_count", "PARTITIONS"), LAG]
        output.table(columns_of, [each.summary() for each in lags])
        return
    if output.json:
        output.table([], [row for each in lags for row in (_topics(each) if options.by_topic else each.rows)])
        return
    for index, each in enumerate(lags):
        if index:
            output.line()
        headline(output, each)
        if each.rows:
            output.line()
            if options.by_topic:
                by_topic = [Column("topic", narrow=True), number("partition_count", "PARTITIONS"), LAG]
                output.table(by_topic, _topics(each))
            else:
                output.table(columns(each.rows), each.rows)


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


def _verdict(lags: Sequence[GroupLag], limit: int | None) -> int:
    behind = {each.group.group_id: each.summary()["lag"] for each in lags}
    late = {name: lag for name, lag in behind.items() if limit is not None and lag > limit}
    if late:
        first, lag = next(iter(late.items()))
        more = f", and {units.plural(len(late) - 1, 'other group')}" if len(late) > 1 else ""
        raise Failure(f"{first} is {lag:,} records behind, more than {limit:,}{more}")
    return 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
