"""Streams: pipelines from topics to topics, on Spark Structured Streaming (docs/streams.md, decision record 23).

A program declares `stream`s and `table`s, functions between them (`pipeline`), and outputs (`to`). Everything between
the inputs and the outputs is a plain Spark DataFrame. Names here are imported on first use: declarations do not import
Spark.

Reading order:

1. Values and decisions, without Spark: declarations, schemas, settings, description, drawing, failures.
2. From declarations to DataFrames and queries: inputs, operators, planning, outputs.
3. Running: runtime, running_query, input_topics, checkpoint_files, checkpoints, loading; commands for the CLI.
4. What a run reports: progress, batch_reports, slow_tasks, key_samples, status, publishing. observing reads it,
   diagnosis explains it.
5. resetting: another start; lookup: one key of a table; testing: a pipeline in a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.common.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.streams.declarations import Output, Pipeline, Stream, Table, pipeline, stream, table, to
    from ottla.streams.errors import PipelineFailed, StreamsError
    from ottla.streams.runtime import run

_MODULES = {
    "Output": "ottla.streams.declarations",
    "Pipeline": "ottla.streams.declarations",
    "PipelineFailed": "ottla.streams.errors",
    "Stream": "ottla.streams.declarations",
    "StreamsError": "ottla.streams.errors",
    "Table": "ottla.streams.declarations",
    "pipeline": "ottla.streams.declarations",
    "run": "ottla.streams.runtime",
    "stream": "ottla.streams.declarations",
    "table": "ottla.streams.declarations",
    "to": "ottla.streams.declarations",
}

__all__ = [
    "Output",
    "Pipeline",
    "PipelineFailed",
    "Stream",
    "StreamsError",
    "Table",
    "pipeline",
    "run",
    "stream",
    "table",
    "to",
]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
