"""`ottla stream list`, `describe` and `why`: what pipelines have published about themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ottla.cli import late
from ottla.cli.commands import Argument, Option, Options
from ottla.cli.connect import client_settings, connect
from ottla.cli.output import Column, Output, moment, number, one_line, size
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.failure import Failure
from ottla.streams.diagnosis import ago, diagnose
from ottla.streams.facts import Facts, Finding
from ottla.streams.status import TOPIC, Input, Status
from ottla.tools.suggestions import did_you_mean

_NO_PIPELINE = "No pipeline has run with this cluster yet."
_COLOURS = {
    "running": "green",
    "starting": "yellow",
    "restarting": "yellow",
    "failed": "red",
    "silent": "red",
    "stopped": "dim",
}


def name_argument() -> Argument:
    """Return the argument for one pipeline."""
    return Argument("name", "PIPELINE", required=True, help="a pipeline, or one of its queries")


def names_argument() -> Argument:
    """Return the argument for pipelines; the default is all."""
    return Argument("names", "PIPELINE", nargs=-1, help="pipelines, or queries of them; default: all")


def statuses_of(options: Options, names: Sequence[str]) -> list[Status]:
    """Return the statuses of these pipelines or queries, or all. Raises Failure for an unknown one."""
    settings = client_settings(options, "consumer")
    found = late.observing.read_statuses(settings)
    if not names:
        return found
    known = sorted({name for each in found for name in (each.run.pipeline, each.run.query)})
    for name in names:
        if name not in known:
            advice = did_you_mean(name, known, f"Pipelines publish their status in {TOPIC} when they run.")
            raise Failure(f"There is no status of a pipeline {name!r}", *advice)
    return [each for each in found if each.run.pipeline in names or each.run.query in names]


def _present(options: Options, output: Output) -> list[Status]:
    """Return the statuses of the given pipelines, with their present lag."""
    statuses = statuses_of(options, options.names)
    if not any(each.inputs for each in statuses):
        return statuses
    try:
        return late.observing.with_present_ends(connect(options), statuses)
    except ClientError as error:
        output.warn(f"The ends of the inputs are not known; the lag is from the last status: {error}")
        return statuses


def shown_phase(status: Status, now_ms: int) -> str:
    """Return the phase of a query.

    It is `silent` if its run publishes no more, and `starting` while records wait for its first micro-batch.
    """
    if status.phase in ("stopped", "done", "failed"):
        return status.phase
    if not status.is_alive(now_ms):
        return "silent"
    is_starting = status.phase == "running" and status.batch is None and status.busy_since_ms is None
    return "starting" if is_starting and status.lag else status.phase


# -- list --------------------------------------------------------------------------------------------------------------

LIST_OPTIONS = [Option("-l, --long", "with records, host, and the time of the status")]
LIST_EXAMPLES = """
ottla stream list
ottla stream list --long                  with records and host
ottla stream list --json | jq -r 'select(.lag > 1000) | .query'
"""


def show_list(options: Options) -> None:
    """List the queries of pipelines: state, present lag, and speed. A pipeline has one query, or several if several
    outputs have mode="updates": PIPELINE.TOPIC.
    """
    now_ms = units.now_ms()
    output = Output(options)
    rows = [_row(each, now_ms) for each in _present(options, output)]
    columns = [
        Column("query", narrow=True),
        Column("state", colour=_COLOURS.get),
        number("lag"),
        Column("processed_per_s", "RECORDS/S", units.count, right=True),
        number("batch"),
        Column("duration_ms", "TOOK", units.duration, right=True),
    ]
    if options.long:
        columns[:1] = [Column("pipeline", narrow=True), *columns[:1]]
        columns += [number("records"), Column("host", narrow=True), moment("at_ms", "REPORTED")]
    else:
        columns += [Column("at_ms", "REPORTED", lambda at_ms: ago(now_ms - at_ms), right=True)]
    output.table(columns, rows, empty=_NO_PIPELINE)


def _row(status: Status, now_ms: int) -> dict[str, Any]:
    batch = status.batch
    return {
        "pipeline": status.run.pipeline,
        "query": status.run.query,
        "state": shown_phase(status, now_ms),
        "lag": status.lag if status.inputs else None,
        "records": status.records,
        "processed_per_s": None if batch is None else batch.processed_per_s,
        "batch": None if batch is None else batch.number,
        "duration_ms": None if batch is None else batch.duration_ms,
        "busy_since_ms": status.busy_since_ms,
        "at_ms": status.at_ms,
        "started_ms": status.run.started_ms,
        "host": status.run.host,
    }


# -- describe ----------------------------------------------------------------------------------------------------------

DESCRIBE_EXAMPLES = """
ottla stream describe wordcount
ottla stream describe wordcount --json
"""


def show_description(options: Options) -> None:
    """Show the last micro-batch, inputs, state and outputs of pipelines, as published at most 10 seconds ago. The ends
    of the inputs are current.
    """
    output, now_ms = Output(options), units.now_ms()
    statuses = _present(options, output)
    if not statuses:
        output.note(_NO_PIPELINE)
    for status in output.parts(statuses):
        if output.json:
            output.object({"state": shown_phase(status, now_ms), "lag": status.lag, **asdict(status)})
            continue
        phase = shown_phase(status, now_ms)
        colour = _COLOURS.get(phase)
        state = getattr(output.style, colour)(phase) if colour else phase
        output.line(f"{output.style.bold(one_line(status.run.query))}  {state}")
        output.record(_facts(status), _FACTS)
        for each in status.inputs:
            output.line()
            output.table(_PARTITION_COLUMNS, _partition_rows(each))
            if each.omitted:
                output.note(f"and {units.plural(each.omitted, 'partition')} of {each.topic} with less lag")
        if status.stores:
            output.line()
            output.table(_STORE_COLUMNS, [asdict(each) for each in status.stores])


_FACTS = [
    Column("pipeline"),
    Column("delivery"),
    Column("batch", "micro-batch"),
    Column("phases"),
    Column("speed"),
    number("lag", "lag"),
    Column("watermark"),
    Column("outputs"),
    Column("tables", optional=True),
    Column("invalid"),
    Column("problem"),
    Column("run"),
    Column("checkpoint"),
    moment("at_ms", "reported"),
]


def _facts(status: Status) -> dict[str, Any]:
    batch, run, problem = status.batch, status.run, status.problem
    return {
        "pipeline": run.pipeline,
        "delivery": "exactly once" if run.exactly_once else "at least once",
        "batch": None
        if batch is None
        else f"{batch.number}, {units.plural(batch.records, 'record')} in {units.duration(batch.duration_ms)}, "
        f"{units.plural(status.batches, 'micro-batch', 'micro-batches')} and "
        f"{units.plural(status.records, 'record')} in this run",
        "phases": None
        if batch is None
        else ", ".join(f"{name} {units.duration(ms)}" for name, ms in _by_size(batch.phases_ms)),
        "speed": None
        if batch is None
        else f"{units.count(batch.processed_per_s)} records/s processed, {units.count(batch.arrived_per_s)} arrived",
        "lag": status.lag,
        "watermark": None if status.watermark_ms is None else units.moment_utc(status.watermark_ms),
        "outputs": _listed(
            f"{topic}: {units.plural(status.outputs[topic], 'row')}" if topic in status.outputs else topic
            for topic in run.outputs
        ),
        "tables": _listed(run.tables),
        "invalid": _listed(f"{name}: {count:,}" for name, count in status.invalid.items()),
        "problem": None if problem is None else f"{units.moment(problem.at_ms)}: {problem.reason}",
        "run": f"{run.run_id}, process {run.pid} on {run.host} since {units.moment(run.started_ms)}",
        "checkpoint": run.checkpoint,
        "at_ms": status.at_ms,
    }


def _listed(texts: Iterable[str]) -> str | None:
    return ", ".join(texts) or None


def _by_size(phases_ms: Any) -> list[tuple[str, int]]:
    return sorted(phases_ms.items(), key=lambda each: -each[1])


_PARTITION_COLUMNS = [
    Column("topic", narrow=True),
    number("partition"),
    number("offset"),
    number("end"),
    number("lag"),
    number("records", "LAST BATCH"),
    Column("last_record_ms", "LAST RECORD", lambda ms: units.moment(ms) if ms else "-"),
]
_STORE_COLUMNS = [
    Column("operator", narrow=True),
    number("rows"),
    size("memory_bytes", "MEMORY"),
    number("updated"),
    number("removed"),
    number("late"),
]


def _partition_rows(given: Input) -> list[dict[str, Any]]:
    return [{"topic": given.topic, **asdict(each), "lag": each.lag} for each in given.partitions]


# -- why ---------------------------------------------------------------------------------------------------------------

WHY_EXAMPLES = """
ottla stream why wordcount
ottla stream why wordcount --json | jq -r .cause
"""
WHY_OPTIONS = [Option("--fail", "exit code 1 if something needs action, for a health check")]


def explain_progress(options: Options) -> int:
    """Say in words why a pipeline makes no progress: stopped by a record, no input, slower than its input, an
    open transaction, event time held back, a driver that died; and what to do.
    """
    output = Output(options)
    statuses = statuses_of(options, [options.name])
    admin = connect(options)
    has_problem = False
    for status in output.parts(statuses):
        now_ms = units.now_ms()
        # The topics of a run that has ended are of no interest, except for one with --once.
        needs_facts = status.is_alive(now_ms) or status.phase == "done"
        facts = late.observing.gather_facts(admin, status, now_ms) if needs_facts else Facts(now_ms)
        facts = late.observing.with_keys(client_settings(options, "consumer"), status, facts)
        findings = diagnose(status, facts)
        has_problem = has_problem or any(each.is_problem for each in findings)
        _show_findings(output, status, findings)
    return 1 if has_problem and options.fail else 0


def _show_findings(output: Output, status: Status, findings: Sequence[Finding]) -> None:
    output.line(output.style.bold(one_line(status.run.query)))
    for each in findings:
        if output.json:
            about = {"pipeline": status.run.pipeline, "query": status.run.query}
            output.object(about | asdict(each))
            continue
        cause = each.cause[0].upper() + each.cause[1:]
        heading = output.style.yellow(cause) if each.is_problem else output.style.green(cause)
        output.line(f"  {heading}. {one_line(each.text)}")
        for line in each.advice:
            output.line(f"      {one_line(line)}")
