"""Settings of all connectors that tasks depend on. The herder has the definitions, and has validated them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.connect.config.definition import SettingError, SettingType, parsed


def setting(config: Mapping[str, str], name: str, kind: SettingType, default: Any) -> Any:
    """Return a parsed setting. Raises SettingError."""
    given = config.get(name)
    return default if given is None else parsed(name, given, kind)


@dataclass(frozen=True)
class ErrorSettings:
    """How errors of single records are handled (KIP-298); times in ms."""

    retry_timeout_ms: int = 0
    """-1: without end."""
    max_delay_ms: int = 60_000
    tolerates: bool = False
    logs: bool = False
    logs_records: bool = False
    dead_letter_topic: str = ""
    dead_letter_replicas: int = 3
    dead_letter_context: bool = False

    @classmethod
    def read(cls, config: Mapping[str, str]) -> ErrorSettings:
        """Parse the settings `errors.*`. Raises SettingError."""
        tolerance = setting(config, "errors.tolerance", SettingType.STRING, "none")
        if tolerance not in ("none", "all"):
            raise SettingError(f"Invalid value {tolerance} for configuration errors.tolerance: none or all")
        queue = "errors.deadletterqueue."
        return cls(
            setting(config, "errors.retry.timeout", SettingType.LONG, 0),
            setting(config, "errors.retry.delay.max.ms", SettingType.LONG, 60_000),
            tolerance == "all",
            setting(config, "errors.log.enable", SettingType.BOOLEAN, False),
            setting(config, "errors.log.include.messages", SettingType.BOOLEAN, False),
            setting(config, f"{queue}topic.name", SettingType.STRING, ""),
            setting(config, f"{queue}topic.replication.factor", SettingType.SHORT, 3),
            setting(config, f"{queue}context.headers.enable", SettingType.BOOLEAN, False),
        )


@dataclass(frozen=True)
class SourceSettings:
    """Settings of sources; times in ms."""

    boundary: str = "poll"
    boundary_interval_ms: int | None = None
    offsets_topic: str | None = None

    @classmethod
    def read(cls, config: Mapping[str, str]) -> SourceSettings:
        """Parse the settings of a source. Raises SettingError."""
        boundary = setting(config, "transaction.boundary", SettingType.STRING, "poll").lower()
        if boundary not in ("poll", "interval", "connector"):
            raise SettingError(
                f"Invalid value {boundary} for configuration transaction.boundary: poll, interval or connector"
            )
        return cls(
            boundary,
            setting(config, "transaction.boundary.interval.ms", SettingType.LONG, None),
            setting(config, "offsets.storage.topic", SettingType.STRING, None),
        )
