"""Events that a client reports, for logs, metrics and OpenTelemetry: the setting `on.event`.

`on_event` is a function of one event. It runs in the client's own thread (or on its event loop), so it must be short
and must not wait. Its exceptions are logged. Problems are also logged without it.

    def on_event(event):
        match event:
            case Problem(error=error):  # retried: no broker, coordinator or topic
                log.warning("%s", error)
            case StatisticsReported(metrics=metrics):
                gauge.set(metrics["records-lag-max"])

Metrics have the names of Kafka's Java clients; those that end with `-total` only grow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition

logger = logging.getLogger("ottla.clients")


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the client with this `client.id`."""

    client_id: str


@dataclass(frozen=True, slots=True)
class Problem(Event):
    """A problem that the client retries; no call has raised `error` (yet)."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """A connection to a broker was opened. `node_id` is None for a bootstrap address."""

    address: str
    node_id: int | None


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """A connection to a broker was lost. The closing of an idle connection is not reported."""

    address: str
    node_id: int | None


@dataclass(frozen=True, slots=True)
class Throttled(Event):
    """A broker delays this client for its quota (KIP-124)."""

    node_id: int
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class Rebalanced(Event):
    """A consumer's group changed its partitions: `kind` is assigned, revoked or lost."""

    kind: str
    group_id: str
    member_id: str
    generation: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StatisticsReported(Event):
    """Metrics of the client and of each partition that it reads, every `statistics.interval.ms`."""

    metrics: Mapping[str, float]
    partitions: Mapping[TopicPartition, Mapping[str, float]] = field(default_factory=dict)


OnEvent = Callable[[Event], object]
# Metrics of the client, and of each partition.
Statistics = tuple[Mapping[str, float], Mapping[TopicPartition, Mapping[str, float]]]


class Reporter:
    """Calls the program's function for each event, if it is set."""

    def __init__(self, on_event: OnEvent | None, client_id: str) -> None:
        self._on_event = on_event
        self.client_id = client_id

    @property
    def is_wanted(self) -> bool:
        """Whether the function is set."""
        return self._on_event is not None

    def report(self, event: Event) -> None:
        """Call the function; its exception is logged."""
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # the program's own code; it must not stop the client
            logger.exception("on_event failed for %s", event)

    def problem(self, error: ClientError) -> None:
        """Report an error that the client retries by itself."""
        self.report(Problem(self.client_id, error))
