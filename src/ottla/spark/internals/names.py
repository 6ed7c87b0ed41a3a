"""Names of Spark that its documentation does not mention (pyspark 4.2 to 4.3)."""

from __future__ import annotations

from typing import Final

WORKER_MODULES: Final = (
    "pyspark.worker",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.streaming.datasource",
)
"""The modules that Spark's Python processes run."""
SOURCE_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The process of a source. It gets nothing on its standard input, whose other end Java has until it dies."""
VALUE_MODULES: Final = ("pyspark.testing.utils", "pyspark.sql.pandas.types")
"""Modules that pyspark imports when it first sends a value to Java, with numpy and pandas."""

SESSION_CLASSES: Final = (
    "org.apache.spark.sql.ml.InternalFunctionRegistration$",
    "org.apache.spark.sql.catalyst.parser.SqlBaseLexer",
    "org.apache.spark.sql.catalyst.parser.SqlBaseParser",
)
"""Classes whose static fields each session or query computes, in this order: functions with Scala's reflection, and
the tables of the parser."""
CASE_CLASSES: Final = ("org.apache.spark.sql.catalyst.util.CollationAwareUTF8String",)
"""The class for `upper`, `lower` and `initcap`, which computes a table of all characters for more than a second."""
CHECKPOINT_FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Renames a file in this process; the default starts a process of the operating system for each file."""
STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""The state of streams on disk; Spark's documentation names it. The default keeps all of it in Java's heap."""
TRIGGERS: Final = "org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor"
"""The logger of Spark's triggers."""

INTERRUPTED: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling save: java.lang.InterruptedException"
"""The text by which Spark knows that a stop has interrupted foreachBatch.

Spark looks for it with a regular expression whose stack grows with the text. py4j's text, with Java's traces, ends the
thread of the query with a StackOverflowError, which Java prints in 1,100 lines.
"""
