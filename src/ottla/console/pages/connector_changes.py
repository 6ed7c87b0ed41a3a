"""New connectors by a form made of the plugin's settings, changes of their settings, and their deletion."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ottla.common import units
from ottla.common.secret_settings import shown_value
from ottla.console.calls import Call, Done, Problem
from ottla.console.masking import MASKED
from ottla.console.pages.connectors import CRUMB, ask, is_secret, missing, name_of
from ottla.console.view import Cell, Column, Field, Form, Page, Table, confirmation, text, url

_PREFIX: Final = "set:"
_CLASS: Final = "connector.class"
_MOST_FIELDS: Final = 100
_LONGEST: Final = 1_000
_KEPT: Final = "Empty: as it is."
# The worker answers with these; they are not settings of a person's choice.
_FIXED: Final = frozenset({"name", _CLASS})
_IMPORTANCE: Final = {"HIGH": 0, "MEDIUM": 1, "LOW": 2}


def create(call: Call) -> Page | Done:
    """Choose a plugin; then fill in its form, which the worker checks."""
    call.check_may_change()
    if call.settings.connect is None:
        return missing()
    plugin = call.query.get("plugin", "")
    if not plugin:
        return _plugins(call)
    if len(plugin) > _LONGEST or plugin in (".", ".."):
        raise Problem(400, f"{plugin[:80]!r} is not a plugin")
    if not call.form:
        return _form(call, _new(call, plugin), {}, _validated(call, plugin, {"name": "NAME"}))
    config = {**_config(call.form), _CLASS: plugin}
    found = _validated(call, plugin, config)
    name = config.get("name", "")
    if name in ("", ".", ".."):
        _row_of(found, "name")["errors"] = ["The name is missing, or not a name."]
        found["error_count"] = 1
    if found["error_count"]:
        return _form(call, _new(call, plugin), config, found)
    ask(call, "POST", "/connectors", {"name": name, "config": config})
    return Done(url("connector", name=name), "connector", {"connector": name, "plugin": plugin})


def _plugins(call: Call) -> Page:
    rows = ask(call, "GET", "/connector-plugins")
    cells = [
        [Cell(row["class"], url("connectors", "new", plugin=row["class"])), text(row["type"]), text(row.get("version"))]
        for row in sorted(rows, key=lambda row: (row["type"], row["class"]))
    ]
    return Page(
        "New connector",
        {"plugins": rows},
        [Table([Column("Plugin", mono=True), Column("Type"), Column("Version")], cells, empty="There is no plugin.")],
        command=shlex.join(["ottla", "connect", "plugins", "-C", str(call.settings.connect)]),
        crumbs=[CRUMB],
        lead="Choose a plugin.",
        section="connectors",
    )


def _config(form: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a form, without empty ones. Raises Problem."""
    config = {key.removeprefix(_PREFIX): value.strip() for key, value in form.items() if key.startswith(_PREFIX)}
    for line in filter(None, map(str.strip, form.get("other", "").splitlines())):
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise Problem(400, f"{line[:80]!r} is not a setting", "Write NAME=VALUE.")
        config[name.strip()] = value.strip()
    return {name: value for name, value in config.items() if value}


def _validated(call: Call, plugin: str, config: Mapping[str, str]) -> dict[str, Any]:
    path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
    found: dict[str, Any] = ask(call, "PUT", path, {_CLASS: plugin, **config})
    return found


def _row_of(found: dict[str, Any], name: str) -> dict[str, Any]:
    row = next((each["value"] for each in found["configs"] if each["value"]["name"] == name), None)
    if row is None:
        row = {"name": name, "errors": []}
        found["configs"].insert(0, {"definition": {"name": name, "required": True}, "value": row})
    return row


class _Target(NamedTuple):
    """The form of a new connector, or of the changes of one."""

    title: str
    action: str
    button: str
    command: str
    crumbs: list[tuple[str, str]]
    data: dict[str, Any]
    nothing: str
    kept: frozenset[str] | None = None
    """Of an existing connector: the settings whose values may not be in the page; an empty field keeps them."""


