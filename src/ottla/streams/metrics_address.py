"""Where a run serves its metrics, with which certificate, and what a scrape has to present.

The environment has the settings of a node's endpoint: `ottla.metrics.token` is OTTLA_METRICS_TOKEN, and so on.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.common.errors import KafkaError
from ottla.config import BrokerConfig, metrics_rows, parse_address
from ottla.streams.errors import StreamsError

if TYPE_CHECKING:
    from ottla.network.endpoint_tls import EndpointTls

_SETTINGS: Final = (
    metrics_rows.TOKEN,
    metrics_rows.KEYSTORE,
    metrics_rows.KEY_PASSWORD,
    metrics_rows.TRUSTSTORE,
    metrics_rows.CLIENT_AUTH,
)
_NAME: Final = re.compile(r"ottla\.metrics\.[a-z.]*[a-z]")


@dataclass(frozen=True)
class MetricsAddress:
    """The address of an endpoint, the token that each scrape has to present, and the TLS of HTTPS."""

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    tls: EndpointTls | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def metrics_address(what: str, text: str) -> MetricsAddress:
    """Return the address `host:port` with the token and the TLS of the environment.

    Raises StreamsError if it would be open to other machines, or if a file cannot be used.
    """
    from ottla.network.endpoint_tls import endpoint_tls  # needs ssl and asyncio, which other commands do without

    given = {name: value for name in _SETTINGS if (value := os.environ.get(variable(name)))}
    try:
        host, port = parse_address(text)
        config = BrokerConfig({"node.id": "1", **given})
        tls = endpoint_tls(config)
    except (ValueError, KafkaError) as error:
        raise StreamsError(f"{what}: {_NAME.sub(lambda name: f'${variable(name[0])}', str(error))}") from None
    token = config.text(metrics_rows.TOKEN)
    authenticates = token is not None or config.text(metrics_rows.CLIENT_AUTH) == "required"
    if not authenticates and not _is_loopback(host):
        raise StreamsError(
            f"{what}: {text} would be open to other machines without authentication: set ${TOKEN}, which each scrape"
            f" has to present, or ${variable(metrics_rows.CLIENT_AUTH)}=required, or listen on 127.0.0.1"
        )
    return MetricsAddress(host, port, token, tls)


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return name.upper().replace(".", "_")


TOKEN: Final = variable(metrics_rows.TOKEN)
KEYSTORE: Final = variable(metrics_rows.KEYSTORE)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
