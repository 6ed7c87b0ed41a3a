"""Ottla's own settings of a node's metrics and request log. Kafka has no equivalent, and ignores them."""

from ottla.config.server_setting import (
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    READ_ONLY,
    STRING,
    WORKS,
    ServerSetting,
)

LISTENER = "ottla.metrics.listener"
TOKEN = "ottla.metrics.token"  # noqa: S105 - the name of a setting

SLOW_REQUEST_MS = "ottla.request.log.slow.ms"

ROWS = (
    ServerSetting(LISTENER, STRING, None,
        "The HTTP endpoint of this node's metrics, as `host:port` (metrics.md); none if not set. An address that other "
        "machines can reach needs the token below, or `ottla.insecure=true`.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(TOKEN, PASSWORD, None,
        "The token that a scrape has to present, as `Authorization: Bearer TOKEN`; none if not set.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(SLOW_REQUEST_MS, LONG, -1,
        "The node logs each request that took this many milliseconds or longer (logging.md); -1: none.",
        LOW, WORKS, READ_ONLY, low=-1),
)  # fmt: skip
