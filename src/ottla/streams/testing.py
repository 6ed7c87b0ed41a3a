"""A pipeline on the broker of a test, step by step: send records, read results, move the event time.

The fixture `ottla_streams` (docs/streams.md) makes these. The pipeline runs as it does in production: the same queries,
formats and transactions.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester as TwsTester  # noqa: PLC0414 - re-exported

from ottla.common.errors import ErrorCode, KafkaError
from ottla.spark import collectors
from ottla.spark.idle import TICK
from ottla.spark.internals.java import process_of
from ottla.spark.session import QUICK_JAVA
from ottla.spark.session import session as spark_session
from ottla.streams.declarations import Input, Pipeline
from ottla.streams.errors import StreamsError
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings

if TYPE_CHECKING:
    from ottla.testing.record import Record
    from ottla.testing.view import Ottla


STOP_S = 60.0


def session() -> SparkSession:
    """Start a Spark session for tests on two cores."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings: dict[str, Any] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": collectors.for_driver(QUICK_JAVA),
    }
    return spark_session("tests", "local[2]", **settings)


def stop(session: SparkSession) -> None:
    """Stop a session. Raises StreamsError, after its Java was killed, if that takes longer than a minute."""
    # A thread has a connection to Java of its own, also if a timeout of a test interrupted the last call of this one.
    stopping = threading.Thread(target=session.stop, name="ottla-streams-stop", daemon=True)
    java = process_of(session)
    stopping.start()
    stopping.join(STOP_S)
    if stopping.is_alive():
        java.kill()
        raise StreamsError(f"Spark did not stop within {STOP_S:g} s; its Java {java.pid} was killed")


class Result(NamedTuple):
    """A record that a pipeline wrote: key as text, and value as JSON if it is JSON, else as text."""

    key: str | None
    value: Any


class PipelineTest:
    """One pipeline and its topics."""

    def __init__(self, spark: SparkSession, broker: Ottla, pipeline: Pipeline) -> None:
        self._broker = broker
        self._pipeline = pipeline
        # Spark's cleaners may still write to a checkpoint for a moment after the query has stopped.
        self._directory = tempfile.TemporaryDirectory(prefix="ottla-streams-", ignore_cleanup_errors=True)
        self._read: dict[str, int] = {}
        for topic in {given.topic for given in pipeline.inputs.values()}:
            _create(broker, topic)
        client = broker.settings()
        checkpoints = str(Path(self._directory.name))
        self._runner = Runner(spark, [pipeline], Settings(client, checkpoints, latency_ms=0, has_ticks=True))
        self._is_running = False

    def send(
        self, parameter: str, *values: Any, key: str | bytes | None = None, timestamp_ms: int | None = None
    ) -> None:
        """Send records to an input: text and bytes as they are, dictionaries as JSON, None as a tombstone.

        Tables are read at the first `read`.
        """
        topic = self._input(parameter).topic
        encoded = [json.dumps(each) if isinstance(each, Mapping) else each for each in values]
        self._broker.produce(topic, *encoded, key=key, timestamp=timestamp_ms)

    def advance(self, to: dt.datetime | str) -> None:
        """Move the event time of all streams, as a record with that time would.

        Text is in ISO format; without a zone it is UTC.
        """
        time = dt.datetime.fromisoformat(to) if isinstance(to, str) else to
        text = (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).isoformat()
        for given in self._pipeline.streams.values():
            if given.time is not None:
                self._broker.produce(given.topic, None, headers={TICK: text})

    def read(self, topic: str) -> list[Result]:
        """Process all records that were sent, and return the new ones of an output.

        Raises PipelineFailed, StreamsError: also after ten minutes.
        """
        return [Result(_text(record.key), _value(record.value)) for record in self.records(topic)]

    def process(self) -> None:
        """Start the pipeline, if it is not running, and process all records that were sent. Raises as `read` does."""
        if not self._is_running:
            self._runner.start()
            self._is_running = True
        self._runner.process_available()

    def records(self, topic: str) -> list[Record]:
        """As `read`, but whole records."""
        self.process()
        return self._new(topic)

    def _new(self, topic: str) -> list[Record]:
        found = self._broker.records(topic)
        new = found[self._read.get(topic, 0) :]
        self._read[topic] = len(found)
        return new

    def invalid(self, parameter: str) -> int:
        """How many records of a stream were invalid so far, with bad="skip" or a topic for them."""
        self._input(parameter)
        return self._runner.invalid().get(parameter, 0)

    def late(self) -> int:
        """How many rows were dropped so far because they were later than the watermark; see docs/streams.md."""
        return self._runner.late()

    def close(self) -> None:
        """Stop the pipeline."""
        self._runner.stop()
        self._directory.cleanup()

    def _input(self, parameter: str) -> Input:
        if parameter not in self._pipeline.inputs:
            known = ", ".join(self._pipeline.inputs)
            raise StreamsError(f"Pipeline {self._pipeline.name!r} has no input {parameter!r}; there are {known}")
        return self._pipeline.inputs[parameter]


def _create(broker: Ottla, topic: str) -> None:
    try:
        broker.topic(topic)
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _value(data: bytes | None) -> Any:
    text = _text(data)
    if text is None or not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
