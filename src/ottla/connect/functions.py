"""Connectors as plain functions (docs/python-connectors.md).

    @source("numbers", config={"last": 100})
    def numbers(config, after, limit):
        start = after or 0
        rows = [{"number": each} for each in range(start, min(start + limit, config.last))]
        return rows, start + len(rows)

A source returns rows and the offset to go on at. It is called again with the same offset after a failure, so it should
return the same rows. The worker writes rows and offset together: exactly once, if the worker supports it.

A sink gets the records of one partition and the range of their offsets. It may be called again with records that it has
written already, in other ranges: it compares offsets, or writes by key, or has a function `resume`.

The decorated functions stay plain: a test calls them, and other runtimes read the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.connect.function_declarations import RETRIED, Errors, FunctionSink, FunctionSource, Key, Topic
from ottla.connect.function_settings import SettingsModel

if TYPE_CHECKING:
    from ottla.connect.api import Connector


def source(
    name: str,
    *,
    config: Mapping[str, Any] | type[Any] | None = None,
    partitions: Callable[[Any], Sequence[Any]] | None = None,
    topic: Topic = None,
    key: Key = None,
    schema: type[Any] | None = None,
    retry_on: Errors = RETRIED,
    wait_s: float = 1.0,
) -> Callable[[Callable[..., Any]], FunctionSource]:
    """Declare a source: a function of the configuration, an offset and a limit that returns rows and the next offset.

    - `config`: a dataclass, or a mapping from names to types (required settings) or defaults.
    - `partitions`: a function of the configuration that lists the parts of the source, as JSON values. Each part has an
      offset of its own, and the function gets the part as its second argument. Parts are divided over tasks.
    - `topic`: a default for the setting `topic`, or a function from a row to its topic.
    - `key`: the field of the row that is the record's key, or a function from a row to its key.
    - `schema`: a dataclass; rows that are dicts then have its schema. Rows that are dataclasses have theirs.
    - `retry_on`: exceptions after which the worker calls again, after a pause that doubles. Others stop the task.
    - `wait_s`: how long the worker waits after a call without rows, in seconds.

    Rows are dicts, dataclasses or SourceRecords. Raises TypeError for a declaration that is not valid.
    """
    settings = SettingsModel(config)

    def declare(function: Callable[..., Any]) -> FunctionSource:
        return FunctionSource(
            name, function, settings, _source_connector, partitions, topic, key, schema, retry_on, wait_s
        )

    return declare


def sink(
    name: str,
    *,
    config: Mapping[str, Any] | type[Any] | None = None,
    rows: str = "records",
    resume: Callable[[Any, str, int], int | None] | None = None,
    retry_on: Errors = RETRIED,
) -> Callable[[Callable[..., Any]], FunctionSink]:
    """Declare a sink: a function of the configuration, rows and a Batch.

    - `config`: as for `source`.
    - `rows`: `records` (a list of SinkRecords) or `arrow` (a pyarrow.RecordBatch of the values).
    - `resume`: a function of the configuration, a topic and a partition that returns the next offset from the other
      system, None if it has none. A sink that stores offsets together with rows is exactly once by it.
    - `retry_on`: exceptions after which the worker calls again with the same records, after a pause that doubles.

    Raises TypeError for a declaration that is not valid.
    """
    if rows not in ("records", "arrow"):
        raise TypeError(f"rows={rows!r}: it is records or arrow")
    settings = SettingsModel(config)

    def declare(function: Callable[..., Any]) -> FunctionSink:
        return FunctionSink(name, function, settings, _sink_connector, rows == "arrow", resume, retry_on)

    return declare


def _source_connector(declared: FunctionSource) -> type[Connector]:
    """Return the connector of a source. Its modules are imported when it runs."""
    from ottla.connect.function_tasks import source_connector  # noqa: PLC0415

    return source_connector(declared)


def _sink_connector(declared: FunctionSink) -> type[Connector]:
    """Return the connector of a sink. Its modules are imported when it runs."""
    from ottla.connect.function_tasks import sink_connector  # noqa: PLC0415

    return sink_connector(declared)