def _new(call: Call, plugin: str) -> _Target:
    return _Target(
        f"New {plugin.rpartition('.')[2]}",
        url("connectors", "new", plugin=plugin),
        "Create connector",
        shlex.join(["ottla", "connect", "create", "FILE.json", "-C", str(call.settings.connect)]),
        [CRUMB, ("New connector", "/connectors/new")],
        {"plugin": plugin},
        "nothing was created",
    )


def _form(call: Call, target: _Target, config: Mapping[str, str], found: Mapping[str, Any]) -> Page:
    """Return the form; after a POST with the errors of the worker at their fields.

    A secret of an existing connector is not in the page: its field is empty, which keeps it.
    """
    was_sent = bool(call.form)
    is_new = target.kept is None
    kept = target.kept or frozenset()
    hidden = kept | {name for name, value in config.items() if _is_hidden(name, value)}
    rows = [each for each in found["configs"] if each["definition"].get("name")]
    if not is_new:
        rows = [each for each in rows if each["definition"]["name"] not in _FIXED]
    rows.sort(key=lambda each: _order(each["definition"]))
    given = frozenset() if is_new else config.keys()
    chosen = [each for each in rows if _is_shown(each, was_sent) or each["definition"]["name"] in given][:_MOST_FIELDS]
    shown = {each["definition"]["name"] for each in chosen}
    rest = {name: value for name, value in config.items() if name not in shown | _FIXED}
    fields = [_field(each, config, kept) for each in chosen]
    if not is_new:
        fields += [
            Field(f"{_PREFIX}{name}", name, type="password", hint=_KEPT if name in kept else "")
            for name in sorted(rest.keys() & hidden)
        ]
        fields.append(Field("remove", "Secrets to remove", hint="names, with commas"))
    others = "\n".join(f"{name}={value}" for name, value in rest.items() if is_new or name not in hidden)
    fields.append(Field("other", "Other settings", others, "area", hint="one NAME=VALUE in each line"))
    faulty = [each["value"] for each in rows if was_sent and each["value"]["errors"]]
    # A worker may quote a value in its message.
    secrets = {value for name, value in config.items() if name in hidden and value}
    errors = {value["name"]: [_without(secrets, each) for each in value["errors"]] for value in faulty}
    number = sum(map(len, errors.values()))
    return Page(
        target.title,
        {**target.data, "errors": errors, "settings": [each["definition"] for each in rows]},
        [Form(target.action, target.button, [_faulty(field, errors) for field in fields])],
        command=target.command,
        crumbs=target.crumbs,
        lead=f"The worker found {units.plural(number, 'fault')}; {target.nothing}." if number else "",
        tone="critical" if number else "",
        status=400 if number else 200,
        section="connectors",
    )


def _without(secrets: Collection[str], message: object) -> str:
    shown = str(message)
    for secret in sorted(secrets, key=len, reverse=True):
        shown = shown.replace(secret, MASKED)
    return shown


def _faulty(field: Field, errors: Mapping[str, list[str]]) -> Field:
    return field._replace(error="\n".join(errors.get(field.name.removeprefix(_PREFIX), ())))


def _is_hidden(name: str, value: str) -> bool:
    """Whether the value of a setting may not be in a page, also because of a login in a URL."""
    return shown_value(value, MASKED, is_secret=is_secret(name)) != value


def _order(definition: Mapping[str, Any]) -> tuple[bool, bool, int]:
    importance = _IMPORTANCE.get(str(definition.get("importance")), 3)
    return definition["name"] != "name", not definition.get("required"), importance


def _is_shown(row: Mapping[str, Any], was_sent: bool) -> bool:
    definition = row["definition"]
    name = definition["name"]
    if name == _CLASS:
        return False
    is_wrong = was_sent and bool(row["value"]["errors"])
    is_usual = name in ("name", "tasks.max", "topics", "topic")
    return bool(is_wrong or is_usual or definition.get("required") or definition.get("importance") == "HIGH")


