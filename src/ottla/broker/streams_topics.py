"""Creates the internal topics of streams groups: repartition and changelog topics with their settings. KIP-1071.

A heartbeat does not wait for the creation: the group finds the topics with its next heartbeat. The members of a group
report a failure for two heartbeat intervals, and the creation is retried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.rate_limit import RateLimitedLog
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from ottla.common.clock import Clock
    from ottla.coordinators.group.streams.topics import InternalTopic

logger = logging.getLogger(__name__)

# The most topics of one request, and the most failures that a member reports.
MOST_AT_ONCE = 1_000
MOST_REPORTED = 3
# Failures that are remembered; the oldest ones are forgotten.
MOST_FAILURES = 1_000


class StreamsTopics:
    """Requests missing topics by `send`, which passes the request to the active controller."""

    def __init__(self, send: Callable[[CreateTopicsRequest], Completion[CreateTopicsResponse]]) -> None:
        self._send = send
        self._in_flight: set[str] = set()
        self._failures: dict[str, tuple[str, int]] = {}
        """Message and expiry of the last failure of each topic, the oldest first."""
        self._log = RateLimitedLog(logger)

    def create(self, topics: Iterable[InternalTopic], remembered_ms: int, clock: Clock) -> dict[str, str]:
        """Request the topics that are not in flight; returns the failures of the last `remembered_ms`. Never fails."""
        topics = tuple(topics)
        wanted = {topic.name: topic for topic in topics if topic.name not in self._in_flight}
        chosen = dict(islice(wanted.items(), MOST_AT_ONCE))
        if chosen:
            self._begin(chosen, remembered_ms, clock)
        now_ms = clock.monotonic_ms()
        known = ((topic.name, self._failures.get(topic.name)) for topic in topics)
        recent = ((name, failure[0]) for name, failure in known if failure is not None and failure[1] > now_ms)
        return dict(islice(recent, MOST_REPORTED))

    def _begin(self, topics: dict[str, InternalTopic], remembered_ms: int, clock: Clock) -> None:
        self._in_flight.update(topics)
        request = CreateTopicsRequest(topics=[_creatable(topic) for topic in topics.values()])

        def finish(done: Completion[CreateTopicsResponse]) -> None:
            self._in_flight.difference_update(topics)
            try:
                rows = done.result().topics
            except KafkaError as error:
                failures = dict.fromkeys(topics, error.message or error.code.name)
            else:
                fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
                failed = [row for row in rows if row.error_code not in fine]
                failures = {row.name: row.error_message or ErrorCode(row.error_code).name for row in failed}
            expiry_ms = clock.monotonic_ms() + remembered_ms
            for name in topics:
                self._failures.pop(name, None)
            for name, message in failures.items():
                self._log.warning("Creation of the internal topic %s failed: %s", name, message)
                self._failures[name] = message, expiry_ms
            while len(self._failures) > MOST_FAILURES:
                del self._failures[next(iter(self._failures))]

        self._send(request).on_done(finish)


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or -1,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )
