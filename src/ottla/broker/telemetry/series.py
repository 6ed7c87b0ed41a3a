"""The values that clients pushed, as a scrape exposes them. Without I/O.

Clients are not trusted: the numbers of clients, names and series, and the length of labels are bounded, of one client
and of all. What exceeds a limit is dropped and counted. While all places are taken, each user has an equal share of the
clients and of the series, and each client an equal share of the series of its user: a user or client with less gets
places of the one with the most, so that a user with many clients, or a client with many series, cannot hide the others.

A client is stored with its first value. It cannot choose the name of another metric of this node, since its names have
a prefix, nor the labels `client_id` and `client_instance_id`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, NamedTuple

from ottla.common.ids import Uuid, uuid_to_text
from ottla.metrics.exposition import escaped
from ottla.protocol.otlp import Point

PREFIX: Final = "kafka_client_"
MOST_CLIENTS: Final = 5_000
MOST_NAMES: Final = 1_000
MOST_NAMES_OF_CLIENT: Final = 300
MOST_SERIES: Final = 20_000
"""Of all clients of this node."""
MOST_SERIES_OF_CLIENT: Final = 1_000
LONGEST_LABEL: Final = 256
LONGEST_LABELS: Final = 2_048
"""Of one series, all names and values together."""
EXPIRY_MS: Final = 1_000
"""How often pushes look for clients to expire: that takes a time in proportion to all clients."""
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
    names: Counter[str] = field(default_factory=Counter)
    """The number of series by metric."""


@dataclass(slots=True)
class _User:
    """The clients of one principal, and the number of their series."""

    clients: dict[Uuid, ClientSeries] = field(default_factory=dict)
    count: int = 0


class SeriesStore:
    """The values of all clients of this node."""

    def __init__(self) -> None:
        self._clients: dict[Uuid, ClientSeries] = {}
        self._by_user: dict[str, _User] = {}
        self._counters: dict[str, bool] = {}
        """Whether each known metric is a counter: its first value decides."""
        self._users: Counter[str] = Counter()
        """The number of clients with a series, by metric."""
        self._count = 0
        self._next_expiry_ms = 0
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
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + EXPIRY_MS
            self.expire(now_ms)
        client = self._clients.get(instance_id)
        if client is not None and client.labels.principal != labels.principal:
            self.remove(instance_id)
            client = None
        if client is None:
            client = ClientSeries(labels, 0)
        client.labels = labels
        client.pushed.clear()
        client.expires_ms = now_ms + retention_ms
        return client

    def add(self, client: ClientSeries, instance_id: Uuid, point: Point) -> None:
        """Add one value: it replaces the previous one, or is added to it if it is a difference."""
        name = _metric_name(point)
        if name is None:
            self.dropped += 1
            return
        key = name, _labels(client.labels.client_id, instance_id, point)
        previous = client.values.get(key)
        if not isfinite(point.value):
            # Averages of nothing. A counter keeps its value.
            if previous is not None and not point.is_delta:
                self._remove(client, key)
            return
        if previous is None:
            if self._clients.get(instance_id, client) is not client:
                return  # another push of this client began meanwhile, and has stored values
            if not self._has_room(client, instance_id, key):
                self.dropped += 1
                return
            user = self._by_user.setdefault(client.labels.principal, _User())
            self._clients[instance_id] = user.clients[instance_id] = client
            user.count += 1
            self._count += 1
            if name not in client.names:
                self._users[name] += 1
            client.names[name] += 1
            self._counters.setdefault(name, point.is_counter)
        client.values[key] = point.value + previous if point.is_delta and previous is not None else point.value
        (client.deltas if point.is_delta else client.pushed).add(key)

    def _has_room(self, client: ClientSeries, instance_id: Uuid, key: tuple[str, str]) -> bool:
        """Whether another series of a client exceeds no limit."""
        name, labels = key
        if name not in self._counters and len(self._counters) >= MOST_NAMES:
            return False
        if name not in client.names and len(client.names) >= MOST_NAMES_OF_CLIENT:
            return False
        if len(client.values) >= MOST_SERIES_OF_CLIENT or len(labels) > LONGEST_LABELS:
            return False
        if instance_id not in self._clients and len(self._clients) >= MOST_CLIENTS and not self._takes_client(client):
            return False
        return self._count < MOST_SERIES or self._takes_place(client, instance_id)

    def _takes_client(self, client: ClientSeries) -> bool:
        """Remove a client of the user with the most, if the user of this client has less than its share.

        As long as all places are taken, a user has more than its share if another one has less. The client that expires
        first is removed: it is disconnected, or has not pushed for the longest time.
        """
        own = self._by_user.get(client.labels.principal, _User()).clients
        if len(own) >= MOST_CLIENTS // (len(self._by_user) + (not own)):
            return False
        most = max((user.clients for user in self._by_user.values()), key=len)
        first = min(most, key=lambda each: most[each].expires_ms)
        self.dropped += len(most[first].values)
        self.remove(first)
        return True

    def _takes_place(self, client: ClientSeries, instance_id: Uuid) -> bool:
        """Remove the last series of a client beyond its share, if this client or its user has less than its own.

        If the user has less, the client is the largest one of the user with the most series, else of the same user.
        """
        user = self._by_user.get(client.labels.principal, _User())
        share = MOST_SERIES // (len(self._by_user) + (not user.clients))
        if user.count < share:
            user = max(self._by_user.values(), key=lambda each: each.count)
            share //= len(user.clients)
        else:
            share = user.count // (len(user.clients) + (instance_id not in user.clients))
            if len(client.values) >= share:
                return False
        largest = max(user.clients, key=lambda each: len(user.clients[each].values))
        taken = list(user.clients[largest].values)[share:]
        self.dropped += len(taken)
        for key in taken:
            self._remove(user.clients[largest], key)
        if not share:
            self.remove(largest)
        return bool(taken)

    def _remove(self, client: ClientSeries, key: tuple[str, str]) -> None:
        """Remove one value, and its name if no client has it any more."""
        del client.values[key]
        client.pushed.discard(key)
        client.deltas.discard(key)
        self._by_user[client.labels.principal].count -= 1
        self._count -= 1
        name = key[0]
        client.names[name] -= 1
        if not client.names[name]:
            del client.names[name]
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._counters[name]

    def end(self, client: ClientSeries, instance_id: Uuid) -> None:
        """Remove the values that a complete push does not have any more: labels such as a member id change."""
        if self._clients.get(instance_id) is client:
            for key in client.values.keys() - client.pushed - client.deltas:
                self._remove(client, key)
            client.pushed.clear()
            if not client.values:
                self.remove(instance_id)

    def remove(self, instance_id: Uuid) -> None:
        """Remove a client and its values."""
        client = self._clients.pop(instance_id, None)
        if client is not None:
            for key in list(client.values):
                self._remove(client, key)
            user = self._by_user[client.labels.principal]
            del user.clients[instance_id]
            if not user.clients:
                del self._by_user[client.labels.principal]

    def disconnected(self, instance_id: Uuid, now_ms: int) -> None:
        """Let the values of a client expire soon."""
        client = self._clients.get(instance_id)
        if client is not None:
            client.expires_ms = min(client.expires_ms, now_ms + DISCONNECTED_MS)

    def expire(self, now_ms: int) -> None:
        """Remove the values of clients that do not push any more."""
        expired = [instance_id for instance_id, client in self._clients.items() if client.expires_ms <= now_ms]
        for instance_id in expired:
            self.remove(instance_id)

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
        name = _NOT_LABEL.sub("_", key[:LONGEST_LABEL]).lstrip("0123456789_")
        if name not in _OWN:
            found[name] = text
    pairs = (f'{name}="{escaped(text[:LONGEST_LABEL])}"' for name, text in found.items())
    return "{" + ",".join(pairs) + "}"
