"""By which parts of the records of an input the operators of a pipeline group, as `ottla stream why` needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.streaming import StatefulProcessor

from ottla.streams import pipeline, stream, to
from ottla.streams.planning import groupings_of, make_plan
from ottla.streams.settings import Settings
from ottla.streams.status import Grouping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLICK = "id STRING, user STRING, at TIMESTAMP"


class Nothing(StatefulProcessor):
    """A processor without results."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's
        yield from ()

    def close(self) -> None:
        pass


CLICKS: Any = stream("clicks", "json", schema=CLICK, time="at")


@pipeline
def counted(rows: Any = CLICKS) -> Any:
    return to("out", rows.groupBy("user", F.window("at", "1 hour")).count(), mode="final")


@pipeline
def sessions(rows: Any = CLICKS) -> Any:
    return to("out", rows.groupBy("user", F.session_window("at", "1 minute")).count(), mode="final")


@pipeline
def distinct(rows: Any = stream("clicks", "json", schema=CLICK, key="text", time="at")) -> Any:
    return to("out", rows.dropDuplicatesWithinWatermark(["key", "id"]))


@pipeline
def computed(rows: Any = stream("lines", "text")) -> Any:
    words = rows.select(F.explode(F.split("value", " ")).alias("word"))
    return to("out", words.groupBy("word").count(), mode="updates")


@pipeline
def texts(rows: Any = stream("lines", "text")) -> Any:
    return to("out", rows.groupBy("value").count(), mode="updates")


@pipeline
def joined(
    rows: Any = CLICKS, ads: Any = stream("ads", "json", schema="ad STRING, shown TIMESTAMP", time="shown")
) -> Any:
    pairs = rows.join(ads, F.expr("user = ad AND at BETWEEN shown AND shown + INTERVAL 1 MINUTE"))
    return to("out", pairs.select("id", "ad"))


@pipeline
def processed(rows: Any = CLICKS) -> Any:
    found = rows.groupBy("user").transformWithState(Nothing(), "user STRING", "append", "none")
    return to("out", found)


@pipeline
def processed_in_pandas(rows: Any = CLICKS) -> Any:
    found = rows.groupBy("user").applyInPandasWithState(
        lambda *_: iter(()), "user STRING", "n INT", "append", "NoTimeout"
    )
    return to("out", found)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (counted, [Grouping("aggregate by user, window", "clicks", ["user"], ["field"], True)]),
        (sessions, [Grouping("aggregate by user, session_window", "clicks", ["user"], ["field"])]),
        (distinct, [Grouping("deduplicate by key, id", "clicks", ["key", "id"], ["key", "field"])]),
        (computed, []),
        (texts, [Grouping("aggregate by value", "lines", ["value"], ["value"], True)]),
        (
            joined,
            [
                Grouping("inner join of streams", "clicks", ["user"], ["field"]),
                Grouping("inner join of streams", "ads", ["ad"], ["field"]),
            ],
        ),
        (processed, [Grouping("processor", "clicks", ["user"], ["field"])]),
        (processed_in_pandas, [Grouping("processor", "clicks", ["user"], ["field"])]),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_columns_of_keys_that_records_have(ottla_spark: SparkSession, declared: Any, expected: list[Grouping]) -> None:
    plan = make_plan(ottla_spark.newSession(), declared, Settings({"bootstrap.servers": "127.0.0.1:1"}, "unused"))
    assert list(groupings_of(declared, plan.queries[0])) == expected
