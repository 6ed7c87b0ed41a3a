"""Invalid records of exactly-once pipelines are written once and in transactions, as the log has them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.clients import Admin
from ottla.records.batch import iter_batches
from ottla.records.reader import decode_batch
from ottla.spark.offsets import FEW_OFFSETS
from ottla.streams import Output, PipelineFailed, pipeline, stream, to

from .conftest import Start

if TYPE_CHECKING:
    from ottla.testing import Ottla

PARTITIONS = 4
COMMIT = b"\x00\x00\x00\x01"
"""The key of a control record: version 0, type 1."""


class Transaction(NamedTuple):
    """A committed transaction: since KIP-890, each one of a producer has an epoch of its own."""

    producer_id: int
    epoch: int


def transactions(ottla: Ottla, topic: str) -> dict[Transaction, list[bytes | None]]:
    """Return the values of a topic by their transaction. Each one must be committed, and nothing else be there."""
    found: dict[Transaction, list[bytes | None]] = defaultdict(list)
    for file in sorted(Path(ottla.data).glob(f"{topic}-[0-9]/*.log")):
        data, opened = file.read_bytes(), set[int]()
        for position, header in iter_batches(data):
            assert header.is_transactional
            transaction = Transaction(header.producer_id, header.producer_epoch)
            rows = list(decode_batch(data, position))
            if not header.is_control:
                found[transaction] += [row.value for row in rows]
                opened.add(header.producer_id)
                continue
            assert [row.key for row in rows] == [COMMIT]
            opened.remove(header.producer_id)  # the marker has the epoch of the next transaction
        assert not opened, "not committed"
    return found


def digits(found: dict[Transaction, list[bytes | None]]) -> dict[Transaction, list[bytes]]:
    """Return the numbers in the values of transactions."""
    return {
        transaction: [re.sub(rb"\D", b"", value or b"") for value in values] for transaction, values in found.items()
    }


def tasks(ottla: Ottla, name: str) -> set[int]:
    """Return the tasks of a pipeline's query that have written."""
    with Admin(ottla.bootstrap) as admin:
        listed = admin.list_transactions(pattern=rf"ottla\.sink\.{re.escape(name)}\..*")
    return {int(each.transactional_id.rpartition(".")[2]) for each in listed}


