"""`ottla stream reset`: start a pipeline from the beginning or another place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.cli import late
from ottla.cli.commands import Argument, Option, Options, section, yes_option
from ottla.cli.connect import client_settings, connect
from ottla.cli.names import confirm
from ottla.cli.output import Column, Output, number
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.streams.errors import StreamsError
from ottla.streams.status import TOPIC, Status
from ottla.tools.offsets import target_moment

_TARGETS = (
    Option("--to-earliest", "the first records"),
    Option("--to-latest", "after the last records"),
    Option("--to-datetime TIME", "the first records since then: 2026-01-31T12:00, now-1h"),
    Option("--by-duration DURATION", "the first records of the last 1h30min, PT1H30M"),
)
PARAMETERS = [
    Argument("name", "PIPELINE", required=True, help="a pipeline that does not run"),
    *section("Start of the next run; default: where its streams say", *_TARGETS),
    Option("--checkpoints DIRECTORY", "where the checkpoints are; default: as in the last run"),
    Option("--dry-run", "only show the changes"),
    yes_option(),
]
EXAMPLES = """
ottla stream reset wordcount --dry-run
ottla stream reset wordcount
ottla stream reset wordcount --to-datetime now-1h --yes
"""


def reset(options: Options) -> None:
    """Delete the state and offsets of a pipeline, so that its next run starts from the beginning or from another
    place. Its outputs keep their records: results of records that are read again are written again.

    A pipeline that runs is refused. At a terminal the command asks first.
    """
    output = Output(options)
    at = _target(options)
    settings = client_settings(options, "consumer")
    statuses = [each for each in late.observing.read_statuses(settings) if each.run.pipeline == options.name]
    _check_ended(options.name, statuses)
    try:
        checkpoint = _checkpoint(options, statuses)
        remembered = late.resetting.remember(checkpoint)
    except StreamsError as error:
        raise Failure(str(error)) from error
    topics = frozenset(topic for each in statuses for topic in each.run.streams.values())
    groups = frozenset(each.run.query for each in statuses)
    if remembered is not None:
        topics, groups = topics or remembered.topics, groups | remembered.groups
    admin = connect(options)
    planned = late.resetting.Reset(
        options.name,
        checkpoint,
        checkpoint.exists(),
        sorted(groups),
        late.resetting.find_table_groups(admin, options.name),
        sorted({topic for each in statuses for topic in each.run.outputs}),
        {} if at is None else late.resetting.find_starts(admin, sorted(topics), at),
    )
    if not options.dry_run:
        question = f"Delete the checkpoint {checkpoint}, with the state and offsets of {options.name}?"
        confirm(question, "nothing was changed", "--yes resets without asking.", yes=options.yes)
        late.resetting.execute(admin, planned)
        late.observing.forget(client_settings(options, "producer"), statuses)
    _show(output, planned, executed=not options.dry_run)


def _target(options: Options) -> Any:
    given = [target for target in _TARGETS if getattr(options, target.name or "") not in (None, False)]
    if len(given) > 1:
        raise Failure(f"{given[0].opts[0]} and {given[1].opts[0]} exclude each other", exit_code=2)
    if options.to_earliest:
        return api.OffsetSpec.EARLIEST
    if options.to_latest:
        return api.OffsetSpec.LATEST
    return target_moment(options.to_datetime, options.by_duration)


def _check_ended(name: str, statuses: Sequence[Status]) -> None:
    now_ms = units.now_ms()
    for each in statuses:
        if each.is_alive(now_ms):
            raise Failure(
                f"{name} runs: process {each.run.pid} on {each.run.host}",
                "Stop it first, with Ctrl-C or SIGTERM. If it died a moment ago, try again after half a minute.",
            )


def _checkpoint(options: Options, statuses: Sequence[Status]) -> Path:
    """Return the directory of the pipeline's checkpoint. Raises Failure, StreamsError."""
    if options.checkpoints:
        found: Path = Path(options.checkpoints) / options.name
        if not statuses and not found.exists() and late.resetting.remember(found) is None:
            raise Failure(
                f"There is no pipeline {options.name!r}: it has no status in {TOPIC}, and no checkpoint {found}"
            )
        return found
    if not statuses:
        raise Failure(
            f"There is no status of a pipeline {options.name!r}",
            "`ottla stream list` shows the pipelines; --checkpoints names the directory of one without a status.",
        )
    run = max(statuses, key=lambda each: each.at_ms).run
    found = late.resetting.local_path(run.checkpoint)
    if not found.parent.exists():
        raise Failure(
            f"The checkpoint {found} of the last run, on {run.host}, is not on this machine",
            "Run this command there, or name the directory with --checkpoints.",
        )
    return found


def _show(output: Output, planned: Any, *, executed: bool) -> None:
    row = {
        "pipeline": planned.pipeline,
        "checkpoint": str(planned.checkpoint),
        "has_checkpoint": planned.has_checkpoint,
        "groups": list(planned.groups),
        "table_groups": list(planned.table_groups),
        "starts": [{**partition._asdict(), "offset": offset} for partition, offset in planned.starts.items()],
        "changed": executed,
    }
    would_be = "" if executed else "would be "
    deleted = f"{would_be}deleted"
    what = f"checkpoint {planned.checkpoint} {deleted}" if planned.has_checkpoint else "there was no checkpoint"
    output.changed(f"{planned.pipeline}: {what}", row, made=executed)
    if planned.groups:
        moved = f"{would_be}set to the offsets below" if planned.starts else deleted
        output.line(f"committed offsets of {', '.join(planned.groups)}: {moved}")
    if planned.table_groups:
        output.line(f"ends of tables: {units.plural(len(planned.table_groups), 'group')} {deleted}")
    if not output.json:
        if planned.starts:
            columns = [Column("topic", narrow=True), number("partition"), number("offset", "STARTS AT")]
            output.table(columns, row["starts"])
        else:
            output.line("the next run starts where its streams say (start=)")
    if planned.outputs:
        output.note(f"{', '.join(planned.outputs)}: unchanged; results of records that are read again are added.")
    if not executed:
        output.note("Nothing was changed: without --dry-run, the command makes the changes.")