def _field(row: Mapping[str, Any], config: Mapping[str, str], kept: Collection[str]) -> Field:
    definition = row["definition"]
    name = definition["name"]
    default = definition.get("default_value")
    # Passwords are not sent back into the page.
    hidden = definition.get("type") == "PASSWORD" or is_secret(name) or name in kept
    hints = [_KEPT if name in kept else "", str(definition.get("documentation") or "").strip()]
    hints.append(f"Default: {default}." if default else "")
    choices = [("", "default"), ("true", "true"), ("false", "false")] if definition.get("type") == "BOOLEAN" else ()
    return Field(
        f"{_PREFIX}{name}",
        name,
        "" if hidden else config.get(name, ""),
        "select" if choices else "password" if hidden else "text",
        options=choices,
        hint=" ".join(filter(None, hints))[:_LONGEST],
        required=name == "name",
    )


def change(call: Call) -> Page | Done:
    """Change the settings of a connector. The worker checks all of them before it gets any."""
    call.check_may_change()
    if call.settings.connect is None:
        return missing()
    name = name_of(call)
    path = f"/connectors/{quote(name, safe='')}"
    present = {key: str(value) for key, value in ask(call, "GET", f"{path}/config").items()}
    plugin = present.get(_CLASS, "")
    described = _validated(call, plugin, present)
    target = _Target(
        f"Change {name}",
        url("connector", "change", name=name),
        "Check and change",
        shlex.join(["ottla", "connect", "create", "FILE.json", "--replace", "-C", call.settings.connect]),
        [CRUMB, (name, url("connector", name=name))],
        {"connector": name, "plugin": plugin},
        "nothing was changed",
        _hidden(present, described),
    )
    if not call.form:
        return _form(call, target, present, described)
    config = {**_changed(present, call.form, target.kept or ()), "name": name, _CLASS: plugin}
    found = _validated(call, plugin, config)
    if found["error_count"]:
        return _form(call, target, config, found)
    ask(call, "PUT", f"{path}/config", config)
    changed = sorted(key for key in config.keys() | present.keys() if config.get(key) != present.get(key))
    return Done(url("connector", name=name), "connector", {"connector": name, "changed": changed})


def _hidden(present: Mapping[str, str], described: Mapping[str, Any]) -> frozenset[str]:
    passwords = {
        each["definition"]["name"] for each in described["configs"] if each["definition"].get("type") == "PASSWORD"
    }
    return frozenset(name for name, value in present.items() if name in passwords or _is_hidden(name, value))


def _changed(present: Mapping[str, str], form: Mapping[str, str], kept: Collection[str]) -> dict[str, str]:
    """Return the settings of a form; a secret whose field is empty stays, unless it is to be removed."""
    config = _config(form)
    removed = {name.strip() for name in form.get("remove", "").split(",")}
    for name in kept:
        if name not in config and name not in removed:
            config[name] = present[name]
    return config


def delete(call: Call) -> Page | Done:
    """Delete a connector, after its name was typed."""
    call.check_may_change()
    if call.settings.connect is None:
        return missing()
    name = name_of(call)
    if call.form:
        call.check_confirmed(name)
        ask(call, "DELETE", f"/connectors/{quote(name, safe='')}")
        return Done("/connectors", "deleted", {"connector": name})
    note = "Its tasks end. Its topics and offsets stay."
    form = confirmation(url("connector", "delete", name=name), f"Delete {name}", "connector", note)
    return Page(
        f"Delete {name}?",
        {"connector": name},
        [form],
        command=shlex.join(["ottla", "connect", "delete", "-C", call.settings.connect, "--", name]),
        crumbs=[CRUMB, (name, url("connector", name=name))],
        section="connectors",
    )
