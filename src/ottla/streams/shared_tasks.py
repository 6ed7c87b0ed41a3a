"""Writes the parts of a union in the same tasks, so that exactly once needs one transaction for all of them."""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame, SparkSession

from ottla.spark.exactly_once import SHARED_TASKS
from ottla.spark.internals.names import FUSED_UNION
from ottla.spark.internals.unions import UnknownPlanError, zip_parts

logger = logging.getLogger("ottla.streams")


class SharedTasks:
    """Puts the micro-batches of a query into shared tasks, unless this Spark version is not known."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._is_known = True

    @classmethod
    def of(cls, query: str, session: SparkSession) -> SharedTasks | None:
        """Prepare the session of a query that is started next; None if its user has switched off shared tasks."""
        if session.conf.get(SHARED_TASKS, "true") == "false":
            return None
        session.conf.set(FUSED_UNION, "false")
        return cls(query)

    def rows(self, batch: DataFrame) -> DataFrame:
        """Return the rows of a micro-batch in foreachBatch: partition p has partition p of each part of their union.

        There are as many partitions as the widest output has; other parts are made as wide, without a shuffle. Rows
        that are no union are returned as they are.
        """
        rows = batch
        if self._is_known:
            try:
                rows = zip_parts(batch)
            except UnknownPlanError as error:
                self._is_known = False
                logger.warning(
                    "Query %s writes invalid records in tasks and transactions of their own: this Spark version "
                    "has other internals: %s",
                    self._query,
                    error,
                )
        # A part of the layout, which a repeated micro-batch must have, too.
        batch.sparkSession.conf.set(SHARED_TASKS, str(self._is_known).lower())
        return rows
