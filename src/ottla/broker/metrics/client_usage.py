"""Usage of each client: bytes of Produce requests and Fetch responses, time of the event loop, pauses for quotas.

A client is a user and a client id, as for quotas. A connection belongs to the client of its first request, until a
measured request shows another one (`Meter`). Their number is limited:

- `ClientUsages` has at most `MOST_CLIENTS`. A new client replaces the client that disconnected first. The replaced
  counters are added to `OTHER`, so that sums never decrease.
- While all of them are connected, new clients are counted in `OTHER`.
- Names are cut at `LONGEST_NAME` characters.

Fetches of replicas are in `replicas`, which is not a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.metrics._request_counter import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_CLIENTS: Final = 500
LONGEST_NAME: Final = 200
OTHER: Final = "(other)"
PRODUCE, FETCH, REQUEST = KINDS = ("produce", "fetch", "request")
"""Kinds of throttled requests: Produce, Fetch, and all others."""


class Pauses(NamedTuple):
    """How often a client was muted for its quotas, and for how long."""

    times: int = 0
    seconds: float = 0.0


class Rates(NamedTuple):
    """Averages of one interval: bytes per second, percent of the event loop's time, and ms of a pause by kind."""

    produce_bytes: float = 0.0
    fetch_bytes: float = 0.0
    request_percent: float = 0.0
    pause_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)


class ClientUsage(Traffic):
    """The counters of one client since the start of the node."""

    __slots__ = ("_before", "connections", "name", "pauses", "rates")

    def __init__(self, user: str, client_id: str) -> None:
        super().__init__()
        self.name = user, client_id
        self.connections = 0
        self.pauses = (Pauses(), Pauses(), Pauses())
        """In the order of `KINDS`."""
        self.rates = Rates()
        self._before = self._counters

    @property
    def is_used(self) -> bool:
        """Whether the client has a connection or used something."""
        return self.connections > 0 or any(self._counters[:3])

    @property
    def _counters(self) -> tuple[int, int, int, tuple[Pauses, Pauses, Pauses]]:
        return self.produced_bytes, self.fetched_bytes, self.request_ns, self.pauses

    def is_of(self, user: str, client_id: str) -> bool:
        """Whether a request with these names counts for this client."""
        return self.name == (user[:LONGEST_NAME], client_id[:LONGEST_NAME])

    def pause(self, kind: str, pause_s: float) -> None:
        """Count a pause."""
        at = KINDS.index(kind)
        rows = list(self.pauses)
        rows[at] = Pauses(rows[at].times + 1, rows[at].seconds + pause_s)
        self.pauses = rows[0], rows[1], rows[2]

    def add(self, other: ClientUsage) -> None:
        """Add the counters of another client."""
        self.produced_bytes += other.produced_bytes
        self.fetched_bytes += other.fetched_bytes
        self.request_ns += other.request_ns
        first, second, third = (
            Pauses(own.times + its.times, own.seconds + its.seconds)
            for own, its in zip(self.pauses, other.pauses, strict=True)
        )
        self.pauses = first, second, third

    def roll(self, seconds: float) -> None:
        """Set the rates of the last `seconds`."""
        produced, fetched, request_ns, pauses = self._before
        first, second, third = (
            1000 * (now.seconds - before.seconds) / max(now.times - before.times, 1)
            for before, now in zip(pauses, self.pauses, strict=True)
        )
        self.rates = Rates(
            (self.produced_bytes - produced) / seconds,
            (self.fetched_bytes - fetched) / seconds,
            (self.request_ns - request_ns) / seconds / 1e7,
            (first, second, third),
        )
        self._before = self._counters


class ClientUsages:
    """The clients of a node. `now_s` is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float], most: int = MOST_CLIENTS) -> None:
        self._now_s = now_s
        self._rolled_s = now_s()
        self._most = most
        self._by_name: dict[tuple[str, str], ClientUsage] = {}
        # Clients without a connection, in the order in which they disconnected.
        self._idle: dict[tuple[str, str], ClientUsage] = {}
        self.other = ClientUsage(OTHER, OTHER)
        self.replicas = ClientUsage("", "")

    def __iter__(self) -> Iterator[ClientUsage]:
        """The clients, and `other` if it was needed."""
        yield from list(self._by_name.values())
        if self.other.is_used:
            yield self.other

    def acquire(self, user: str, client_id: str) -> ClientUsage:
        """Return the counters for a connection of this client; `release` follows."""
        name = user[:LONGEST_NAME], client_id[:LONGEST_NAME]
        usage = self._by_name.get(name)
        if usage is None:
            usage = self._added(name)
        else:
            self._idle.pop(name, None)
        usage.connections += 1
        return usage

    def _added(self, name: tuple[str, str]) -> ClientUsage:
        if len(self._by_name) >= self._most:
            if not self._idle:
                return self.other
            oldest = next(iter(self._idle))
            del self._by_name[oldest]
            self.other.add(self._idle.pop(oldest))
        usage = self._by_name[name] = ClientUsage(*name)
        return usage

    def release(self, usage: ClientUsage) -> None:
        """Forget a connection of a client; its counters stay until their place is needed."""
        usage.connections -= 1
        if not usage.connections and usage is self._by_name.get(usage.name):
            self._idle[usage.name] = usage

    def roll(self) -> None:
        """Set the rates of the time since the previous call."""
        now_s = self._now_s()
        seconds = max(now_s - self._rolled_s, 0.001)
        self._rolled_s = now_s
        for usage in self:
            usage.roll(seconds)
