"""`ottla topic describe`: where a topic's partitions are, what is in them, how they are set up.

Numbers of records are those of offsets from the earliest to the latest; compaction and transactions leave gaps.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.cli import units, values
from ottla.cli.commands import Command, Option, Options
from ottla.cli.connect import connection_options, open_admin
from ottla.cli.names import choose, name_parameters, names_of
from ottla.cli.output import Column, Output, number, output_options, size

if TYPE_CHECKING:
    from ottla.clients.admin import Admin, ConfigEntry, TopicDescription

_FILTERS = {
    "under_replicated_partitions": "with fewer replicas in sync than there are",
    "unavailable_partitions": "without a leader",
    "at_min_isr_partitions": "with exactly min.insync.replicas in sync",
    "under_min_isr_partitions": "with fewer than min.insync.replicas in sync",
}


class Facts(NamedTuple):
    """What is known of a topic: its settings by name, and a row for each partition."""

    topic: "TopicDescription"
    configs: "dict[str, ConfigEntry]"
    partitions: list[dict[str, Any]]

    def summary(self) -> dict[str, Any]:
        """The topic in one row; sums are None where a part is not known."""
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
        """The settings that somebody gave this topic."""
        from ottla.clients.admin import ConfigSource

        return {name: entry.value for name, entry in self.configs.items() if entry.source is ConfigSource.TOPIC}


_PARAMETERS = [
    *name_parameters("topic", optional=True),
    *(
        Option(f"--{name.replace('_', '-')}", is_flag=True, help=f"only partitions {text}")
        for name, text in _FILTERS.items()
    ),
    Option("--topics-with-overrides", is_flag=True, help="only topics with settings of their own"),
    Option("--if-exists", is_flag=True, help="pass over topics that are not there"),
    Option("--internal", is_flag=True, help="with all topics: Kafka's own too"),
    *output_options(),
    *connection_options(),
]


def _describe(options: Options) -> int:
    output = Output(options)
    with open_admin(options) as admin:
        wanted = names_of(options, "topic", optional=True)
        listed = admin.list_topics(include_internal=True)
        known = [t.name for t in listed if options.internal or not t.is_internal or t.name in wanted]
        names = choose(wanted, known, "topic", regex=options.regex, missing_ok=options.if_exists) if wanted else known
        facts = facts_of(admin, names)
    if options.topics_with_overrides:
        facts = [each for each in facts if each.overrides()]
    filters = [name for name in _FILTERS if getattr(options, name)]
    if filters:
        rows = [
            {"topic": each.topic.name, **row}
            for each in facts
            for row in each.partitions
            if any(_is(name, row, each) for name in filters)
        ]
        if rows or output.json:
            output.table([Column("topic", narrow=True), *_columns(rows)], rows)
        else:
            output.note(f"No partition is {' or '.join(_FILTERS[name] for name in filters)}.")
        return 0
    for index, each in enumerate(facts):
        if output.json:
            output.object({**each.summary(), "config": each.overrides(), "partitions": each.partitions})
            continue
        if index:
            output.line()
        _show(output, each)
    return 0


COMMAND = Command(
    _describe,
    _PARAMETERS,
    "show partitions, leaders, replicas, offsets, bytes, settings",
    description="Show where a topic's partitions are, what is in them, how the topic is set up; all topics if none is\n"
    "named. Numbers of records are counted from the earliest to the latest offset: compaction and transactions leave\n"
    "gaps.",
    examples="""
    ottla topic describe orders
    ottla topic describe 'ord*' --json | jq '{topic, records}'
    ottla topic describe --under-replicated-partitions
    """,
)


def facts_of(admin: "Admin", names: Sequence[str]) -> list[Facts]:
    """The facts about topics, in this order. What the brokers do not tell of settings, offsets and bytes is missing."""
    from ottla.clients.admin import ConfigResource, OffsetSpec, PartialFailure
    from ottla.clients.errors import BrokerError, UnsupportedByBroker
    from ottla.common.ids import TopicPartition

    if not names:
        return []
    topics = admin.describe_topics(names)
    led = [TopicPartition(t.name, p.partition) for t in topics.values() for p in t.partitions if p.leader is not None]

    def told(call: Any) -> dict[Any, Any]:
        try:
            return dict(call())
        except PartialFailure as failure:
            return dict(failure.results)
        except (BrokerError, UnsupportedByBroker):
            return {}

    earliest = told(lambda: admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))) if led else {}
    latest = told(lambda: admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST))) if led else {}
    configs = told(lambda: admin.describe_configs([ConfigResource.topic(name) for name in names]))
    everything = [TopicPartition(t.name, p.partition) for t in topics.values() for p in t.partitions]
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for node_id, directories in told(lambda: admin.describe_log_dirs(partitions=everything)).items():
        for directory in directories:
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes.setdefault(partition, {})[node_id] = replica.size

    def row(topic: "TopicDescription", partition: Any) -> dict[str, Any]:
        key = TopicPartition(topic.name, partition.partition)
        first, last = earliest.get(key), latest.get(key)
        return {
            "partition": partition.partition,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "offline": list(partition.offline_replicas),
            "earliest": first.offset if first else None,
            "latest": last.offset if last else None,
            "records": last.offset - first.offset if first and last else None,
            "size": sizes.get(key, {}).get(partition.leader),
            "size_of_replicas": sum(sizes[key].values()) if key in sizes else None,
        }

    described = (topics[name] for name in names)
    return [
        Facts(topic, configs.get(ConfigResource.topic(topic.name), {}), [row(topic, p) for p in topic.partitions])
        for topic in described
    ]


def _show(output: Output, facts: Facts) -> None:
    summary, style = facts.summary(), output.style
    parts = [
        units.plural(summary["partition_count"], "partition"),
        units.plural(summary["replication_factor"], "replica") + " each",
        f"{units.count(summary['records'])} records",
        units.size(summary["size"]),
    ]
    output.line(f"{style.bold(facts.topic.name)}  {', '.join(parts)}")
    output.line(
        f"{style.dim('id')}        {facts.topic.topic_id or '-'}{'  (internal)' if summary['internal'] else ''}"
    )
    overrides = facts.overrides()
    for index, (name, value) in enumerate(overrides.items()):
        output.line(f"{style.dim('settings') if not index else ' ' * 8}  {name}={values.explained(name, value)}")
    if not overrides:
        output.line(f"{style.dim('settings')}  the broker's defaults")
    for count, text in (
        (summary["without_leader"], "no leader"),
        (summary["under_replicated"], "replicas out of sync"),
    ):
        if count:
            output.line(style.yellow(f"{units.plural(count, 'partition')} with {text}"))
    output.line()
    output.table(list(_columns(facts.partitions)), facts.partitions)


def _columns(rows: Sequence[dict[str, Any]]) -> Iterator[Column]:
    yield number("partition")
    yield Column("leader", right=True, show=lambda n: "none" if n is None else str(n), colour=_missing)
    yield Column("replicas")
    if any(row["isr"] != row["replicas"] for row in rows):
        yield Column("isr", "IN SYNC", colour=lambda isr: None if isr else "red")
    if any(row["offline"] for row in rows):
        yield Column("offline", colour=lambda nodes: "yellow" if nodes else None)
    yield number("earliest")
    yield number("latest")
    yield number("records")
    yield size("size")


def _missing(leader: object) -> str | None:
    return "red" if leader is None else None


def _is(name: str, row: dict[str, Any], facts: Facts) -> bool:
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
