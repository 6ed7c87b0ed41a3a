"""Settings of a broker: the list, and changes of dynamic ones, for this broker or all, after a question."""

from __future__ import annotations

from typing import Any, Final

from ottla.clients import admin as api
from ottla.console.calls import Call, Done, Problem, whole
from ottla.console.view import Cell, Column, Field, Form, Link, Page, Table, text, url
from ottla.tools.admin.configs import default_of
from ottla.tools.values import explained

_HIDDEN: Final = "(secret)"
_SCOPES: Final = (("broker", "this broker"), ("all", "all brokers"))


def _node(call: Call) -> int:
    """Return the broker of the path. Raises Problem."""
    return whole("node", call.params["node"], 2**31 - 1)


def _described(call: Call, node: int) -> dict[str, api.ConfigEntry]:
    if node not in {broker.node_id for broker in call.admin.describe_cluster().brokers}:
        raise Problem(404, f"There is no running broker {node}", "The page /nodes lists the brokers.")
    resource = api.ConfigResource.broker(node)
    found: dict[str, api.ConfigEntry] = call.admin.describe_config(resource, synonyms=True, documentation=True)
    return found


def _crumbs(node: int) -> list[tuple[str, str]]:
    return [("Nodes", "/nodes"), (f"Broker {node}", url("nodes", node, "settings"))]


def settings(call: Call) -> Page:
    """Show the settings of a broker; those that were set are first."""
    node = _node(call)
    wanted = call.query.get("filter", "").casefold()
    described = [entry for name, entry in _described(call, node).items() if wanted in name.casefold()]
    entries = sorted(described, key=lambda entry: (entry.is_default, entry.name))
    columns = [
        Column("Setting", mono=True),
        Column("Value", mono=True),
        Column("Source"),
        Column("Default", mono=True),
        Column(""),
    ]
    changed = sum(not entry.is_default for entry in entries)
    table = Table(
        columns,
        [_row(call, node, entry) for entry in entries],
        empty="No setting has this text in its name.",
        note=f"Settings that differ from their defaults: {changed}.",
    )
    return Page(
        f"Broker {node}",
        {"node_id": node, "settings": [_data(entry) for entry in entries]},
        [table],
        command=call.command("config", "list", "broker", str(node), "--all"),
        crumbs=[("Nodes", "/nodes")],
        section="nodes",
        template="list.html",
        more={"filter": call.query.get("filter", ""), "links": [], "noun": f"{len(entries):,} settings", "kept": {}},
    )


def _row(call: Call, node: int, entry: api.ConfigEntry) -> list[Cell]:
    is_set = not entry.is_default
    may_change = call.may_change and not entry.is_read_only
    return [
        Cell(entry.name, title=entry.documentation, tone="" if is_set else "dim"),
        text(_shown(entry))._replace(tone="strong" if is_set else "", title=explained(entry.name, entry.value)),
        Cell(entry.source.name.lower().replace("_", " "), tone="" if is_set else "dim"),
        text(default_of(entry))._replace(tone="dim"),
        Cell("change", url("nodes", node, "settings", "change", name=entry.name)) if may_change else Cell(""),
    ]


def _shown(entry: api.ConfigEntry) -> str | None:
    return _HIDDEN if entry.is_sensitive else entry.value


def _data(entry: api.ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": entry.source.name,
        "is_default": entry.is_default,
        "is_read_only": entry.is_read_only,
        "default": default_of(entry),
    }


def change(call: Call) -> Page | Done:
    """Change a dynamic setting: a form, a question that shows both values, the change."""
    call.check_may_change()
    node, name = _node(call), call.query.get("name", "")
    entry = _described(call, node).get(name)
    if entry is None:
        raise Problem(404, f"Broker {node} has no setting {name[:80]!r}")
    if entry.is_read_only:
        raise Problem(400, f"{name} cannot change while the broker runs", "Change it in the broker's file; restart it.")
    return _changed(call, node, entry) if call.form else _form(call, node, entry)


def _form(call: Call, node: int, entry: api.ConfigEntry) -> Page:
    kind = "password" if entry.is_sensitive else "text"
    value = "" if entry.is_sensitive else entry.value or ""
    fields = [
        Field("value", entry.name, value, kind, hint=entry.documentation or ""),
        Field("restore", "Restore the value without this change", type="checkbox"),
        Field("scope", "For", "broker", "select", options=_SCOPES),
    ]
    target = url("nodes", node, "settings", "change", name=entry.name)
    return Page(
        f"Change {entry.name}",
        {"node_id": node, **_data(entry)},
        [Form(target, "Preview", fields)],
        command=call.command("config", "set", "broker", str(node), f"{entry.name}=VALUE"),
        crumbs=_crumbs(node),
        section="nodes",
    )


def _changed(call: Call, node: int, entry: api.ConfigEntry) -> Page | Done:
    value = None if call.form.get("restore") else call.form.get("value", "")
    scope = call.form.get("scope", "broker")
    if scope not in dict(_SCOPES):
        raise Problem(400, f"{scope[:40]!r} is not a scope", "It is broker or all.")
    resource = api.ConfigResource.broker(node if scope == "broker" else None)
    is_confirmed = bool(call.form.get("confirm"))
    call.admin.alter_config(resource, {entry.name: value}, validate_only=not is_confirmed)
    after = "the value without this change" if value is None else _HIDDEN if entry.is_sensitive else value
    data = {"node_id": node, "name": entry.name, "scope": scope, "before": _shown(entry), "after": after}
    if is_confirmed:
        call.session.cached.forget()
        return Done(url("nodes", node, "settings", filter=entry.name), "altered", data)
    where = dict(_SCOPES)[scope]
    given = {**call.form, "confirm": "1"}
    fields = [Field(key, "", word, "hidden") for key, word in given.items() if key in _FIELDS]
    target = url("nodes", node, "settings", "change", name=entry.name)
    who = "default" if scope == "all" else str(node)
    shown = "SECRET" if entry.is_sensitive else value
    words = ("unset", "broker", who, entry.name) if value is None else ("set", "broker", who, f"{entry.name}={shown}")
    return Page(
        f"Change {entry.name}?",
        {**data, "confirmed": False},
        [
            Table(
                [Column("Setting", mono=True), Column("Before", mono=True), Column("After", mono=True)],
                [[Cell(entry.name), text(_shown(entry)), text(after)]],
            ),
            Form(target, f"Change it for {where}", fields, tone="danger"),
        ],
        command=call.command("config", *words),
        crumbs=_crumbs(node),
        actions=[Link("Back", target)],
        lead="Nothing was changed yet. The change takes effect at once, and lasts after a restart.",
        tone="warning",
        section="nodes",
    )


_FIELDS: Final = ("value", "restore", "scope", "confirm")
