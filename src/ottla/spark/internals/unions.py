"""The partitions of a union: partition p of all parts in one task.

Spark's union of m and n partitions has m + n tasks. In foreachBatch, the rows of a micro-batch are an RDD, and it is an
`execution.SQLExecutionRDD` of the `rdd.UnionRDD` of the parts, without parts that are known to be empty. Spark's own
`rdd.SQLPartitioningAwareUnionRDD` puts partition p of each part into its partition p; Spark uses it itself for parts
that are divided by the same key.
"""

from __future__ import annotations

from typing import Any, Final

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped,unused-ignore]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql import DataFrame

EXECUTION: Final = "org.apache.spark.sql.execution.SQLExecutionRDD"
_UNION: Final = "org.apache.spark.rdd.UnionRDD"
_OBSERVED: Final = "CollectMetrics"
"""The operator of `observe`, which `RDD.scope` names."""


class UnknownPlanError(Exception):
    """Spark executes a micro-batch in another way than the versions that this module knows."""


def zip_parts(batch: DataFrame) -> DataFrame:
    """Return the rows of a micro-batch in foreachBatch: partition p has partition p of each part of their union.

    There are as many partitions as the widest part with `observe` has; other parts are made as wide, without a shuffle.
    Rows that are not a union are returned as they are. Raises UnknownPlanError, and Java exceptions. Uses
    `DataFrame._jdf`, `SparkSession._jsparkSession`, `SparkContext._jvm` and `_jsc`, and Java's RDDs above (pyspark 4.2
    to 4.3).
    """
    try:
        return _zipped(batch)
    except Py4JJavaError:
        raise
    except Py4JError as error:  # a method does not exist
        raise UnknownPlanError(str(error)) from error


def _zipped(batch: DataFrame) -> DataFrame:
    rows: Any = batch._jdf  # noqa: SLF001
    executed = rows.queryExecution().logical().rdd()
    if _class(executed) != EXECUTION:
        raise UnknownPlanError(f"its rows are {_class(executed)}")
    union = executed.dependencies().apply(0).rdd()
    if _class(union) != _UNION:  # one part only, or Spark has put equal partitions together
        return batch
    found = union.rdds()
    parts = [found.apply(index) for index in range(found.size())]
    widths = [part.getNumPartitions() for part in parts]
    width = max([each for part, each in zip(parts, widths, strict=True) if _is_observed(part)] or widths)
    session: Any = batch.sparkSession
    wide = [_widened(session, part, count, width) for part, count in zip(parts, widths, strict=True)]
    together = _new(session, "SQLPartitioningAwareUnionRDD", wide, width)
    return DataFrame(session._jsparkSession.internalCreateDataFrame(together, rows.schema(), False), session)  # noqa: SLF001


def _class(rdd: Any) -> str:
    return str(rdd.getClass().getName())


def _is_observed(part: Any) -> bool:
    scope = part.scope()
    return bool(scope.isDefined() and scope.get().name() == _OBSERVED)


def _widened(session: Any, part: Any, count: int, width: int) -> Any:
    """Return a part of `count` partitions with `width` partitions: neighbours together, or with empty ones."""
    if count > width:
        return part.toJavaRDD().coalesce(width).rdd()
    if count == width:
        return part
    context = session.sparkContext
    empty = context._jsc.parallelize(context._jvm.java.util.ArrayList(), width - count).rdd()  # noqa: SLF001
    return _new(session, "UnionRDD", [part, empty])


def _new(session: Any, name: str, parts: list[Any], *more: Any) -> Any:
    """Return an RDD of Spark's class `name` with these parts."""
    context = session.sparkContext
    kind = getattr(context._jvm.org.apache.spark.rdd, name)  # noqa: SLF001
    if not isinstance(kind, JavaClass):
        raise UnknownPlanError(f"there is no class {name}")
    listed = context._jvm.PythonUtils.toSeq(context._jvm.java.util.ArrayList(parts))  # noqa: SLF001
    return kind(context._jsc.sc(), listed, *more, parts[0].elementClassTag())  # noqa: SLF001
