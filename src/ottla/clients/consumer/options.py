"""The consumer's settings: Kafka's names and defaults, and a few of our own at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.clients.consumer.assignors import ASSIGNORS, Assignor
from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS, INT_MAX, Option, read_options

RESETS: Final = {"earliest": -2, "latest": -1, "none": None}

CONSUMER_OPTIONS: Final[tuple[Option, ...]] = (
    *COMMON_OPTIONS,
    Option("group.id", "str", None, "The group that shares the topics and keeps the positions; None: no group."),
    Option("group.instance.id", "str", None, "Makes the member static: a restart within the session moves nothing."),
    Option(
        "partition.assignment.strategy", "object", "range,cooperative-sticky",
        "Assignors by name or as Assignor objects, the preferred first; all members need one in common.",
    ),
    Option("session.timeout.ms", "int", 45_000, "Without a heartbeat for so long it is out.", low=1, high=INT_MAX),
    Option("heartbeat.interval.ms", "int", 3_000, "How often a heartbeat is sent; at most a third of the session."),
    Option(
        "max.poll.interval.ms", "int", 300_000, "A member that does not poll for so long leaves its group.",
        low=1, high=INT_MAX,
    ),
    Option("enable.auto.commit", "bool", True, "Commit what earlier polls handed over, in the background."),
    Option(
        "enable.auto.offset.store", "bool", True,
        "Whether what earlier polls handed over counts as processed; false: only what store_offsets() was given.",
    ),
    Option("auto.commit.interval.ms", "int", 5_000, "How often that is done.", low=0),
    Option(
        "auto.offset.reset", "str", "latest", "Where to begin without a committed offset.",
        choices=("earliest", "latest", "none"),
    ),
    Option(
        "isolation.level", "str", "read_uncommitted", "Whether records of open and aborted transactions are seen.",
        choices=("read_uncommitted", "read_committed"),
    ),
    Option("fetch.min.bytes", "int", 1, "A broker waits until it has so much, or fetch.max.wait.ms.", low=0),
    Option("fetch.max.wait.ms", "int", 500, "How long a broker may wait for fetch.min.bytes.", low=0),
    Option("fetch.max.bytes", "int", 4_194_304, "The most bytes of one fetch.", low=1, high=INT_MAX),
    Option("max.partition.fetch.bytes", "int", 1_048_576, "The most bytes of one partition in one fetch.", low=1),
    Option("max.poll.records", "int", 500, "The most records that one poll hands over.", low=1),
    Option("check.crcs", "bool", True, "Whether the checksum of each batch is verified."),
    Option("client.rack", "str", "", "Where this client is: a replica in the same rack may serve it (KIP-392)."),
    Option("allow.auto.create.topics", "bool", True, "Whether asking for a topic may create it."),
    Option("exclude.internal.topics", "bool", True, "Whether a pattern leaves out the cluster's own topics."),
    Option("key.deserializer", "object", None, 'A function of bytes, or a format: "string", "json", "int64", ...'),
    Option("value.deserializer", "object", None, 'A function of bytes, or a format: "string", "json", "int64", ...'),
    Option(
        "on.deserialization.error", "str", "raise",
        "Whether poll raises DeserializationFailed, once, or logs the record and leaves it out.",
        choices=("raise", "skip"),
    ),
    Option(
        "on.problem", "str", "log",
        "Whether poll also raises, once, what the consumer retries: an unreachable broker, an unknown topic.",
        choices=("log", "raise"),
    ),
    Option("queued.max.bytes", "int", 67_108_864, "Fetched bytes that may wait to be polled.", low=1),
    Option(
        "on.corrupt.records", "str", "raise", "Whether poll raises CorruptRecords or logs and goes on after the batch.",
        choices=("raise", "skip"),
    ),
)  # fmt: skip


def read_consumer_options(given: Mapping[str, object]) -> dict[str, Any]:
    """The settings by Pythonic name, checked; `partition_assignment_strategy` becomes a list of Assignor."""
    options = read_options(CONSUMER_OPTIONS, given)
    options["partition_assignment_strategy"] = _read_assignors(options["partition_assignment_strategy"])
    if options["heartbeat_interval_ms"] >= options["session_timeout_ms"]:
        raise ConfigurationError(
            f"heartbeat.interval.ms ({options['heartbeat_interval_ms']}) must be less than session.timeout.ms "
            f"({options['session_timeout_ms']}); a third of it is usual"
        )
    if options["group_instance_id"] and not options["group_id"]:
        raise ConfigurationError("group.instance.id needs a group.id")
    return options


def _read_assignors(value: object) -> list[Assignor]:
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
    return assignors
