"""The page views of Kafka Streams' demos: views joined with the profiles of users, and counted by region and hour.

ottla topic create streams-pageview-input streams-userprofile-input streams-pageviewstats-output
ottla stream run examples/streams/page_views.py
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import Output, pipeline, run, stream, table, to


@pipeline(exactly_once=True)
def page_views(
    views: Any = stream(
        "streams-pageview-input", "json", schema="user STRING, page STRING, at TIMESTAMP", time="at", late="10 minutes"
    ),
    profiles: Any = table("streams-userprofile-input", key="user", schema="region STRING"),
) -> Output:
    regions = views.join(profiles, "user", "left").withColumn("region", F.coalesce("region", F.lit("UNKNOWN")))
    hours = regions.groupBy(F.window("at", "1 hour"), "region").count()
    stats = hours.select("region", F.col("window.start").cast("long").alias("hour"), "count")
    return to("streams-pageviewstats-output", stats, key="region", mode="final")


if __name__ == "__main__":
    run()
