"""The pipelines of the races with Kafka Streams, and a warm driver that runs them one after the other.

    python -m benchmarks.streams_program BOOTSTRAP DIRECTORY        as tests/peers/streams/StreamsRaces.java
    ottla stream run benchmarks/streams_program.py                  one, named by $OTTLA_RACE

The driver takes commands from standard input: `start NAME KIND INPUT OUTPUT GUARANTEE [MOST [LATENCY_MS]]`, where
MOST limits the records of a micro-batch (0: no limit), and `stop`, which ends all started pipelines and is answered
with Spark's reports of the last 100 micro-batches of each. It ends at the end of its input. The answers have the pipe
of standard output for themselves: what Spark and Java print there goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.spark import session
from ottla.streams import pipeline, stream, to
from ottla.streams.pacing import DEFAULT_LATENCY
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.streams import Output, Pipeline

CORES = 2
RACE = "OTTLA_RACE"
"""The environment variable with the words of a `start` command, for `ottla stream run`."""


def declare(
    name: str, kind: str, source: str, target: str, guarantee: str, most: str = "0", latency_ms: str | None = None
) -> Pipeline:
    """One of the pipelines."""

    def stateless(rows: DataFrame = stream(source, "text", key="text")) -> Output:
        kept = rows.where("substr(value, 1, 1) <> '0'")
        return to(target, kept.select("key", F.upper("value").alias("value")), key="key", value="text")

    def count(rows: DataFrame = stream(source, "text", key="text")) -> Output:
        return to(target, rows.groupBy("key").count(), key="key", value="text", mode="updates")

    declared = pipeline(
        name=name,
        exactly_once=guarantee == "exactly_once_v2",
        max_records=int(most) or None,
        latency=DEFAULT_LATENCY if latency_ms is None else f"{latency_ms} ms",
    )
    return declared({"stateless": stateless, "count": count}[kind])


def own_output() -> TextIO:
    """Standard output for this module alone; what others write to it, also in processes started later, is an error."""
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return own


def main() -> None:
    """Run what the commands say."""
    bootstrap, directory = sys.argv[1:]
    answers = own_output()
    options: dict[str, Any] = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": False}
    spark = session("races", f"local[{CORES}]", **options)
    runners: list[Runner] = []
    for line in sys.stdin:
        words = line.split()
        if words[0] == "start":
            settings = Settings({"bootstrap.servers": bootstrap}, directory)
            runners.append(Runner(spark, [declare(*words[1:])], settings))
            runners[-1].start()
            print("started", file=answers, flush=True)
            continue
        told: list[Any] = []
        while runners:
            runner = runners.pop()
            queries = [each.execution for each in runner._queries if each.execution is not None]  # noqa: SLF001
            runner.stop()
            told += [json.loads(row.json) for query in queries for row in query.recentProgress]
        print("stopped", json.dumps([row for row in told if row["numInputRows"]]), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
elif RACE in os.environ:
    race = declare(*os.environ[RACE].split())