def send(ottla: Ottla, topic: str, partitions: int = PARTITIONS) -> None:
    """Produce a valid and an invalid record to each partition; both have its number.

    Beside them are as many records without a value, which are skipped, that each partition has a task. All are appended
    in one call, which alternates between the partitions: a micro-batch has all of them or none.
    """
    valid = [f'{{"x": {number}}}' for number in range(partitions)]
    invalid = [f"no {number}" for number in range(partitions)]
    ottla.produce(topic, *valid, *invalid, *[None] * (FEW_OFFSETS // partitions * partitions))


@pipeline(exactly_once=True)
def checked(numbers: Any = stream("numbers", "json", schema="x INT", bad="topic:numbers.bad")) -> Output:
    return to("good", numbers.select(F.col("x").alias("value")), value="text")


@pytest.mark.long
def test_valid_and_invalid_records_are_written_once_in_transactions(ottla_streams: Start, ottla: Ottla) -> None:
    ottla.topic("numbers", PARTITIONS)
    ottla.topic("good", 2)
    ottla.topic("numbers.bad", 3)
    test = ottla_streams(checked)
    for batch in range(1, 3):
        send(ottla, "numbers")
        test.process()
        for topic in ("good", "numbers.bad"):
            written = digits(transactions(ottla, topic)).values()
            assert sorted(written) == sorted([[b"%d" % number] for number in range(PARTITIONS)] * batch)
    assert tasks(ottla, "checked") == set(range(2 * PARTITIONS)), "a task for each output and partition"
    headers = [dict(record.headers) for record in ottla.records("numbers.bad")]
    assert {each["__connect.errors.partition"] for each in headers} == {b"0", b"1", b"2", b"3"}
    ottla.wait_until(lambda: test.invalid("numbers") == PARTITIONS * 2)


@pipeline(exactly_once=True)
def windows(
    numbers: Any = stream("numbers", "json", schema="x INT, at TIMESTAMP", time="at", bad="topic:numbers.bad"),
) -> list[Output]:
    counted = numbers.groupBy(F.window("at", "1 hour"), "x").count()
    return [to("counts", counted.select("x", "count"), key="x", mode="final")]


@pipeline(exactly_once=True)
def running(numbers: Any = stream("numbers", "json", schema="x INT", bad="topic:numbers.bad")) -> Output:
    return to("counts", numbers.groupBy("x").count(), key="x", mode="updates")


@pytest.mark.long
@pytest.mark.parametrize("program", [windows, running], ids=["final", "updates"])
def test_invalid_records_beside_a_shuffle(ottla_streams: Start, ottla: Ottla, program: Any) -> None:
    ottla.topic("numbers", PARTITIONS)
    test = ottla_streams(program)
    for number in range(PARTITIONS):
        record = f'{{"x": {number}, "at": "2026-11-23T10:00:00Z"}}'
        ottla.produce("numbers", *[record] * 2, f"no {number}", partition=number)
    if program is windows:
        test.process()
        test.advance("2026-11-24T10:00:00Z")
        ottla.produce("numbers", "no last")
    counts = {tuple(each.value.values()) for each in test.read("counts")}
    assert counts == {(number, 2) for number in range(PARTITIONS)}
    expected = {b"no %d" % number for number in range(PARTITIONS)} | ({b"no last"} if program is windows else set())
    found = transactions(ottla, "numbers.bad").values()
    assert sorted(value or b"" for values in found for value in values) == sorted(expected)


@pipeline(exactly_once=True)
def several(
    numbers: Any = stream("numbers", "json", schema="x INT", bad="topic:numbers.bad"),
    others: Any = stream("others", "json", schema="x INT", bad="topic:others.bad"),
) -> list[Output]:
    few = others.repartition(1).select(F.col("x").cast("string").alias("value"))
    return [to("json", numbers), to("both", numbers.union(others)), to("few", few, value="text")]


@pytest.mark.long
def test_several_outputs_and_streams(ottla_streams: Start, ottla: Ottla) -> None:
    ottla.topic("numbers", PARTITIONS)
    ottla.topic("others", 3)
    test = ottla_streams(several)
    send(ottla, "others", 3)  # Spark omits the parts that have only records of the other stream
    test.process()
    assert len(test.read("few")) == 3
    send(ottla, "numbers")
    test.process()
    assert len(transactions(ottla, "json")) == PARTITIONS
    send(ottla, "numbers")
    send(ottla, "others", 3)
    test.process()
    assert len(test.read("json")) == 2 * PARTITIONS
    assert len(test.read("both")) == 2 * PARTITIONS + 6
    ottla.wait_until(lambda: (test.invalid("numbers"), test.invalid("others")) == (2 * PARTITIONS, 6))


def failing(value):  # type: ignore[no-untyped-def]  # Spark reads the types of annotations, and those here are text
    raise LookupError("there is no such number")


@pipeline(exactly_once=True)
def raising(numbers: Any = stream("numbers", "json", schema="x INT", bad="topic:numbers.bad")) -> Output:
    return to("good", numbers.select(F.udf(failing, "int")("x").alias("x")))


REQUIRED = {"type": "record", "name": "r", "fields": [{"name": "x", "type": "int"}]}


@pipeline(exactly_once=True)
def encoding(numbers: Any = stream("numbers", "json", schema="x INT", bad="topic:numbers.bad")) -> Output:
    return to("good", numbers.selectExpr("if(x > 0, x, null) x"), value="avro", schema=REQUIRED)


@pytest.mark.parametrize(
    ("program", "reason"),
    [(raising, "LookupError: there is no such number"), (encoding, r"to\('good'\): .*x")],
    ids=["program", "format"],
)
def test_failure_is_named_and_the_transaction_of_its_task_is_not_committed(
    ottla_streams: Start, ottla: Ottla, program: Any, reason: str
) -> None:
    test = ottla_streams(program)
    ottla.produce("numbers", "no 0", '{"x": 0}')
    with pytest.raises(PipelineFailed, match=reason):
        test.process()
    assert transactions(ottla, "good") == {}
