"""Event time: times far in the future, late records, and partitions and streams without records."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import Output, PipelineFailed, StreamsError, pipeline, stream, to

from .conftest import Start

if TYPE_CHECKING:
    from ottla.testing import Ottla

CLICK = "user STRING, at TIMESTAMP"


def click(user: str, at: str) -> dict[str, str]:
    return {"user": user, "at": f"2026-01-01T{at}Z"}


def later(**more: float) -> str:
    return (dt.datetime.now(dt.UTC) + dt.timedelta(**more)).isoformat()


def hours(clicks: Any) -> Output:
    counts = clicks.groupBy(F.window("at", "1 hour")).count()
    return to("hours", counts.select(F.col("window.start").alias("hour"), "count"), mode="final")


@pipeline(exactly_once=True)
def guarded(clicks: Any = stream("clicks", "json", schema=CLICK, time="at", bad="topic:clicks.bad")) -> Output:
    return hours(clicks)


def test_time_far_in_the_future_does_not_move_the_watermark(ottla_streams: Start) -> None:
    test = ottla_streams(guarded)
    test.send("clicks", click("a", "10:00:00"), {"user": "b", "at": later(days=2)}, click("a", "10:30:00"))
    assert test.read("hours") == []
    (bad,) = test.records("clicks.bad")
    assert b'"user": "b"' in (bad.value or b"")
    assert b"more than 1 d after the record's timestamp" in (
        dict(bad.headers)["__connect.errors.exception.message"] or b""
    )
    test.send("clicks", click("a", "10:45:00"), click("a", "11:00:00"))
    assert test.read("hours") == [(None, {"hour": "2026-01-01T10:00:00.000Z", "count": 3})]
    assert (test.invalid("clicks"), test.late()) == (1, 0)


@pipeline
def strict(clicks: Any = stream("clicks", "json", schema=CLICK, time="at", max_future="1 hour")) -> Output:
    return hours(clicks)


def test_time_far_in_the_future_stops_a_pipeline_that_skips_nothing(ottla_streams: Start) -> None:
    test = ottla_streams(strict)
    test.send("clicks", {"user": "a", "at": later(minutes=59)}, {"user": "b", "at": later(minutes=62)})
    with pytest.raises(PipelineFailed, match=r"partition 0, offset 1: the value's field at is .* more than 1 h after"):
        test.read("hours")


@pipeline
def without_time(clicks: Any = stream("clicks", "json", schema=CLICK, time="user")) -> Output:
    return hours(clicks)


def test_event_time_must_be_a_timestamp(ottla_streams: Start) -> None:
    with pytest.raises(StreamsError, match=r"stream\('clicks'\): value.time is 'user'; it must be a field of type"):
        ottla_streams(without_time).read("hours")


@pipeline
def two_partitions(clicks: Any = stream("two", "json", schema=CLICK, time="at", late="10 minutes")) -> Output:
    return hours(clicks)


def test_idle_partition_does_not_hold_windows_back_and_late_records_are_counted(
    ottla_streams: Start, ottla: Ottla
) -> None:
    ottla.topic("two", 2)
    test = ottla_streams(two_partitions)

    def send(partition: int, at: str) -> None:
        ottla.produce("two", json.dumps(click("a", at)), partition=partition)

    send(0, "10:00:00")
    send(0, "11:09:00")
    assert test.read("hours") == []
    send(0, "11:11:00")
    assert test.read("hours") == [(None, {"hour": "2026-01-01T10:00:00.000Z", "count": 1})]
    assert test.late() == 0
    # The watermark of the fastest partition counts: 11:01.
    send(1, "10:59:00")
    send(1, "11:00:30")
    assert test.read("hours") == []
    assert test.late() == 1
    test.advance("2026-01-01T12:11:00")
    assert test.read("hours") == [(None, {"hour": "2026-01-01T11:00:00.000Z", "count": 3})]


AD = "ad STRING, shown TIMESTAMP"


def unmatched(ads: Any, clicks: Any) -> Output:
    pairs = ads.join(clicks, F.expr("ad = user AND at BETWEEN shown AND shown + INTERVAL 5 MINUTES"), "left")
    return to("unmatched", pairs.where("user IS NULL").select("ad"), value="text")


@pipeline
def waiting(
    ads: Any = stream("ads", "json", schema=AD, time="shown"),
    clicks: Any = stream("clicks", "json", schema=CLICK, time="at"),
) -> Output:
    return unmatched(ads, clicks)


def test_stream_without_records_holds_the_other_streams_back(ottla_streams: Start) -> None:
    test = ottla_streams(waiting)
    test.send("ads", {"ad": "x", "shown": "2026-01-01T10:00:00Z"}, {"ad": "y", "shown": "2026-01-01T12:00:00Z"})
    assert test.read("unmatched") == []
    test.send("clicks", click("z", "11:00:00"))
    assert test.read("unmatched") == [(None, "x")]


@pipeline
def not_waiting(
    ads: Any = stream("ads", "json", schema=AD, time="shown"),
    clicks: Any = stream("clicks", "json", schema=CLICK, time="at", idle="1 second"),
) -> Output:
    return unmatched(ads, clicks)


def test_idle_stream_follows_the_clock(ottla_streams: Start, ottla: Ottla) -> None:
    test = ottla_streams(not_waiting)
    test.send("ads", {"ad": "x", "shown": "2026-01-01T10:00:00Z"}, {"ad": "y", "shown": "2026-01-01T12:00:00Z"})
    found: list[Any] = []

    def is_written() -> bool:
        found.extend(test.read("unmatched"))
        return bool(found)

    ottla.wait_until(is_written, 60)
    assert found == [(None, "x")]


def events(bad: str) -> Any:
    return stream("clicks", "json", schema=CLICK, time="at", bad=bad)


def counted(clicks: Any) -> Output:
    return to("out", clicks.groupBy(F.window("at", "1 hour")).count().select("count"), mode="final")


def joined(clicks: Any, ads: Any) -> Output:
    pairs = clicks.join(ads, F.expr("ad = user AND at BETWEEN shown AND shown + INTERVAL 5 MINUTES"))
    return to("out", pairs.select("user"))


ADS = stream("ads", "json", schema=AD, time="shown")


@pytest.mark.long
@pytest.mark.parametrize("bad", ["skip", "topic:clicks.bad"])
@pytest.mark.parametrize("kind", ["stateless", "windowed", "joined"])
def test_record_without_event_time_is_invalid(ottla_streams: Start, kind: str, bad: str) -> None:
    given = events(bad)
    functions: dict[str, Any] = {
        "stateless": lambda clicks=given: to("out", clicks.select("user")),
        "windowed": lambda clicks=given: counted(clicks),
        "joined": lambda clicks=given, ads=ADS: joined(clicks, ads),
    }
    test = ottla_streams(pipeline(name=kind, exactly_once=True)(functions[kind]))
    if kind == "joined":
        test.send("ads", {"ad": "a", "shown": "2026-01-01T10:00:00Z"}, {"ad": "b", "shown": "2026-01-01T10:00:00Z"})
    test.send("clicks", click("a", "10:01:00"), {"user": "b", "at": None}, {"user": "c"})
    test.process()
    test.advance("2026-01-01T12:00:00")
    results = [row.value for row in test.read("out")]
    assert results == [{"count": 1} if kind == "windowed" else {"user": "a"}]
    assert (test.invalid("clicks"), test.late()) == (2, 0)
    if bad != "skip":
        letters = test.records("clicks.bad")
        assert [json.loads(each.value or b"")["user"] for each in letters] == ["b", "c"]
        message = dict(letters[0].headers)["__connect.errors.exception.message"]
        assert message == b"the value's field at is null, but it is the event time"


@pytest.mark.long
def test_record_without_event_time_stops_a_pipeline_that_skips_nothing(ottla_streams: Start) -> None:
    given = events("fail")
    test = ottla_streams(pipeline(name="failing")(lambda clicks=given: counted(clicks)))
    test.send("clicks", click("a", "10:01:00"), {"user": "b"})
    with pytest.raises(PipelineFailed, match=r"partition 0, offset 1: the value's field at is null"):
        test.process()
