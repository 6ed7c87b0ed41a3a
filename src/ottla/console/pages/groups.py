"""Groups of all types: the list, one group with lag and members, and its deletion."""

from __future__ import annotations

from typing import Any, Final

from ottla.common import units
from ottla.console.calls import Call, Done, Problem
from ottla.console.pages.topics import page_of, pager_links
from ottla.console.view import Cell, Column, Facts, Link, Page, Table, confirmation, number, text, url
from ottla.tools.admin.group_lag import read_lag

_FRESH_S: Final = 3.0
CRUMB: Final = ("Groups", "/groups")
_TONES: Final = {"Stable": "ok", "Empty": "dim", "Dead": "dim"}


def name_of(call: Call) -> str:
    """Return the group of the query. Raises Problem."""
    name = call.query.get("id", "")
    if not name:
        raise Problem(400, "No group is given", "The address is /group?id=GROUP.")
    return name


def state_cell(state: str) -> Cell:
    """The state of a group."""
    return Cell(state, tone=_TONES.get(state, "warning"))


def listing(call: Call) -> Page:
    """List groups."""
    wanted = call.query.get("filter", "")
    groups = call.session.cached.get("groups", call.admin.list_groups, _FRESH_S)
    found = [group for group in groups if wanted.casefold() in group.group_id.casefold()]
    shown, paging = page_of(call, found)
    rows = [
        [
            Cell(group.group_id, url("group", id=group.group_id)),
            state_cell(group.state.value),
            text(group.type.value),
            text(group.protocol_type),
        ]
        for group in shown
    ]
    empty = f"No group has {wanted!r} in its name." if wanted else "There is no group yet."
    return Page(
        "Groups",
        {
            "groups": [
                {"group": group.group_id, "state": group.state.value, "type": group.type.value} for group in shown
            ],
            **paging,
        },
        [Table([Column("Group"), Column("State"), Column("Type"), Column("Protocol")], rows, empty=empty)],
        command=call.command("group", "list"),
        section="groups",
        template="list.html",
        more={
            "filter": wanted,
            "links": pager_links(call, paging, filter=wanted),
            "noun": units.plural(paging["total"], "group"),
            "kept": {},
        },
    )


def group(call: Call) -> Page:
    """Show the lag and the members of a group."""
    name = name_of(call)
    found = read_lag(call.admin, name)
    summary = found.summary()
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host.removeprefix("/"),
            "instance": member.instance_id,
            "partition_count": len(member.assignment),
        }
        for member in found.group.members
    ]
    facts = Facts(
        [
            ("State", state_cell(summary["state"])),
            ("Type", text(summary["type"])),
            ("Assignor", text(summary["assignor"])),
            ("Members", number(summary["member_count"])),
            ("Partitions", number(summary["partition_count"])),
            ("Lag", number(summary["lag"])),
        ]
    )
    actions = [Link("Why?", url("group", "why", id=name))]
    if call.may_change:
        actions += [
            Link("Reset offsets", url("group", "reset", id=name)),
            Link("Delete", url("group", "delete", id=name), "danger"),
        ]
    return Page(
        name,
        {**summary, "partitions": found.rows, "members": members},
        [facts, _lag_table(found.rows), _member_table(members)],
        command=call.command("group", "describe", name),
        crumbs=[CRUMB],
        actions=actions,
        section="groups",
    )


def _lag_table(rows: list[dict[str, Any]]) -> Table:
    most = max((row["lag"] or 0 for row in rows), default=0) or 1
    columns = [
        Column("Topic"),
        Column("Partition", right=True),
        Column("Committed", right=True),
        Column("End", right=True),
        Column("Lag", right=True),
        Column("Member"),
    ]
    cells = [
        [
            Cell(row["topic"], url("topics", row["topic"])),
            number(row["partition"]),
            number(row["committed"]),
            number(row["end"]),
            number(row["lag"])._replace(bar=(row["lag"] or 0) / most, tone="strong" if row["lag"] else ""),
            text(row["client"])._replace(title=row["member"]),
        ]
        for row in rows
    ]
    return Table(columns, cells, title="Lag", empty="The group has no committed offsets.")


def _member_table(members: list[dict[str, Any]]) -> Table:
    columns = [Column("Client"), Column("Host"), Column("Partitions", right=True), Column("Instance"), Column("Member")]
    cells = [
        [
            text(member["client"]),
            text(member["host"]),
            number(member["partition_count"]),
            text(member["instance"]),
            text(member["member"], tone="dim"),
        ]
        for member in members
    ]
    return Table(columns, cells, title="Members", empty="The group has no members.")


def delete(call: Call) -> Page | Done:
    """Delete a group, after its name was typed."""
    name = name_of(call)
    if call.form:
        call.check_confirmed(name)
        call.admin.delete_group(name)
        call.session.cached.forget()
        return Done("/groups", "deleted", {"group": name})
    call.check_may_change()
    note = "The group and its committed offsets are deleted. A group with members cannot be deleted."
    form = confirmation(url("group", "delete", id=name), f"Delete {name}", "group", note)
    return Page(
        f"Delete {name}?",
        {"group": name},
        [form],
        command=call.command("group", "delete", name),
        crumbs=[CRUMB, (name, url("group", id=name))],
        section="groups",
    )
