"""Settings of stock's workers that this worker does not have: refused, or accepted without an effect, with the reason.

`check` is called at the start of a worker. tests/connect/rest/test_stock_settings.py compares these tables, and the
settings that are in effect, with all settings of a stock worker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.connect.config.definition import SettingError

logger = logging.getLogger("ottla.connect.worker")

_JAVA_PLUGINS: Final = "connectors are Python classes: install their packages in the environment of the worker"
_METRICS: Final = "there are no Java metrics; `ottla connect why` and GET /connectors/C/reports show what tasks do"
_SOCKETS: Final = "the system sizes the buffers of sockets"
_TLS: Final = "OpenSSL chooses it"
_KERBEROS: Final = "it belongs to Kerberos (GSSAPI), which sasl.mechanism does not accept"
_TOKENS: Final = "a client gets a new token when it connects, within 10 seconds for each try"
_CHECKS: Final = "a worker does not check tokens; the brokers do"
_SYNC: Final = "a worker waits at most 30 seconds for the topic of configurations, and then tries again"

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "client.dns.lookup": "all addresses of a name are tried",
    "metadata.recovery.rebootstrap.trigger.ms": "clients try the bootstrap servers again as soon as no broker answers",
    "metadata.recovery.strategy": "clients try the bootstrap servers again when no known broker answers",
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "offset.storage.file.filename": "offsets are in the topic offset.storage.topic, with exactly once",
    "plugin.discovery": _JAVA_PLUGINS,
    "plugin.path": _JAVA_PLUGINS,
    "receive.buffer.bytes": _SOCKETS,
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "sasl.login.connect.timeout.ms": _TOKENS,
    "sasl.login.read.timeout.ms": _TOKENS,
    "sasl.login.refresh.buffer.seconds": _TOKENS,
    "sasl.login.refresh.min.period.seconds": _TOKENS,
    "sasl.login.refresh.window.factor": _TOKENS,
    "sasl.login.refresh.window.jitter": _TOKENS,
    "sasl.login.retry.backoff.max.ms": _TOKENS,
    "sasl.login.retry.backoff.ms": _TOKENS,
    "sasl.oauthbearer.clock.skew.seconds": _CHECKS,
    "sasl.oauthbearer.expected.audience": _CHECKS,
    "sasl.oauthbearer.expected.issuer": _CHECKS,
    "sasl.oauthbearer.header.urlencode": "client ids and secrets are encoded as RFC 6749 says",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _CHECKS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _CHECKS,
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _CHECKS,
    "sasl.oauthbearer.jwks.endpoint.url": _CHECKS,
    "sasl.oauthbearer.jwt.validator.class": _CHECKS,
    "sasl.oauthbearer.scope.claim.name": _CHECKS,
    "sasl.oauthbearer.sub.claim.name": _CHECKS,
    "send.buffer.bytes": _SOCKETS,
    "socket.connection.setup.timeout.max.ms": "each try takes at most socket.connection.setup.timeout.ms",
    "ssl.keymanager.algorithm": _TLS,
    "ssl.protocol": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
    "worker.sync.timeout.ms": _SYNC,
    "worker.unsync.backoff.ms": _SYNC,
}
_NO_JAVA: Final = "a worker in Python cannot load Java classes"
REFUSED: Final[Mapping[str, str]] = {
    "sasl.client.callback.handler.class": f"{_NO_JAVA}; set sasl.username and sasl.password, or sasl.oauthbearer.*",
    "sasl.login.callback.handler.class": f"{_NO_JAVA}; set sasl.oauthbearer.token.endpoint.url for OAuth",
    "sasl.login.class": f"{_NO_JAVA}; remove the setting",
    "ssl.engine.factory.class": f"{_NO_JAVA}; set ssl.keystore.* and ssl.truststore.*",
    "ssl.provider": "encryption is OpenSSL's, no Java provider is used; remove the setting",
}
# Kafka's own classes do what is done here without them.
_OURS: Final = (
    "org.apache.kafka.common.security.oauthbearer.",
    "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
    "org.apache.kafka.common.security.authenticator.",
)
_CLIENTS: Final = ("", "producer.", "consumer.", "admin.", "listeners.https.")


def check(given: Mapping[str, str]) -> None:
    """Log the settings that have no effect. Raises SettingError for those that must not be ignored."""
    for prefix in _CLIENTS:
        for short, reason in REFUSED.items():
            value = given.get(prefix + short, "").strip()
            if value and not value.startswith(_OURS):
                raise SettingError(f"{prefix}{short} is {value}: {reason}")
        for short, reason in WITHOUT_EFFECT.items():
            if given.get(prefix + short, "").strip():
                logger.info("%s%s has no effect: %s", prefix, short, reason)
