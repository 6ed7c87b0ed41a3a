"""Copy topics of another cluster with equal offsets, and promote the copy.

The commands connect to the target, which copies. The source needs no installation: its settings belong to the mirror.
"""

from __future__ import annotations

import re
from typing import Any

from ottla.cli import mirror_failback, mirror_promote
from ottla.cli.commands import Argument, Group, Option, Options, quiet_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.mirror_parts import (
    at_source,
    connect_to_source,
    mirror_names,
    report_of,
    resource_of,
    topics_in,
)
from ottla.cli.names import all_topics, check_exists
from ottla.cli.output import Column, Output, number, output_options, size
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.rate import UNLIMITED
from ottla.metadata.mirrors import (
    COPY_SETTING,
    MIRRORING,
    PREFIX_SETTING,
    RATE_SETTING,
    SOURCE_PREFIX_SETTING,
    STOPPED,
    STOPPING,
)
from ottla.tools import values
from ottla.tools.admin.log_comparison import MOST_DIFFERENCES
from ottla.tools.admin.mirror_verification import Side, comparison, ranges_of, row_of
from ottla.tools.admin.mirrors import Finding, MirrorReport, explain, without_topics
from ottla.tools.values import read_properties

COMMAND = Group(
    __doc__,
    """
    ottla mirror create dr --from kafka-1:9092 --topics 'orders.*' --groups '.*'
    ottla mirror status dr
    ottla mirror promote dr
    """,
    shared=[*output_options(), *connection_options()],
)

_NAME = Argument("name", "NAME", help="the name of the mirror")


@COMMAND.verb(
    "create",
    _NAME,
    Option("--from SERVERS", "addresses of the source: HOST:PORT,...", name="servers", required=True),
    Option("--topics REGEX", "topics of the source to copy", required=True),
    Option("--groups REGEX", "groups of the source whose committed offsets are copied", default=""),
    Option("--prefix PREFIX", "put before the names of the copies, e.g. us. (default: none)", default=""),
    Option("--source-prefix PREFIX", "removed from the names of the source's topics (default: none)", default=""),
    Option("--copy LIST", "acls: also the access rules of the topics and groups (default: nothing)"),
    Option("--throttle RATE", "bytes per second that each broker fetches, e.g. 20MiB (default: unlimited)"),
    Option("--replication-factor N", "replicas of the copies (default: of new topics)", type=int),
    Option("--source-config FILE", "a properties file with the security settings of a client of the source"),
    examples="""
    ottla mirror create dr --from kafka-1:9092 --topics 'orders.*' --groups '.*'
    ottla mirror create dr --from a:9093 --topics '.*' --source-config ssl.conf
    ottla mirror create us --from us-1:9092 --topics '.*' --prefix us. --copy acls
    """,
)
def _create(options: Options) -> None:
    """Create a mirror. It creates the matching topics with the ids, partitions and settings of the source, read-only,
    and copies their records and new ones."""
    output, admin = Output(options), connect(options)
    if options.name in mirror_names(admin):
        raise Failure(f"mirror {options.name!r} exists already", "`ottla mirror alter` changes it.")
    new = {PREFIX_SETTING: options.prefix, SOURCE_PREFIX_SETTING: options.source_prefix}
    admin.alter_config(resource_of(options.name), _given(options) | new)
    output.changed(f"Created mirror {options.name}.", {"mirror": options.name, "created": True})
    output.note(f"`ottla mirror status {options.name}` shows the copy, and whether the source can be reached.")


@COMMAND.verb(
    "alter",
    _NAME,
    Option("--from SERVERS", "addresses of the source: HOST:PORT,...", name="servers"),
    Option("--topics REGEX", "topics of the source to copy"),
    Option("--groups REGEX", "groups of the source whose committed offsets are copied"),
    Option("--copy LIST", "acls: also the access rules of the topics and groups; `none`: nothing"),
    Option("--throttle RATE", "bytes per second that each broker fetches, e.g. 20MiB; `none`: unlimited"),
    Option("--replication-factor N", "replicas of the copies that are created from now on", type=int),
    Option("--source-config FILE", "a properties file with the security settings of a client of the source"),
    examples="""
    ottla mirror alter dr --from kafka-2:9092,kafka-3:9092
    ottla mirror alter dr --topics 'orders.*|payments'
    ottla mirror alter dr --throttle 20MiB
    """,
)
def _alter(options: Options) -> None:
    """Change a mirror. Topics that do not match any more stay copies."""
    output, admin = Output(options), connect(options)
    check_exists(options.name, mirror_names(admin), "mirror")
    changes = _given(options)
    if not changes:
        raise Failure(
            "nothing is changed",
            "Pass --from, --topics, --groups, --copy, --throttle, --replication-factor or --source-config.",
            exit_code=2,
        )
    admin.alter_config(resource_of(options.name), changes)
    output.changed(f"Changed mirror {options.name}.", {"mirror": options.name, "changed": True})


