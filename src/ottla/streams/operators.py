"""The operators with state in the plan of a DataFrame."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from ottla.streams.description import Operator

AGGREGATE: Final = "aggregate"
PROCESSOR: Final = "processor"
JOIN: Final = "join of streams"
_KINDS: Final = {
    "Aggregate": AGGREGATE,
    "Deduplicate": "deduplicate",
    "DeduplicateWithinWatermark": "deduplicate",
    "Distinct": "deduplicate",
    "GlobalLimit": "limit",
}
_PROCESSORS: Final = ("FlatMapGroups", "TransformWithState")
_CASES: Final = re.compile(r"\b(?:upper|lower|initcap)\(")
_ID: Final = re.compile(r"#\d+L?(?:-T\d+ms)?")


@dataclass(frozen=True)
class Operators:
    """What a plan does with streams."""

    stateful: tuple[Operator, ...]
    is_streaming: bool
    has_watermark: bool
    has_clock: bool = False
    """Whether a processor has timers or state by the clock, so that Spark runs micro-batches without records, too."""

    def has(self, *kinds: str) -> bool:
        """Whether one of the operators is of these kinds."""
        return any(each.kind.endswith(kinds) for each in self.stateful)


def operators_of(rows: DataFrame) -> Operators:
    """Return the operators of a DataFrame; those nearest to the output come first."""
    nodes = list(_nodes(rows._jdf.queryExecution().analyzed()))  # noqa: SLF001 - Spark has no other access to the plan
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001
    stateful = [operator for name, node in nodes if (operator := _operator(jvm, name, node)) is not None]
    has_watermark = any(name == "EventTimeWatermark" for name, _ in nodes)
    return Operators(tuple(stateful), rows.isStreaming, has_watermark, any(_has_clock(*each) for each in nodes))


def check_supported(rows: DataFrame, *, is_update: bool) -> None:
    """Check operators that Spark does not support in streams, or not in this output mode, as the start of a query does.

    Raises AnalysisException.
    """
    spark = rows.sparkSession
    if spark.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "false":
        return
    jvm: Any = spark._jvm  # noqa: SLF001
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(plan, modes.Update() if is_update else modes.Append())


def changes_case(rows: DataFrame) -> bool:
    """Whether `upper`, `lower` or `initcap` is in the plan, as far as Spark prints it."""
    return _CASES.search(str(rows._jdf.queryExecution().analyzed().toString())) is not None  # noqa: SLF001


def _has_clock(name: str, node: Any) -> bool:
    if name.startswith("TransformWithState"):
        mode = node.timeMode()
    elif name.startswith("FlatMapGroups") and name.endswith("WithState"):
        mode = node.timeout()
    else:
        return False
    return str(mode.toString()).startswith("ProcessingTime")


def _nodes(plan: Any) -> Iterator[tuple[str, Any]]:
    """Yield the streaming nodes of a plan."""
    if not plan.isStreaming():
        return
    yield str(plan.nodeName()), plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _operator(jvm: Any, name: str, node: Any) -> Operator | None:
    if name == "Join":
        if all(child.isStreaming() for child in _items(node.children())):
            return Operator(f"{str(node.joinType().sql()).lower()} {JOIN}", keys=_join_keys(jvm, node))
        return None
    if name.startswith(_PROCESSORS):
        # Processors for DataFrames in Python have one of these methods, Scala's have neither.
        if name == "TransformWithStateInPySpark":
            return Operator(PROCESSOR, keys=(_names(node.leftAttributes()),))
        return Operator(PROCESSOR, keys=(_names(node.groupingAttributes()),) if "InPandas" in name else ())
    if name not in _KINDS:
        return None
    keys = node.groupingExpressions() if name == "Aggregate" else node.keys() if name.startswith("Dedup") else None
    columns = () if keys is None else _names(keys)
    return Operator(_KINDS[name], columns, (columns,) if columns else ())


def _join_keys(jvm: Any, join: Any) -> tuple[tuple[str, ...], ...]:
    """Return the columns of both sides that must be equal."""
    found = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(join)
    if not found.isDefined():
        return ()
    return _names(found.get().productElement(1)), _names(found.get().productElement(2))


def _names(expressions: Any) -> tuple[str, ...]:
    return tuple(_ID.sub("", each.toString()) for each in _items(expressions))


def _items(scala: Any) -> list[Any]:
    return [scala.apply(index) for index in range(scala.size())]
