"""List and describe groups of all types, show their lag, and reset or delete their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ottla.cli import group_lag, group_reset, group_skip, group_why
from ottla.cli.commands import Group, Option, Options, quiet_option, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import (
    choose,
    confirm_deletion,
    enumerated,
    existing_groups,
    if_exists_option,
    members_of,
    name_parameters,
    names_of,
    report_deletions,
)
from ottla.cli.output import Column, Output, number, output_options
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition, by_topic
from ottla.tools.admin.group_lag import read_lag
from ottla.tools.admin.group_offsets import delete_offsets, is_share_group, read_offsets
from ottla.tools.admin.outcomes import outcomes

COMMAND = Group(
    __doc__,
    """
    ottla group list
    ottla group lag billing --watch
    ottla group why billing
    ottla group describe billing
    ottla group reset billing --to-earliest --topic orders
    """,
    shared=[*output_options(), *connection_options()],
)


@COMMAND.verb(
    "list",
    *name_parameters("group", optional=True),
    Option("--state STATE", "only in this state: Stable, Empty, ...", multiple=True),
    Option("--type TYPE", "only of this type: classic, consumer, ...", multiple=True),
    Option("-l, --long", "with members, partitions and lag"),
    quiet_option(),
    examples="""
    ottla group list
    ottla group list --state Empty --long     with members and lag
    ottla group list 'bill*' --quiet
    """,
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List groups."""
    states = members_of(api.GroupState, options.state, "group")
    types = members_of(api.GroupType, options.type, "group")
    admin = connect(options)
    listed = {group.group_id: group for group in admin.list_groups(states=states, types=types)}
    wanted = names_of(options, "group", optional=True)
    names = choose(wanted, listed, "group", regex=options.regex)
    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "state": listed[name].state.value,
            "type": listed[name].type.value,
            "protocol": listed[name].protocol_type,
        }
        for name in names
    ]
    columns = [
        Column("group", narrow=True),
        Column("state", colour=group_lag.state_colour),
        Column("type"),
        Column("protocol"),
    ]
    if options.long:
        rows = [{**row, **read_lag(admin, row["group"]).summary()} for row in rows]
        columns += [number("member_count", "MEMBERS"), number("partition_count", "PARTITIONS"), number("lag")]
    empty = "No group matches." if wanted or states or types else "There is no group yet."
    Output(options).listing("group", columns, rows, empty=empty)


@COMMAND.verb(
    "describe",
    *name_parameters("group", optional=True),
    Option("--members", "members only"),
    Option("--offsets", "offsets and lag only"),
    Option("--state", "the state only"),
    Option("--all-groups", hidden=True),
    examples="""
    ottla group describe billing
    ottla group describe billing --members
    """,
)
def _describe(options: Options) -> None:
    """Show members, their partitions, and offsets."""
    output, admin = Output(options), connect(options)
    everything = not (options.members or options.offsets or options.state)
    for name in output.parts(existing_groups(admin, options, optional=True)):
        lag = read_lag(admin, name)
        members = [_member_row(member) for member in lag.group.members]
        if output.json:
            output.object({**lag.summary(), "members": members, "offsets": lag.rows})
            continue
        group_lag.headline(output, lag)
        if options.members or (everything and members):
            output.line()
            output.table(_member_columns(members), members)
        if options.offsets or (everything and lag.rows):
            output.line()
            output.table(group_lag.columns(lag), lag.rows)


def _member_row(member: api.GroupMember) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host.removeprefix("/"),
        "instance": member.instance_id,
        "topics": list(member.topics),
        "partition_count": len(member.assignment),
        "assignment": by_topic(member.assignment),
        "epoch": member.epoch,
        "target": None if member.target is None else by_topic(member.target),
    }


def _member_columns(rows: Sequence[dict[str, Any]]) -> list[Column]:
    columns = [
        Column("client", narrow=True),
        Column("host"),
        Column("instance", narrow=True, optional=True),
        number("partition_count", "PARTITIONS"),
        Column("assignment", "READS", narrow=True, show=units.ranges),
    ]
    if any(row["epoch"] is not None for row in rows):
        columns.append(number("epoch"))
    if any(row["target"] is not None and row["target"] != row["assignment"] for row in rows):
        columns.append(Column("target", "WILL READ", narrow=True, show=units.ranges))
    return [*columns, Column("member", "MEMBER ID", narrow=True, colour=lambda _: "dim")]


COMMAND.verb("lag", *group_lag.PARAMETERS, examples=group_lag.EXAMPLES, summary="show the lag of groups")(
    group_lag.show_lag
)
COMMAND.verb("why", *group_why.PARAMETERS, examples=group_why.EXAMPLES, summary="explain why groups are stuck")(
    group_why.why
)
COMMAND.verb("skip", *group_skip.PARAMETERS, examples=group_skip.EXAMPLES, summary="move a group past one record")(
    group_skip.skip
)
COMMAND.verb("reset", *group_reset.PARAMETERS, examples=group_reset.EXAMPLES)(group_reset.reset)


@COMMAND.verb(
    "delete",
    *name_parameters("group"),
    Option("--topic TOPIC", "only its offsets for this topic", multiple=True),
    if_exists_option("group"),
    yes_option(),
    examples="""
    ottla group delete billing --topic orders       its offsets for a topic
    ottla group delete billing
    ottla group delete 'test-*' --if-exists --yes
    """,
    summary="delete groups, or their offsets for a topic",
    aliases=("rm",),
)
def _delete(options: Options) -> None:
    """Delete groups with their offsets; with --topic only their offsets for it.
    A group with members is not deleted. At a terminal it asks first.
    """
    output = Output(options)
    names_of(options, "group")  # a missing name must be reported before the connection is made
    admin = connect(options)
    names = existing_groups(admin, options, missing_ok=options.if_exists)
    deletion = f"offsets of {enumerated(names)} for {enumerated(options.topic)}" if options.topic else ""
    deletion = deletion or f"{units.plural(len(names), 'group')} with their offsets: {enumerated(names)}"
    if names:
        confirm_deletion(f"Delete {deletion}?", yes=options.yes)
    if options.topic:
        _delete_offsets(admin, output, names, options.topic)
        return
    if not names:
        output.note("There is nothing to delete.")
    _, errors = outcomes(admin.delete_groups, names)
    report_deletions(output, "group", names, errors)


def _delete_offsets(admin: api.Admin, output: Output, names: Sequence[str], topics: Sequence[str]) -> None:
    for name in names:
        is_share = is_share_group(admin, name)
        partitions = _committed(read_offsets(admin, name, is_share=is_share), name, topics)
        delete_offsets(admin, name, partitions, is_share=is_share)
        for topic in topics:
            row = {"group": name, "topic": topic, "deleted": True}
            output.changed(f"{name}: offsets for {topic} deleted", row)


def _committed(committed: Iterable[TopicPartition], group: str, topics: Sequence[str]) -> list[TopicPartition]:
    for topic in topics:
        if not any(partition.topic == topic for partition in committed):
            known = sorted({partition.topic for partition in committed})
            advice = f"It has offsets for {enumerated(known) or 'no topic'}."
            raise Failure(f"{group} has no committed offsets for {topic!r}", advice)
    return [partition for partition in committed if partition.topic in topics]