def _given(options: Options) -> dict[str, object]:
    """The settings of a mirror in the options."""
    settings: dict[str, object] = {} if options.source_config is None else dict(read_properties(options.source_config))
    _check_pattern(options.topics or "")
    given = {"bootstrap.servers": options.servers, "topics": options.topics, "groups": options.groups}
    given["replication.factor"] = options.replication_factor
    settings |= {name: text for name, text in given.items() if text is not None}
    if options.copy is not None:
        if "users" in options.copy.split(","):
            raise Failure(
                "--copy users: users cannot be copied, since no API of the source returns their passwords",
                "Create them with `ottla security user add`; `--copy acls` copies their rights.",
                exit_code=2,
            )
        settings[COPY_SETTING] = None if options.copy == "none" else options.copy
    if options.throttle is not None:
        settings[RATE_SETTING] = None if options.throttle == "none" else values.size_of(options.throttle, "--throttle")
    return settings


def _check_pattern(topics: str) -> None:
    """Raise Failure for a list, as MirrorMaker 2 has it: as a regular expression, it would match no topic."""
    if "," in re.sub(r"\{\d*,\d*\}", "", topics):
        alternatives = "|".join(each.strip() for each in topics.split(","))
        raise Failure(
            f"--topics {topics!r}: names of topics have no comma, so that it matches none",
            f"Separate the alternatives of a regular expression by |: {alternatives!r}",
            exit_code=2,
        )


@COMMAND.verb("list", quiet_option("names of mirrors"), examples="ottla mirror list", aliases=("ls",))
def _list(options: Options) -> None:
    """List mirrors with their sources."""
    admin = connect(options)
    names = [resource_of(name) for name in mirror_names(admin)]
    found = admin.describe_configs(names) if names else {}
    rows = [
        {
            "mirror": resource.name,
            "state": settings["state"].value,
            "source": settings["bootstrap.servers"].value,
            "topics": settings["topics"].value,
            "prefix": settings[PREFIX_SETTING].value,
            "groups": settings["groups"].value,
            "copy": settings[COPY_SETTING].value,
            "throttle": None if (rate := int(settings[RATE_SETTING].value or 0)) == UNLIMITED else rate,
        }
        for resource, settings in found.items()
    ]
    columns = [Column("mirror", narrow=True), Column("state"), Column("source", narrow=True), Column("topics")]
    columns += [Column("prefix", optional=True), Column("groups", optional=True), Column("copy", optional=True)]
    columns.append(Column("throttle", "THROTTLE/S", units.size, right=True, optional=True))
    Output(options).listing("mirror", columns, rows, empty="There is no mirror.")


@COMMAND.verb("status", _NAME, examples="ottla mirror status dr")
def _status(options: Options) -> None:
    """Show each partition of a mirror: its state, and the records that the source has and the copy has not."""
    output, admin = Output(options), connect(options)
    report = report_of(admin, options.name)
    columns = [
        Column("topic", narrow=True),
        number("partition"),
        Column("state", colour=lambda state: "green" if state == MIRRORING else "yellow"),
        number("end"),
        number("lag"),
        Column("age_ms", "ANSWERED", lambda age: "-" if age is None or age < 0 else f"{units.duration(age)} ago"),
        number("truncated"),
        number("skipped"),
        Column("problem", optional=True, narrow=True),
    ]
    names = [
        "topic",
        "partition",
        "state",
        "leader",
        "end",
        "lag",
        "source_end",
        "age_ms",
        "truncated",
        "skipped",
        "problem",
    ]
    rows = [{name: row.get(name) for name in names} for row in report.partitions]
    output.table(columns, rows, empty="No topic is copied.")
    if report.groups_found > 0 and report.groups_age_ms >= 0:
        age = units.duration(report.groups_age_ms)
        output.note(f"Offsets of groups ({report.groups_found}) were copied {age} ago.")
    for node, text in [*report.problems.items(), *report.acls.items()]:
        output.warn(f"broker {node}: {text}")
    for topic, text in report.topics.items():
        output.warn(f"topic {topic}: {text}")
    for group, text in report.groups.items():
        output.warn(f"group {group}: its offsets are not copied: {text}")
    if not rows:
        for finding in _without_topics(admin, options.name, report):
            output.note(f"{finding.text}. {finding.next_step}.")


