"""When the producer requests metadata: if a leader or topic is missing, or if the metadata has reached its maximum age.

At most one request is in flight. After a response or a failure the next request waits for the backoff, which grows as
long as the responses do not help. Exception: a topic that was never requested is requested immediately. The core
reports results with `received` and `failed`, and reads `next_ms` in each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.clients.errors import ClientError
from ottla.common.ids import Uuid

FOREVER_MS = 1 << 62


class View(Protocol):
    """The part of the cluster's metadata that the core reads."""

    topic_errors: dict[str, int]  # why a topic is unknown, as an error code

    def partitions(self, topic: str) -> list[int] | None:
        """The partitions of a topic, None while it is unknown."""
        ...

    def leader(self, topic: str, partition: int) -> int | None:
        """The node that leads the partition, None if there is no leader."""
        ...

    def topic_id(self, topic: str) -> Uuid:
        """The id of the topic; zero if the brokers do not report ids."""
        ...


class MetadataRefresh:
    """Which topics need metadata, when to request it, and the last error."""

    def __init__(self, max_age_ms: int, backoff_ms: Callable[[int], int]) -> None:
        self.missing: set[str] = set()  # topics that are unknown or have partitions without a leader
        self.version = 0  # number of responses
        self.failures = 0  # in a row, including responses that did not help
        self.problem: ClientError | None = None  # why the last request failed
        self._max_age_ms = max_age_ms
        self._backoff_ms = backoff_ms
        self._is_requesting = False
        self._requested: set[str] = set()
        self._expires_at_ms = FOREVER_MS
        self._not_before_ms = 0

    def next_ms(self) -> int:
        """When the next request is due; `FOREVER_MS` while one is in flight."""
        if self._is_requesting:
            return FOREVER_MS
        if not self.missing:
            return max(self._expires_at_ms, self._not_before_ms)
        has_new_topic = self.problem is None and not self.missing <= self._requested
        return 0 if has_new_topic else self._not_before_ms

    def sent(self, topics: Iterable[str]) -> None:
        """A request for these topics is in flight."""
        self._is_requesting = True
        self._requested = set(topics)

    def received(self, missing: Iterable[str], now_ms: int) -> None:
        """A response arrived; the topics in `missing` are still unknown or without a leader."""
        self._is_requesting = False
        self.problem = None
        self.version += 1
        self.missing = set(missing)
        self._expires_at_ms = now_ms + self._max_age_ms
        self.failures = self.failures + 1 if self.missing else 0
        # The backoff also follows a good response: the election of a leader takes time.
        self._not_before_ms = now_ms + self._backoff_ms(max(self.failures - 1, 0))

    def failed(self, error: ClientError, now_ms: int) -> None:
        """The request failed."""
        self._is_requesting = False
        self.problem = error
        self._not_before_ms = now_ms + self._backoff_ms(self.failures)
        self.failures += 1
