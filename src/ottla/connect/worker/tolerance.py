"""Errors of single records: repeat, report, then skip the record or stop the task (KIP-298)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.clients.consumer.record import Record
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.records import SourceRecord
from ottla.connect.runtime import TaskId
from ottla.connect.worker.control import TaskControl
from ottla.connect.worker.task_settings import ErrorSettings

logger = logging.getLogger("ottla.connect.worker")
FIRST_DELAY_MS: Final = 300
T = TypeVar("T")


class Stage(StrEnum):
    """The stage in which a record failed; the texts are Kafka Connect's."""

    TASK_PUT = "TASK_PUT"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"


class Failure(NamedTuple):
    """A record that failed. `raw` is the record of the topic, for sinks."""

    stage: Stage
    plugin: str
    """The class that failed."""
    error: Exception
    source: SourceRecord | None = None
    raw: Record[bytes, bytes] | None = None

    @property
    def place(self) -> str:
        """The record in words."""
        if self.raw is not None:
            return f"topic {self.raw.topic}, partition {self.raw.partition}, offset {self.raw.offset}"
        if self.source is not None:
            position = f"source partition {self.source.source_partition}, source offset {self.source.source_offset}"
            return f"{position}, for topic {self.source.topic}"
        return "an unknown record"


class Reporter(Protocol):
    """Keeps failures somewhere."""

    def report(self, failure: Failure) -> None:
        """Keep a failure. Raises if that is not possible."""
        ...


class Tolerance:
    """Decides about the failures of one task."""

    def __init__(
        self,
        task: TaskId,
        settings: ErrorSettings,
        control: TaskControl,
        reporter: Reporter | None = None,
        *,
        hide: Callable[[str], str] = str,
    ) -> None:
        """`hide` removes secrets from what is logged."""
        self._task = task
        self._hide = hide
        self.settings = settings
        self._control = control
        self._reporter = reporter
        self._random = Random()
        self.skipped = 0

    def repeat(self, action: Callable[[], T], error: RetriableError) -> T:
        """Repeat a failed action for errors.retry.timeout, and return its result. Raises its last error.

        A RetriableError stops the task, which starts again later, even if records may be skipped: the record is not
        the cause. Kafka Connect skips the record.
        """
        timeout_ms = self.settings.retry_timeout_ms
        deadline = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
        tried = 0
        while deadline is None or time.monotonic() < deadline:
            tried += 1
            delay_s = self._delay_ms(tried) / 1000
            if deadline is not None:
                delay_s = max(0.0, min(delay_s, deadline - time.monotonic()))
            self._control.repeats(str(error))
            if self._control.wait(delay_s):
                break
            try:
                result = action()
            except RetriableError as again:
                error = again
            else:
                self._control.repeats("")
                return result
        raise error

    def _delay_ms(self, tried: int) -> int:
        delay = FIRST_DELAY_MS << min(tried - 1, 20)
        most = self.settings.max_delay_ms
        return delay if delay <= most else self._random.randrange(max(1, most))

    def failed(self, failure: Failure) -> None:
        """Report a failure; then skip the record, or raise the error that stops the task: it names the record."""
        self._log(failure)
        if self._reporter is not None:
            self._reporter.report(failure)
        if not self.settings.tolerates:
            kind = DataError if isinstance(failure.error, DataError) else ConnectError
            message = f"{failure.stage} of {failure.plugin} failed at {failure.place}: {failure.error}"
            raise kind(message) from failure.error
        self.skipped += 1
        self._control.report_facts({"records skipped": self.skipped, "last error": f"{failure.place}: {failure.error}"})

    def _log(self, failure: Failure) -> None:
        if not self.settings.logs:
            return
        record = f", where the record is {self._hide(failure.place)}" if self.settings.logs_records else ""
        logger.error(
            "Error encountered in task %s. Executing stage '%s' with class '%s'%s: %s",
            self._task,
            failure.stage,
            failure.plugin,
            record,
            self._hide(str(failure.error)) if self.settings.logs_records else type(failure.error).__name__,
        )
