"""How the topics of the coordinators are created, from the broker's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.common.ids import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from ottla.common.values import value


@value
class _Names:
    """The settings' names, and the topic's fixed settings."""

    partitions: str
    replication_factor: str
    segment_bytes: str
    configs: Mapping[str, str]
    min_isr: str | None = None


INTERNAL_TOPIC_SETTINGS = {
    OFFSETS_TOPIC: _Names(
        partitions="offsets.topic.num.partitions",
        replication_factor="offsets.topic.replication.factor",
        segment_bytes="offsets.topic.segment.bytes",
        configs={"cleanup.policy": "compact", "compression.type": "producer"},
    ),
    TRANSACTIONS_TOPIC: _Names(
        partitions="transaction.state.log.num.partitions",
        replication_factor="transaction.state.log.replication.factor",
        segment_bytes="transaction.state.log.segment.bytes",
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
        min_isr="transaction.state.log.min.isr",
    ),
    SHARE_STATE_TOPIC: _Names(
        partitions="share.coordinator.state.topic.num.partitions",
        replication_factor="share.coordinator.state.topic.replication.factor",
        segment_bytes="share.coordinator.state.topic.segment.bytes",
        configs={"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        min_isr="share.coordinator.state.topic.min.isr",
    ),
}


@value
class InternalTopicSettings:
    """How one topic is created."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, str]

    @classmethod
    def of(cls, topic: str, setting: Callable[[str], object]) -> InternalTopicSettings:
        """Read the settings with `setting(name)`, by Kafka's names. Raises KeyError for another topic."""
        names = INTERNAL_TOPIC_SETTINGS[topic]
        configs = {**names.configs, "segment.bytes": str(setting(names.segment_bytes))}
        if names.min_isr is not None:
            configs["min.insync.replicas"] = str(setting(names.min_isr))
        return cls(
            partitions=int(str(setting(names.partitions))),
            replication_factor=int(str(setting(names.replication_factor))),
            configs=configs,
        )
