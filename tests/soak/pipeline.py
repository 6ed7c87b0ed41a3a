"""A pipeline that a soak runs on Spark: how many records each writer has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams import pipeline, stream, to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.streams import Output


@pipeline(exactly_once=True)
def counted(rows: DataFrame = stream("soak", "text")) -> Output:
    """The number of records of each writer."""
    writers = rows.selectExpr("substring_index(value, ':', 1) AS writer")
    return to("counts", writers.groupBy("writer").count(), key="writer", mode="updates")
