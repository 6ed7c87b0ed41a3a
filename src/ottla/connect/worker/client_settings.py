"""Settings of the producers, consumers and admin clients of connectors, from worker and connector.

Later ones win: the worker's own (bootstrap.servers, security), those with a prefix (`producer.`, `consumer.`,
`admin.`), those that the runtime needs, and the connector's overrides (KIP-458, policy All). Settings of Java's clients
that have no meaning here are skipped with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.clients.options import COMMON_OPTIONS, Option
from ottla.connect.worker.settings import WorkerSettings
from ottla.connect.worker.stock_settings import WITHOUT_EFFECT

logger = logging.getLogger("ottla.connect.worker")

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ADMIN: Final = "admin"
_COMMON: Final = frozenset(name for each in COMMON_OPTIONS for name in (each.name, *each.aliases))
# The prefixes say more than the names of all of Java's settings.
_JAVA_ONLY: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "confluent.monitoring.interceptor.bootstrap.servers",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "receive.buffer.bytes",
        "sasl.client.callback.handler.class",
        "sasl.kerberos.service.name",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.key.password.file",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "value.deserializer",
        "value.serializer",
    }
) | frozenset(WITHOUT_EFFECT)


def client_settings(
    worker: WorkerSettings,
    connector: Mapping[str, str],
    client: str,
    needed: Mapping[str, object],
    options: Iterable[Option],
) -> dict[str, object]:
    """Return the settings of a client of a connector. `needed` are set by the runtime, and `options` are known."""
    known = {name for each in options for name in (each.name, *each.aliases)}
    settings: dict[str, object] = {"bootstrap.servers": worker.get("bootstrap.servers")}
    settings |= {name: value for name, value in worker.given.items() if name in _COMMON}
    settings |= _with_prefix(worker.given, f"{client}.")
    settings |= needed
    settings |= _with_prefix(connector, f"{client}.override.")
    for name in [each for each in settings if each not in known]:
        if name in _JAVA_ONLY:
            logger.warning("Ignoring %s of the %s of a connector: it is a setting of Java's clients", name, client)
            del settings[name]
    return settings


def _with_prefix(settings: Mapping[str, str], prefix: str) -> dict[str, object]:
    found = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    return {name: value for name, value in found.items() if not name.startswith("override.")}
