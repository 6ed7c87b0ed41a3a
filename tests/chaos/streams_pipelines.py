"""Pipelines whose processes and broker test_streams.py kills.

One has no state, one a count, one final windows, and one writes invalid records to a topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import pipeline, stream, to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.streams import Output

NUMBER = "cast(regexp_extract(value, '[0-9]+', 0) as int)"
AT_MOST = 3000


@pipeline(exactly_once=True, max_records=AT_MOST)
def copied(rows: DataFrame = stream("source", "text", columns=["partition"])) -> Output:
    """Each number with its partition, which is the key."""
    return to(
        "copied",
        rows.selectExpr("cast(partition as string) source", f"concat_ws(' ', partition, {NUMBER}) value"),
        key="source",
        value="text",
    )


@pipeline(exactly_once=True, max_records=AT_MOST)
def counted(rows: DataFrame = stream("source", "text", columns=["partition"])) -> Output:
    """How many numbers of each partition have the same remainder."""
    keys = rows.selectExpr(f"concat_ws('-', partition, {NUMBER} % 20) key")
    return to("counted", keys.groupBy("key").count(), key="key", mode="updates")


@pipeline(exactly_once=True, max_records=AT_MOST)
def seconds(rows: DataFrame = stream("source", "text", time="timestamp", late="1 minute")) -> Output:
    """How many records each second has, once that is final."""
    windows = rows.groupBy(F.window("timestamp", "1 second")).count()
    return to("seconds", windows.selectExpr("cast(window.start as long) start", "count"), mode="final")


@pipeline(exactly_once=True, max_records=AT_MOST)
def checked(
    rows: DataFrame = stream("source", "json", schema="number INT", columns=["partition"], bad="topic:invalid"),
) -> Output:
    """Each number of a valid record with its partition, which is the key."""
    return to(
        "checked",
        rows.selectExpr("cast(partition as string) source", "concat_ws(' ', partition, number) value"),
        key="source",
        value="text",
    )
