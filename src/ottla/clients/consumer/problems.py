"""What keeps a consumer from reading although no call failed: each is logged once, at once, until it is over.

The consumer goes on trying. By the setting `on.problem=raise` the next poll raises it too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.clients.errors import BrokerError, BrokerUnavailable, ClientError, error_for
from ottla.clients.events import Reporter

logger = logging.getLogger("ottla.clients.consumer")


class Problems:
    """Problems by their subject (the coordinator, a broker, a topic). Belongs to the loop."""

    def __init__(self, reporter: Reporter, raise_later: Callable[[ClientError], None] | None) -> None:
        self._reporter = reporter
        self._raise_later = raise_later
        self._open: set[str] = set()

    def begins(self, subject: str, error: ClientError) -> None:
        """Report a problem, unless one with this subject is open."""
        if subject in self._open:
            return
        self._open.add(subject)
        logger.warning("%s; still trying", error)
        self._reporter.problem(error)
        if self._raise_later is not None:
            self._raise_later(error)

    def ends(self, subject: str) -> None:
        """The problem with this subject is over, if there was one."""
        if subject in self._open:
            self._open.discard(subject)
            logger.info("%s: works again", subject)

    def unreachable(self, subject: str, error: ClientError) -> None:
        """A request to a broker had no response. What no retry can change is raised by polls, and not reported here."""
        if isinstance(error, BrokerError):
            if error.retriable:
                self.begins(subject, error_for(error.code, f"{subject} is not available: {error}"))
        elif error.retriable or isinstance(error, BrokerUnavailable):
            advice = "If the address is wrong, correct that broker's advertised.listeners"
            self.begins(subject, BrokerUnavailable(f"{subject} cannot be reached: {error}. {advice}"))
