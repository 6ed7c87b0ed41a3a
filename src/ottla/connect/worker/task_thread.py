"""The thread of one task: its lives, one after the other, with pauses after failures that pass."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from ottla.connect.errors import RetriableError
from ottla.connect.runtime import Report, State, TaskId
from ottla.connect.worker.control import PAUSED, TaskControl
from ottla.connect.worker.failures import delay_ms, retriable_kind, trace_of
from ottla.connect.worker.providers import Secrets

logger = logging.getLogger("ottla.connect.worker")
_PAUSE_S: Final = 0.5
_CHANGED_CREDENTIALS: Final = "The credentials are read again for each try: correct the file or variable that has them"
Live: TypeAlias = Callable[[], None]
"""One life of a task. Raises the error that ends it."""
Changed: TypeAlias = Callable[[State, str], None]


class TaskThread:
    """Runs one task until it is stopped, or fails for good."""

    def __init__(
        self,
        task: TaskId,
        control: TaskControl,
        live: Live,
        changed: Changed,
        secrets: Secrets,
        *,
        rereads: bool = False,
    ) -> None:
        """`rereads`: whether the credentials of its clients are variables, which are read again for each connection."""
        self.task = task
        self.control = control
        self._live = live
        self._changed = changed
        self._secrets = secrets
        self._rereads = rereads
        self._state: State | None = None
        """The last state that this thread has reported."""
        # A daemon: a task that does not stop in time must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"task-{task}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def shows(self, *, paused: bool) -> None:
        """Report that the task runs or is paused, if that is new. Called by its life, in this thread."""
        self._report(State.PAUSED if paused else State.RUNNING)

    def _report(self, state: State, trace: str = "") -> None:
        if state is not self._state or trace:
            self._state = state
            self._changed(state, trace)

    def report(self) -> Report:
        """Return what the task says of itself, without secrets."""
        return self.control.report(self._secrets.hide)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread; returns whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        control = self.control
        while not control.stopping:
            try:
                self._live()
            except Exception as error:  # noqa: BLE001 - the code of connectors may raise anything; it is reported
                if not self._continues_after(error):
                    return

    def _continues_after(self, error: Exception) -> bool:
        """Report an error. Returns whether to live again, after a pause."""
        control = self.control
        kind = retriable_kind(error, rereads=self._rereads)
        if kind == "credentials":
            refused = RetriableError(f"{error}. {_CHANGED_CREDENTIALS}")
            refused.__cause__ = error
            error = refused
        trace = trace_of(error, self._secrets)
        if control.stopping:
            logger.warning("Task %s failed while it stopped: %s", self.task, trace)
            return False
        if kind is None:
            logger.error("Task %s failed and will not be started again: %s", self.task, trace)
            control.waits_for("The task has failed: it waits for a restart by an operator.")
            self._report(State.FAILED, trace)
            return False
        tried = control.tried + 1
        wait_ms = delay_ms(kind, tried)
        message = self._secrets.hide(str(error))
        control.retries(tried, time.time_ns() // 1_000_000 + wait_ms, message)
        control.waits_for(f"The task starts again in {wait_ms} ms, after a failure of {kind}: {message}")
        logger.warning("Task %s failed and starts again in %d ms: %s", self.task, wait_ms, message)
        self._report(State.RESTARTING, trace)
        control.wait_for_retry(wait_ms / 1000)
        was_paused = False
        while control.paused and not control.stopping:
            was_paused = True
            control.waits_for(PAUSED)
            self.shows(paused=True)
            control.wait_while_paused(_PAUSE_S)
        if was_paused and not control.stopping:
            # The next life takes a while until it shows that it runs.
            control.waits_for(f"The task starts again, after a failure of {kind}: {message}")
            self._report(State.RESTARTING, trace)
        return not control.stopping
