"""The active session, known formats, and reports about micro-batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from ottla.spark.internals.java import start_callbacks


def ensure_active(spark: SparkSession) -> None:
    """Let Spark find `format("ottla")` in this thread: it looks in the active session of the thread.

    Uses `SparkSession._jvm` and `_jsparkSession`, and Java's `classic.SparkSession` (pyspark 4.2 to 4.3).
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    if not sessions.getActiveSession().isDefined():
        sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def activate(spark: SparkSession) -> None:
    """Make this the active session of the thread, where another one of the same Java process may be active.

    Uses `SparkSession._jvm` and `_jsparkSession`, and Java's `classic.SparkSession` (pyspark 4.2 to 4.3).
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source in a session, whichever session is active in this thread.

    Spark refuses the name if the active session knows it, and the new session cannot use it then. Uses
    `SparkSession._jvm` and `_jsparkSession`, and Java's `classic.SparkSession` (pyspark 4.2 to 4.3).
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    try:
        spark.dataSource.register(source)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def knows_format(spark: SparkSession, name: str) -> bool:
    """Whether Spark finds a data source in Python by its name.

    Uses `SparkSession._jsparkSession` and Java's `DataSourceManager` (pyspark 4.2 to 4.3).
    """
    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001
    return bool(manager.dataSourceExists(name))


def _ignore(*_: object) -> None: ...


def report_batches(
    spark: SparkSession,
    take: Callable[[str], None],
    begun: Callable[[str, str, str | None], None] = _ignore,
    ended: Callable[[str, bool], None] = _ignore,
) -> Callable[[], None]:
    """Call `take` with the report about each micro-batch of a session, as JSON; returns a function that ends it.

    `begun` receives the id, the id of the run and the name of each query that starts; `ended` the id of the run, and
    whether the query failed.

    Spark calls a public listener in Python with Java objects, and pyspark copies them field by field: 60 ms for a query
    with state. This takes less than a millisecond. Uses Java's `PythonStreamingQueryListenerWrapper`,
    `SparkSession._jvm` and `StreamingQueryManager._jsqm` (pyspark 4.2 to 4.3).
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    start_callbacks()
    listener = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_Listener(take, begun, ended))
    queries: Any = spark.streams
    queries._jsqm.addListener(listener)  # noqa: SLF001

    def end() -> None:
        queries._jsqm.removeListener(listener)  # noqa: SLF001

    return end


class _Listener:
    class Java:
        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(
        self,
        take: Callable[[str], None],
        begun: Callable[[str, str, str | None], None],
        ended: Callable[[str, bool], None],
    ) -> None:
        self._take = take
        self._begun = begun
        self._ended = ended

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's
        self._begun(event.id().toString(), event.runId().toString(), event.name())

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's
        self._take(event.progress().json())

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802 - Spark's

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's
        self._ended(event.runId().toString(), event.exception().isDefined())
