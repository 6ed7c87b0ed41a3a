"""Pipelines on Spark and a real broker: outputs, formats, invalid records, event time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.type_pb2 import Field
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.clients import Admin, TopicPartition
from ottla.streams import Output, PipelineFailed, StreamsError, pipeline, stream, table, to

from .conftest import Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla


@pipeline(exactly_once=True)
def wordcount(lines: Any = stream("lines", value="text")) -> Output:
    words = lines.select(F.explode(F.split("value", r"\W+")).alias("word"))
    return to("counts", words.groupBy("word").count(), key="word", mode="updates")


def test_counts_are_updated(ottla_streams: Start) -> None:
    test = ottla_streams(wordcount)
    test.send("lines", "a b a")
    assert sorted(test.read("counts")) == [("a", {"word": "a", "count": 2}), ("b", {"word": "b", "count": 1})]
    started_s = time.monotonic()
    test.send("lines", "b")
    assert test.read("counts") == [("b", {"word": "b", "count": 2})]
    print(f"step {time.monotonic() - started_s:.2f} s")
    assert test.read("counts") == []


def test_function_is_called_with_static_rows(ottla_spark: SparkSession) -> None:
    lines = ottla_spark.createDataFrame([("a b a",)], "value STRING")
    output = wordcount(lines)
    assert isinstance(output, Output)
    assert sorted(map(tuple, output.rows.collect())) == [("a", 2), ("b", 1)]


@dataclass
class Order:
    customer: str
    price: int


@pipeline(exactly_once=True)
def shop(
    orders: Any = stream("orders", "json", schema=Order, key="text", columns=["offset"], bad="topic:orders.bad"),
    customers: Any = table("customers", key="customer", schema="name STRING"),
) -> list[Output]:
    named = orders.join(customers, "customer", "left")
    return [
        to("invoices", named.select("customer", "name", "price"), key=("customer", "price")),
        to("large", orders.where("price > 100").select("key", F.col("price").alias("value")), key="key", value="text"),
    ]


def test_several_outputs_a_table_and_invalid_records(ottla_streams: Start, ottla: Ottla) -> None:
    test = ottla_streams(shop)
    test.send("customers", {"name": "Bo"}, key="b")
    test.send("customers", {"name": "An"}, key="a")
    test.send("customers", {"name": "Ann"}, key="a")
    test.send("customers", None, key="b")
    test.send("orders", {"customer": "a", "price": 101}, {"customer": "b", "price": 2}, None, key="k")
    ottla.produce("orders", '{"customer": "a", "price": "x"}', key="k", headers={"own": "1"}, timestamp=5)
    assert sorted(test.read("invoices"), key=str) == [
        ('{"customer":"a","price":101}', {"customer": "a", "name": "Ann", "price": 101}),
        ('{"customer":"b","price":2}', {"customer": "b", "price": 2}),
    ]
    assert test.read("large") == [("k", "101")]
    (bad,) = test.records("orders.bad")
    assert (bad.key, bad.value, bad.timestamp) == (b"k", b'{"customer": "a", "price": "x"}', 5)
    headers = dict(bad.headers)
    assert headers["own"] == b"1"
    assert headers["__connect.errors.topic"] == b"orders"
    assert (headers["__connect.errors.partition"], headers["__connect.errors.offset"]) == (b"0", b"3")
    assert headers["__connect.errors.connector.name"] == b"shop"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert b"the value's field price" in (headers["__connect.errors.exception.message"] or b"")
    ottla.wait_until(lambda: test.invalid("orders") == 1)


@pipeline(exactly_once=True)
def checked(numbers: Any = stream("numbers.in", "json", schema="x INT", bad="topic:numbers.bad")) -> Output:
    return to("numbers.good", numbers)


def test_invalid_records_are_written_in_transactions_of_the_query(ottla_streams: Start, ottla: Ottla) -> None:
    test = ottla_streams(checked)
    ottla.produce("numbers.in", '{"x": 1}', '{"x": "no"}')
    assert test.read("numbers.good") == [(None, {"x": 1})]
    assert [record.value for record in test.records("numbers.bad")] == [b'{"x": "no"}']
    places = [TopicPartition("numbers.good", 0), TopicPartition("numbers.bad", 0)]
    with Admin(bootstrap_servers=ottla.bootstrap) as admin:
        described = admin.describe_producers(places)
        listed = admin.list_transactions(pattern=r"ottla\.sink\.checked\..*")
    of_the_query = {each.producer_id for each in listed}
    for place in places:
        (producer,) = described[place]
        assert producer.producer_id in of_the_query
        assert producer.transaction_start_offset is None  # committed


AVRO = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}


@pipeline
def copied(numbers: Any = stream("numbers", "json", schema="x INT", bad="skip")) -> list[Output]:
    return [
        to("avro", numbers, value="avro", schema=AVRO),
        to("bytes", numbers.select(F.lit(b"1").alias("y")), value="bytes"),
        to("protobuf", numbers.select(F.col("x").alias("number")), value="protobuf", schema=Field),
    ]


@pipeline
def back(
    numbers: Any = stream("avro", "avro", schema=AVRO),
    others: Any = stream("protobuf", "protobuf", schema=Field, bad="topic:protobuf.bad"),
) -> Output:
    return to("numbers.again", numbers.union(others.select("number")))


def test_formats_and_skipped_records(ottla_streams: Start, ottla: Ottla) -> None:
    test = ottla_streams(copied)
    test.send("numbers", {"x": 1}, "no", {"x": 2})
    assert [record.value for record in test.records("avro")] == [b"\x02", b"\x04"]
    assert [record.value for record in test.records("bytes")] == [b"1", b"1"]
    ottla.wait_until(lambda: test.invalid("numbers") == 1)
    assert [record.value for record in test.records("protobuf")] == [b"\x18\x01", b"\x18\x02"]
    again = ottla_streams(back)
    again.send("others", b"\x18")
    assert sorted(row.value["x"] for row in again.read("numbers.again")) == [1, 1, 2, 2]
    assert [record.value for record in again.records("protobuf.bad")] == [b"\x18"]


@pipeline
def strict(numbers: Any = stream("numbers", "json", schema="x INT")) -> Output:
    return to("same", numbers)


def test_invalid_record_stops_a_pipeline_and_is_named(ottla_streams: Start) -> None:
    test = ottla_streams(strict)
    test.send("numbers", {"x": 1}, {"x": "no"})
    with pytest.raises(
        PipelineFailed, match=r"'strict' failed: Topic 'numbers', partition 0, offset 1: the value's field x"
    ):
        test.read("same")


LONG = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}'


@pipeline
def encoded(numbers: Any = stream("numbers", "json", schema="x BIGINT")) -> list[Output]:
    return [to("json", numbers), to("avro", numbers, value="avro", schema=LONG)]


def test_row_that_does_not_fit_its_output_is_named_with_the_output(ottla_streams: Start) -> None:
    test = ottla_streams(encoded)
    test.send("numbers", {"y": 1})
    with pytest.raises(PipelineFailed, match=r"to\('avro'\): A value cannot be written: its field 'x' is null"):
        test.read("avro")


@pipeline
def visits(
    clicks: Any = stream("clicks", "json", schema="user STRING, at TIMESTAMP", time="at", late="10 minutes"),
) -> list[Output]:
    counts = clicks.groupBy(F.window("at", "1 hour"), "user").count()
    hours = counts.select(F.col("window.start").alias("hour"), "user", "count")
    return [to("hours", hours, key="user", mode="final"), to("hours.now", hours, key="user", mode="updates")]


@pytest.mark.long
def test_windows_close_when_the_event_time_advances(ottla_streams: Start) -> None:
    test = ottla_streams(visits)
    test.send("clicks", {"user": "a", "at": "2026-01-01T10:50:00Z"}, {"user": "a", "at": "2026-01-01T10:10:00Z"})
    hour = {"hour": "2026-01-01T10:00:00.000Z", "user": "a", "count": 2}
    assert test.read("hours.now") == [("a", hour)]
    assert test.read("hours") == []
    test.advance("2026-01-01T11:09:00")
    assert test.read("hours") == []
    test.advance("2026-01-01T11:11:00")
    assert test.read("hours") == [("a", hour)]
    test.send("clicks", {"user": "a", "at": "2026-01-01T10:30:00Z"})
    assert test.read("hours") == []


@pipeline
def wrong(
    clicks: Any = stream("clicks", "json", schema="user STRING, at TIMESTAMP"),
    users: Any = table("users", key="user", schema="name STRING"),
) -> list[Output]:
    counts = clicks.groupBy("user").count()
    return [
        to("a", counts, key="user"),
        to("b", counts, key="user", mode="final"),
        to("c", clicks, key="users", mode="updates"),
        to("d", users),
    ]


@pipeline
def misspelt(clicks: Any = stream("clicks", "json", schema="user STRING")) -> Output:
    return to("a", clicks.select("usr"))


def test_operation_that_spark_rejects_is_one_line(ottla_streams: Start) -> None:
    with pytest.raises(StreamsError, match=r"^Pipeline 'misspelt': \[UNRESOLVED_COLUMN.*`usr`.*$"):
        ottla_streams(misspelt).read("a")


@pipeline
def unsupported(
    clicks: Any = stream("clicks", "json", schema="user STRING, at TIMESTAMP", time="at"),
    users: Any = stream("users", "json", schema="id STRING, n INT"),
) -> list[Output]:
    joined = clicks.join(users, F.expr("user = id"), "left")
    sessions = clicks.groupBy("user", F.session_window("at", "1 minute")).count()
    return [
        to("sorted", users.orderBy("n")),
        to("joined", joined),
        to("sessions", sessions, mode="updates"),
        to("doubled", users.select("n", "n")),
        to("case", users.select("n", F.col("id").alias("N"))),
        to("timed", users, timestamp="id"),
        to("headed", users, headers="n"),
    ]


def test_operations_that_spark_does_not_support_are_found_before_the_start(ottla_streams: Start) -> None:
    with pytest.raises(StreamsError) as raised:
        ottla_streams(unsupported).read("sorted")
    found = [each.removeprefix("Pipeline 'unsupported': to(") for each in raised.value.problems]
    assert [each[:30] for each in found] == [
        "'sorted'): Sorting is not supp",
        "'joined'): Stream-stream LeftO",
        "'sessions'): [STREAMING_OUTPUT",
        "'doubled'): there are two colu",
        "'case'): [AMBIGUOUS_REFERENCE]",
        "'timed'): the column 'id' is o",
        "'headed'): the column 'n' is o",
    ]
    assert not [each for each in found if each.endswith(";") or "SQLSTATE" in each]


def test_problems_of_all_outputs_are_reported_before_the_start(ottla_streams: Start) -> None:
    with pytest.raises(StreamsError) as raised:
        ottla_streams(wrong).read("a")
    assert raised.value.problems == (
        "Pipeline 'wrong': to('a'): a running aggregate has no end: set mode='updates', or mode='final' for windows",
        "Pipeline 'wrong': to('b'): windows close by event time: set time= and late= of the stream",
        "Pipeline 'wrong': to('c'): its rows do not change, because there is no aggregate: set mode='append'",
        "Pipeline 'wrong': to('c'): there is no column 'users'; the columns are user, at",
        "Pipeline 'wrong': to('d'): its rows come from tables only; a pipeline is driven by the records of a stream",
    )
