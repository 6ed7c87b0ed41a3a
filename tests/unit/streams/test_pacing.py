"""When micro-batches begin: what the latency of a pipeline means for Spark's trigger and for the source."""

from __future__ import annotations

import pytest

from ottla.streams import StreamsError, pipeline, stream, to
from ottla.streams.declarations import Pipeline
from ottla.streams.pacing import LONGEST_POLL_MS, SHORTEST_POLL_MS, Pace, pace_of
from ottla.streams.settings import Settings


@pytest.mark.parametrize(
    ("latency_ms", "is_limited", "has_clock", "expected"),
    [
        (0, False, False, Pace(0, 0, 25)),
        (1000, False, False, Pace(1000, 0, 25)),
        (0, True, False, Pace(0, 0, 25)),
        (1000, True, False, Pace(0, 875, 125)),
        (60_000, True, False, Pace(0, 59_750, 250)),
        # A clock without a pause would never be idle.
        (0, False, True, Pace(1000, 0, 25)),
        (100, False, True, Pace(1000, 0, 25)),
        (5000, False, True, Pace(5000, 0, 25)),
        (5000, True, True, Pace(5000, 4750, 250)),
    ],
)
def test_pace_by_latency(latency_ms: int, is_limited: bool, has_clock: bool, expected: Pace) -> None:
    assert pace_of(latency_ms, is_limited=is_limited, has_clock=has_clock) == expected


@pytest.mark.parametrize("latency_ms", [1, 20, 25, 26, 200, 1000, 3000, 3_600_000])
def test_record_waits_for_the_source_and_the_next_poll_no_longer_than_the_latency(latency_ms: int) -> None:
    pace = pace_of(latency_ms, is_limited=True)
    assert pace.interval_ms == 0, "a trigger with an interval would slow a query that catches up"
    assert pace.wait_ms + pace.poll_ms <= max(latency_ms, SHORTEST_POLL_MS)
    assert SHORTEST_POLL_MS <= pace.poll_ms <= LONGEST_POLL_MS


def declared(**settings: object) -> Pipeline:
    def copied(rows=stream("a", "text")):  # type: ignore[no-untyped-def]
        return to("b", rows, value="text")

    return pipeline(name="copied", **settings)(copied)  # type: ignore[no-any-return, call-overload]


def test_pipeline_has_a_latency_that_a_run_can_replace() -> None:
    assert Settings({}, "x").pace(declared()) == pace_of(1500, is_limited=False)
    assert Settings({}, "x").pace(declared(latency="5 s", max_records=10)) == pace_of(5000, is_limited=True)
    assert Settings({}, "x", latency_ms=200).pace(declared(latency="5 s")) == pace_of(200, is_limited=False)


def test_query_that_ends_has_no_pauses() -> None:
    settings = Settings({}, "x", once=True, latency_ms=60_000)
    assert settings.pace(declared(latency="1 hour", max_records=5)).wait_ms == 0


@pytest.mark.parametrize("latency", ["", "soon", "5", "1 secnd"])
def test_latency_that_is_not_a_duration_is_refused_where_it_is_declared(latency: str) -> None:
    with pytest.raises(StreamsError, match=r"Pipeline 'copied': latency is .*; it must be a duration such as"):
        declared(latency=latency)
