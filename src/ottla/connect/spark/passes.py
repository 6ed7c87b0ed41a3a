"""A source that Spark has only for batches: it is read once, or again after an interval, and written each time.

Each pass has an id, which is in the topic of source offsets before the pass begins. A pass that was interrupted is
repeated with its id, so that tasks that have written write nothing: each row is written once if a repeated read gives
the same rows in the same tasks, as for tables that do not change meanwhile.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Final

from pyspark.sql import SparkSession

from ottla.common import units
from ottla.connect.spark.failures import translated
from ottla.connect.spark.mirror import Mirror
from ottla.connect.spark.queries import OTTLA, written_rows
from ottla.connect.spark.settings import SparkSettings
from ottla.connect.worker.environment import TaskEnvironment
from ottla.spark.internals.errors import SPARK_ERRORS
from ottla.spark.internals.sessions import activate

_TICK_S: Final = 0.2
_STOP_S: Final = 5.0
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"


class Passes:
    """The passes of one task."""

    def __init__(
        self, environment: TaskEnvironment, session: SparkSession, settings: SparkSettings, mirror: Mirror
    ) -> None:
        self._environment = environment
        self._control = environment.control
        self._session = session
        self._settings = settings
        self._mirror = mirror
        # Else a repeated pass might have other tasks.
        session.conf.set(_ADAPTIVE, "false")

    def run(self) -> None:
        """Make the passes that are due, until the task should pause or stop. Raises ConnectError, ClientError."""
        control, repeat_ms = self._control, self._settings.repeat_ms
        while not (control.stopping or control.paused):
            state = dict(self._mirror.read() or {})
            passes, ended_ms = int(state.get("passes", 0)), int(state.get("ended ms", 0))
            is_open = bool(state.get("pass"))
            due_ms = 0 if not passes else None if repeat_ms is None else ended_ms + repeat_ms
            if not is_open and (due_ms is None or units.now_ms() < due_ms):
                again = (
                    "it is read again when its offsets are reset" if due_ms is None else f"the next is at {due_ms} ms"
                )
                control.waits_for(f"Pass {passes} has written all rows of the source; {again}.")
                control.wait(_TICK_S)
                continue
            self._pass(passes, str(state["pass"]) if is_open else "")

    def _pass(self, passes: int, identity: str) -> None:
        if not identity:
            identity = str(uuid.uuid4())
            self._mirror.write({"passes": passes, "pass": identity})
        self._control.waits_for("")
        started_s = time.monotonic()
        if not self._write(identity):
            return
        self._mirror.write({"passes": passes + 1, "ended ms": units.now_ms()})
        self._control.succeeded()
        self._control.report_facts(
            {"passes": passes + 1, "duration of pass ms": round(1000 * (time.monotonic() - started_s))}
        )

    def _write(self, identity: str) -> bool:
        """Write all rows. Returns whether it was completed. Raises ConnectError."""
        errors: list[Exception] = []
        thread = threading.Thread(target=self._save, args=(identity, errors), name=f"pass-{identity}", daemon=True)
        thread.start()
        while thread.is_alive():
            if self._control.stopping or self._control.paused:
                self._session.interruptTag(identity)
                thread.join(_STOP_S)
                return False
            thread.join(_TICK_S)
        if errors:
            raise translated(errors[0]) if isinstance(errors[0], SPARK_ERRORS) else errors[0]
        return True

    def _save(self, identity: str, errors: list[Exception]) -> None:
        try:
            activate(self._session)
            self._session.addTag(identity)
            settings = self._settings
            reader = self._session.read.format(settings.format).options(**settings.options)
            if settings.schema:
                reader = reader.schema(settings.schema)
            rows, options = written_rows(self._environment, self._session, reader.load(), settings)
            rows.write.format(OTTLA).mode("append").options(**options, exactlyOnceId=identity).save()
        except Exception as error:  # noqa: BLE001 - raised in the task's thread
            errors.append(error)
