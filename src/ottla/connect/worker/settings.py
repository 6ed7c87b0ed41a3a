"""Settings of a worker that its tasks depend on, with stock's names (WorkerConfig, DistributedConfig of Kafka 4.3).

Two defaults differ: internal topics have the cluster's replication factor instead of 3, and a worker has converters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, between, one_of

_S, _L, _I, _B = SettingType.STRING, SettingType.LONG, SettingType.INT, SettingType.BOOLEAN
_HIGH, _LOW = Importance.HIGH, Importance.LOW
WORKER_SETTINGS: Final = ConfigDef(
    [
        Setting("bootstrap.servers", _S, "Some brokers of the cluster, as host:port.", "localhost:9092", _HIGH),
        Setting("group.id", _S, "The group of workers. Ids of transactions begin with it.", "connect-cluster", _HIGH),
        Setting("key.converter", SettingType.CLASS, "The converter of keys.", "JsonConverter", _HIGH),
        Setting("value.converter", SettingType.CLASS, "The converter of values.", "JsonConverter", _HIGH),
        Setting("header.converter", SettingType.CLASS, "The converter of headers.", "SimpleHeaderConverter", _LOW),
        Setting("offset.storage.topic", _S, "The topic of source offsets.", "connect-offsets", _HIGH),
        Setting("offset.storage.partitions", _I, "The partitions of a new topic of source offsets.", 25, _LOW,
                between(1)),
        Setting("offset.storage.replication.factor", SettingType.SHORT,
                "The replicas of a new topic of source offsets; -1: the cluster's default.", -1, _LOW),
        Setting("offset.flush.interval.ms", _L, "How often offsets are committed.", 60_000, _LOW, between(1)),
        Setting("offset.flush.timeout.ms", _L, "How long a commit waits for records and offsets.", 5_000, _LOW,
                between(1)),
        Setting("task.shutdown.graceful.timeout.ms", _L, "How long tasks may take to stop, all together.", 5_000, _LOW,
                between(1)),
        Setting("exactly.once.source.support", _S, "enabled: sources write records and offsets in transactions.",
                "disabled", _HIGH, one_of("disabled", "preparing", "enabled", ignore_case=True)),
        Setting("topic.creation.enable", _B, "Whether sources may create topics by topic.creation.*", True, _LOW),
        Setting("topic.tracking.enable", _B, "Whether the topics of each connector are recorded.", True, _LOW),
        Setting("config.providers", SettingType.LIST, "Names of providers of values in configurations.",
                ["env", "file", "dir"], _LOW),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class WorkerSettings:
    """Parsed settings; times in ms. `given` has all settings as texts, with the settings of clients."""

    group_id: str
    offsets_topic: str
    offsets_partitions: int
    offsets_replication_factor: int
    flush_interval_ms: int
    flush_timeout_ms: int
    shutdown_timeout_ms: int
    exactly_once: bool
    creates_topics: bool
    given: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> WorkerSettings:
        """Parse settings. Raises SettingError."""
        values: dict[str, Any] = WORKER_SETTINGS.parse(given)
        return cls(
            group_id=values["group.id"],
            offsets_topic=values["offset.storage.topic"],
            offsets_partitions=values["offset.storage.partitions"],
            offsets_replication_factor=values["offset.storage.replication.factor"],
            flush_interval_ms=values["offset.flush.interval.ms"],
            flush_timeout_ms=values["offset.flush.timeout.ms"],
            shutdown_timeout_ms=values["task.shutdown.graceful.timeout.ms"],
            exactly_once=values["exactly.once.source.support"].lower() == "enabled",
            creates_topics=values["topic.creation.enable"],
            given=given,
        )

    def get(self, name: str) -> str:
        """Return a setting as text, or its default."""
        default = WORKER_SETTINGS[name].default
        return self.given.get(name, default)