def _without_topics(admin: api.Admin, mirror: str, report: MirrorReport) -> list[Finding]:
    """Why a mirror copies no topic, although nothing is wrong with the source."""
    if report.partitions or report.problems or report.topics:
        return []
    pattern = admin.describe_config(resource_of(mirror))["topics"].value or ""
    return without_topics(mirror, pattern, topics_in(admin, mirror, STOPPED))


@COMMAND.verb("why", _NAME, examples="ottla mirror why dr")
def _why(options: Options) -> None:
    """Explain why a mirror makes no progress, and which records it has dropped. It changes nothing."""
    output, admin = Output(options), connect(options)
    report = report_of(admin, options.name)
    found = explain(report, options.name) + _without_topics(admin, options.name, report)
    rows = [finding._asdict() for finding in found]
    columns = [Column("subject", narrow=True), Column("text"), Column("next_step")]
    output.table(columns, rows, empty="No cause of trouble was found.")


@COMMAND.verb("pause", _NAME, examples="ottla mirror pause dr")
def _pause(options: Options) -> None:
    """Stop copying for a time; the topics stay read-only."""
    _set_state(options, "PAUSED")


@COMMAND.verb("resume", _NAME, examples="ottla mirror resume dr")
def _resume(options: Options) -> None:
    """Continue a paused mirror where it stopped."""
    _set_state(options, "RUNNING")


def _set_state(options: Options, state: str) -> None:
    output, admin = Output(options), connect(options)
    check_exists(options.name, mirror_names(admin), "mirror")
    admin.alter_config(resource_of(options.name), {"state": state})
    output.changed(f"{options.name} is {state}.", {"mirror": options.name, "state": state})


mirror_promote.add_verbs(COMMAND, _NAME)


mirror_failback.add_verbs(COMMAND, _NAME)


@COMMAND.verb(
    "verify",
    _NAME,
    Argument("topics", "TOPIC", nargs=-1, help="topics to compare; default: all of the mirror"),
    Option("--source-config FILE", "a properties file with the security settings for the source"),
    examples="""
    ottla mirror verify dr
    ottla mirror verify dr orders --source-config ssl.conf
    """,
)
def _verify(options: Options) -> int:
    """Compare the records of both clusters, byte for byte. The exit code is 1 if they differ.

    It reads both logs completely, as a consumer, with a few MiB of memory. It omits, and reports, offsets that are not
    copied yet or that one cluster has deleted.
    """
    output, target = Output(options), connect(options)
    owned = topics_in(target, options.name, MIRRORING, STOPPING, STOPPED)
    names = list(dict.fromkeys(options.topics)) or owned
    existing = all_topics(target)
    for name in names:
        check_exists(name, existing, "topic")
    source = connect_to_source(options, target)
    keys = at_source(options.name, target, names)
    ranges = ranges_of(source, target, keys)
    rows = []
    with output.progress(sum(each.end - each.start for each in ranges.values()), "offsets") as bar:
        for key, compared in ranges.items():
            found = comparison(Side(source, keys[key]), Side(target, key), compared)
            found.run(compared.start, compared.end, bar.advance)
            rows.append(row_of(key, compared, found))
    columns = [
        Column("topic", narrow=True),
        number("partition"),
        Column("result", colour={"equal": "green", "different": "red"}.get),
        number("start"),
        number("end"),
        size("equal_bytes", "EQUAL"),
    ]
    output.table(columns, rows, empty="No topic is copied.")
    _show_findings(output, rows)
    return int(any(row["result"] == "different" for row in rows))


def _show_findings(output: Output, rows: list[dict[str, Any]]) -> None:
    """Print what `verify` has omitted, and each range that differs."""
    for row in rows:
        subject = f"{row['topic']}-{row['partition']}"
        for text in row["skipped"]:
            output.note(f"{subject}: {text}")
        for each in row["differences"]:
            output.warn(f"{subject}: offsets {each['first_offset']} to {each['last_offset']}: {each['text']}")
        if len(row["differences"]) == MOST_DIFFERENCES:
            output.warn(f"{subject}: {row['different_batches']} batches differ; further ranges are not listed")


@COMMAND.verb("stop", _NAME, examples="ottla mirror stop dr")
def _stop(options: Options) -> None:
    """Delete a mirror. Its topics must be promoted before.

    To delete a copy, exclude the topic with `ottla mirror alter --topics` first.
    """
    output, admin = Output(options), connect(options)
    check_exists(options.name, mirror_names(admin), "mirror")
    settings = admin.describe_config(resource_of(options.name))
    set_here = [name for name, entry in settings.items() if entry.source is not api.ConfigSource.DEFAULT]
    admin.alter_config(resource_of(options.name), {name: None for name in set_here if name != "status"})
    output.changed(f"Deleted mirror {options.name}.", {"mirror": options.name, "deleted": True})
