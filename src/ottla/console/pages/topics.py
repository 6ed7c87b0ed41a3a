"""Topics: the list with a filter and pages, and one topic with partitions, settings and the groups that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from ottla.clients import admin as api
from ottla.clients.errors import BrokerError, UnsupportedByBroker
from ottla.common import units
from ottla.console.calls import Call, Problem
from ottla.console.view import Cell, Column, Facts, Link, Page, Table, number, size, text, url
from ottla.metadata.mirrors import is_read_only_state
from ottla.tools.admin.configs import default_of
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.topic_facts import Facts as TopicFacts
from ottla.tools.admin.topic_facts import facts_of
from ottla.tools.values import explained

T = TypeVar("T")
PAGE_ROWS: Final = 50
MOST_GROUPS: Final = 500
_FRESH_S: Final = 3.0
_LONGEST_NAME: Final = 249


def name_of(call: Call) -> str:
    """Return the topic of the path. Raises Problem for a text that cannot be a topic."""
    name = call.params["topic"]
    is_legal = all(character.isascii() and (character.isalnum() or character in "._-") for character in name)
    if not is_legal or not 0 < len(name) <= _LONGEST_NAME or name in (".", ".."):
        raise Problem(404, f"{name[:80]!r} cannot be a topic", "Topics have letters, digits, dots, - and _.")
    return name


def known_topics(call: Call) -> list[api.TopicListing]:
    """Return all topics, at most some seconds old."""
    return call.session.cached.get("topics", lambda: call.admin.list_topics(include_internal=True), _FRESH_S)


def page_of(call: Call, rows: Sequence[T]) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the rows of the page in the query, and the numbers for its links."""
    last = max(1, -(-len(rows) // PAGE_ROWS))
    current = min(max(1, call.number("page", 1, 1_000_000)), last)
    start = (current - 1) * PAGE_ROWS
    return rows[start : start + PAGE_ROWS], {"page": current, "pages": last, "total": len(rows)}


def pager_links(call: Call, paging: dict[str, Any], **query: object) -> list[Link]:
    """Return the links to the neighbouring pages."""
    current, last = paging["page"], paging["pages"]
    path = call.path.strip("/").split("/")
    numbers = sorted({1, current - 1, current, current + 1, last} & set(range(1, last + 1)))
    return [Link(str(n), url(*path, **query, page=n), current=n == current) for n in numbers] if last > 1 else []


def listing(call: Call) -> Page:
    """List topics."""
    wanted = call.query.get("filter", "")
    shows_internal = call.query.get("internal") == "1"
    topics = known_topics(call)
    needle = wanted.casefold()
    found = [topic for topic in topics if needle in topic.name.casefold() and (shows_internal or not topic.is_internal)]
    if call.query.get("sort") == "partitions":
        found.sort(key=lambda topic: (-topic.partitions, topic.name))
    shown, paging = page_of(call, found)
    rows = [
        [
            Cell(topic.name, url("topics", topic.name)),
            number(topic.partitions),
            Cell("internal" if topic.is_internal else "", tone="dim"),
            Cell("messages", url("topics", topic.name, "messages")),
        ]
        for topic in shown
    ]
    empty = f"No topic has {wanted!r} in its name." if wanted else "There is no topic yet."
    table = Table([Column("Topic"), Column("Partitions", right=True), Column(""), Column("")], rows, empty=empty)
    data = {
        "topics": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "internal": topic.is_internal,
                "partition_count": topic.partitions,
            }
            for topic in shown
        ],
        **paging,
    }
    links = pager_links(
        call, paging, filter=wanted, internal="1" if shows_internal else None, sort=call.query.get("sort")
    )
    toggle = Link(
        "Hide internal" if shows_internal else "Show internal",
        url("topics", filter=wanted, internal=None if shows_internal else "1"),
    )
    return Page(
        "Topics",
        data,
        [table],
        command=call.command("topic", "list"),
        actions=[toggle, *([Link("Create topic", "/topics/new", "primary")] if call.may_change else [])],
        section="topics",
        template="list.html",
        more={
            "filter": wanted,
            "links": links,
            "noun": units.plural(paging["total"], "topic"),
            "kept": {"internal": "1" if shows_internal else ""},
        },
    )


