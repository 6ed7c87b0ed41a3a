"""Connectors of a Connect worker: their state, and restart, pause and resume."""

from __future__ import annotations

import shlex
from typing import Any, Final
from urllib.parse import quote

from ottla.common.secret_settings import has_secret_name, shown_value
from ottla.console.calls import Call, Done, Problem
from ottla.console.masking import MASKED
from ottla.console.view import Cell, Column, Facts, Field, Form, Link, Page, Table, Text, text, url

_TIMEOUT_S: Final = 10.0
_TONES: Final = {"RUNNING": "ok", "FAILED": "critical", "PAUSED": "warning", "STOPPED": "dim", "UNASSIGNED": "warning"}
_ACTIONS: Final = {
    "restart": ("POST", "/restart?includeTasks=true&onlyFailed=false"),
    "restart-failed": ("POST", "/restart?includeTasks=true&onlyFailed=true"),
    "pause": ("PUT", "/pause"),
    "resume": ("PUT", "/resume"),
}


def missing() -> Page:
    advice = "Start the console with --connect URL."
    return Page(
        "Connectors",
        {"error": "This console has no Connect worker", "advice": advice},
        lead=advice,
        section="connectors",
    )


def ask(call: Call, method: str, path: str, body: object = None) -> Any:
    """Send a request to the worker, with a body in JSON if one is given. Raises Problem."""
    import httpx  # noqa: PLC0415 - an optional package

    assert call.settings.connect is not None
    try:
        answer = httpx.request(
            method,
            call.settings.connect.rstrip("/") + path,
            timeout=_TIMEOUT_S,
            auth=call.session.basic_auth(),
            headers={"accept": "application/json"},
            json=body,
        )
    except httpx.HTTPError as error:
        raise Problem(502, f"The Connect worker does not answer: {error or type(error).__name__}") from error
    if answer.status_code >= 400:
        status = answer.status_code if answer.status_code in (400, 401, 403, 404, 409) else 502
        raise Problem(status, f"Connect worker: {answer.text[:500]}")
    return answer.json() if answer.content else None


CRUMB: Final = ("Connectors", "/connectors")


def name_of(call: Call) -> str:
    """Return the connector of the query. Raises Problem."""
    name = call.query.get("name", "")
    if not name or name in (".", ".."):
        raise Problem(400, "No connector is given", "The address is /connector?name=CONNECTOR.")
    return name


def listing(call: Call) -> Page:
    """List connectors."""
    if call.settings.connect is None:
        return missing()
    found = ask(call, "GET", "/connectors?expand=status&expand=info")
    rows, data = [], []
    for name, each in sorted(found.items()):
        status = each["status"]
        tasks = [task["state"] for task in status.get("tasks", [])]
        state = status["connector"]["state"]
        running = f"{tasks.count('RUNNING')} of {len(tasks)}"
        data.append({"connector": name, "state": state, "type": status.get("type"), "tasks": tasks})
        tone = "critical" if "FAILED" in tasks else ""
        rows.append(
            [Cell(name, url("connector", name=name)), _state(state), text(status.get("type")), Cell(running, tone=tone)]
        )
    columns = [Column("Connector"), Column("State"), Column("Type"), Column("Tasks running", right=True)]
    return Page(
        "Connectors",
        {"connectors": data},
        [Table(columns, rows, empty="There is no connector.")],
        command=shlex.join(["ottla", "connect", "list", "-C", call.settings.connect]),
        actions=[Link("New connector", "/connectors/new", "primary")] if call.may_change else [],
        section="connectors",
    )


def _state(state: str) -> Cell:
    return Cell(state.lower(), tone=_TONES.get(state, "warning"))


def connector(call: Call) -> Page | Done:
    """Show a connector; a POST with `action` changes its state."""
    if call.settings.connect is None:
        return missing()
    name = name_of(call)
    path = f"/connectors/{quote(name, safe='')}"
    if call.form:
        action = call.form.get("action", "")
        if action not in _ACTIONS:
            raise Problem(400, f"{action[:40]!r} is not an action", f"It must be one of {', '.join(_ACTIONS)}.")
        method, suffix = _ACTIONS[action]
        ask(call, method, path + suffix)
        return Done(url("connector", name=name), "connector", {"connector": name, "action": action})
    info = ask(call, "GET", path)
    status = _status(call, path, info.get("type"))
    config = {
        key: shown_value(str(value), MASKED, is_secret=is_secret(key)) for key, value in sorted(info["config"].items())
    }
    tasks = status.get("tasks", [])
    rows = [
        [Cell(str(task["id"])), _state(task["state"]), text(task.get("worker_id")), text(_first_line(task))]
        for task in tasks
    ]
    parts: list[Any] = [
        Facts(
            [
                ("State", _state(status["connector"]["state"])),
                ("Type", text(status.get("type"))),
                ("Worker", text(status["connector"].get("worker_id"))),
            ]
        ),
        Table([Column("Task", right=True), Column("State"), Column("Worker"), Column("Error")], rows, title="Tasks"),
    ]
    parts += [Text(str(task["trace"]), title=f"Task {task['id']}") for task in tasks if task.get("trace")]
    parts.append(
        Table(
            [Column("Setting", mono=True), Column("Value", mono=True)],
            [[Cell(key), text(value)] for key, value in config.items()],
            title="Settings",
        )
    )
    if call.may_change:
        target = url("connector", name=name)
        parts += [
            Form(target, label, [Field("action", "", action, type="hidden")])
            for action, label in (("restart", "Restart"), ("pause", "Pause"), ("resume", "Resume"))
        ]
    return Page(
        name,
        {"connector": name, **status, "config": config},
        parts,
        command=shlex.join(["ottla", "connect", "describe", "-C", call.settings.connect, "--", name]),
        crumbs=[CRUMB],
        actions=_changes(name) if call.may_change else [],
        section="connectors",
    )


def _status(call: Call, path: str, kind: str | None) -> dict[str, Any]:
    """Return the state of a connector that exists. A new one has none until a worker has started it."""
    try:
        status: dict[str, Any] = ask(call, "GET", f"{path}/status")
    except Problem as problem:
        if problem.status != 404:
            raise
        return {"connector": {"state": "UNASSIGNED"}, "tasks": [], "type": kind}
    return status


def _changes(name: str) -> list[Link]:
    return [
        Link("Change", url("connector", "change", name=name)),
        Link("Delete", url("connector", "delete", name=name), "danger"),
    ]


def is_secret(name: str) -> bool:
    """Whether the value of a setting may be a secret, by its name."""
    # Settings of converters of keys begin with `key.`, any other key may be one of a cipher or a service.
    return has_secret_name(name) or "key" in name.lower().removeprefix("key.")


def _first_line(task: dict[str, Any]) -> str:
    return str(task.get("trace") or "").partition("\n")[0]
