"""The settings of a client's connections as typed data, read from its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.clients.events import Event
from ottla.clients.options import parse_servers
from ottla.clients.security import Security, read_security


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The settings of `network.Cluster`. Times are in ms; `servers` are host and port of each bootstrap server."""

    servers: tuple[tuple[str, int], ...]
    client_id: str
    request_timeout_ms: int
    connection_setup_timeout_ms: int
    connections_max_idle_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    statistics_interval_ms: int
    on_event: Callable[[Event], object] | None
    security: Security


def read_network_settings(options: Mapping[str, Any]) -> NetworkSettings:
    """Select the network settings from read options (see `options.COMMON_OPTIONS`).

    Reads the key files that they name. Raises ConfigurationError.
    """
    return NetworkSettings(
        servers=tuple(parse_servers(options["bootstrap_servers"])),
        client_id=options["client_id"],
        request_timeout_ms=options["request_timeout_ms"],
        connection_setup_timeout_ms=options["socket_connection_setup_timeout_ms"],
        connections_max_idle_ms=options["connections_max_idle_ms"],
        reconnect_backoff_ms=options["reconnect_backoff_ms"],
        reconnect_backoff_max_ms=options["reconnect_backoff_max_ms"],
        retry_backoff_ms=options["retry_backoff_ms"],
        retry_backoff_max_ms=options["retry_backoff_max_ms"],
        metadata_max_age_ms=options["metadata_max_age_ms"],
        statistics_interval_ms=options["statistics_interval_ms"],
        on_event=options["on_event"],
        security=read_security(options),
    )
