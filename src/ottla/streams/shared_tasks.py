"""Writes the parts of a union in the same tasks, so that exactly once needs one transaction for all of them.

Spark's union of m and n partitions has m + n tasks. In foreachBatch, the rows of a micro-batch are an RDD, and in Spark
4.2 and 4.3 it is an `execution.SQLExecutionRDD` of the `rdd.UnionRDD` of the parts, without parts that are known to be
empty. Spark's own `rdd.SQLPartitioningAwareUnionRDD` puts partition p of each part into its partition p; Spark has it
since 4.1, and uses it itself for parts that are divided by the same key. Parts of an output are recognized by the
operator that made them (`RDD.scope`): it is that of `observe`. None of this is public: what has another form is left as
it is, which is exactly once, too.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped,unused-ignore]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped,unused-ignore]
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.exactly_once import SHARED_TASKS

logger = logging.getLogger("ottla.streams")

_FUSED_UNION: Final = "spark.sql.codegen.wholeStage.union.enabled"
"""Must be false: Spark 4.3 may compile a union and its parts to one function, which has no separate parts."""
_EXECUTION: Final = "org.apache.spark.sql.execution.SQLExecutionRDD"
_UNION: Final = "org.apache.spark.rdd.UnionRDD"
_OBSERVED: Final = "CollectMetrics"


class SharedTasks:
    """Puts the micro-batches of a query into shared tasks, unless this version of Spark is not known."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._is_known = True

    @classmethod
    def of(cls, query: str, session: SparkSession) -> SharedTasks | None:
        """Prepare the session of a query that is started next; None if its user has switched off shared tasks."""
        if session.conf.get(SHARED_TASKS, "true") == "false":
            return None
        session.conf.set(_FUSED_UNION, "false")
        return cls(query)

    def rows(self, batch: DataFrame) -> DataFrame:
        """Return the rows of a micro-batch in foreachBatch: partition p has partition p of each part of their union.

        There are as many partitions as the widest output has; other parts are made as wide, without a shuffle. Rows
        that are no union are returned as they are.
        """
        rows = batch
        if self._is_known:
            try:
                rows = _shared(batch)
            except Py4JJavaError:
                raise
            except (_UnknownPlanError, Py4JError) as error:  # Py4JError: a method does not exist
                self._is_known = False
                logger.warning(
                    "Query %s writes invalid records in tasks and transactions of their own: this version of Spark "
                    "has other internals: %s",
                    self._query,
                    error,
                )
        # A part of the layout, which a repeated micro-batch must have, too.
        batch.sparkSession.conf.set(SHARED_TASKS, str(self._is_known).lower())
        return rows


class _UnknownPlanError(Exception):
    """Spark executes a micro-batch in another way than the versions that this module knows."""


def _shared(batch: DataFrame) -> DataFrame:
    executed: Any = batch._jdf.queryExecution().logical().rdd()  # noqa: SLF001 - Spark has no other access to it
    if _class(executed) != _EXECUTION:
        raise _UnknownPlanError(f"its rows are {_class(executed)}")
    union = executed.dependencies().apply(0).rdd()
    if _class(union) != _UNION:  # one part only, or Spark has put equal partitions together
        return batch
    found = union.rdds()
    parts = [found.apply(index) for index in range(found.size())]
    widths = [part.getNumPartitions() for part in parts]
    width = max([each for part, each in zip(parts, widths, strict=True) if _is_output(part)] or widths)
    session: Any = batch.sparkSession
    wide = [_widened(session, part, count, width) for part, count in zip(parts, widths, strict=True)]
    together = _new(session, "SQLPartitioningAwareUnionRDD", wide, width)
    rows = session._jsparkSession.internalCreateDataFrame(together, batch._jdf.schema(), False)  # noqa: SLF001
    return DataFrame(rows, batch.sparkSession)


def _class(rdd: Any) -> str:
    return str(rdd.getClass().getName())


def _is_output(part: Any) -> bool:
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
        raise _UnknownPlanError(f"there is no class {name}")
    listed = context._jvm.PythonUtils.toSeq(context._jvm.java.util.ArrayList(parts))  # noqa: SLF001
    return kind(context._jsc.sc(), listed, *more, parts[0].elementClassTag())  # noqa: SLF001
