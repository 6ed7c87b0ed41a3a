"""The subscriptions to client metrics, and which of them are for a client. Without I/O.

A subscription is a resource of the type CLIENT_METRICS in the metadata. A client that several subscriptions match gets
the metrics of all, at the shortest interval.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.common.errors import KafkaError
from ottla.common.expressions import Matcher
from ottla.common.ids import Uuid
from ottla.config.client_metrics import client_metrics_values, matchers
from ottla.config.client_metrics_rows import INTERVAL_MS, MATCH, METRICS
from ottla.metadata.image import CLIENT_METRICS, MetadataImage
from ottla.records.checksum import crc32c

logger = logging.getLogger(__name__)

ALL_METRICS: Final = "*"
_DEFAULT_INTERVAL_MS: Final = 300_000
Configs = Mapping[str, Mapping[str, str]]
"""The settings of each subscription, by its name."""


class Subscription(NamedTuple):
    """One resource; `match` has the expression of each selector."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Matcher]

    def is_for(self, client: Mapping[str, str | None]) -> bool:
        """Whether each selector matches the client."""
        return all((value := client.get(name)) is not None and fits(value) for name, fits in self.match.items())


class Assigned(NamedTuple):
    """The metrics of one client, from all subscriptions that match it."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def configs_of(image: MetadataImage) -> Configs:
    """Return the subscriptions in the metadata."""
    return {name: configs for (kind, name), configs in image.configs.items() if kind == CLIENT_METRICS}


def parse(configs: Configs) -> list[Subscription]:
    """Return the subscriptions. One that this software does not understand is logged and skipped."""
    found = []
    for name, texts in configs.items():
        try:
            values = client_metrics_values(texts)
            metrics, interval_ms, match = values[METRICS], values[INTERVAL_MS], values[MATCH]
            assert isinstance(metrics, tuple)
            assert isinstance(interval_ms, int)
            assert isinstance(match, tuple)
            found.append(Subscription(metrics, interval_ms, matchers(match)))
        except KafkaError as error:
            # Stock Kafka may have written an expression that only Java understands.
            logger.warning("Ignoring the client metrics subscription %s: %s", name, error.message)
    return found


def assign(subscriptions: Iterable[Subscription], client: Mapping[str, str | None], instance_id: Uuid) -> Assigned:
    """Return the metrics, the interval and the subscription id of a client."""
    names: set[str] = set()
    interval_ms = _DEFAULT_INTERVAL_MS
    for subscription in subscriptions:
        if subscription.is_for(client):
            names.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
    metrics = (ALL_METRICS,) if ALL_METRICS in names else tuple(sorted(names))
    return Assigned(_subscription_id(metrics, interval_ms, instance_id), metrics, interval_ms)


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: Uuid) -> int:
    """The CRC-32C of the subscription, XORed with the hash of the client instance id in Java, as a signed number."""
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    both = int.from_bytes(instance_id[:8], "big") ^ int.from_bytes(instance_id[8:], "big")
    number = (crc ^ both ^ both >> 32) & 0xFFFF_FFFF
    return number - (1 << 32) if number >> 31 else number
