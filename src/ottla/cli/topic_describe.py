"""`ottla topic describe`: the partitions of topics with their replicas, offsets and sizes, and the settings.

The number of records is the difference of the latest and the earliest offset. It includes the gaps that compaction
and transactions leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ottla.cli.commands import Option, Options
from ottla.cli.connect import connect
from ottla.cli.names import all_topics, choose, if_exists_option, name_parameters, names_of
from ottla.cli.output import Column, Output, number, size
from ottla.clients import admin as api
from ottla.common import units
from ottla.tools import values
from ottla.tools.admin.leaderless import PAGE
from ottla.tools.admin.topic_facts import Facts, facts_of

_FILTERS = {
    "under_replicated_partitions": "with replicas that are not in sync",
    "unavailable_partitions": "without a leader",
    "at_min_isr_partitions": "with exactly min.insync.replicas in sync",
    "under_min_isr_partitions": "with fewer than min.insync.replicas in sync",
}


PARAMETERS = [
    *name_parameters("topic", optional=True),
    *(Option(f"--{name.replace('_', '-')}", f"only partitions {text}") for name, text in _FILTERS.items()),
    Option("--topics-with-overrides", "only topics with settings that are not defaults"),
    if_exists_option("topic"),
    Option("--internal", "also Kafka's internal topics, if no topic is named"),
]
EXAMPLES = """
ottla topic describe orders
ottla topic describe 'ord*' --json | jq '{topic, records}'
ottla topic describe --under-replicated-partitions
"""


def describe(options: Options) -> None:
    """Show the partitions of topics with their replicas, offsets and sizes, and the settings. Without a
    name it shows all topics. The number of records is the difference of the latest and the earliest offset. It
    includes the gaps that compaction and transactions leave.
    """
    output, admin = Output(options), connect(options)
    wanted = names_of(options, "topic", optional=True)
    known = selectable(all_topics(admin).values(), wanted, internal=options.internal)
    names = choose(wanted, known, "topic", regex=options.regex, missing_ok=options.if_exists)
    facts = facts_of(admin, names)
    if options.topics_with_overrides:
        facts = [each for each in facts if each.overrides()]
    filters = [name for name in _FILTERS if getattr(options, name)]
    if filters:
        rows = [
            {"topic": each.topic.name, **row}
            for each in facts
            for row in each.partitions
            if any(_matches(name, row, each) for name in filters)
        ]
        empty = f"There is no partition {' or '.join(_FILTERS[name] for name in filters)}."
        output.table([Column("topic", narrow=True), *_columns(rows)], rows, empty=empty)
        _print_ways_out(output, rows)
        return
    for each in output.parts(facts):
        if output.json:
            output.object({**each.summary(), "config": each.overrides(), "partitions": each.partitions})
        else:
            _print_topic(output, each)


def selectable(listed: Iterable[api.TopicListing], wanted: Sequence[str], *, internal: bool = False) -> list[str]:
    """Return the topics that names and patterns can match: internal topics only by their exact names, or `internal`."""
    return [topic.name for topic in listed if internal or not topic.is_internal or topic.name in wanted]


def _print_topic(output: Output, facts: Facts) -> None:
    summary, style = facts.summary(), output.style
    parts = [
        units.plural(summary["partition_count"], "partition"),
        units.plural(summary["replication_factor"], "replica") + " each",
        f"{units.count(summary['records'])} records",
        units.size(summary["size"]),
    ]
    output.line(f"{style.bold(facts.topic.name)}  {', '.join(parts)}")
    internal = "  (internal)" if summary["internal"] else ""
    output.line(f"{style.dim('id')}        {facts.topic.topic_id or '-'}{internal}")
    overrides = [f"{name}={values.explained(name, value)}" for name, value in facts.overrides().items()]
    for index, text in enumerate(overrides or ["the broker's defaults"]):
        output.line(f"{' ' * 8 if index else style.dim('settings')}  {text}")
    for name, problem in (("without_leader", "no leader"), ("under_replicated", "replicas out of sync")):
        if summary[name]:
            output.line(style.yellow(f"{units.plural(summary[name], 'partition')} with {problem}"))
    output.line()
    output.table(list(_columns(facts.partitions)), facts.partitions)
    _print_ways_out(output, facts.partitions)


def _print_ways_out(output: Output, rows: Sequence[dict[str, Any]]) -> None:
    numbers: dict[str, list[str]] = {}
    for row in rows:
        if row["way_out"]:
            numbers.setdefault(row["way_out"], []).append(
                f"{row['topic']}-{row['partition']}" if "topic" in row else str(row["partition"])
            )
    for way, partitions in numbers.items():
        output.note(f"partition {', '.join(partitions)}: {way} ({PAGE})")


def _columns(rows: Sequence[dict[str, Any]]) -> Iterator[Column]:
    yield number("partition")
    yield Column(
        "leader",
        right=True,
        show=lambda n: "none" if n is None else str(n),
        colour=lambda n: "red" if n is None else None,
    )
    yield Column("replicas")
    if any(row["isr"] != row["replicas"] for row in rows):
        yield Column("isr", "IN SYNC", colour=lambda isr: None if isr else "red")
    yield Column("eligible", optional=True)
    yield Column("last_known_leader", "LAST LEADER", optional=True)
    yield Column("cannot_lead", colour=lambda nodes: "red" if nodes else None, optional=True)
    yield Column("offline", colour=lambda nodes: "yellow" if nodes else None, optional=True)
    yield number("earliest")
    yield number("latest")
    yield number("records")
    yield size("size")


def _matches(name: str, row: dict[str, Any], facts: Facts) -> bool:
    least = facts.configs.get("min.insync.replicas")
    minimum = int(least.value) if least and least.value else 1
    in_sync = len(row["isr"])
    return {
        "under_replicated_partitions": in_sync < len(row["replicas"]),
        "unavailable_partitions": row["leader"] is None,
        "at_min_isr_partitions": in_sync == minimum,
        "under_min_isr_partitions": in_sync < minimum,
    }[name]
