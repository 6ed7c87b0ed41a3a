"""Run Connect workers; create, observe and change connectors (docs/connect.md)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ottla.cli import connectors_change, connectors_run
from ottla.cli.commands import Argument, Group, Option, Options
from ottla.cli.connectors_client import Api, path_of, worker_options
from ottla.cli.connectors_why import Sentence, last_error, lost, sentences, unhealthy
from ottla.cli.output import Column, Output, one_line, output_options
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.secret_settings import has_secret_name, shown_value

COMMAND = Group(
    __doc__,
    """
    ottla connect run source.properties      one worker; needs no group
    ottla connect serve -b broker:9092       a worker of a group
    ottla connect create source.json
    ottla connect list
    ottla connect why orders                 why it makes no progress
    ottla connect restart orders --tasks
    ottla connect offsets orders
    """,
)
_COLOURS = {"RUNNING": "green", "FAILED": "red", "UNASSIGNED": "red", "PAUSED": "yellow", "RESTARTING": "yellow"}
_SHARED = (*output_options(), *worker_options())


def _colour(state: Any) -> str | None:
    return _COLOURS.get(str(state), "dim")


def name_argument() -> Argument:
    """Return the argument for a connector."""
    return Argument("name", "CONNECTOR", required=True, help="the name of a connector")


COMMAND.verb("run", *connectors_run.RUN_PARAMETERS, examples=connectors_run.RUN_EXAMPLES)(connectors_run.run)
COMMAND.verb("serve", *connectors_run.SERVE_PARAMETERS, examples=connectors_run.SERVE_EXAMPLES)(connectors_run.serve)


@COMMAND.verb(
    "list",
    *_SHARED,
    examples="""
    ottla connect list
    ottla connect list -C http://worker:8083 --json
    """,
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List the connectors with their states and tasks."""
    output = Output(options)
    found = Api.of(options).get("/connectors?expand=status&expand=info")
    rows = [_row(name, each) for name, each in sorted(found.items())]
    output.table(
        [
            Column("name"),
            Column("type"),
            Column("state", colour=_colour),
            Column("running", "TASKS", cell=lambda row: f"{row['running']}/{row['tasks']}"),
            Column("worker", narrow=True),
            Column("class", narrow=True),
            Column("error", narrow=True, optional=True),
        ],
        rows,
        empty="There are no connectors. `ottla connect create FILE` creates one.",
    )


def _row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    status, config = found.get("status") or {}, (found.get("info") or {}).get("config", {})
    tasks, connector = status.get("tasks", []), status.get("connector", {})
    failed = [each for each in (connector, *tasks) if each.get("trace")]
    return {
        "name": name,
        "type": status.get("type", "unknown"),
        "state": "FAILED" if any(each["state"] == "FAILED" for each in tasks) else connector.get("state"),
        "running": sum(each["state"] == "RUNNING" for each in tasks),
        "tasks": len(tasks),
        "worker": connector.get("worker_id"),
        "class": config.get("connector.class"),
        "error": last_error(failed[0]["trace"]) if failed else "",
    }


@COMMAND.verb(
    "describe",
    name_argument(),
    *_SHARED,
    examples="""
    ottla connect describe orders
    ottla connect describe orders --json | jq .config
    """,
    summary="show the configuration, the tasks and their errors",
)
def _describe(options: Options) -> None:
    """Show the configuration, the tasks and their errors. Values of secret settings are hidden."""
    output, api = Output(options), Api.of(options)
    info, status = api.get(path_of(options.name)), api.get(path_of(options.name, "status"))
    topics = api.get(path_of(options.name, "topics"))[options.name]["topics"]
    config = {
        name: shown_value(value, "[hidden]", is_secret=has_secret_name(name))
        for name, value in sorted(info["config"].items())
    }
    if output.json:
        output.object({**status, "config": config, "topics": topics})
        return
    style = output.style
    state = status["connector"]["state"]
    output.line(f"{style.bold(one_line(options.name))}  {status['type']}  {state}  {status['connector']['worker_id']}")
    for each in (status["connector"], *status["tasks"]):
        label = f"task {each['id']}" if "id" in each else "connector"
        if "id" in each:
            output.line(f"  {label}: {each['state']} on {each['worker_id']}")
        for line in each.get("trace", "").rstrip().splitlines():
            output.line(style.red(f"    {one_line(line)}"))
    output.line(f"  topics: {one_line(', '.join(topics)) or '-'}")
    output.line("  configuration:")
    for name, value in config.items():
        output.line(f"    {one_line(name)} = {one_line(value)}")


