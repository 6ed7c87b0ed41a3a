"""`ottla connect create`, `validate`, `pause`, `resume`, `stop`, `restart`, `delete` and `offsets`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click

from ottla.cli.commands import Argument, Choice, Group, Option, Options, yes_option
from ottla.cli.connectors_client import Api, path_of
from ottla.cli.names import confirm_deletion
from ottla.cli.output import Column, Output
from ottla.common.failure import Failure, reading
from ottla.tools import connector_files

Name = Callable[[], Argument]
_STATES: Final = ("running", "paused", "stopped")


def _file() -> Argument:
    return Argument("file", "FILE", required=True, help="a configuration: properties, JSON or TOML; - reads JSON")


def _read(path: str) -> dict[str, str]:
    if path == "-":
        try:
            return connector_files.flat("standard input", json.load(sys.stdin))
        except ValueError as error:
            raise Failure(f"standard input: {error}", exit_code=2) from error
    return connector_files.read_connector(path)


def add_verbs(command: Group, name: Name, shared: Sequence[click.Parameter]) -> None:
    """Add the verbs to `ottla connect`."""
    command.verb(
        "create",
        _file(),
        Option("--name CONNECTOR", "the name; default: from the file, or the file's own"),
        Option("--state STATE", "the first state: running, paused or stopped", type=Choice(_STATES), default="running"),
        Option("--replace", "configure a connector that exists"),
        *shared,
        examples="""
        ottla connect create orders.json
        ottla connect create orders.properties --state paused
        ottla connect create orders.toml --replace
        """,
    )(_create)
    command.verb(
        "validate",
        _file(),
        *shared,
        examples="""
        ottla connect validate orders.json
        """,
    )(_validate)
    for verb, done in (("pause", "paused"), ("resume", "resumed"), ("stop", "stopped")):
        _add_change(command, verb, done, name, shared)
    command.verb(
        "restart",
        name(),
        Option("--tasks", "also its tasks"),
        Option("--only-failed", "only failed parts"),
        Option("--task N", "this task alone", type=int),
        *shared,
        examples="""
        ottla connect restart orders
        ottla connect restart orders --tasks --only-failed
        ottla connect restart orders --task 0
        """,
    )(_restart)
    command.verb(
        "delete",
        name(),
        yes_option(),
        *shared,
        examples="""
        ottla connect delete orders
        """,
        aliases=("rm",),
    )(_delete)
    command.verb(
        "offsets",
        name(),
        Option("--set FILE", "set the offsets in this file, which has the form of --json", name="new"),
        Option("--reset", "delete the offsets"),
        yes_option(),
        *shared,
        examples="""
        ottla connect offsets orders
        ottla connect offsets orders --json > orders-offsets.json
        ottla connect offsets orders --set orders-offsets.json
        ottla connect offsets orders --reset
        """,
    )(_offsets)


def _create(options: Options) -> None:
    """Create a connector from a file, or configure one."""
    output, api, config = Output(options), Api.of(options), _read(options.file)
    name = options.name or config.get("name") or Path(options.file).stem
    config["name"] = name
    if options.replace:
        info = api.request("PUT", path_of(name, "config"), config)
    else:
        body = {"name": name, "config": config, "initial_state": options.state.upper()}
        info = api.request("POST", "/connectors", body)
    if output.json:
        output.object(info)
    else:
        output.note(f"The connector {name} has its configuration; `ottla connect why {name}` shows its progress")


def _validate(options: Options) -> int:
    """Check a configuration without a change. The exit code is 1 if it has faults."""
    output, api, config = Output(options), Api.of(options), _read(options.file)
    plugin = config.get("connector.class")
    if plugin is None:
        raise Failure(f"{options.file} has no connector.class", "`ottla connect plugins` lists the classes.")
    found = api.request("PUT", f"/connector-plugins/{quote(plugin, safe='')}/config/validate", config)
    faults = [
        {"setting": row["value"]["name"], "value": row["value"]["value"], "error": error}
        for row in found["configs"]
        for error in row["value"]["errors"]
    ]
    columns = [Column("setting"), Column("value", narrow=True), Column("error")]
    output.table(columns, faults, empty=f"The configuration of {plugin} has no faults")
    return 1 if faults else 0


_TEXTS: Final = {
    "pause": "Pause a connector: its tasks stay, and process nothing.",
    "resume": "Resume a connector that is paused or stopped.",
    "stop": "Stop a connector and end its tasks. Its offsets stay, and can be changed.",
}


def _add_change(command: Group, verb: str, done: str, name: Name, shared: Sequence[click.Parameter]) -> None:
    def change(options: Options) -> None:
        Api.of(options).request("PUT", path_of(options.name, verb))
        Output(options).note(f"The connector {options.name} is {done} soon")

    change.__doc__ = _TEXTS[verb]
    example = f"ottla connect {verb} orders"
    command.verb(verb, name(), *shared, examples=example)(change)


def _restart(options: Options) -> None:
    """Restart a connector, its tasks, or one task."""
    output, api = Output(options), Api.of(options)
    if options.task is not None:
        api.request("POST", path_of(options.name, "tasks", str(options.task), "restart"))
        output.note(f"Task {options.task} of {options.name} restarts")
        return
    flags = f"includeTasks={str(options.tasks).lower()}&onlyFailed={str(options.only_failed).lower()}"
    found = api.request("POST", f"{path_of(options.name, 'restart')}?{flags}")
    if output.json and found is not None:
        output.object(found)
        return
    parts: list[Any] = [] if found is None else [found["connector"], *found["tasks"]]
    count = 1 if found is None else sum(each["state"] == "RESTARTING" for each in parts)
    output.note(f"{count} of {max(1, len(parts))} parts of {options.name} restart")


def _delete(options: Options) -> None:
    """Delete a connector. Its topics and offsets stay."""
    confirm_deletion(f"Delete the connector {options.name}?", yes=options.yes)
    Api.of(options).request("DELETE", path_of(options.name))
    Output(options).note(f"The connector {options.name} is deleted")


def _offsets(options: Options) -> None:
    """Show, set or delete the committed offsets of a connector; only a stopped one can get others."""
    output, api, path = Output(options), Api.of(options), path_of(options.name, "offsets")
    if options.new is not None and options.reset:
        raise click.UsageError("--set and --reset exclude each other", click.get_current_context())
    if options.new is not None:
        with reading(f"the file {options.new}"):
            text = Path(options.new).read_text(encoding="utf-8")
        try:
            body = json.loads(text)
        except ValueError as error:
            raise Failure(f"{options.new}: {error}", exit_code=2) from error
        output.note(api.request("PATCH", path, body)["message"])
        return
    if options.reset:
        confirm_deletion(f"Delete the offsets of the connector {options.name}?", yes=options.yes)
        output.note(api.request("DELETE", path)["message"])
        return
    found = api.get(path)
    if output.json:
        output.object(found)
        return
    rows = [{"partition": json.dumps(each["partition"]), "offset": json.dumps(each["offset"])}
            for each in found["offsets"]]  # fmt: skip
    output.table([Column("partition"), Column("offset")], rows, empty="No offsets are committed yet.")
