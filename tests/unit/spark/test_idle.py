"""An idle stream gets a time, which is part of its offset."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.spark import idle
from ottla.spark.idle import TICK, IdleReader, TickPartition
from ottla.spark.options import OptionError, read_source_options
from ottla.spark.source import OttlaDataSource, source_schema

GIVEN = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "idleAfter": "10s", "includeHeaders": "true"}
LIMIT = ReadAllAvailable()
NOW_S = 1_800_000_000.0


class Reader:
    """A reader whose topic ends at `end`."""

    def __init__(self) -> None:
        self.end: dict[str, Any] = {"t": {"0": 1}}
        self.planned: list[tuple[Any, Any]] = []
        self.is_waiting = False

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: N802 - Spark's
        return start if start["t"] == self.end["t"] else self.end

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        self.planned.append(("bounded", None))

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        self.planned.append((start, end))
        return [InputPartition(1)]


class World:
    """An idle reader with a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: str) -> None:
        self.now_s = 5.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, time=lambda: NOW_S + self.now_s)
        monkeypatch.setattr(idle, "time", clock)
        self.inner = Reader()
        options = read_source_options({**GIVEN, **more}, streaming=True)
        self.reader = IdleReader(cast("Any", self.inner), options, 10_000)

    def latest(self, start: dict[str, Any], after_s: float = 0.0) -> dict[str, Any]:
        self.now_s += after_s
        return self.reader.latestOffset(start, LIMIT)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_time_follows_the_clock_while_there_are_no_records(world: World) -> None:
    start: dict[str, Any] = {"t": {"0": 1}}
    assert world.latest(start) == start
    assert world.latest(start, 9.9) == start
    first = world.latest(start, 0.1)
    assert first == {"t": {"0": 1}, "#idle": {"0": 1_800_000_005_000}}
    assert world.latest(first, 60) == first  # the batch took so long
    assert world.latest(first, 9.9) == first
    assert world.latest(first, 0.1) == {"t": {"0": 1}, "#idle": {"0": 1_800_000_075_000}}


def test_records_start_the_wait_again_and_keep_the_last_time(world: World) -> None:
    start = {"t": {"0": 1}, "#idle": {"0": 7}}
    world.latest(start)
    world.inner.end = {"t": {"0": 2}}
    end = world.latest(start, 60)
    assert end == {"t": {"0": 2}, "#idle": {"0": 7}}
    assert world.latest(end, 9.9) == end
    assert world.latest(end, 0.1) != end


def test_stream_with_records_that_wait_for_more_is_not_idle(world: World) -> None:
    """Their times may be before the clock's: they would be late."""
    start: dict[str, Any] = {"t": {"0": 1}}
    world.latest(start)
    world.inner.is_waiting = True
    assert world.latest(start, 60) == start
    world.inner.is_waiting = False
    assert world.latest(start, 9.9) == start
    assert world.latest(start, 0.1) != start


def test_repeated_batch_has_the_same_time(world: World) -> None:
    start, end = {"t": {"0": 1}}, {"t": {"0": 1}, "#idle": {"0": 7}}
    for _ in range(2):
        _, tick = world.reader.partitions(start, end)
        assert isinstance(tick, TickPartition)
        assert tick.value == 7
        world.now_s += 100
    assert len(world.reader.partitions(end, {"t": {"0": 2}, "#idle": {"0": 7}})) == 1


def test_query_with_an_end_gets_no_times(world: World) -> None:
    world.reader.prepareForTriggerAvailableNow()
    start: dict[str, Any] = {"t": {"0": 1}}
    assert [world.latest(start, 60) for _ in range(3)] == [start] * 3


def test_record_with_a_time_has_the_columns_of_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"value.format": "json", "value.schema": "a INT", "mode": "PERMISSIVE", "includeErrors": "true"}
    world = World(monkeypatch, **more)
    (batch,) = world.reader.read(TickPartition(1500))
    assert batch.schema.names == source_schema(read_source_options({**GIVEN, **more})).fieldNames()
    (row,) = batch.to_pylist()
    at = dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, dt.UTC)
    assert (row["value"], row["error"], row["timestamp"]) == (None, None, at)
    assert row["headers"] == [{"key": TICK, "value": at.isoformat().encode()}]


def test_time_needs_headers() -> None:
    source = OttlaDataSource({name: value for name, value in GIVEN.items() if name != "includeHeaders"})
    with pytest.raises(OptionError, match="idleAfter needs includeHeaders=true"):
        source.streamReader(source.schema())
