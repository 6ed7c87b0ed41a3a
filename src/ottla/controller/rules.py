"""The interface through which the controller validates settings, so that it does not depend on their table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class DescribedConfig(NamedTuple):
    """One effective setting as a response shows it; `source` is Kafka's number of ConfigSource."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool


class ConfigRules(Protocol):
    """Names, types and bounds of settings, per kind of resource (2 topic, 4 broker, 16 client metrics, 32 group)."""

    def validate(
        self,
        kind: int,
        name: str,
        configs: Mapping[str, str],
        changed: frozenset[str],
        broker: Mapping[str, str],
        cluster: Mapping[str, str],
    ) -> None:
        """Check the resource's future settings; `changed` are the names that the request changes.

        `broker` and `cluster` are the present dynamic settings of this broker and of all brokers. Raises KafkaError:
        INVALID_CONFIG for a wrong value, an unknown name or contradicting values, INVALID_REQUEST for a resource or
        setting that cannot be changed.
        """
        ...

    def is_list(self, kind: int, key: str) -> bool | None:
        """Whether the setting is a list, to which values can be appended; None for an unknown name."""
        ...

    def default(self, kind: int, key: str) -> str | None:
        """The default value of the setting."""
        ...

    def describe_topic(
        self, configs: Mapping[str, str], broker: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[DescribedConfig]:
        """All effective settings of a topic, given its own and the dynamic ones of the broker and of all brokers."""
        ...