def tabs(call: Call, name: str, current: str) -> list[Link]:
    """Return the tabs of a topic."""
    found = [
        Link("Partitions", url("topics", name), current=current == "partitions"),
        Link("Messages", url("topics", name, "messages"), current=current == "messages"),
        Link("Settings", url("topics", name, "settings"), current=current == "settings"),
        Link("Groups", url("topics", name, "groups"), current=current == "groups"),
    ]
    if call.may_change:
        found.append(Link("Produce", url("topics", name, "produce"), current=current == "produce"))
    return found


def changes(call: Call, name: str) -> list[Link]:
    """Return the links to the forms of changes."""
    if not call.may_change:
        return []
    return [
        Link("Alter", url("topics", name, "alter")),
        Link("Delete records", url("topics", name, "delete-records"), "danger"),
        Link("Delete", url("topics", name, "delete"), "danger"),
    ]


CRUMB: Final = ("Topics", "/topics")


def topic(call: Call) -> Page:
    """Show the partitions of a topic."""
    name = name_of(call)
    found = facts_of(call.admin, [name])[0]
    summary, copy = found.summary(), _copy(found)
    facts = Facts(
        [
            ("Partitions", number(summary["partition_count"])),
            ("Replicas", number(summary["replication_factor"])),
            ("Records", number(summary["records"])),
            ("Size", size(summary["size"])),
            ("Size of all replicas", size(summary["size_of_replicas"])),
            ("Cleanup", text(summary["cleanup_policy"])),
            ("Set for this topic", Cell(f"{len(found.overrides()):,}", url("topics", name, "settings"))),
            *([("Mirror", text(f"{copy['name']}, {copy['state'].lower()}"))] if copy else []),
        ]
    )
    trouble, tone = _state(summary)
    shows_troubled = call.query.get("only") == "troubled"
    rows = [row for row in found.partitions if _is_troubled(row)] if shows_troubled else found.partitions
    shown, paging = page_of(call, rows)
    only = "troubled" if shows_troubled else None
    other = (
        Link("Show all", url("topics", name)) if only else Link("Show only these", url("topics", name, only="troubled"))
    )
    return Page(
        name,
        {**summary, "mirror": copy, "overrides": found.overrides(), "partitions": list(shown), **paging},
        [facts, _partitions(name, found, shown)],
        command=call.command("topic", "describe", name),
        crumbs=[CRUMB],
        tabs=tabs(call, name, "partitions"),
        actions=[*([other] if trouble else []), *changes(call, name)],
        lead=f"{trouble} {_read_only(name, copy)}".strip(),
        tone=tone,
        section="topics",
        more={"links": pager_links(call, paging, only=only)},
    )


def _copy(found: TopicFacts) -> dict[str, str] | None:
    """Return the mirror of a topic, and the topic's state in it."""
    return None if found.mirror is None else dict(zip(("name", "state"), found.mirror, strict=True))


def _read_only(name: str, copy: Mapping[str, str] | None) -> str:
    if copy is None or not is_read_only_state(copy["state"]):
        return ""
    mirror = copy["name"]
    return (
        f"Mirror {mirror} copies this topic from another cluster: it is read-only until "
        f"`ottla mirror promote {mirror} {name}`."
    )


def _state(summary: dict[str, Any]) -> tuple[str, str]:
    if summary["without_leader"]:
        return f"{units.plural(summary['without_leader'], 'partition')} without a leader.", "critical"
    if summary["under_replicated"]:
        return f"{units.plural(summary['under_replicated'], 'partition')} with replicas out of sync.", "warning"
    return "", ""


def _is_troubled(row: Mapping[str, Any]) -> bool:
    return row["leader"] is None or len(row["isr"]) != len(row["replicas"])


def _partitions(name: str, found: TopicFacts, shown: Sequence[Mapping[str, Any]]) -> Table:
    # Of all pages, so that the bars of two pages can be compared.
    largest = max((row["size"] or 0 for row in found.partitions), default=0) or 1
    rows = []
    for row in shown:
        in_sync = len(row["isr"]) == len(row["replicas"])
        messages = url("topics", name, "messages", partition=row["partition"])
        rows.append(
            [
                Cell(str(row["partition"]), messages),
                Cell("none", tone="critical") if row["leader"] is None else Cell(str(row["leader"])),
                Cell(", ".join(map(str, row["replicas"]))),
                Cell(", ".join(map(str, row["isr"])), tone="" if in_sync else "warning"),
                number(row["earliest"]),
                number(row["latest"]),
                number(row["records"]),
                size(row["size"])._replace(bar=(row["size"] or 0) / largest),
            ]
        )
    columns = [
        Column("Partition"),
        Column("Leader"),
        Column("Replicas"),
        Column("In sync"),
        Column("Earliest", right=True),
        Column("Latest", right=True),
        Column("Records", right=True),
        Column("Size", right=True),
    ]
    return Table(columns, rows)


