"""Times of a consumer's polls and rebalances, for the metrics that it pushes. Without a clock.

`taken` returns the averages and maxima since the previous call, by the names of `metrics()`. Their memory is constant,
whether a client takes them or not.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from ottla.network.requests_in_flight import Latency


class PollTimes:
    """The share of time that a consumer waits in `poll`, as Kafka measures it: of each poll and the pause before it."""

    __slots__ = ("_begun_ms", "_ended_ms", "_paused_ms", "_polls", "_ratios")

    def __init__(self) -> None:
        self._begun_ms: float | None = None
        self._ended_ms: float | None = None
        self._paused_ms = 0.0
        self._polls = 0
        self._ratios = 0.0

    def begin(self, now_ms: float) -> None:
        """A poll begins."""
        self._begun_ms = now_ms
        self._paused_ms = 0.0 if self._ended_ms is None else now_ms - self._ended_ms

    def end(self, now_ms: float) -> None:
        """It ends; a poll that began before this object does not count."""
        if self._begun_ms is None:
            return
        self._ended_ms = now_ms
        polled_ms = now_ms - self._begun_ms
        if polled_ms + self._paused_ms > 0:
            self._polls += 1
            self._ratios += polled_ms / (polled_ms + self._paused_ms)

    def taken(self) -> dict[str, float]:
        """Return the metric, if there was a poll since the previous call."""
        polls, ratios = self._polls, self._ratios
        self._polls, self._ratios = 0, 0.0
        return {"poll-idle-ratio-avg": ratios / polls} if polls else {}


class RebalanceTimes:
    """How long rebalances take, from the member's first request or new assignment until it has its partitions."""

    __slots__ = ("_latency", "_since_ms", "_state")

    def __init__(self) -> None:
        self._state: object = None
        self._since_ms: float | None = None
        self._latency = Latency()

    def observe(
        self, now_ms: float, state: object, running: AbstractSet[object], complete: AbstractSet[object]
    ) -> None:
        """Note the state of the member. A rebalance that ends without being complete is not counted."""
        # Most calls end here: the hash of a state costs more than all the rest.
        if state is self._state:
            return
        self._state = state
        if state in running:
            self._since_ms = now_ms if self._since_ms is None else self._since_ms
        elif self._since_ms is not None:
            if state in complete:
                self._latency.add((now_ms - self._since_ms) / 1000)
            self._since_ms = None

    def taken(self) -> dict[str, float]:
        """Return the metrics, if a rebalance was completed since the previous call."""
        latency, self._latency = self._latency, Latency()
        if not latency.count:
            return {}
        average_ms = latency.total_s / latency.count * 1000
        return {"rebalance-latency-avg": average_ms, "rebalance-latency-max": latency.max_s * 1000}