@COMMAND.verb(
    "why",
    name_argument(),
    *_SHARED,
    examples="""
    ottla connect why orders
    ottla connect why orders --json
    """,
    summary="say in words why a connector makes no progress",
)
def _why(options: Options) -> int:
    """Say in words why a connector makes no progress: errors, waits, next tries. The exit code is 1 for a problem."""
    output, api = Output(options), Api.of(options)
    status = api.get(path_of(options.name, "status"))
    config = api.get(path_of(options.name, "config"))
    reports: dict[int, dict[str, Any]] = {}
    missing: list[Sentence] = []
    faults: dict[str, str] = {}
    for worker in sorted({each["worker_id"] for each in (status["connector"], *status["tasks"])}):
        own = api.of_worker(worker)
        try:
            fault = own.fault()
        except Failure as failure:
            faults[worker] = lost(worker, failure.problem)
            continue
        if fault:
            faults[worker] = unhealthy(worker, fault)
        try:
            found = own.request("GET", path_of(options.name, "reports"), timeout_s=5.0)
        except Failure as failure:
            missing.append(Sentence(f"The worker {worker} reports nothing: {failure.problem}."))
        else:
            reports.update({each["id"]: each for each in found["tasks"]})
    lines = [*sentences(status, reports, config, units.now_ms(), faults), *missing]
    if output.json:
        output.object({"name": options.name, "sentences": [{"text": t, "problem": p} for t, p in lines]})
    else:
        for text, is_problem in lines:
            output.line(output.style.red(one_line(text)) if is_problem else one_line(text))
    return 1 if any(each.is_problem for each in lines) else 0


@COMMAND.verb(
    "plugins",
    Argument("plugin", "PLUGIN", required=False, help="show the settings of this plugin"),
    Option("--all", "also converters, transformations and predicates"),
    *_SHARED,
    examples="""
    ottla connect plugins
    ottla connect plugins FileStreamSource
    ottla connect plugins --all --json
    """,
)
def _plugins(options: Options) -> None:
    """List the plugins of a worker, or the settings of one."""
    output, api = Output(options), Api.of(options)
    if options.plugin is None:
        rows = api.get(f"/connector-plugins?connectorsOnly={'false' if options.all else 'true'}")
        output.table([Column("class"), Column("type"), Column("version")], rows)
        return
    rows = api.get(f"/connector-plugins/{quote(options.plugin, safe='')}/config")
    columns = [Column("name"), Column("type"), Column("default_value", "DEFAULT"), Column("documentation", narrow=True)]
    output.table([Column("required"), *columns], rows)


@COMMAND.verb(
    "logs",
    Argument("logger", "LOGGER", required=False, help="a logger, by its name here or in Java; default: all"),
    Option("--level LEVEL", "set this level: TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF"),
    Option("--cluster", "of all workers of the group"),
    *_SHARED,
    examples="""
    ottla connect logs
    ottla connect logs ottla.connect.worker --level DEBUG
    ottla connect logs root --level INFO --cluster
    """,
)
def _logs(options: Options) -> None:
    """Show or set the levels of a worker's loggers."""
    output, api = Output(options), Api.of(options)
    if options.logger is None:
        found = api.get("/admin/loggers")
        rows = [{"logger": name, **each} for name, each in found.items()]
        output.table([Column("logger"), Column("level")], rows)
        return
    path = f"/admin/loggers/{quote(options.logger, safe='')}"
    if options.level is None:
        output.table([Column("logger"), Column("level")], [{"logger": options.logger, **api.get(path)}])
        return
    scope = "cluster" if options.cluster else "worker"
    api.request("PUT", f"{path}?scope={scope}", {"level": options.level.upper()})
    output.note(f"The level of {options.logger} is {options.level.upper()}")


COMMAND.verb(
    "verify",
    name_argument(),
    *connectors_run.VERIFY_PARAMETERS,
    *_SHARED,
    examples=connectors_run.VERIFY_EXAMPLES,
)(connectors_run.verify)
connectors_change.add_verbs(COMMAND, name_argument, _SHARED)
