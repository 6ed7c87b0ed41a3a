"""The settings of a topic, as its partitions use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.ids import INTERNAL_TOPICS
from ottla.common.values import value
from ottla.log.config import LogConfig
from ottla.metadata.mirrors import FAILBACK, MIRROR_SETTING, STATE_SETTING, is_read_only
from ottla.records import ProduceRules
from ottla.records.contract import WHOLE_RECORD, Contract


class Refusal(NamedTuple):
    """The error for clients that write to a topic."""

    code: ErrorCode
    text: str
    is_copy: bool = False
    """Whether the records come from another cluster, so that none of this cluster's transactions is in the log."""


@value
class TopicSettings:
    """The values of a topic's settings, which all its partitions share."""

    log: LogConfig
    rules: ProduceRules
    min_insync_replicas: int
    refusal: Refusal | None

    @classmethod
    def of(cls, topic: str, values: dict[str, object]) -> TopicSettings:
        """Read the effective settings `values`, by Kafka's names."""
        min_insync_replicas = int_value(values, "min.insync.replicas")
        rules = produce_rules(topic, values)
        return cls(LogConfig.from_topic_config(values), rules, min_insync_replicas, refusal_of(topic, values))


def refusal_of(topic: str, values: Mapping[str, object]) -> Refusal | None:
    """The error for clients that write to a topic with these settings; None if they may."""
    if topic in INTERNAL_TOPICS:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {topic}")
    if is_read_only(values):
        # Clients do not know Kafka's future READ_ONLY_TOPIC, and do not retry this.
        text = f"Topic {topic} is read-only: mirror {values[MIRROR_SETTING]} copies it from another cluster"
        # A failback that waits has copied nothing yet, and may be taken back: transactions of this cluster go on.
        return Refusal(ErrorCode.POLICY_VIOLATION, text, is_copy=values.get(STATE_SETTING) != FAILBACK)
    return None


def int_value(values: dict[str, object], name: str) -> int:
    """An integer setting from typed values."""
    value = values[name]
    if not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}, not a whole number")
    return value


def produce_rules(topic: str, values: dict[str, object]) -> ProduceRules:
    """The rules for batches that are produced to this topic."""
    compression = str(values["compression.type"])
    level = values.get(f"compression.{compression}.level")
    policies = values["cleanup.policy"]
    return ProduceRules(
        topic=topic,
        max_message_bytes=int_value(values, "max.message.bytes"),
        compression_type=compression,
        compression_level=level if isinstance(level, int) else None,
        timestamp_type=str(values["message.timestamp.type"]),
        before_max_ms=int_value(values, "message.timestamp.before.max.ms"),
        after_max_ms=int_value(values, "message.timestamp.after.max.ms"),
        compacted=isinstance(policies, (list, tuple, frozenset, set)) and "compact" in policies,
        contract=_contract(topic, values),
    )


def _contract(topic: str, values: dict[str, object]) -> Contract | None:
    """The schemas that records of this topic must have, if it has schema validation."""
    checks_keys = values["confluent.key.schema.validation"]
    checks_values = values["confluent.value.schema.validation"]
    if not (checks_keys or checks_values):
        return None
    return Contract(
        topic,
        _last_part(values["confluent.key.subject.name.strategy"]) if checks_keys else "",
        _last_part(values["confluent.value.subject.name.strategy"]) if checks_values else "",
        mode=str(values["ottla.schema.validation.mode"]),
        whole_record=values["ottla.schema.validation.depth"] == WHOLE_RECORD,
        dead_letter_topic=str(values["ottla.schema.validation.dlq.topic"]),
    )


def _last_part(class_name: object) -> str:
    return str(class_name).rpartition(".")[2]
