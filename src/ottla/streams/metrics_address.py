"""Where a run serves its metrics, and which token a scrape has to present."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from typing import Final

from ottla.config import parse_address
from ottla.streams.errors import StreamsError

TOKEN: Final = "OTTLA_METRICS_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True)
class MetricsAddress:
    """The address of an endpoint, and the token that each scrape has to present."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def metrics_address(what: str, text: str) -> MetricsAddress:
    """Return the address `host:port` with the token of the environment. Raises StreamsError if it would be open."""
    token = os.environ.get(TOKEN) or None
    try:
        host, port = parse_address(text)
    except ValueError as error:
        raise StreamsError(f"{what}: {error}") from None
    if token is None and not _is_loopback(host):
        raise StreamsError(
            f"{what}: {text} would be open to other machines without authentication: set ${TOKEN}, which each scrape"
            " has to present, or listen on 127.0.0.1"
        )
    return MetricsAddress(host, port, token)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
