"""Processors: state with new fields, processors by the clock, a missing package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from ottla.streams import Output, Pipeline, pipeline, planning, stream, to
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings

from .conftest import Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla


class Counter(StatefulProcessor):
    """Counts the rows of a key; with amounts, also their sum since it is part of the state."""

    def __init__(self, has_amounts: bool) -> None:
        self._has_amounts = has_amounts

    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState(
            "seen", "count BIGINT, amount BIGINT" if self._has_amounts else "count BIGINT"
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        state = self._seen.get() if self._seen.exists() else (0, None)
        count, amount = state[0], (state[1] or 0) if self._has_amounts else 0
        for row in rows:
            count, amount = count + 1, amount + row.amount
        self._seen.update((count, amount) if self._has_amounts else (count,))
        yield Row(user=key[0], count=count, amount=amount)

    def close(self) -> None:
        pass


def counted(rows: Any, has_amounts: bool, time_mode: str = "none") -> Output:
    found = rows.groupBy("user").transformWithState(
        statefulProcessor=Counter(has_amounts),
        outputStructType="user STRING, count BIGINT, amount BIGINT",
        outputMode="append",
        timeMode=time_mode,
    )
    return to("counted", found)


@pipeline(name="counter")
def before(rows: Any = stream("rows", "json", schema="user STRING, amount BIGINT")) -> Output:
    return counted(rows, has_amounts=False)


@pipeline(name="counter")
def after(rows: Any = stream("rows", "json", schema="user STRING, amount BIGINT")) -> Output:
    return counted(rows, has_amounts=True)


def test_added_field_of_state_is_null_in_old_state(ottla_spark: SparkSession, ottla: Ottla, tmp_path: Path) -> None:
    ottla.topic("rows")
    ottla.topic("counted")
    for program in (before, after):
        ottla.produce("rows", '{"user": "a", "amount": 5}')
        runner = Runner(ottla_spark, [program], Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path)))
        try:
            runner.start()
            runner.process_available()
        finally:
            runner.stop()
    written = [json.loads(record.value or b"") for record in ottla.records("counted")]
    assert [(row["count"], row["amount"]) for row in written] == [(1, 5), (2, 5)]


def count_in_pandas(key: Any, batches: Any, state: Any) -> Iterator[Any]:
    count = (state.get[0] if state.exists else 0) + sum(len(batch) for batch in batches)
    state.update((count,))
    yield pd.DataFrame({"user": [key[0]], "count": [count]})


@pipeline
def counted_in_pandas(rows: Any = stream("rows", "json", schema="user STRING")) -> Output:
    counts = rows.groupBy("user").applyInPandasWithState(
        count_in_pandas, "user STRING, count BIGINT", "count BIGINT", "update", "NoTimeout"
    )
    return to("counted", counts, key="user", mode="updates")


def test_function_with_state_counts_in_all_batches(ottla_streams: Start) -> None:
    """Spark's encoding of state with Avro is for processors only."""
    test = ottla_streams(counted_in_pandas)
    for counts in ([("a", 2), ("b", 1)], [("a", 4), ("b", 2)]):
        test.send("rows", *({"user": user} for user in "aba"))
        found = [(row.value["user"], row.value["count"]) for row in test.read("counted")]
        assert sorted(found) == counts


@pipeline
def by_clock(rows: Any = stream("rows", "json", schema="user STRING, amount BIGINT")) -> Output:
    return counted(rows, has_amounts=True, time_mode="processingTime")


@pytest.mark.parametrize(
    ("program", "once", "has_problem"), [(by_clock, True, True), (by_clock, False, False), (after, True, False)]
)
def test_processor_with_a_clock_is_refused_where_the_run_shall_end(
    ottla_spark: SparkSession, program: Pipeline, once: bool, has_problem: bool
) -> None:
    settings = Settings({"bootstrap.servers": "127.0.0.1:1"}, "unused", once)
    plan = planning.make_plan(ottla_spark, program, settings)
    expected = ["to('counted'): a processor with processing time has no end: run it without once"]
    assert plan.description.problems == (expected if has_problem else [])
    assert plan.queries[0].has_clock == (program is by_clock)


def test_missing_package_is_a_problem_before_the_start(ottla_streams: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_has_protobuf", lambda: False)
    with pytest.raises(planning.StreamsError, match=r"needs the package protobuf: pip install 'ottla\[protobuf\]'"):
        ottla_streams(before).read("counted")
