"""Random events, late and out of order, in random micro-batches, through each operation: equal to the model.

One pipeline has all operations, and runs during all examples; each example has a day of event time. The environment
variable OTTLA_STREAM_EXAMPLES sets their number.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import Output, pipeline, stream, to
from ottla.streams.testing import PipelineTest

from . import model
from .conftest import Start
from .model import Event, Step, Total

if TYPE_CHECKING:
    from ottla.testing import Ottla

EXAMPLES = int(os.environ.get("OTTLA_STREAM_EXAMPLES", "2"))
ARE_FEW = EXAMPLES < 10
FIRST, DAY = 1_767_225_600, 86_400
"""The beginning of 2026, in seconds since the epoch."""
LATE, SIZE, SLIDE, GAP, SPAN = 20, 30, 10, 15, 12


@pipeline
def operations(
    events: Any = stream(
        "events",
        "json",
        schema="id STRING, key STRING, at TIMESTAMP, amount INT, side STRING",
        time="at",
        late=f"{LATE} seconds",
    ),
) -> list[Output]:
    def total(*by: Any) -> Any:
        return events.groupBy("key", *by).agg(F.count("*").alias("count"), F.sum("amount").alias("amount"))

    def named(rows: Any, window: str) -> Any:
        start, end = (F.col(f"{window}.{name}").cast("long").alias(name) for name in ("start", "end"))
        return rows.select("key", start, end, "count", "amount")

    lefts = events.where("side = 'left'").select(F.col("id").alias("left"), "key", F.col("at").alias("start"))
    rights = events.where("side = 'right'").select(F.col("id").alias("right"), F.col("key").alias("other"), "at")
    joined = lefts.join(rights, F.expr(f"key = other AND at BETWEEN start AND start + INTERVAL {SPAN} SECONDS"))
    return [
        to("tumbling", named(total(F.window("at", f"{SIZE} seconds")), "window"), mode="final"),
        to("hopping", named(total(F.window("at", f"{SIZE} seconds", f"{SLIDE} seconds")), "window"), mode="final"),
        to("sessions", named(total(F.session_window("at", f"{GAP} seconds")), "session_window"), mode="final"),
        to("distinct", events.dropDuplicatesWithinWatermark(["id"]).select("id")),
        to("pairs", joined.select("left", "right")),
        to("totals", total(), key="key", mode="updates"),
    ]


class World:
    """The running pipeline, and how many examples it has had."""

    def __init__(self, test: PipelineTest, broker: Ottla) -> None:
        self.test = test
        self.examples = 0
        self._broker = broker
        self._positions: dict[str, int] = {}

    def send(self, step: Step) -> None:
        """Append a micro-batch, in one append so that no query sees a part of it, and process it."""
        self._broker.produce("events", *(json.dumps(asdict(event)) for event in step))
        self.test.process()

    def read(self, topic: str) -> list[Any]:
        """Return the new values of an output."""
        found = self._broker.records(topic)[self._positions.get(topic, 0) :]
        self._positions[topic] = self._positions.get(topic, 0) + len(found)
        return [json.loads(record.value or b"") for record in found]


@pytest.fixture
def world(ottla_streams: Start, ottla: Ottla) -> World:
    return World(ottla_streams(operations), ottla)


AMOUNTS = st.tuples(st.sampled_from("ab"), st.integers(0, 120), st.integers(1, 5), st.sampled_from(["left", "right"]))


@st.composite
def steps(draw: st.DrawFn) -> list[list[Event]]:
    """Return micro-batches of events, some of them twice. Times go back by at most a minute, which may be too late."""
    fewest = 3 if ARE_FEW else 1
    drawn = draw(st.lists(st.lists(AMOUNTS, min_size=fewest, max_size=8), min_size=fewest, max_size=4))
    kinds = {(key, side) for batch in drawn for key, _, _, side in batch}
    assume(not ARE_FEW or len(kinds) == 4)
    made: list[list[Event]] = []
    for number, batch in enumerate(drawn):
        events = [
            Event(f"{number}.{index}", key, number * 40 + at - 60, amount, side)
            for index, (key, at, amount, side) in enumerate(batch)
        ]
        known = [event for each in made for event in each] + events
        again = draw(st.lists(st.sampled_from(known), max_size=3))
        made.append([*events, *again])
    return made


def placed(given: Sequence[Step], example: int) -> list[Step]:
    """Return the events on the day of their example, with keys and ids of their own; and a step without events."""
    day = FIRST + example * DAY + 3600
    return [
        [Event(f"{example}/{each.id}", f"{example}/{each.key}", day + each.at, each.amount, each.side) for each in step]
        for step in given
    ]


def by_window(rows: Sequence[Any]) -> dict[tuple[str, int, int], Total]:
    found = {(row["key"], row["start"], row["end"]): Total(row["count"], row["amount"]) for row in rows}
    assert len(found) == len(rows), "a window was written twice"
    return found


def with_end(windows: model.Windows, size: int) -> dict[tuple[str, int, int], Total]:
    return {(key, start, start + size): total for (key, start), total in windows.items()}


@pytest.mark.long
@pytest.mark.timeout(300 + 60 * EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=ARE_FEW,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(drawn=steps())
def test_operations_write_what_the_model_writes(world: World, drawn: list[list[Event]]) -> None:
    given = placed(drawn, world.examples)
    world.examples += 1
    end = Event("", "", FIRST + world.examples * DAY, 0, "")
    whole = [*given, [end]]
    expected = {
        "tumbling": [with_end(each, SIZE) for each in model.windows(whole, LATE, SIZE, SIZE)],
        "hopping": [with_end(each, SIZE) for each in model.windows(whole, LATE, SIZE, SLIDE)],
        "sessions": model.sessions(whole, LATE, GAP),
    }
    ids, pairs, totals = model.distinct(whole, LATE), model.pairs(whole, LATE, SPAN), model.totals(whole)
    for number, step in enumerate(given):
        world.send(step)
        for topic, written in expected.items():
            assert by_window(world.read(topic)) == written[number], (number, topic)
        assert sorted(row["id"] for row in world.read("distinct")) == sorted(ids[number]), number
        assert sorted((row["left"], row["right"]) for row in world.read("pairs")) == pairs[number], number
        changed = {row["key"]: Total(row["count"], row["amount"]) for row in world.read("totals")}
        assert changed == totals[number], number
    world.test.advance(dt.datetime.fromtimestamp(end.at, dt.UTC))
    world.test.process()
    for topic, written in expected.items():
        assert by_window(world.read(topic)) == written[-1], ("end", topic)
