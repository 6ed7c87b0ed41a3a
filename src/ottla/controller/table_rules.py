"""`ConfigRules` over the table of settings: what the controller uses outside of tests."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.common.errors import ErrorCode
from ottla.config import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    Setting,
    check_broker,
    check_broker_name,
    check_group,
    check_group_together,
    check_topic,
    check_topic_together,
    resolve_group,
    resolve_topic,
)
from ottla.controller.rules import DescribedConfig
from ottla.controller.state import refuse
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC

_TABLES: dict[int, dict[str, Setting]] = {TOPIC: TOPIC_SETTINGS, BROKER: BROKER_SETTINGS, GROUP: GROUP_SETTINGS}

CLIENT_METRICS_DEFAULTS = {"interval.ms": "300000", "match": "", "metrics": ""}
MIN_PUSH_INTERVAL_MS, MAX_PUSH_INTERVAL_MS = 100, 3_600_000
_MATCHED = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class TableRules:
    """The rules of a broker with this static configuration."""

    def __init__(self, static: BrokerConfig) -> None:
        self._static = static

    def validate(self, kind: int, name: str, configs: Mapping[str, str], changed: frozenset[str]) -> None:
        """Raise KafkaError unless the resource may have these settings."""
        if kind == TOPIC:
            for key, text in configs.items():
                check_topic(key, text)
            check_topic_together(resolve_topic(configs, {}, {}, self._static))
        elif kind == BROKER:
            self._validate_broker(configs, changed, cluster_wide=not name)
        elif kind == GROUP:
            for key, text in configs.items():
                check_group(key, text)
            check_group_together(resolve_group(configs, {}, {}, self._static), self._static)
        elif kind == CLIENT_METRICS:
            _validate_client_metrics(configs)

    def _validate_broker(self, configs: Mapping[str, str], changed: frozenset[str], *, cluster_wide: bool) -> None:
        for key in sorted(changed):
            text = configs.get(key)
            if text is None:
                check_broker_name(key, cluster_wide=cluster_wide)
            else:
                check_broker(key, text, cluster_wide=cluster_wide)

    def is_list(self, kind: int, key: str) -> bool:
        """Whether values can be appended to the setting."""
        if kind == CLIENT_METRICS:
            return key in ("match", "metrics")
        setting = _TABLES.get(kind, {}).get(key)
        return setting is not None and setting.type == "list"

    def default(self, kind: int, key: str) -> str | None:
        """The setting if nobody changed it while the broker runs."""
        if kind == BROKER:
            static = self._static.static.get(key)
            if static is not None:
                return static
        if kind == TOPIC:
            resolved = resolve_topic({}, {}, {}, self._static).get(key)
            return resolved.text if resolved is not None else None
        setting = _TABLES.get(kind, {}).get(key)
        return setting.default_text if setting is not None else None

    def describe_topic(
        self, configs: Mapping[str, str], broker: Mapping[str, str], cluster: Mapping[str, str]
    ) -> list[DescribedConfig]:
        """All effective settings of a topic."""
        resolved = resolve_topic(configs, broker, cluster, self._static)
        return [
            DescribedConfig(name, entry.text, False, int(entry.source), entry.is_sensitive)
            for name, entry in resolved.items()
        ]


def _validate_client_metrics(configs: Mapping[str, str]) -> None:
    """KIP-714: how often which clients push which metrics."""
    for key, text in configs.items():
        if key not in CLIENT_METRICS_DEFAULTS:
            refuse(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        if key == "interval.ms":
            if not text.isdecimal() or not MIN_PUSH_INTERVAL_MS <= int(text) <= MAX_PUSH_INTERVAL_MS:
                refuse(
                    ErrorCode.INVALID_REQUEST,
                    f"Invalid value {text} for interval.ms, interval must be between {MIN_PUSH_INTERVAL_MS} and "
                    f"{MAX_PUSH_INTERVAL_MS} (1 hour)",
                )
        elif key == "match":
            for pattern in filter(None, (part.strip() for part in text.split(","))):
                _validate_match(pattern)


def _validate_match(pattern: str) -> None:
    field, equals, expression = pattern.partition("=")
    if not equals or field.strip() not in _MATCHED:
        refuse(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    try:
        re.compile(expression.strip())
    except re.error:
        refuse(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
