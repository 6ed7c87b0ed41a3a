"""The Spark session of a worker: one for all its connectors, started by the first one.

Each connector gets a session of its own in it (`newSession`), with its own `spark.conf.*`. The first connector
decides the master, and settings of the whole session, such as memory or packages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from ottla.connect.errors import ConnectError
from ottla.spark.internals.sessions import activate
from ottla.spark.session import session as start_session
from ottla.spark.session import settings as session_settings

logger = logging.getLogger("ottla.connect.spark")
_SQL: Final = "spark.sql."
_lock: Final = threading.Lock()
_first: list[SparkSession] = []
_asked: dict[str, str] = {}
"""The settings with which the first connector has started Spark."""


def session_of(master: str, conf: Mapping[str, str]) -> SparkSession:
    """Return a new session for one connector. Blocks for seconds while Java starts. Raises ConnectError."""
    with _lock:
        running = _running()
        if running is None:
            logger.info("Starting Spark with master %s", master or "local[*]")
            settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **conf}
            running = start_session("ottla connect", master or None, **settings)
            _first[:] = [running]
            _asked.update(conf)
        found = running.sparkContext.master
        if master and found != master:
            raise ConnectError(
                f"The Spark session of this worker has the master {found}, not {master}: all Spark connectors of a "
                "worker share one session. Use the same spark.master, or another worker"
            )
        own = running.newSession()
    activate(own)
    defaults = {name: text for name, text in session_settings(found).items() if name.startswith(_SQL)}
    for name, text in {**defaults, **conf}.items():
        _set(own, name, text)
    return own


def _running() -> SparkSession | None:
    """Return a session of this process whose Java runs."""
    return _first[0] if _first else SparkSession.getActiveSession()


def _set(session: SparkSession, name: str, text: str) -> None:
    """Set a value, or check that the whole session has it. Raises ConnectError."""
    if session.conf.isModifiable(name):
        session.conf.set(name, text)
        return
    # Spark adds options of its own to some settings, so the settings of the first connector are compared.
    now = _asked.get(name)
    if now is None:
        now = session.sparkContext.getConf().get(name)
    if now is None:
        now = session.conf.get(name, None)
    if now != text:
        raise ConnectError(
            f"spark.conf.{name} is a setting of the whole Spark session, which already runs with "
            f"{'its default' if now is None else now!r}: restart the worker to change it"
        )
