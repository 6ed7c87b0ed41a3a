"""The settings of an admin client as typed data, read from the arguments of its constructor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.clients.network_settings import NetworkSettings, read_network_settings
from ottla.clients.options import ADMIN_OPTIONS, merged, read_options


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The settings of `shell.Shell`; times in ms."""

    network: NetworkSettings
    api_timeout_ms: int
    pushes_metrics: bool


def read_settings(
    bootstrap_servers: str | Sequence[str] | Mapping[str, object] | None,
    config: Mapping[str, object] | None,
    keywords: Mapping[str, object],
) -> AdminSettings:
    """Merge the arguments of the constructor and read them. Raises ConfigurationError."""
    if isinstance(bootstrap_servers, Mapping):
        config, bootstrap_servers = merged(config, bootstrap_servers), None
    given = merged(config, keywords)
    if bootstrap_servers is not None:
        given["bootstrap_servers"] = bootstrap_servers
    options = read_options(ADMIN_OPTIONS, given)
    return AdminSettings(
        read_network_settings(options), options["default_api_timeout_ms"], options["enable_metrics_push"]
    )
