"""The consumer's settings: Kafka's names, units and defaults, followed by a few settings of our own.

`read_settings` returns every option by its Pythonic name, which the network layer uses, and `ConsumerSettings`, the
typed values that the consumer's own code uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.cluster import Backoff
from ottla.clients.consumer.assignors import ASSIGNORS, Assignor
from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS, INT_MAX, Option, read_options
from ottla.clients.reader_reports import metadata_of

EARLIEST, LATEST = -2, -1
RESET_TIMESTAMPS: Final = {"earliest": EARLIEST, "latest": LATEST, "none": None}

CONSUMER_OPTIONS: Final[tuple[Option, ...]] = (
    *COMMON_OPTIONS,
    Option("group.id", "str", None, "The group that shares the topics and stores committed offsets; None: no group."),
    Option(
        "group.instance.id", "str", None,
        "Makes the member static: a restart within the session timeout causes no rebalance.",
    ),
    Option(
        "group.protocol", "str", "classic",
        "consumer: the broker assigns the partitions (KIP-848, Kafka 4.0 or newer); classic: the members do.",
        choices=("classic", "consumer"),
    ),
    Option(
        "group.remote.assignor", "str", None,
        "The assignor of the broker for group.protocol=consumer: uniform, range; None: the broker chooses.",
    ),
    Option(
        "partition.assignment.strategy", "object", "range,cooperative-sticky",
        "Assignors by name or as Assignor objects, the preferred first; all members need one in common.",
    ),
    Option(
        "session.timeout.ms", "int", 45_000, "A member without a heartbeat for this long is removed from its group.",
        low=1, high=INT_MAX,
    ),
    Option("heartbeat.interval.ms", "int", 3_000, "How often a heartbeat is sent; at most a third of the session."),
    Option(
        "max.poll.interval.ms", "int", 300_000, "A member that does not poll for this long leaves its group.",
        low=1, high=INT_MAX,
    ),
    Option("enable.auto.commit", "bool", True, "Commit the positions after earlier polls in the background."),
    Option(
        "enable.auto.offset.store", "bool", True,
        "Whether the records of earlier polls count as processed; false: only those given to store_offsets().",
    ),
    Option("auto.commit.interval.ms", "int", 5_000, "The interval of automatic commits.", low=0),
    Option(
        "auto.offset.reset", "str", "latest", "Where to begin without a committed offset.",
        choices=("earliest", "latest", "none"),
    ),
    Option(
        "isolation.level", "str", "read_uncommitted", "Whether records of open and aborted transactions are returned.",
        choices=("read_uncommitted", "read_committed"),
    ),
    Option("fetch.min.bytes", "int", 1, "A broker waits for this many bytes, or until fetch.max.wait.ms.", low=0),
    Option("fetch.max.wait.ms", "int", 500, "How long a broker may wait for fetch.min.bytes.", low=0),
    Option("fetch.max.bytes", "int", 4_194_304, "The maximum size of a fetch response.", low=1, high=INT_MAX),
    Option("max.partition.fetch.bytes", "int", 1_048_576, "The maximum size of one partition in a fetch.", low=1),
    Option("max.poll.records", "int", 500, "The maximum number of records that one poll returns.", low=1),
    Option("check.crcs", "bool", True, "Whether the checksum of each batch is verified."),
    Option("client.rack", "str", "", "The rack of this client: a replica in the same rack may serve it (KIP-392)."),
    Option("allow.auto.create.topics", "bool", True, "Whether a request for a topic's metadata may create the topic."),
    Option("exclude.internal.topics", "bool", True, "Whether a pattern excludes the cluster's internal topics."),
    Option("key.deserializer", "object", None, 'A function of bytes, or a format: "string", "json", "int64", ...'),
    Option("value.deserializer", "object", None, 'A function of bytes, or a format: "string", "json", "int64", ...'),
    Option(
        "on.deserialization.error", "str", "raise",
        "Whether poll raises DeserializationFailed, once, or logs the record and skips it.",
        choices=("raise", "skip"),
    ),
    Option(
        "on.problem", "str", "log",
        "Whether poll also raises, once, what the consumer retries: an unreachable broker, an unknown topic.",
        choices=("log", "raise"),
    ),
    Option("queued.max.bytes", "int", 67_108_864, "The maximum number of fetched bytes that wait for a poll.", low=1),
    Option(
        "on.corrupt.records", "str", "raise",
        "Whether poll raises CorruptRecords, or logs the corrupt batch and skips it.",
        choices=("raise", "skip"),
    ),
)  # fmt: skip


_UNUSED: Final = {
    "classic": (("group.remote.assignor",), "set partition.assignment.strategy"),
    "consumer": (
        ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"),
        "the brokers' group.consumer.* settings (and group.remote.assignor) take its place",
    ),
}
"""The settings that a protocol does not use, and what takes their place."""


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Settings of the fetch core, which knows nothing of groups; times in ms, sizes in bytes."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int
    max_buffered_bytes: int
    isolation_level: int
    """0 is read_uncommitted, 1 read_committed."""
    rack: str
    check_crcs: bool
    skip_corrupt: bool
    reset_timestamp: int | None
    """Where a partition without a position starts; None is an error."""
    request_timeout_ms: int
    metadata_max_age_ms: int
    backoff: Backoff


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a consumer takes part in its group; times in ms."""

    group_id: str
    assignors: tuple[Assignor, ...]
    backoff: Backoff
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    auto_commit_interval_ms: int | None = 5_000
    """None: nothing is committed automatically."""
    rack: str = ""
    is_broker_assigned: bool = False
    """Whether the broker assigns the partitions (group.protocol=consumer)."""
    remote_assignor: str | None = None
    commit_metadata: str = ""
    """The metadata of committed offsets that have none: the report of the reader's schemas."""

    @property
    def cooperative(self) -> bool:
        """Whether the member keeps its partitions during a rebalance: only if all its assignors allow that."""
        return all(assignor.cooperative for assignor in self.assignors)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Everything that the consumer's own code reads; times in ms."""

    fetch: FetchSettings
    group: GroupSettings | None
    stores_offsets: bool
    """Whether the records of earlier polls count as processed (enable.auto.offset.store)."""
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    max_poll_records: int
    request_timeout_ms: int
    api_timeout_ms: int
    raise_problems: bool
    skip_deserialization_errors: bool

    @property
    def group_id(self) -> str | None:
        return None if self.group is None else self.group.group_id


