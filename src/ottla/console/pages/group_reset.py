"""The reset of a group's offsets: a form, a preview of each partition, then the change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.common.ids import TopicPartition
from ottla.console.calls import Call, Done, Problem, whole
from ottla.console.pages.groups import CRUMB, name_of
from ottla.console.pages.messages import timestamp_of
from ottla.console.view import Cell, Column, Field, Form, Page, Table, number, url
from ottla.tools.admin.group_offsets import is_share_group, read_offsets, write_offsets
from ottla.tools.admin.group_reset import Places, find_places

_TARGETS: Final = (
    ("earliest", "the first record"),
    ("latest", "after the last record"),
    ("offset", "an offset"),
    ("time", "a time (UTC)"),
    ("shift", "some records forward or back"),
)


def reset(call: Call) -> Page | Done:
    """Preview a reset, and execute it by a POST with the same target."""
    name = name_of(call)
    call.check_may_change()
    given = call.form or call.query
    topic, target, to = given.get("topic", ""), given.get("target", ""), given.get("to", "")
    is_share = is_share_group(call.admin, name)
    committed = read_offsets(call.admin, name, is_share=is_share)
    form = Form(
        "/group/reset",
        "Preview",
        [
            Field("id", "", name, type="hidden"),
            Field("topic", "Topic", topic, type="select", options=_topics(committed)),
            Field("target", "Move to", target, type="select", options=_TARGETS),
            Field("to", "Offset, time or number", to, hint="100, 2026-01-31T12:00, or -50"),
        ],
        method="get",
    )
    if not target:
        return _page(call, name, [form], {"group": name, "topics": sorted({tp.topic for tp in committed})})
    plan, places = _plan(call, committed, topic, (target, to))
    rows = [_row(tp, offset, places[tp]) for tp, offset in plan.items()]
    if call.form:
        write_offsets(call.admin, name, plan, is_share=is_share)
        call.session.cached.forget()
        return Done(url("group", id=name), "reset", {"group": name, "plan": rows})
    execute = Form(
        url("group", "reset", id=name),
        "Change the offsets",
        [Field(key, "", value, type="hidden") for key, value in (("topic", topic), ("target", target), ("to", to))],
        note="The group must have no members: stop its consumers first.",
        tone="danger",
    )
    return _page(call, name, [form, _table(rows), execute], {"group": name, "plan": rows, "executed": False})


def _page(call: Call, name: str, parts: list[Any], data: dict[str, Any]) -> Page:
    return Page(
        f"Reset {name}",
        data,
        parts,
        command=call.command("group", "reset", name, "--to-earliest"),
        crumbs=[CRUMB, (name, url("group", id=name))],
        section="groups",
    )


def _topics(committed: Mapping[TopicPartition, int]) -> list[tuple[str, str]]:
    topics = sorted({tp.topic for tp in committed})
    if not topics:
        raise Problem(409, "The group has no committed offsets", "`ottla group reset --topic TOPIC` sets first ones.")
    return [("", "all topics with committed offsets"), *((topic, topic) for topic in topics)]


def _plan(
    call: Call, committed: Mapping[TopicPartition, int], topic: str, target: tuple[str, str]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Places]]:
    """Return the new offsets, limited to the log of each partition."""
    partitions = sorted(tp for tp in committed if topic in ("", tp.topic))
    if not partitions:
        raise Problem(404, f"The group has no committed offsets in {topic[:80]}")
    places = find_places(call.admin, partitions, committed)
    kind, to = target
    if kind == "time":
        found = call.admin.list_offsets(dict.fromkeys(partitions, timestamp_of(to)))
        wanted = {tp: at.offset if at.offset >= 0 else places[tp].latest for tp, at in found.items()}
    else:
        wanted = {tp: _wanted(places[tp], kind, to) for tp in partitions}
    return {tp: min(max(at, places[tp].earliest), places[tp].latest) for tp, at in sorted(wanted.items())}, places


def _wanted(place: Places, kind: str, to: str) -> int:
    if kind == "earliest":
        return place.earliest
    if kind == "latest":
        return place.latest
    if kind == "offset":
        return whole("to", to)
    if kind == "shift":
        sign = -1 if to.strip().startswith("-") else 1
        return (place.latest if place.current is None else place.current) + sign * whole("to", to.strip().lstrip("+-"))
    raise Problem(400, f"{kind[:40]!r} is not a target", "It must be earliest, latest, offset, time or shift.")


def _row(tp: TopicPartition, offset: int, place: Places) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "before": place.current,
        "offset": offset,
        "change": None if place.current is None else offset - place.current,
        "lag": place.latest - offset,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = [
        Column("Topic"),
        *(Column(name, right=True) for name in ("Partition", "Now", "Would be", "Change", "Lag then")),
    ]
    cells = [
        [
            Cell(row["topic"]),
            number(row["partition"]),
            number(row["before"]),
            number(row["offset"])._replace(tone="strong"),
            Cell("-" if row["change"] is None else f"{row['change']:+,}" if row["change"] else "0"),
            number(row["lag"]),
        ]
        for row in rows
    ]
    return Table(columns, cells, title="Preview", note="Nothing was changed yet.")