def settings(call: Call) -> Page:
    """Show the settings of a topic; those that were set for it are first."""
    name = name_of(call)
    resource = api.ConfigResource.topic(name)
    described = call.admin.describe_configs([resource], synonyms=True, documentation=True)[resource]
    entries = sorted(described.values(), key=lambda entry: (entry.is_default, entry.source, entry.name))
    rows = []
    for entry in entries:
        is_set = not entry.is_default
        value = "(secret)" if entry.is_sensitive else entry.value
        rows.append(
            [
                Cell(entry.name, title=entry.documentation, tone="" if is_set else "dim"),
                text(value)._replace(tone="strong" if is_set else "", title=explained(entry.name, entry.value)),
                Cell(entry.source.name.lower().replace("_", " "), tone="" if is_set else "dim"),
                text(default_of(entry))._replace(tone="dim"),
            ]
        )
    columns = [Column("Setting", mono=True), Column("Value", mono=True), Column("Source"), Column("Default", mono=True)]
    changed = sum(not entry.is_default for entry in entries)
    data = {
        "topic": name,
        "settings": [
            {
                "name": entry.name,
                "value": None if entry.is_sensitive else entry.value,
                "source": entry.source.name,
                "is_default": entry.is_default,
                "is_read_only": entry.is_read_only,
                "default": default_of(entry),
            }
            for entry in entries
        ],
    }
    return Page(
        name,
        data,
        [Table(columns, rows, note=f"Settings that differ from their defaults: {changed}.")],
        command=call.command("config", "list", "topic", name, "--all"),
        crumbs=[CRUMB],
        tabs=tabs(call, name, "settings"),
        actions=changes(call, name),
        section="topics",
    )


def groups(call: Call) -> Page:
    """Show the groups with committed offsets in a topic."""
    name = name_of(call)
    found, is_complete = readers(call, name)
    rows = [
        [Cell(row["group"], url("group", id=row["group"])), number(row["partition_count"]), number(row["lag"])]
        for row in found
    ]
    columns = [Column("Group"), Column("Partitions", right=True), Column("Lag", right=True)]
    return Page(
        name,
        {"topic": name, "groups": found, "is_complete": is_complete},
        [
            Table(
                columns,
                rows,
                empty="No group has committed offsets in this topic.",
                note="" if is_complete else f"Only the first {MOST_GROUPS} groups were searched.",
            )
        ],
        command=call.command("group", "lag", "--by-topic"),
        crumbs=[CRUMB],
        tabs=tabs(call, name, "groups"),
        section="topics",
    )


def _offsets_of(call: Call, groups: list[str]) -> dict[str, Any]:
    return outcomes(call.admin.list_offsets_of_groups, groups)[0] if groups else {}


def readers(call: Call, topic_name: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the groups with committed offsets in a topic, and whether all groups were searched."""
    names = [group.group_id for group in call.admin.list_groups() if group.type is not api.GroupType.SHARE]
    chosen = names[:MOST_GROUPS]
    # The pages of all topics share one answer.
    by_group = call.session.cached.get("offsets of groups", lambda: _offsets_of(call, chosen), _FRESH_S)
    mine = {
        group: {tp: at for tp, at in offsets.items() if tp.topic == topic_name} for group, offsets in by_group.items()
    }
    partitions = {tp for offsets in mine.values() for tp in offsets}
    try:
        ends = call.admin.list_offsets(dict.fromkeys(partitions, api.OffsetSpec.LATEST)) if partitions else {}
    except (BrokerError, UnsupportedByBroker):
        ends = {}
    rows = [
        {
            "group": group,
            "partition_count": len(offsets),
            "lag": sum(max(0, ends[tp].offset - at.offset) for tp, at in offsets.items() if tp in ends),
        }
        for group, offsets in mine.items()
        if offsets
    ]
    return rows, len(names) <= MOST_GROUPS
