"""The start of a run: it is repeated while a broker or a Spark process is unavailable, and says so meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.spark.internals.errors import SPARK_ERRORS
from ottla.streams.errors import PipelineFailed, StreamsError
from ottla.streams.failures import Failure, Restarts, classify_exception
from ottla.streams.status import Phase, Problem, Receiver, Status

logger = logging.getLogger("ottla.streams")
Started = TypeVar("Started")


@dataclass
class Start:
    """The attempts to start. `statuses` are by pipeline, whose queries are not known before."""

    statuses: Sequence[Status]
    receivers: Sequence[Receiver]
    problem: Problem | None = None
    """Why the last failed attempt failed."""

    def repeat(
        self, attempt: Callable[[], Started], clean: Callable[[], None], stop: threading.Event
    ) -> Started | None:
        """Return what `attempt` returns; None if `stop` is set. `clean` is called after each failed attempt.

        Raises PipelineFailed, StreamsError and exceptions of clients if another attempt would not help.
        """
        restarts = Restarts()
        while True:
            try:
                return attempt()
            except (StreamsError, ClientError, *SPARK_ERRORS) as error:
                clean()
                failure = classify_exception(error)
                if not failure.is_retriable or restarts.are_over:
                    self._note("failed", failure, restarts)
                    if not isinstance(error, SPARK_ERRORS):
                        raise
                    raise PipelineFailed(f"{self._names()} did not start: {failure.reason}") from error
            logger.warning("Starting again in %g s: %s", restarts.delay_s, failure.reason)
            self._note("restarting", failure, restarts, restarts.delay_s)
            if stop.wait(restarts.delay_s):
                self._note("stopped", failure, restarts)
                return None
            restarts = restarts.one_more()

    def _note(self, phase: Phase, failure: Failure, restarts: Restarts, delay_s: float | None = None) -> None:
        now_ms = units.now_ms()
        next_start_ms = None if delay_s is None else now_ms + round(1000 * delay_s)
        self.problem = Problem(now_ms, failure.kind, failure.reason, restarts.count, next_start_ms)
        for status in self.statuses:
            for each in self.receivers:
                each.offer(replace(status, phase=phase, at_ms=now_ms, problem=self.problem))

    def _names(self) -> str:
        names = ", ".join(repr(each.run.pipeline) for each in self.statuses)
        return f"{'Pipeline' if len(self.statuses) == 1 else 'Pipelines'} {names}"
