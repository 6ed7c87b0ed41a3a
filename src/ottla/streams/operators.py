"""The operators with state in the plan of a DataFrame."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame

from ottla.spark.internals.plans import PlanNode, check_streaming, plan_of
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


@dataclass(frozen=True)
class Operators:
    """The operators of a plan that process streams."""

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
    nodes = list(_nodes(plan_of(rows), _is_streaming))
    stateful = [operator for node in nodes if (operator := _operator(node, _is_streaming)) is not None]
    has_watermark = any(node.name == "EventTimeWatermark" for node in nodes)
    return Operators(tuple(stateful), rows.isStreaming, has_watermark, any(node.has_clock for node in nodes))


def check_supported(rows: DataFrame, *, is_update: bool) -> None:
    """Check operators that Spark does not support in streams, or not in this output mode, as the start of a query does.

    Raises AnalysisException.
    """
    if rows.sparkSession.conf.get("spark.sql.streaming.unsupportedOperationCheck") != "false":
        check_streaming(rows, is_update=is_update)


def keyed_rows(rows: DataFrame) -> list[KeyedRows]:
    """Return what the operators of a DataFrame group, if its streams are read as batches.

    Spark decides by the hash of these columns which task has a row: windows are a part of the key, sessions are not.
    Raises StreamsError if an operator follows another one: the rows between them are not known.
    """
    found = []
    for node in _nodes(plan_of(rows), _is_sampled):
        operator = _operator(node, _is_sampled)
        for keys, child in node.keys if operator is not None else ():
            if any(_operator(each, _is_sampled) is not None for each in _nodes(child, _is_sampled)):
                raise StreamsError("an operator with state follows another one")
            columns = [each for each in keys if not each.name.startswith("session_window")]
            if columns:
                names = tuple(each.name for each in columns)
                found.append(KeyedRows(str(operator), names, child.select(columns)))
    return found


def changes_case(rows: DataFrame) -> bool:
    """Whether `upper`, `lower` or `initcap` is in the plan, as far as Spark prints it."""
    return _CASES.search(plan_of(rows).text) is not None


def _is_streaming(node: PlanNode) -> bool:
    return node.is_streaming


def _is_sampled(node: PlanNode) -> bool:
    """Whether the records of a stream are below a node of a plan whose streams are read as batches."""
    children = node.children
    return any(map(_is_sampled, children)) if children else node.source == _SOURCE


def _nodes(node: PlanNode, has_stream: Callable[[PlanNode], bool]) -> Iterator[PlanNode]:
    """Yield the nodes of a plan that have the records of streams."""
    if not has_stream(node):
        return
    yield node
    for child in node.children:
        yield from _nodes(child, has_stream)


def _operator(node: PlanNode, has_stream: Callable[[PlanNode], bool]) -> Operator | None:
    if node.name == "Join":
        return Operator(f"{node.join_type} {JOIN}") if all(map(has_stream, node.children)) else None
    for beginning, kind in _WITH_PROGRAMS.items():
        if node.name.startswith(beginning):
            return Operator(kind)
    if node.name not in _KINDS:
        return None
    return Operator(_KINDS[node.name], tuple(each.name for each in node.grouping))
