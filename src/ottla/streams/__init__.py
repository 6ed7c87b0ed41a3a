"""Streams: pipelines from topics to topics, on Spark Structured Streaming (docs/streams.md, decision record 23).

A program declares `stream`s and `table`s, functions between them (`pipeline`), and outputs (`to`). Everything between
the inputs and the outputs is a plain Spark DataFrame. Names here are imported on first use: declarations do not import
Spark.

Reading order:

1. Values and decisions, without Spark: declarations, schemas, settings, description, drawing, failures.
2. From declarations to DataFrames and queries: inputs, operators, planning, outputs.
3. Running: runtime, running_query, input_topics, checkpoint_files, checkpoints, loading; commands for the CLI.
4. Reports of a run: progress, batch_reports, slow_tasks, key_samples, status, publishing. observing reads them,
   diagnosis explains them.
5. resetting: another start; lookup: one key of a table; testing: a pipeline in a test.
"""

from ottla.common.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
