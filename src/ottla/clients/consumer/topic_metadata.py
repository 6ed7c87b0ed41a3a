"""Decides when to refresh the metadata of topics, and reports topics and partitions that cannot be read.

A refresh is due when the view is stale or lacks a topic of interest. One refresh is in flight at a time, and the next
one waits for the backoff. A topic that does not exist is retried with the longest backoff: it may be created later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.clients.cluster import Backoff, ClusterView
from ottla.clients.consumer.effects import EffectId, Outbox, Outcome, Owner
from ottla.clients.errors import ClientError, UnknownTopicOrPartition, error_for
from ottla.common.errors import ErrorCode
from ottla.common.ids import TopicPartition

_FATAL: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION})


class TopicMetadata:
    def __init__(self, view: ClusterView, backoff: Backoff, outbox: Outbox) -> None:
        self._view = view
        self._backoff = backoff
        self._outbox = outbox
        self._in_flight: EffectId | None = None
        self._requested: frozenset[str] = frozenset()
        self._is_due = False
        self._not_before_ms = 0.0
        self.next_timer_ms: float | None = None

    def expedite(self, *, is_due: bool = False) -> None:
        """Do not wait for the backoff: the subscription changed. `is_due`: refresh even if the view is fresh."""
        self._not_before_ms = 0.0
        self._is_due |= is_due

    def advance(self, now_ms: float, topics: frozenset[str] | None, requested: frozenset[str]) -> None:
        """Issue a refresh if it is due.

        `topics` are the topics of interest (None: all topics). `requested` are the topics that the user named: poll
        raises their fatal errors.
        """
        self.next_timer_ms = None
        self._requested = requested
        if self._in_flight is not None or (topics is not None and not topics):
            return
        is_due = self._is_due or self._view.stale(now_ms)
        if topics is None:
            is_due = is_due or not self._view.topics
        else:
            is_due = is_due or any(topic not in self._view.topics for topic in topics)
        if not is_due:
            self.next_timer_ms = max(self._view.refresh_due_at_ms(), self._not_before_ms)
        elif now_ms < self._not_before_ms:
            self.next_timer_ms = self._not_before_ms
        else:
            self._is_due = False
            self._in_flight = self._outbox.refresh(Owner.METADATA, topics)

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        assert effect_id == self._in_flight
        self._in_flight = None
        self._not_before_ms = now_ms + self._backoff.initial_ms
        # A cluster that was reached before will likely return. One that was never reached likely does not exist.
        if isinstance(outcome, ClientError) and not (outcome.retriable and self._view.nodes):
            self._outbox.poll_error = outcome
        for topic in self._requested:
            code = self._view.topic_errors.get(topic, 0)
            problem: ClientError | None = None
            if code in _FATAL:
                self._outbox.poll_error = error_for(code, f"Topic {topic!r}: {ErrorCode(code).text}")
            if code:
                self._not_before_ms = now_ms + self._backoff.max_ms
                problem = error_for(code, f"Topic {topic} cannot be read: {ErrorCode(code).text}")
            self._outbox.report(f"Topic {topic}", problem)

    def check_partitions(self, assigned: Iterable[TopicPartition]) -> None:
        """Report which of the partitions assigned by hand do not exist."""
        for tp in assigned:
            partitions = self._view.partitions(tp.topic)
            if partitions is None:
                continue
            problem: ClientError | None = None
            if tp.partition not in partitions:
                problem = UnknownTopicOrPartition(
                    f"Partition {tp} does not exist: {tp.topic} has partitions 0 to {len(partitions) - 1}"
                )
            self._outbox.report(f"Partition {tp}", problem)
