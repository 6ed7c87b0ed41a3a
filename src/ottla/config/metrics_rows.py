"""Ottla's own settings of a node's metrics. Kafka has no equivalent, and ignores them."""

from ottla.config.server_setting import (
    MEDIUM,
    PASSWORD,
    READ_ONLY,
    STRING,
    WORKS,
    ServerSetting,
)

LISTENER = "ottla.metrics.listener"
TOKEN = "ottla.metrics.token"  # noqa: S105 - the name of a setting

ROWS = (
    ServerSetting(LISTENER, STRING, None,
        "The HTTP endpoint of this node's metrics, as `host:port` (metrics.md); none if not set. An address that other "
        "machines can reach needs the token below, or `ottla.insecure=true`.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(TOKEN, PASSWORD, None,
        "The token that a scrape has to present, as `Authorization: Bearer TOKEN`; none if not set.",
        MEDIUM, WORKS, READ_ONLY),
)  # fmt: skip
