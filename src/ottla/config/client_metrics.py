"""The rules for the settings of client metrics (KIP-714), with Kafka's errors and messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.expressions import Matcher, compile_expression
from ottla.config.client_metrics_rows import INTERVAL_MS, MATCH
from ottla.config.settings import CLIENT_METRICS_SETTINGS, parse_value
from ottla.config.values import Value

SELECTORS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_INTERVALS_MS: Final = range(100, 3_600_001)


def check_client_metrics(changes: Mapping[str, str]) -> None:
    """Raise INVALID_REQUEST or INVALID_CONFIG unless a subscription may have these settings."""
    for name in changes:
        if name not in CLIENT_METRICS_SETTINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name[:249]}")
    values = client_metrics_values(changes)
    interval_ms = values[INTERVAL_MS]
    if interval_ms not in _INTERVALS_MS:
        text = f"Invalid value {interval_ms} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    match = values[MATCH]
    matchers(match if isinstance(match, tuple) else ())


def client_metrics_values(configs: Mapping[str, str]) -> dict[str, Value]:
    """Return the value of each setting. Raises INVALID_CONFIG for a text that has not its type."""
    return {
        name: parse_value(setting, configs[name]) if name in configs else setting.default
        for name, setting in CLIENT_METRICS_SETTINGS.items()
    }


def matchers(selectors: Iterable[str]) -> dict[str, Matcher]:
    """Return the expression of each selector `NAME=REGEX`; the last one of a name wins. Raises INVALID_CONFIG.

    Kafka compiles them with Java's syntax. Here they have the syntax of RE2, so that a client cannot choose a name that
    takes long to compare: lookaround and references to groups are errors.
    """
    found: dict[str, Matcher] = {}
    for selector in selectors:
        # Java's `split` ignores empty parts at the end.
        name, _, regex = selector.rstrip("=").partition("=")
        if name.strip() not in SELECTORS or not regex or "=" in regex:
            raise _illegal(selector)
        try:
            found[name.strip()] = compile_expression(regex.strip(), name.strip())
        except KafkaError as error:
            raise _illegal(selector) from error
    return found


def _illegal(selector: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {selector[:1000]}")
