"""When the producer asks for metadata: a leader or topic is missing, or what is known has grown old.

One question at a time; after an answer or a failure the next waits for the backoff, which grows while answers do not
help. Only a topic that was never asked for is asked for at once. The caller passes on what it learns (`changed`,
`failed`) and asks `next_ms` at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from ottla.clients.errors import ClientError
from ottla.common.ids import Uuid

FOREVER_MS = 1 << 62


class View(Protocol):
    """What the core asks of the cluster's metadata."""

    topic_errors: dict[str, int]  # why a topic is unknown, as an error code

    def partitions(self, topic: str) -> list[int] | None:
        """The partitions of a topic, None while it is unknown."""
        ...

    def leader(self, topic: str, partition: int) -> int | None:
        """The node that leads it, None while nobody does."""
        ...

    def topic_id(self, topic: str) -> Uuid:
        """Which topic of that name it is; zero where brokers do not say."""
        ...


class MetadataWish:
    """What is missing, since when, and why it did not come."""

    def __init__(self, max_age_ms: int, backoff_ms: Callable[[int], int]) -> None:
        self.missing: set[str] = set()
        self.version = 0  # counts the answers
        self.failures = 0  # in a row, answers that did not help included
        self.problem: ClientError | None = None  # why the last answer did not come
        self._max_age_ms = max_age_ms
        self._backoff_ms = backoff_ms
        self._asking = False
        self._asked: set[str] = set()
        self._old_at_ms = FOREVER_MS
        self._not_before_ms = 0

    def next_ms(self) -> int:
        """When the next question is due; far in the future while an answer is awaited."""
        if self._asking:
            return FOREVER_MS
        if not self.missing:
            return max(self._old_at_ms, self._not_before_ms)
        is_new = self.problem is None and not self.missing <= self._asked
        return 0 if is_new else self._not_before_ms

    def asked(self, topics: Iterable[str]) -> None:
        """The question about these topics is on its way."""
        self._asking = True
        self._asked = set(topics)

    def changed(self, missing: Iterable[str], now_ms: int) -> None:
        """An answer came; these topics still are unknown or without a leader."""
        self._asking = False
        self.problem = None
        self.version += 1
        self.missing = set(missing)
        self._old_at_ms = now_ms + self._max_age_ms
        self.failures = self.failures + 1 if self.missing else 0
        # Even a good answer is not asked for again at once: leaders need time to be chosen.
        self._not_before_ms = now_ms + self._backoff_ms(max(self.failures - 1, 0))

    def failed(self, error: ClientError, now_ms: int) -> None:
        """No answer came."""
        self._asking = False
        self.problem = error
        self._not_before_ms = now_ms + self._backoff_ms(self.failures)
        self.failures += 1
