"""`ottla topic describe`: the partitions of topics with their replicas, offsets and sizes, and the settings.

The number of records is the difference of the latest and the earliest offset. It includes the gaps that compaction
and transactions leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli import values
from ottla.cli.commands import Option, Options
from ottla.cli.connect import connect
from ottla.cli.late import api
from ottla.cli.names import choose, if_exists_option, name_parameters, names_of
from ottla.cli.output import Column, Output, number, size
from ottla.clients.errors import BrokerError, UnsupportedByBroker
from ottla.common import units
from ottla.common.ids import TopicPartition

_FILTERS = {
    "under_replicated_partitions": "with replicas that are not in sync",
    "unavailable_partitions": "without a leader",
    "at_min_isr_partitions": "with exactly min.insync.replicas in sync",
    "under_min_isr_partitions": "with fewer than min.insync.replicas in sync",
}


class Facts(NamedTuple):
    """The state of a topic: its description, its settings by name, and a row for each partition."""

    topic: api.TopicDescription
    configs: dict[str, api.ConfigEntry]
    partitions: list[dict[str, Any]]

    def summary(self) -> dict[str, Any]:
        """Return the topic as one row. A sum is None if the value of a partition is unknown."""
        policy = self.configs.get("cleanup.policy")
        return {
            "topic": self.topic.name,
            "topic_id": self.topic.topic_id,
            "internal": self.topic.is_internal,
            "partition_count": len(self.partitions),
            "replication_factor": self.topic.replication_factor,
            "records": _sum(row["records"] for row in self.partitions),
            "size": _sum(row["size"] for row in self.partitions),
            "size_of_replicas": _sum(row["size_of_replicas"] for row in self.partitions),
            "cleanup_policy": policy.value if policy else None,
            "under_replicated": sum(len(row["isr"]) < len(row["replicas"]) for row in self.partitions),
            "without_leader": sum(row["leader"] is None for row in self.partitions),
        }

    def overrides(self) -> dict[str, str | None]:
        """Return the settings that were set for this topic."""
        return {name: entry.value for name, entry in self.configs.items() if entry.source is api.ConfigSource.TOPIC}


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
    known = selectable(admin.list_topics(include_internal=True), wanted, internal=options.internal)
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
        return
    for each in output.parts(facts):
        if output.json:
            output.object({**each.summary(), "config": each.overrides(), "partitions": each.partitions})
        else:
            _print_topic(output, each)


def selectable(listed: Iterable[api.TopicListing], wanted: Sequence[str], *, internal: bool = False) -> list[str]:
    """Return the topics that names and patterns can match: internal topics only by their exact names, or `internal`."""
    return [topic.name for topic in listed if internal or not topic.is_internal or topic.name in wanted]


def facts_of(admin: api.Admin, names: Sequence[str]) -> list[Facts]:
    """Read the state of topics, in this order. Settings, offsets and sizes that a broker does not report are None."""
    if not names:
        return []
    topics = admin.describe_topics(names)
    led = [TopicPartition(t.name, p.partition) for t in topics.values() for p in t.partitions if p.leader is not None]
    partitions = [TopicPartition(t.name, p.partition) for t in topics.values() for p in t.partitions]
    earliest = _reported(admin.list_offsets, dict.fromkeys(led, api.OffsetSpec.EARLIEST)) if led else {}
    latest = _reported(admin.list_offsets, dict.fromkeys(led, api.OffsetSpec.LATEST)) if led else {}
    configs = _reported(admin.describe_configs, [api.ConfigResource.topic(name) for name in names])
    sizes: dict[TopicPartition, dict[int | None, int]] = {}
    for node_id, directories in _reported(admin.describe_log_dirs, partitions=partitions).items():
        for directory in directories:
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes.setdefault(partition, {})[node_id] = replica.size

    def row(topic: str, partition: api.PartitionDescription) -> dict[str, Any]:
        key = TopicPartition(topic, partition.partition)
        first, last = earliest.get(key), latest.get(key)
        return {
            "partition": partition.partition,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "offline": list(partition.offline_replicas),
            "eligible": list(partition.eligible_leader_replicas),
            "last_known_leader": list(partition.last_known_elr),
            "earliest": first.offset if first else None,
            "latest": last.offset if last else None,
            "records": last.offset - first.offset if first and last else None,
            "size": sizes.get(key, {}).get(partition.leader),
            "size_of_replicas": sum(sizes[key].values()) if key in sizes else None,
        }

    return [
        Facts(
            topics[name],
            configs.get(api.ConfigResource.topic(name), {}),
            [row(name, p) for p in topics[name].partitions],
        )
        for name in names
    ]


def _reported(call: Callable[..., Mapping[Any, Any]], *arguments: Any, **options: Any) -> Mapping[Any, Any]:
    """Return the results that brokers report: old ones lack some APIs, and the user may lack some authorizations."""
    try:
        return call(*arguments, **options)
    except api.PartialFailure as failure:
        return failure.results
    except (BrokerError, UnsupportedByBroker):
        return {}


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


def _sum(numbers: Iterator[int | None]) -> int | None:
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)
