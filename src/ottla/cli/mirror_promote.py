"""`ottla mirror promote` and `switch`: end the copy, and open its topics to clients."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.cli.commands import Argument, Group, Option, Options, yes_option
from ottla.cli.connect import connect
from ottla.cli.mirror_parts import (
    at_source,
    connect_to_source,
    move,
    partitions_of,
    report_of,
    resource_of,
    rows_of,
    topics_in,
    wait_for_all,
)
from ottla.cli.names import confirm, enumerated
from ottla.cli.output import Column, Output
from ottla.clients import admin as api
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.metadata.mirrors import MIRRORING, PAUSED, STOPPED, STOPPING
from ottla.tools import values
from ottla.tools.admin import mirror_switch
from ottla.tools.admin.mirror_switch import PROBLEM, WARNING, Check
from ottla.tools.admin.mirrors import Missing, awaited, behind, losses, missing, named, unready, unreported

_COLOURS: Final = {PROBLEM: "red", WARNING: "yellow"}
_TIMEOUT: Final = "how long to wait for the last records, and for the end of the copy (default: 1min)"
_MAX_LAG: Final = "records that a partition may be behind before the switch"


def add_verbs(command: Group, name: Argument) -> None:
    """Add the verbs to `ottla mirror`."""
    topics = Argument("topics", "TOPIC", nargs=-1, help="copies to promote; default: all of the mirror")
    command.verb(
        "promote",
        name,
        topics,
        Option("--unplanned", "the source is lost: do not wait for its last records"),
        Option("--dry-run", "only show the records that are not copied"),
        Option("--timeout DURATION", _TIMEOUT, default="1min"),
        yes_option(),
        examples="""
        ottla mirror promote dr
        ottla mirror promote dr orders payments
        ottla mirror promote dr --unplanned --dry-run
        ottla mirror promote dr --unplanned --yes
        """,
    )(_promote)
    command.verb(
        "switch",
        name,
        topics,
        Option("--dry-run", "only check whether the mirror is ready"),
        Option("--wait-for-producers DURATION", "wait until no producer writes to the source any more", default=""),
        Option("--verify N", "compare the last N records of each partition first", type=int, default=0),
        Option("--max-lag N", _MAX_LAG, type=int, default=100_000, show_default=True),
        Option("--timeout DURATION", _TIMEOUT, default="1min"),
        Option("--source-config FILE", "a properties file with the security settings for the source"),
        yes_option(),
        examples="""
        ottla mirror switch move --dry-run --verify 1000
        ottla mirror switch move --wait-for-producers 2min
        ottla mirror switch move orders --wait-for-producers 2min
        """,
    )(_switch)


def _promote(options: Options) -> None:
    """Open the copied topics of a mirror to clients. It aborts open transactions, and removes the source's producers.

    Stop the producers of the source first: records that it gets later are not copied. The command can be repeated
    after an interruption.

    With --unplanned, it prints how many records are missing: before the end of the copy by the last answers of the
    source, and after it exactly, since a leader of the copy may have been lost meanwhile.
    """
    output, admin = Output(options), connect(options)
    names = _unpromoted(admin, options.name, options.topics)
    copying = _copying(admin, options.name, names)
    # For an unplanned promotion, which may be the last reports of leaders that are lost before it is confirmed.
    reported = rows_of(admin, options.name, copying) if options.unplanned else None
    if reported is not None:
        for subject, text in losses(reported):
            output.warn(f"{subject}: {text}")
    elif options.dry_run:
        for row in rows_of(admin, options.name, copying):
            if row["lag"]:
                count = "an unknown number of" if row["lag"] < 0 else row["lag"]
                output.warn(f"{row['topic']}-{row['partition']}: {count} records are not copied yet")
    if options.dry_run:
        waits = "" if options.unplanned else "wait for the last records of the source, and "
        output.note(f"The command would {waits}open {enumerated(names)}; nothing was changed.")
        return
    confirm(
        f"Open {enumerated(names)} to clients, and end the copy?",
        "nothing was promoted",
        "--yes promotes without asking.",
        yes=options.yes,
    )
    if copying and not options.unplanned and _is_paused(admin, options.name):
        output.warn(
            f"mirror {options.name} is paused: the promotion waits until `ottla mirror resume {options.name}` lets it "
            "copy the last records"
        )
    deadline_s = time.monotonic() + values.milliseconds(options.timeout) / 1000
    lost = _open(output, admin, options.name, names, deadline_s=deadline_s, reported=reported)
    for each in lost:
        output.warn(f"{each.topic}-{each.partition}: {each.text}")
    for name in names:
        gaps = [
            {"partition": each.partition, "records": each.records, "offset": each.offset}
            for each in lost
            if each.topic == name
        ]
        output.changed(f"Promoted {name}.", {"topic": name, "promoted": True, "missing": gaps})


def _is_paused(admin: api.Admin, mirror: str) -> bool:
    return admin.describe_config(resource_of(mirror))["state"].value == PAUSED


def _groups(admin: api.Admin, mirror: str) -> str:
    """The regular expression of the groups whose offsets are copied; empty if there are none."""
    return admin.describe_config(resource_of(mirror))["groups"].value or ""


def _unpromoted(admin: api.Admin, mirror: str, wanted: Sequence[str]) -> list[str]:
    """The topics to promote: the `wanted` ones, or all. Raises Failure for one that is not a copy of the mirror."""
    names = topics_in(admin, mirror, MIRRORING, STOPPING)
    if not names:
        raise Failure(f"mirror {mirror!r} has no topic to promote", f"`ottla mirror why {mirror}` explains it.")
    for name in wanted:
        if name not in names:
            problem = "was promoted before" if name in topics_in(admin, mirror, STOPPED) else "is not a copy"
            raise Failure(
                f"topic {name!r} {problem}, so that mirror {mirror!r} cannot promote it",
                f"`ottla mirror status {mirror}` shows its copies.",
            )
    return [name for name in names if not wanted or name in wanted]


def _copying(admin: api.Admin, mirror: str, names: Sequence[str]) -> list[str]:
    """The topics of `names` whose copy has not ended."""
    return [name for name in topics_in(admin, mirror, MIRRORING) if name in names]


def _open(
    output: Output,
    admin: api.Admin,
    mirror: str,
    names: list[str],
    *,
    deadline_s: float,
    reported: Sequence[Mapping[str, Any]] | None = None,
) -> list[Missing]:
    """Promote the topics; a planned promotion waits for the last records and offsets of groups before.

    An unplanned one has the rows that were `reported` before it. Returns its losses.
    """
    is_planned = reported is None
    copying = _copying(admin, mirror, names)
    if is_planned:
        _wait_for_last_records(output, admin, mirror, copying, deadline_s)
    before = rows_of(admin, mirror, copying)
    # The brokers copy the offsets at once when they learn of STOPPING, which may be before the answer to this command.
    complete_s = time.monotonic()
    move(admin, mirror, copying, STOPPING)
    groups_since_s = complete_s if is_planned else None
    uncopied = _wait_for_ends(output, admin, mirror, names, deadline_s=deadline_s, groups_since_s=groups_since_s)
    for group, text in uncopied.items():
        output.warn(f"group {group}: its last offsets were not copied: {text}")
    after = rows_of(admin, mirror, names)
    move(admin, mirror, names, STOPPED)
    _wait_until_open(output, admin, mirror, names, deadline_s)
    return [] if reported is None else missing([*reported, *before], after)


def _wait_until_open(output: Output, admin: api.Admin, mirror: str, topics: list[str], deadline_s: float) -> None:
    """Wait until the leaders know that clients may write: they refuse records until then, and clients do not retry."""

    def remaining() -> list[str]:
        try:
            rows = rows_of(admin, mirror, topics)
        except ClientError as error:
            output.warn(f"not all leaders may accept records yet, since a broker does not answer: {error}")
            return []
        return [f"{row['topic']}-{row['partition']}" for row in rows if row["state"] == STOPPING]

    wait_for_all(output, remaining, deadline_s, "promoted, but the leaders do not accept records yet")


def _wait_for_last_records(output: Output, admin: api.Admin, mirror: str, topics: list[str], deadline_s: float) -> None:
    """Wait until each partition has all records of an answer of the source that is younger than this call."""
    started_s, partitions = time.monotonic(), partitions_of(admin, topics)

    def remaining() -> list[str]:
        # Before the request: the ages in the reports do not grow on their way.
        passed_ms = int((time.monotonic() - started_s) * 1000)
        rows = rows_of(admin, mirror, topics)
        return unreported(partitions, rows) + awaited(behind(rows, passed_ms))

    wait_for_all(
        output, remaining, deadline_s, "the copy is not complete; stop the producers, or promote with --unplanned"
    )


def _wait_for_ends(
    output: Output, admin: api.Admin, mirror: str, topics: list[str], *, deadline_s: float, groups_since_s: float | None
) -> dict[str, str]:
    """Wait until no partition has producers of the source, and until the offsets of groups are copied.

    The copy of the offsets has to begin later than `groups_since_s`; None does not wait for it. Returns the groups
    whose offsets are refused, and why: nothing shows that waiting helps.
    """
    partitions = partitions_of(admin, topics)
    with_groups = groups_since_s is not None and bool(_groups(admin, mirror))
    refused: dict[str, str] = {}

    def remaining() -> list[str]:
        nonlocal refused
        passed_ms = int((time.monotonic() - (groups_since_s or 0.0)) * 1000)
        report = report_of(admin, mirror)
        rows = [row for row in report.partitions if row["topic"] in topics]
        names = unreported(partitions, rows) + named(unready(rows))
        is_old = not 0 <= report.groups_age_ms <= passed_ms
        refused = report.groups if with_groups else {}
        return [*names, "the offsets of groups"] if with_groups and is_old else names

    wait_for_all(
        output, remaining, deadline_s, "the copy has not ended; repeat the command when every partition has a leader"
    )
    return refused


# -- switch ------------------------------------------------------------------------------------------------------


def _switch(options: Options) -> int:
    """Move the clients of the source to this cluster: check the mirror, promote it, and say where clients connect.

    The producers of the source must stop, and then its consumers. With --wait-for-producers, the command goes on when
    no end offset of the source has moved for two seconds, and no transaction is open there. It can be repeated after
    an interruption. The exit code is 1 if the mirror is not ready, or if the source has got records too late.
    """
    output, target = Output(options), connect(options)
    names = _unpromoted(target, options.name, options.topics)
    source = connect_to_source(options, target)
    keys = at_source(options.name, target, names)
    checks = _checks(options, target, source, keys)
    columns = [Column("check"), Column("result", colour=_COLOURS.get), Column("text")]
    output.table(columns, [each._asdict() for each in checks])
    if any(each.result == PROBLEM for each in checks):
        raise Failure("the mirror is not ready, and nothing was changed", "`ottla mirror why` explains it.")
    if options.dry_run:
        output.note(f"{enumerated(names)}: ready to switch; nothing was changed.")
        return 0
    waits = bool(options.wait_for_producers)
    confirm(
        f"Switch {enumerated(names)} to this cluster{' when its producers have stopped' if waits else ''}?"
        f"{'' if waits else ' The producers of the source must be stopped.'}",
        "nothing was changed",
        "--yes switches without asking.",
        yes=options.yes,
    )
    stopped_s = time.monotonic()
    if waits:
        output.note("Stop the producers of the source now, and its consumers.")
        wait_s = values.milliseconds(options.wait_for_producers) / 1000
        stopped_s = mirror_switch.wait_for_producers(source, list(keys.values()), wait_s)
    deadline_s = time.monotonic() + values.milliseconds(options.timeout) / 1000
    _open(output, target, options.name, names, deadline_s=deadline_s)
    closed_ms = int((time.monotonic() - stopped_s) * 1000)
    late = mirror_switch.late_records(source, target, keys)
    servers = ",".join(f"{each.host}:{each.port}" for each in target.describe_cluster().brokers)
    result = {"topics": names, "closed_ms": closed_ms, "bootstrap_servers": servers, "late_records": sum(late.values())}
    took = units.duration(closed_ms)
    when = f", {took} after the last record of the source" if waits else f" in {took}"
    output.changed(f"Switched {enumerated(names)}{when}.", result)
    for key, count in late.items():
        output.warn(f"{key}: {count} records reached the source after the end of the copy, and are not here")
    if active := mirror_switch.active_groups(_groups(target, options.name), source.list_groups()):
        output.warn(
            f"groups that still have members at the source: {active}; offsets that they have committed there since the "
            "end of the copy are not here, so that they read those records again"
        )
    output.line(f"Start the clients with bootstrap.servers={servers}; groups continue at their committed offsets.")
    left = topics_in(target, options.name, MIRRORING, STOPPING)
    stop = f"{enumerated(left)}: still copied." if left else f"Then `ottla mirror stop {options.name}`."
    output.line(f"{stop} docs/mirror.md says how to return.")
    return int(bool(late))


def _checks(
    options: Options, target: api.Admin, source: api.Admin, keys: Mapping[TopicPartition, TopicPartition]
) -> list[Check]:
    """Whether the mirror is ready."""
    report = report_of(target, options.name)
    if options.topics:
        report = report._replace(topics={name: text for name, text in report.topics.items() if name in options.topics})
    groups = _groups(target, options.name)
    found = mirror_switch.check_copy(report, list(keys), options.max_lag)
    found += mirror_switch.check_groups(report, groups, source.list_groups())
    found += mirror_switch.check_schemas(target, sorted({key.topic for key in keys}))
    if options.verify > 0:
        found.append(mirror_switch.check_last_records(source, target, keys, options.verify))
    return found
