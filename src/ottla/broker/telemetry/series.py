"""The values that clients pushed, as a scrape exposes them. Without I/O.

Clients are not trusted: the number of names, of series of a client and of all clients, and the length of labels are
bounded. What exceeds a limit is dropped and counted. A client cannot choose the name of another metric of this node,
since its names have a prefix, nor the labels `client_id` and `client_instance_id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from ottla.common.ids import Uuid, uuid_to_text
from ottla.metrics.exposition import escaped
from ottla.protocol.otlp import Point

PREFIX: Final = "kafka_client_"
MOST_NAMES: Final = 1_000
MOST_SERIES: Final = 20_000
"""Of all clients of this node."""
MOST_SERIES_OF_CLIENT: Final = 1_000
LONGEST_LABEL: Final = 256
DISCONNECTED_MS: Final = 60_000
"""For how long the last values of a client remain after it has disconnected, so that a scrape sees them."""
_KAFKA: Final = "org.apache.kafka."
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._]{0,199}")
_NOT_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_OWN: Final = frozenset({"client_id", "client_instance_id", ""})


class ClientLabels(NamedTuple):
    """The labels of the metric that describes a client."""

    client_id: str
    software_name: str
    software_version: str
    source_address: str
    principal: str


@dataclass(slots=True)
class ClientSeries:
    """The last values of one client, by metric and labels."""

    labels: ClientLabels
    expires_ms: int
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    pushed: set[tuple[str, str]] = field(default_factory=set)
    """The values of the push that is being stored."""
    deltas: set[tuple[str, str]] = field(default_factory=set)
    """The sums of differences, which a client need not push if nothing changed."""


class SeriesStore:
    """The values of all clients of this node."""

    def __init__(self) -> None:
        self._clients: dict[Uuid, ClientSeries] = {}
        self._counters: dict[str, bool] = {}
        """Whether each known metric is a counter: its first value decides."""
        self._count = 0
        self.dropped = 0
        """Values that exceeded a limit."""

    @property
    def clients(self) -> dict[Uuid, ClientSeries]:
        """The clients with values; must not be changed."""
        return self._clients

    @property
    def counters(self) -> dict[str, bool]:
        """The known metrics, and whether each is a counter; must not be changed."""
        return self._counters

    def begin(self, instance_id: Uuid, labels: ClientLabels, now_ms: int, retention_ms: int) -> ClientSeries:
        """Return the values of a client that pushes, to which `add` adds."""
        self.expire(now_ms)
        client = self._clients.get(instance_id)
        if client is None:
            client = self._clients[instance_id] = ClientSeries(labels, 0)
        client.labels = labels
        client.pushed.clear()
        client.expires_ms = now_ms + retention_ms
        return client

    def add(self, client: ClientSeries, instance_id: Uuid, point: Point) -> None:
        """Add one value: it replaces the previous one, or is added to it if it is a difference."""
        name = _metric_name(point)
        if name is None or (name not in self._counters and len(self._counters) >= MOST_NAMES):
            self.dropped += 1
            return
        key = name, _labels(client.labels.client_id, instance_id, point)
        previous = client.values.get(key)
        if not isfinite(point.value):
            # Averages of nothing. A counter keeps its value.
            if previous is not None and not point.is_delta:
                del client.values[key]
                self._count -= 1
            return
        if previous is None:
            if self._clients.get(instance_id) is not client:
                return  # it expired meanwhile
            if self._count >= MOST_SERIES or len(client.values) >= MOST_SERIES_OF_CLIENT:
                self.dropped += 1
                return
            self._count += 1
            self._counters.setdefault(name, point.is_counter)
        client.values[key] = point.value + previous if point.is_delta and previous is not None else point.value
        (client.deltas if point.is_delta else client.pushed).add(key)

    def end(self, client: ClientSeries, instance_id: Uuid) -> None:
        """Remove the values that a complete push does not have any more: labels such as a member id change."""
        if self._clients.get(instance_id) is client:
            for key in client.values.keys() - client.pushed - client.deltas:
                del client.values[key]
                self._count -= 1

    def disconnected(self, instance_id: Uuid, now_ms: int) -> None:
        """Let the values of a client expire soon."""
        client = self._clients.get(instance_id)
        if client is not None:
            client.expires_ms = min(client.expires_ms, now_ms + DISCONNECTED_MS)

    def expire(self, now_ms: int) -> None:
        """Remove the values of clients that do not push any more."""
        expired = [instance_id for instance_id, client in self._clients.items() if client.expires_ms <= now_ms]
        for instance_id in expired:
            self._count -= len(self._clients.pop(instance_id).values)
        if not self._clients:
            self._counters.clear()

    def rows(self) -> Iterator[tuple[str, str, float]]:
        """Yield (metric, labels, value), of all clients."""
        for client in list(self._clients.values()):
            for (name, labels), number in list(client.values.items()):
                yield name, labels, number


def _metric_name(point: Point) -> str | None:
    """The name of a metric at the endpoint; None if it is not a name."""
    if not _NAME.fullmatch(point.name):
        return None
    return PREFIX + point.name.removeprefix(_KAFKA).replace(".", "_").lower()


def _labels(client_id: str, instance_id: Uuid, point: Point) -> str:
    found = {"client_id": client_id, "client_instance_id": uuid_to_text(instance_id)}
    for key, text in point.attributes:
        name = _NOT_LABEL.sub("_", key)[:LONGEST_LABEL].lstrip("0123456789_")
        if name not in _OWN:
            found[name] = text
    pairs = (f'{name}="{escaped(text[:LONGEST_LABEL])}"' for name, text in found.items())
    return "{" + ",".join(pairs) + "}"
