"""Reports problems that prevent a consumer from reading although no call fails.

A problem has a subject: the coordinator, a broker, a topic or a partition. It is logged once when it begins and once
when it ends. The consumer keeps retrying meanwhile. With the setting `on.problem=raise` the next poll also raises it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.clients.errors import BrokerError, BrokerUnavailable, ClientError, error_for
from ottla.clients.events import Reporter

logger = logging.getLogger("ottla.clients.consumer")


class ProblemReports:
    """The open problems by subject. Used on the event loop only."""

    def __init__(self, reporter: Reporter, raise_later: Callable[[ClientError], None] | None) -> None:
        self._reporter = reporter
        self._raise_later = raise_later
        self._open: set[str] = set()

    def begin(self, subject: str, error: ClientError) -> None:
        if subject in self._open:
            return
        self._open.add(subject)
        logger.warning("%s; still trying", error)
        self._reporter.problem(error)
        if self._raise_later is not None:
            self._raise_later(error)

    def end(self, subject: str) -> None:
        if subject in self._open:
            self._open.discard(subject)
            logger.info("%s: available again", subject)

    def unreachable(self, subject: str, error: ClientError) -> None:
        """Report that a request to a broker failed. An error that no retry can fix is not reported: polls raise it."""
        if isinstance(error, BrokerError):
            if error.retriable:
                self.begin(subject, error_for(error.code, f"{subject} is not available: {error}"))
        elif error.retriable or isinstance(error, BrokerUnavailable):
            advice = "If the address is wrong, correct that broker's advertised.listeners"
            self.begin(subject, BrokerUnavailable(f"{subject} cannot be reached: {error}. {advice}"))
