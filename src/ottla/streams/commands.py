"""The commands of `ottla stream`: run the pipelines of a file, explain them, or prepare the start of Spark.

The Spark session is started before the file is imported, since `udf("STRING")` needs one.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.spark import class_archive, collectors
from ottla.spark.internals import java
from ottla.spark.internals.exceptions import first_line
from ottla.spark.session import JAVA_OPTIONS, JavaMissing, java_options, session, silent_java, use_java
from ottla.streams import late
from ottla.streams.description import Description
from ottla.streams.errors import Interrupted, StreamsError
from ottla.streams.loading import find_neighbours, load_pipelines
from ottla.streams.settings import Settings
from ottla.streams.status import Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHORT_JAVA: Final = "-XX:CompileThresholdScaling=4"
"""Java compiles only what runs very often."""
_SHORT_COLLECTOR: Final = "-XX:+UseParallelGC"
"""It takes the least processor time, but makes longer pauses."""

_LOG: Final = Path(__file__).with_name("log4j2.properties")
"""Settings of the Java log in a terminal, unless the user has a file for it."""

logger = logging.getLogger("ottla.streams")


def run_file(path: Path, names: Sequence[str], settings: Settings, master: str | None = None) -> tuple[Status, ...]:
    """Run the pipelines of a file, and return what each query has done. Blocks.

    Raises StreamsError, PipelineFailed, exceptions of the file, and after Ctrl-C Interrupted with the statuses so far.
    """
    find_neighbours(path)
    logger.info("Starting Spark: the first micro-batch can take half a minute")
    conf: dict[str, Any] = {"spark.ui.enabled": False} if settings.once else {}
    conf |= _quiet(f"{_SHORT_JAVA} {collectors.for_driver(_SHORT_COLLECTOR)}".strip() if settings.once else "")
    try:
        spark = _started(path.stem, master, conf)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would interrupt the end of this process
        raise
    _silence_errors()
    stop = late.runtime.Stop()
    try:
        done = late.runtime.run_in(spark, load_pipelines(path, names), settings, stop)
    finally:
        if stop.is_set():  # tasks that end later would log that they were stopped
            java.set_log_level("OFF")
    if stop.number == signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would interrupt the end of Spark
        raise Interrupted(*done)
    return done


def _started(name: str, master: str | None, conf: Mapping[str, Any]) -> SparkSession:
    """Start a Spark session. Raises StreamsError if Java or the master is missing, ImportError without pyspark."""
    from pyspark.errors import PySparkRuntimeError

    from ottla.spark.internals.errors import JAVA_EXCEPTION

    with _java():
        try:
            return session(name, master, imports=["ottla.streams.runtime"], **conf)
        except (JAVA_EXCEPTION, PySparkRuntimeError) as error:
            reason = first_line(error)
            chosen = master or os.environ.get("MASTER")
            if not chosen:
                raise StreamsError(f"Spark did not start: {reason}") from error
            advice = f"Check that {chosen} is the address of a master that runs."
            raise StreamsError(f"Spark did not start with the master {chosen}: {reason}", advice) from error


@contextmanager
def _java() -> Iterator[None]:
    """Let a session start Java without a warning. Raises StreamsError if there is no Java."""
    try:
        with silent_java():
            yield
    except JavaMissing as error:
        raise StreamsError(str(error)) from error


def _quiet(more_options: str = "") -> dict[str, Any]:
    """Return Spark settings for a command: Java options, a log of problems, and no progress bars."""
    options = [java_options(), "" if has_log_settings() else f"-Dlog4j2.configurationFile={_LOG.as_uri()}"]
    return {"spark.ui.showConsoleProgress": False, JAVA_OPTIONS: " ".join(filter(None, (*options, more_options)))}


def _silence_errors() -> None:
    """Let pyspark not log raised Spark exceptions, each with Java's trace in a line of JSON."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def has_log_settings() -> bool:
    """Whether the user has chosen what Spark logs."""
    home = os.environ.get("SPARK_HOME")
    places = [os.environ.get("SPARK_CONF_DIR"), None if home is None else f"{home}/conf"]
    found = [each for place in places if place is not None for each in Path(place).glob("log4j2.*")]
    return any(each.suffix != ".template" for each in found)


def prepare() -> Path:
    """Store Spark's classes for later starts. Returns the file. Raises StreamsError."""
    try:
        use_java()
        return class_archive.create()
    except (class_archive.ArchiveFailed, JavaMissing) as error:
        raise StreamsError(f"Spark's classes were not stored: {error}") from error


def explain_file(path: Path, names: Sequence[str]) -> list[Description]:
    """Describe the pipelines of a file. Starts a Spark session on this machine, and connects to no broker.

    Raises StreamsError, and exceptions of the file.
    """
    find_neighbours(path)
    conf: dict[str, Any] = {"spark.ui.enabled": False, "spark.log.level": "ERROR"}
    conf |= _quiet()
    with _java():
        spark = session("ottla stream explain", "local[1]", **conf)
    _silence_errors()
    pipelines = load_pipelines(path, names)
    settings = Settings({"bootstrap.servers": "explained:9092"}, "checkpoints")
    plans = [late.planning.make_plan(spark, each, settings) for each in pipelines]
    return [each.description for each in late.planning.with_loops(plans)]
