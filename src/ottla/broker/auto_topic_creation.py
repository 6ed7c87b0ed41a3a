"""Creates the topics that Metadata requests name (Kafka's AutoTopicCreationManager).

The Metadata response does not wait for the creation: it reports UNKNOWN_TOPIC_OR_PARTITION, and the client finds the
topic when it retries. A topic whose creation is in flight is not requested again, however many clients ask for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.common.completion import Completion
from ottla.common.errors import KafkaError
from ottla.common.ids import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.common.rate_limit import RateLimitedLog

logger = logging.getLogger(__name__)

Create = Callable[[list[str]], Completion[dict[str, KafkaError]]]
# Internal topics are created by their coordinators; there is none for share groups.
NOT_CREATED = INTERNAL_TOPICS - {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}


class AutoTopicCreation:
    """Requests missing topics by `create(names)`, which completes with the errors by topic name."""

    def __init__(self, create: Create) -> None:
        self._create = create
        self._in_flight: set[str] = set()
        self._log = RateLimitedLog(logger)

    def begin(self, names: Iterable[str]) -> None:
        """Request the creation of the topics that are not in flight already. Never fails: errors are logged."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._in_flight and name not in NOT_CREATED]
        if not wanted:
            return
        self._in_flight.update(wanted)
        self._log.info("Sent auto-creation request for %s to the active controller", ", ".join(wanted))

        def finish(done: Completion[dict[str, KafkaError]]) -> None:
            self._in_flight.difference_update(wanted)
            try:
                failures = done.result()
            except KafkaError as error:
                failures = dict.fromkeys(wanted, error)
            for name, failure in failures.items():
                self._log.warning("Auto topic creation failed for %s: %s", name, failure)

        self._create(wanted).on_done(finish)
