"""Tables in pipelines: current in each micro-batch, and equal when a micro-batch is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import Output, pipeline, stream, table, to
from ottla.streams.declarations import Pipeline
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings

from .conftest import Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla


@pipeline(exactly_once=True)
def named(
    orders: Any = stream("orders", "json", schema="customer STRING, price INT"),
    customers: Any = table("customers", key="customer", schema="name STRING"),
) -> Output:
    return to("named", orders.join(customers, "customer", "left"), key="customer")


def test_table_is_current_in_each_micro_batch(ottla_streams: Start) -> None:
    test = ottla_streams(named)
    test.send("customers", {"name": "An"}, key="a")
    test.send("orders", {"customer": "a", "price": 1})
    assert test.read("named") == [("a", {"customer": "a", "name": "An", "price": 1})]
    test.send("customers", {"name": "Ann"}, key="a")
    test.send("orders", {"customer": "a", "price": 2})
    assert test.read("named") == [("a", {"customer": "a", "name": "Ann", "price": 2})]
    test.send("customers", None, key="a")
    test.send("orders", {"customer": "a", "price": 3})
    assert test.read("named") == [("a", {"customer": "a", "price": 3})]


def run_once(spark: SparkSession, ottla: Ottla, tmp_path: Path, program: Pipeline) -> None:
    """Process the records of now, in a run of its own."""
    runner = Runner(spark, [program], Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path)))
    runner.start()
    try:
        runner.process_available()
    finally:
        runner.stop()


def forget_commit(tmp_path: Path, name: str) -> None:
    """Leave the checkpoint as a crash before the commit of the last micro-batch does, so that it is repeated."""
    commits = tmp_path / name / name / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(("exactly_once", "broadcast"), [(False, True), (True, False)])
def test_repeated_micro_batch_has_the_same_rows_of_the_table(
    ottla_spark: SparkSession, ottla: Ottla, tmp_path: Path, exactly_once: bool, broadcast: bool
) -> None:
    @pipeline(exactly_once=exactly_once)
    def known(
        orders: Any = stream("orders", "json", schema="customer STRING"),
        customers: Any = table("customers", key="customer", schema="name STRING", broadcast=broadcast),
    ) -> Output:
        return to("known", orders.join(customers, "customer"), key="customer")

    for topic in ("orders", "customers", "known"):
        ottla.topic(topic)
    ottla.produce("customers", '{"name": "An"}', key="a")
    ottla.produce("customers", '{"name": "Bo"}', key="b")
    ottla.produce("orders", '{"customer": "a"}', '{"customer": "b"}', '{"customer": "c"}')
    run_once(ottla_spark, ottla, tmp_path, known)
    first = sorted(record.value or b"" for record in ottla.records("known"))
    assert first == [b'{"customer":"a","name":"An"}', b'{"customer":"b","name":"Bo"}']

    ottla.produce("customers", '{"name": "Ann"}', key="a")
    ottla.produce("customers", None, key="b")
    ottla.produce("customers", '{"name": "Cy"}', key="c")
    forget_commit(tmp_path, "known")
    run_once(ottla_spark, ottla, tmp_path, known)
    again = sorted(record.value or b"" for record in ottla.records("known"))
    assert again == (first if exactly_once else sorted(first * 2))

    ottla.produce("orders", '{"customer": "a"}', '{"customer": "b"}', '{"customer": "c"}')
    run_once(ottla_spark, ottla, tmp_path, known)
    new = sorted(record.value or b"" for record in ottla.records("known")[len(again) :])
    assert new == [b'{"customer":"a","name":"Ann"}', b'{"customer":"c","name":"Cy"}']


def test_table_as_it_was(ottla_streams: Start) -> None:
    columns = {"key": "id", "schema": "name STRING"}

    @pipeline
    def past(
        asked: Any = stream("asked", key="text"),
        at_time: Any = table("names", **columns, as_of="1970-01-01T00:00:02Z"),
        at_offset: Any = table("names", **columns, as_of={0: 1}, broadcast=False),
    ) -> list[Output]:
        ids = asked.select("key").withColumnRenamed("key", "id")
        return [
            to("at.time", ids.join(at_time, "id"), value="text", key="id"),
            to("at.offset", ids.join(at_offset, "id"), value="text", key="id"),
        ]

    test = ottla_streams(past)
    for second in (1, 2, 3):
        test.send("at_time", {"name": f"at {second} s"}, key="a", timestamp_ms=1000 * second)
    test.send("asked", None, key="a")
    assert test.read("at.time") == [("a", "at 2 s")]
    assert test.read("at.offset") == [("a", "at 1 s")]
