"""The operators with state in the plan of a DataFrame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession

from ottla.streams.description import Operator
from ottla.streams.errors import StreamsError

AGGREGATE: Final = "aggregate"
PROCESSOR: Final = "processor"
STATE_FUNCTION: Final = "function with state"
"""Of applyInPandasWithState."""
JOIN: Final = "join of streams"
_KINDS: Final = {
    "Aggregate": AGGREGATE,
    "Deduplicate": "deduplicate",
    "DeduplicateWithinWatermark": "deduplicate",
    "Distinct": "deduplicate",
    "GlobalLimit": "limit",
}
_SOURCE: Final = "ottla"
_WITH_PROGRAMS: Final = {"TransformWithState": PROCESSOR, "FlatMapGroups": STATE_FUNCTION}
"""By the beginning of the name."""
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


class KeyedRows(NamedTuple):
    """The rows that go to the tasks of an operator with state. Rows with equal keys go to one task."""

    operator: str
    columns: tuple[str, ...]
    """The names of the columns of the key."""
    keys: DataFrame
    """The keys of the rows: the columns 0, 1, ... ."""


def operators_of(rows: DataFrame) -> Operators:
    """Return the operators of a DataFrame; those nearest to the output come first."""
    nodes = list(_nodes(rows._jdf.queryExecution().analyzed(), _is_streaming))  # noqa: SLF001 - Spark has no other access to the plan
    stateful = [operator for name, node in nodes if (operator := _operator(name, node, _is_streaming)) is not None]
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


def keyed_rows(rows: DataFrame) -> list[KeyedRows]:
    """Return what the operators of a DataFrame group, if its streams are read as batches.

    Spark decides by the hash of these columns which task has a row: windows are a part of the key, sessions are not.
    Raises StreamsError if an operator follows another one: the rows between them are not known.
    """
    found = []
    for name, node in _nodes(rows._jdf.queryExecution().analyzed(), _is_sampled):  # noqa: SLF001
        operator = _operator(name, node, _is_sampled)
        if operator is None:
            continue
        for keys, child in _keys(rows.sparkSession, name, node):
            below = _nodes(child, _is_sampled)
            if any(_operator(*each, _is_sampled) is not None for each in below):
                raise StreamsError("an operator with state follows another one")
            keys = [each for each in keys if not _name(each).startswith("session_window")]
            if keys:
                selected = _select(rows.sparkSession, child, keys)
                found.append(KeyedRows(str(operator), tuple(map(_name, keys)), selected))
    return found


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


def _is_streaming(plan: Any) -> bool:
    return bool(plan.isStreaming())


def _is_sampled(plan: Any) -> bool:
    """Whether the records of a stream are below a node of a plan whose streams are read as batches."""
    if plan.children().size():
        return any(map(_is_sampled, _items(plan.children())))
    return str(plan.nodeName()) == "DataSourceV2Relation" and str(plan.name()) == _SOURCE


def _nodes(plan: Any, has_stream: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Yield the nodes of a plan that have the records of streams."""
    if not has_stream(plan):
        return
    yield str(plan.nodeName()), plan
    for child in _items(plan.children()):
        yield from _nodes(child, has_stream)


def _operator(name: str, node: Any, has_stream: Callable[[Any], bool]) -> Operator | None:
    if name == "Join":
        if all(map(has_stream, _items(node.children()))):
            return Operator(f"{str(node.joinType().sql()).lower()} {JOIN}")
        return None
    for beginning, kind in _WITH_PROGRAMS.items():
        if name.startswith(beginning):
            return Operator(kind)
    if name not in _KINDS:
        return None
    return Operator(_KINDS[name], tuple(map(_name, _grouping(name, node))))


def _grouping(name: str, node: Any) -> list[Any]:
    if name == "Aggregate":
        return _items(node.groupingExpressions())
    return _items(node.keys()) if name.startswith("Dedup") else []


def _keys(spark: SparkSession, name: str, node: Any) -> list[tuple[list[Any], Any]]:
    """Return the expressions of the key of an operator, with the node whose rows it groups; a join has two of them."""
    children = _items(node.children())
    if name == "Join":
        jvm: Any = spark._jvm  # noqa: SLF001
        found = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(node)
        if not found.isDefined():
            return []
        return [(_items(found.get().productElement(1 + side)), child) for side, child in enumerate(children)]
    # Processors for DataFrames in Python have one of these methods, Scala's have neither.
    if name == "TransformWithStateInPySpark":
        return [(_items(node.leftAttributes()), children[0])]
    if name.startswith(tuple(_WITH_PROGRAMS)):
        return [(_items(node.groupingAttributes()), children[0])] if "InPandas" in name else []
    return [(_grouping(name, node), children[0])]


def _select(spark: SparkSession, plan: Any, expressions: list[Any]) -> DataFrame:
    """Return the values of expressions over the rows of a node: the columns 0, 1, ... ."""
    classic = spark._jvm.org.apache.spark.sql.classic  # type: ignore[union-attr]  # noqa: SLF001
    java: Any = spark._jsparkSession  # noqa: SLF001
    columns = [
        Column(classic.ExpressionUtils.column(each)).alias(str(number)) for number, each in enumerate(expressions)
    ]
    return DataFrame(classic.Dataset.ofRows(java, plan), spark).select(*columns)


def _name(expression: Any) -> str:
    return _ID.sub("", expression.toString())


def _items(scala: Any) -> list[Any]:
    return [scala.apply(index) for index in range(scala.size())]
