"""`ottla mirror failback`: a topic of this cluster becomes a copy of the mirror's source, which was promoted before.

A topic in FAILBACK is read-only until the controller has found the source's topic open for writes. So the command first
checks the source, and refuses a topic that would wait for ever. `--cancel` opens a topic that waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cli.commands import Argument, Group, Option, Options, yes_option
from ottla.cli.connect import connect
from ottla.cli.mirror_parts import at_source, connect_to_source, mirror_names, move, names_of, states_of_topics
from ottla.cli.names import all_topics, check_exists, confirm, enumerated
from ottla.cli.output import Column, Output, number
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.metadata.mirrors import FAILBACK, STOPPED
from ottla.tools.admin.mirror_verification import Side, bounds, existing, loss
from ottla.tools.admin.mirrors import FailbackTopic, failback_problem


def add_verbs(command: Group, name: Argument) -> None:
    """Add the verb to `ottla mirror`."""
    command.verb(
        "failback",
        name,
        Argument("topics", "TOPIC", nargs=-1, required=True, help="topics of this cluster that become copies"),
        Option("--dry-run", "only check the topics, and show the records that would be dropped"),
        Option("--cancel", "open topics that still wait in the state FAILBACK"),
        Option("--source-config FILE", "a properties file with the security settings for the source"),
        yes_option(),
        examples="""
        ottla mirror create back --from ottla-1:9092 --topics '' --groups '.*'
        ottla mirror failback back orders --dry-run
        ottla mirror failback back orders
        ottla mirror failback back orders --cancel
        ottla mirror create back --from eu-1:9092 --topics '' --source-prefix us.
        """,
    )(_failback)


def _failback(options: Options) -> None:
    """Make topics of this cluster copies of the mirror's source, which was promoted before. Records that only this
    cluster has are dropped; `ottla mirror why` says how many.

    Nothing is changed unless the source has the same topics, open for writes.
    """
    output, admin = Output(options), connect(options)
    check_exists(options.name, mirror_names(admin), "mirror")
    names = list(dict.fromkeys(options.topics))
    states, existing_topics = states_of_topics(admin), all_topics(admin)
    for name in names:
        check_exists(name, existing_topics, "topic")
    if options.cancel:
        _cancel(options, output, admin, names, states)
        return
    prefix = names_of(admin, options.name).prefix
    for name in names:
        if not name.startswith(prefix):
            raise Failure(f"topic {name!r} does not begin with {prefix}, the prefix of mirror {options.name!r}")
        _, state = states.get(name, ("", ""))
        if state == FAILBACK:
            raise Failure(f"topic {name!r} is {state} already", "--cancel opens it again.")
        if state not in ("", STOPPED):
            raise Failure(f"topic {name!r} is {state} already")
    source = connect_to_source(options, admin)
    _check_source(options.name, admin, source, names)
    if options.dry_run:
        _show_losses(options.name, output, (admin, source), names)
        return
    confirm(
        f"Drop the records of {enumerated(names)} that the source of {options.name} does not have?",
        "nothing was changed",
        "--yes drops them without asking.",
        yes=options.yes,
    )
    move(admin, options.name, names, FAILBACK)
    for name in names:
        output.changed(f"{name} becomes a copy.", {"topic": name, "failback": True})


def _cancel(
    options: Options, output: Output, admin: api.Admin, names: list[str], states: Mapping[str, tuple[str, str]]
) -> None:
    for name in names:
        owner, state = states.get(name, ("", ""))
        if (owner, state) != (options.name, FAILBACK):
            raise Failure(
                f"topic {name!r} does not wait for a failback of {options.name!r}: it is {state or 'not mirrored'}",
                "`ottla mirror promote` ends a copy.",
            )
    # The controller refuses this move once the copy has begun.
    move(admin, options.name, names, STOPPED)
    for name in names:
        output.changed(f"{name} is open again; nothing was dropped.", {"topic": name, "cancelled": True})


def _check_source(mirror: str, local: api.Admin, source: api.Admin, names: list[str]) -> None:
    """Raise Failure unless the source has each topic, with the same id and open for writes."""
    if _identity(local) == _identity(source):
        raise Failure(
            f"the source of mirror {mirror!r} is this cluster itself, and nothing was changed",
            f"`ottla mirror alter {mirror} --from` changes it.",
        )
    mapping = names_of(local, mirror)
    here, there = all_topics(local), all_topics(source)
    states = states_of_topics(source)
    for name in names:
        other = mapping.at_source(name)
        found = None
        if other in there:
            found = FailbackTopic(there[other].topic_id, there[other].partitions, states.get(other, ("", ""))[1])
        ours = FailbackTopic(here[name].topic_id, here[name].partitions, "")
        if problem := failback_problem(other, ours, found):
            raise Failure(f"topic {name!r} cannot become a copy: {problem[0]}", f"Nothing was changed. {problem[1]}")


def _identity(admin: api.Admin) -> tuple[str, set[tuple[str, int]]]:
    """Return the id and the addresses of a cluster: clusters from copies of one directory have the same id."""
    cluster = admin.describe_cluster()
    return cluster.cluster_id, {(each.host, each.port) for each in cluster.brokers}


def _show_losses(mirror: str, output: Output, both: tuple[api.Admin, api.Admin], topics: list[str]) -> None:
    """Print, by partition, the records that only this cluster has. `both` are this cluster and the source."""
    local, source = both
    keys = at_source(mirror, local, topics)
    there = bounds(source, existing(source, list(keys.values())))
    shared = {key: other for key, other in keys.items() if other in there}
    here = bounds(local, list(shared))
    rows = []
    with output.progress(len(shared), "partitions") as bar:
        for key, other in shared.items():
            found = loss(Side(local, key), Side(source, other), (here[key], there[other]))
            rows.append({"topic": key.topic, "partition": key.partition, **found._asdict()})
            bar.advance()
    columns = [
        Column("topic", narrow=True),
        number("partition"),
        number("records"),
        number("start"),
        number("end"),
        Column("first_timestamp_ms", "FIRST", _time),
        Column("last_timestamp_ms", "LAST", _time),
    ]
    for name in topics:
        dropped = sum(row["records"] for row in rows if row["topic"] == name)
        output.note(f"{name} would become a copy; {dropped} records would be dropped.")
    output.table(columns, rows)


def _time(timestamp_ms: int) -> str:
    return "-" if timestamp_ms < 0 else units.moment(timestamp_ms)