def read_settings(given: Mapping[str, object]) -> tuple[dict[str, Any], ConsumerSettings]:
    """Return all options by Pythonic name, and the typed settings. Raises ConfigurationError."""
    options = read_options(CONSUMER_OPTIONS, given)
    _check_protocol(options, given)
    backoff = Backoff(options["retry_backoff_ms"], options["retry_backoff_max_ms"])
    return options, ConsumerSettings(
        fetch=_fetch_settings(options, backoff),
        group=_group_settings(options, backoff),
        stores_offsets=options["enable_auto_offset_store"],
        exclude_internal_topics=options["exclude_internal_topics"],
        allow_auto_create_topics=options["allow_auto_create_topics"],
        max_poll_records=options["max_poll_records"],
        request_timeout_ms=options["request_timeout_ms"],
        api_timeout_ms=options["default_api_timeout_ms"],
        raise_problems=options["on_problem"] == "raise",
        skip_deserialization_errors=options["on_deserialization_error"] == "skip",
    )


def _fetch_settings(options: Mapping[str, Any], backoff: Backoff) -> FetchSettings:
    return FetchSettings(
        min_bytes=options["fetch_min_bytes"],
        max_wait_ms=options["fetch_max_wait_ms"],
        max_bytes=options["fetch_max_bytes"],
        max_partition_bytes=options["max_partition_fetch_bytes"],
        max_buffered_bytes=options["queued_max_bytes"],
        isolation_level=int(options["isolation_level"] == "read_committed"),
        rack=options["client_rack"],
        check_crcs=options["check_crcs"],
        skip_corrupt=options["on_corrupt_records"] == "skip",
        reset_timestamp=RESET_TIMESTAMPS[options["auto_offset_reset"]],
        request_timeout_ms=options["request_timeout_ms"],
        metadata_max_age_ms=options["metadata_max_age_ms"],
        backoff=backoff,
    )


def _group_settings(options: Mapping[str, Any], backoff: Backoff) -> GroupSettings | None:
    assignors = _read_assignors(options["partition_assignment_strategy"])
    heartbeat_ms, session_ms = options["heartbeat_interval_ms"], options["session_timeout_ms"]
    if heartbeat_ms >= session_ms:
        raise ConfigurationError(
            f"heartbeat.interval.ms ({heartbeat_ms}) must be less than session.timeout.ms ({session_ms}); a third of "
            "it is usual"
        )
    if not options["group_id"]:
        if options["group_instance_id"]:
            raise ConfigurationError("group.instance.id needs a group.id")
        return None
    return GroupSettings(
        group_id=options["group_id"],
        assignors=assignors,
        backoff=backoff,
        instance_id=options["group_instance_id"] or None,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        max_poll_interval_ms=options["max_poll_interval_ms"],
        auto_commit_interval_ms=options["auto_commit_interval_ms"] if options["enable_auto_commit"] else None,
        rack=options["client_rack"],
        is_broker_assigned=options["group_protocol"] == "consumer",
        remote_assignor=options["group_remote_assignor"] or None,
        commit_metadata=metadata_of({part: options[f"{part}_deserializer"] for part in ("key", "value")}),
    )


def _check_protocol(options: Mapping[str, Any], given: Mapping[str, object]) -> None:
    """Reject the settings that the protocol of the group does not use."""
    protocol = options["group_protocol"]
    unused, where = _UNUSED[protocol]
    for name in unused:
        if any(key.replace(".", "_") == name.replace(".", "_") and given[key] is not None for key in given):
            raise ConfigurationError(f"{name} cannot be set with group.protocol={protocol}: {where}")


def _read_assignors(value: object) -> tuple[Assignor, ...]:
    rows = value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
    assignors = []
    for row in rows:
        if isinstance(row, Assignor):
            assignors.append(row)
        elif isinstance(row, str) and row.strip() in ASSIGNORS:
            assignors.append(ASSIGNORS[row.strip()]())
        else:
            raise ConfigurationError(
                f"partition.assignment.strategy has {row!r}; it must be one of {', '.join(ASSIGNORS)} or an Assignor"
            )
    if not assignors:
        raise ConfigurationError("partition.assignment.strategy is empty")
    return tuple(assignors)
