"""The analyzed plan of a DataFrame, as nodes (`org.apache.spark.sql.catalyst.plans.logical`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession

_ID: Final = re.compile(r"#\d+L?(?:-T\d+ms)?")


@dataclass(frozen=True)
class Expression:
    """An expression of a plan, such as a column by which rows are grouped."""

    name: str
    java: Any


class PlanNode:
    """A node of a plan."""

    def __init__(self, spark: SparkSession, java: Any) -> None:
        self._spark = spark
        self._java = java

    @property
    def name(self) -> str:
        """The name of its class, such as Aggregate. Uses `TreeNode.nodeName` (pyspark 4.2 to 4.3)."""
        return str(self._java.nodeName())

    @property
    def text(self) -> str:
        """The plan as Spark prints it. Uses `TreeNode.toString` (pyspark 4.2 to 4.3)."""
        return str(self._java.toString())

    @property
    def children(self) -> list[PlanNode]:
        """The nodes whose rows it reads. Uses `TreeNode.children` (pyspark 4.2 to 4.3)."""
        return [PlanNode(self._spark, each) for each in _items(self._java.children())]

    @property
    def is_streaming(self) -> bool:
        """Whether it has rows of a stream. Uses `LogicalPlan.isStreaming` (pyspark 4.2 to 4.3)."""
        return bool(self._java.isStreaming())

    @property
    def source(self) -> str | None:
        """The format that a batch reads; None for other nodes. Uses `DataSourceV2Relation` (pyspark 4.2 to 4.3)."""
        return str(self._java.name()) if self.name == "DataSourceV2Relation" else None

    @property
    def join_type(self) -> str:
        """The type of a join in lower case. Uses `Join.joinType` (pyspark 4.2 to 4.3)."""
        return str(self._java.joinType().sql()).lower()

    @property
    def has_clock(self) -> bool:
        """Whether a function with state has timers or state by the clock.

        Uses `TransformWithState*.timeMode` and `FlatMapGroups*WithState.timeout` (pyspark 4.2 to 4.3).
        """
        if self.name.startswith("TransformWithState"):
            mode = self._java.timeMode()
        elif self.name.startswith("FlatMapGroups") and self.name.endswith("WithState"):
            mode = self._java.timeout()
        else:
            return False
        return str(mode.toString()).startswith("ProcessingTime")

    @property
    def grouping(self) -> list[Expression]:
        """The columns by which an aggregate groups, or by which duplicates are equal; empty for other nodes.

        Uses `Aggregate.groupingExpressions` and `Deduplicate*.keys` (pyspark 4.2 to 4.3).
        """
        if self.name == "Aggregate":
            return _expressions(self._java.groupingExpressions())
        return _expressions(self._java.keys()) if self.name.startswith("Dedup") else []

    @property
    def keys(self) -> list[tuple[list[Expression], PlanNode]]:
        """The key of an operator with state, and the node whose rows have it; a join has two of them.

        Functions with state have it if they are for DataFrames in Python. Uses `ExtractEquiJoinKeys`,
        `TransformWithStateInPySpark.leftAttributes` and `FlatMapGroupsInPandas*.groupingAttributes` (pyspark 4.2 to
        4.3).
        """
        if self.name == "Join":
            jvm: Any = self._spark._jvm  # noqa: SLF001
            found = jvm.org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys.unapply(self._java)
            if not found.isDefined():
                return []
            sides = found.get()
            return [(_expressions(sides.productElement(1 + side)), each) for side, each in enumerate(self.children)]
        if self.name.startswith(("TransformWithState", "FlatMapGroups")):
            if self.name == "TransformWithStateInPySpark":
                found = self._java.leftAttributes()
            elif "InPandas" in self.name:
                found = self._java.groupingAttributes()
            else:
                return []
            return [(_expressions(found), self.children[0])]
        return [(self.grouping, self.children[0])]

    def select(self, expressions: Sequence[Expression]) -> DataFrame:
        """Return the values of expressions over its rows: the columns 0, 1, ... .

        Uses Java's `classic.ExpressionUtils` and `classic.Dataset`, the constructors of `Column` and `DataFrame`,
        `SparkSession._jvm` and `_jsparkSession` (pyspark 4.2 to 4.3).
        """
        jvm: Any = self._spark._jvm  # noqa: SLF001
        classic = jvm.org.apache.spark.sql.classic
        columns = [
            Column(classic.ExpressionUtils.column(each.java)).alias(str(number))
            for number, each in enumerate(expressions)
        ]
        session: Any = self._spark._jsparkSession  # noqa: SLF001
        return DataFrame(classic.Dataset.ofRows(session, self._java), self._spark).select(*columns)


def plan_of(rows: DataFrame) -> PlanNode:
    """Return the analyzed plan of a DataFrame.

    Uses `DataFrame._jdf` (pyspark 4.2 to 4.3).
    """
    java: Any = rows._jdf  # noqa: SLF001
    return PlanNode(rows.sparkSession, java.queryExecution().analyzed())


def check_streaming(rows: DataFrame, *, is_update: bool) -> None:
    """Check a plan as the start of a query does, for the output mode update or append. Raises AnalysisException.

    Uses Java's `UnsupportedOperationChecker`, `SparkSession._jvm` and `DataFrame._jdf` (pyspark 4.2 to 4.3).
    """
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001
    java: Any = rows._jdf  # noqa: SLF001
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(java.queryExecution().analyzed(), modes.Update() if is_update else modes.Append())


def _expressions(scala: Any) -> list[Expression]:
    return [Expression(_ID.sub("", each.toString()), each) for each in _items(scala)]


def _items(scala: Any) -> list[Any]:
    return [scala.apply(index) for index in range(scala.size())]
