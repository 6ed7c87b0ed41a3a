"""List and describe groups of all types, show their lag, and reset or delete their offsets."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli import group_lag, group_reset, units
from ottla.cli.commands import Command, Group, Option, Options
from ottla.cli.connect import connection_options, open_admin
from ottla.cli.group_offsets import delete_offsets, is_share_group, read_offsets
from ottla.cli.names import (
    choose,
    confirm_deletion,
    enumerated,
    existing_groups,
    members_of,
    name_parameters,
    names_of,
    report_deletions,
)
from ottla.cli.output import Column, Output, number, output_options
from ottla.cli.terminal import Failure

if TYPE_CHECKING:
    from ottla.common.ids import TopicPartition

EXAMPLES = """
ottla group list
ottla group lag billing --watch
ottla group describe billing
ottla group reset billing --to-earliest --topic orders
"""


# -- list --------------------------------------------------------------------------------------------------------


_LIST_PARAMETERS = [
    *name_parameters("group", optional=True),
    Option("--state", multiple=True, metavar="STATE", help="only in this state: Stable, Empty, ..."),
    Option("--type", multiple=True, metavar="TYPE", help="only of this type: classic, consumer, ..."),
    Option("-l", "--long", is_flag=True, help="with members, partitions and lag"),
    Option("-q", "--quiet", is_flag=True, help="only names, one per line"),
    *output_options(),
    *connection_options(),
]


def _list(options: Options) -> int:
    from ottla.clients.admin import GroupState, GroupType

    output = Output(options)
    states, types = members_of(GroupState, options.state, "group"), members_of(GroupType, options.type, "group")
    with open_admin(options) as admin:
        listed = {group.group_id: group for group in admin.list_groups(states=states, types=types)}
        wanted = names_of(options, "group", optional=True)
        names = choose(wanted, listed, "group", regex=options.regex) if wanted else list(listed)
        rows: list[dict[str, Any]] = [
            {
                "group": name,
                "state": listed[name].state.value,
                "type": listed[name].type.value,
                "protocol": listed[name].protocol_type,
            }
            for name in names
        ]
        if options.long:
            rows = [{**row, **group_lag.read_lag(admin, row["group"]).summary()} for row in rows]
    if options.quiet and not output.json:
        output.names(names)
        return 0
    if not rows and not output.json:
        output.note("No group matches." if wanted or states or types else "There is no group yet.")
        return 0
    columns = [Column("group", narrow=True), Column("state", colour=group_lag.state_colour), Column("type")]
    columns += [Column("protocol", show=lambda text: text or "-")]
    if options.long:
        columns += [number("member_count", "MEMBERS"), number("partition_count", "PARTITIONS"), number("lag")]
    output.table(columns, rows)
    return 0


# -- describe ----------------------------------------------------------------------------------------------------


_DESCRIBE_PARAMETERS = [
    *name_parameters("group", optional=True),
    Option("--members", is_flag=True, help="members only"),
    Option("--offsets", is_flag=True, help="offsets and lag only"),
    Option("--state", is_flag=True, help="the state only"),
    Option("--all-groups", is_flag=True, hidden=True),
    *output_options(),
    *connection_options(),
]


def _describe(options: Options) -> int:
    output = Output(options)
    everything = not (options.members or options.offsets or options.state)
    with open_admin(options) as admin:
        for index, name in enumerate(existing_groups(admin, options, optional=True)):
            lag = group_lag.read_lag(admin, name)
            members = [_member_row(member) for member in lag.group.members]
            if output.json:
                output.object({**lag.summary(), "members": members, "offsets": lag.rows})
                continue
            if index:
                output.line()
            group_lag.headline(output, lag)
            if options.members or (everything and members):
                output.line()
                output.table(_member_columns(members), members)
            if options.offsets or (everything and lag.rows):
                output.line()
                output.table(group_lag.columns(lag.rows), lag.rows)
    return 0


def _member_row(member: Any) -> dict[str, Any]:
    from ottla.common.ids import by_topic

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
    columns = [Column("client", narrow=True), Column("host")]
    if any(row["instance"] for row in rows):
        columns.append(Column("instance", narrow=True))
    columns.append(number("partition_count", "PARTITIONS"))
    columns.append(Column("assignment", "READS", narrow=True, show=units.ranges))
    if any(row["epoch"] is not None for row in rows):
        columns.append(number("epoch"))
    if any(row["target"] is not None and row["target"] != row["assignment"] for row in rows):
        columns.append(Column("target", "WILL READ", narrow=True, show=units.ranges))
    columns.append(Column("member", "MEMBER ID", narrow=True, colour=lambda _: "dim"))
    return columns


# -- delete ------------------------------------------------------------------------------------------------------


_DELETE_PARAMETERS = [
    *name_parameters("group"),
    Option("--topic", multiple=True, metavar="TOPIC", help="only its offsets for this topic"),
    Option("--if-exists", is_flag=True, help="skip groups that do not exist"),
    Option("-y", "--yes", is_flag=True, help="do not ask"),
    *output_options(),
    *connection_options(),
]


def _delete(options: Options) -> int:
    from ottla.clients.admin import PartialFailure
    from ottla.clients.errors import ClientError

    output = Output(options)
    names_of(options, "group")  # a missing name must be reported before the connection is made
    with open_admin(options) as admin:
        names = existing_groups(admin, options, missing_ok=options.if_exists)
        deletion = f"offsets of {enumerated(names)} for {enumerated(options.topic)}" if options.topic else ""
        deletion = deletion or f"{units.plural(len(names), 'group')} with their offsets: {enumerated(names)}"
        if names:
            confirm_deletion(f"Delete {deletion}?", yes=options.yes)
        if options.topic:
            for name in names:
                is_share = is_share_group(admin, name)
                partitions = _committed(read_offsets(admin, name, is_share=is_share), name, options.topic)
                delete_offsets(admin, name, partitions, is_share=is_share)
                for topic in options.topic:
                    row = {"group": name, "topic": topic, "deleted": True}
                    output.done(output.style.green(f"{name}: offsets for {topic} deleted"), row)
            return 0
        if not names:
            output.note("There is nothing to delete.")
        errors: dict[str, ClientError] = {}
        try:
            admin.delete_groups(names)
        except PartialFailure as failure:
            errors = dict(failure.errors)
        report_deletions(output, "group", names, errors)
    return 0


def _committed(committed: "Iterable[TopicPartition]", group: str, topics: Sequence[str]) -> "list[TopicPartition]":
    for topic in topics:
        if not any(partition.topic == topic for partition in committed):
            known = sorted({partition.topic for partition in committed})
            advice = f"It has offsets for {enumerated(known) or 'no topic'}."
            raise Failure(f"{group} has no committed offsets for {topic!r}", advice)
    return [partition for partition in committed if partition.topic in topics]


COMMAND = Group(
    __doc__,
    {
        "list": Command(
            _list,
            _LIST_PARAMETERS,
            "list groups",
            examples="""
                ottla group list
                ottla group list --state Empty --long     with members and lag
                ottla group list 'bill*' --quiet
                """,
            aliases=("ls",),
        ),
        "describe": Command(
            _describe,
            _DESCRIBE_PARAMETERS,
            "show members, their partitions, and offsets",
            examples="""
                ottla group describe billing
                ottla group describe billing --members
                """,
        ),
        "lag": group_lag.COMMAND,
        "reset": group_reset.COMMAND,
        "delete": Command(
            _delete,
            _DELETE_PARAMETERS,
            "delete groups, or their offsets for a topic",
            description="Delete groups with their offsets; with --topic only their offsets for it.\n"
            "A group with members is not deleted. At a terminal it asks first.",
            examples="""
                ottla group delete billing --topic orders       its offsets for a topic
                ottla group delete billing
                ottla group delete 'test-*' --if-exists --yes
                """,
            aliases=("rm",),
        ),
    },
    EXAMPLES,
)
