"""Ottla's own settings of a node's metrics, probes and request log. Kafka has no equivalent, and ignores them."""

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
SSL_PREFIX = "ottla.metrics."
"""Before the names of Kafka's settings of TLS."""
KEYSTORE = "ottla.metrics.ssl.keystore.location"
KEY_PASSWORD = "ottla.metrics.ssl.key.password"  # noqa: S105 - the name of a setting
TRUSTSTORE = "ottla.metrics.ssl.truststore.location"
CLIENT_AUTH = "ottla.metrics.ssl.client.auth"

HEALTH_LISTENER = "ottla.health.listener"

SLOW_REQUEST_MS = "ottla.request.log.slow.ms"

ROWS = (
    ServerSetting(LISTENER, STRING, None,
        "The HTTP endpoint of this node's metrics, as `host:port` (metrics.md); none if not set. An address that other "
        "machines can reach needs the token or the certificates below, or `ottla.insecure=true`.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(CLIENT_AUTH, STRING, "none",
        "Whether a scrape needs a certificate that the authorities below have signed: required, requested or none.",
        MEDIUM, WORKS, READ_ONLY, choices=("required", "requested", "none")),
    ServerSetting(KEY_PASSWORD, PASSWORD, None,
        "The password of the private key below.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(KEYSTORE, STRING, None,
        "The PEM file with the private key and the certificate chain of the endpoint, which then needs HTTPS; plain "
        "HTTP if not set.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(TRUSTSTORE, STRING, None,
        "The PEM file of the authorities that sign the certificates of scrapes.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(TOKEN, PASSWORD, None,
        "The token that a scrape has to present, as `Authorization: Bearer TOKEN`; none if not set.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(HEALTH_LISTENER, STRING, None,
        "The HTTP endpoint of this node's probes, as `host:port` (operations.md): /health/live and /health/ready, "
        "without authentication and without names of topics; none if not set.",
        MEDIUM, WORKS, READ_ONLY),
    ServerSetting(SLOW_REQUEST_MS, LONG, -1,
        "The node logs each request that took this many milliseconds or longer (logging.md); -1: none.",
        LOW, WORKS, READ_ONLY, low=-1),
)  # fmt: skip
