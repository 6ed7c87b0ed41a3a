"""Compacted copies of tables: equal to the whole topic, read in pieces of any size."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pytest

from ottla.spark import table_copy
from ottla.spark.table_copy import Copies, PartitionCopy, TableCopy

Record = tuple[bytes | None, bytes | None]
FIELDS = ("key", "value", "partition", "offset", "timestamp")


def records(rows: list[Record], start: int = 0, partition: int = 0, timestamp: int = 0) -> Any:
    return pa.RecordBatch.from_pydict({
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "value": pa.array([value for _, value in rows], pa.binary()),
        "partition": pa.array([partition] * len(rows), pa.int32()),
        "offset": pa.array(range(start, start + len(rows)), pa.int64()),
        "timestamp": pa.array([timestamp] * len(rows), pa.timestamp("us", "UTC")),
    })  # fmt: skip


def same(batch: Any) -> Any:
    return batch


def contents(copy: TableCopy) -> list[Record]:
    return sorted(
        (row["key"], row["value"]) for batch in copy.rows() for row in batch.select(["key", "value"]).to_pylist()
    )


def model(rows: list[Record], first: int = 0) -> list[Record]:
    """The latest value of each key, in plain Python."""
    latest = {key: value for key, value in rows[first:] if key is not None}
    return sorted((key, value) for key, value in latest.items() if value is not None)


@pytest.mark.parametrize("seed", range(30))
def test_copy_equals_the_latest_records_of_the_topic(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(table_copy, "CHUNK_ROWS", chance.choice([1, 3, 16, 65_536]))
    monkeypatch.setattr(table_copy, "CHUNK_BYTES", chance.choice([1, 200, 10**6]))
    keys = [None, b"", *(b"%d" % number for number in range(chance.randint(1, 40)))]
    rows: list[Record] = []
    part, first = PartitionCopy(), 0
    copy = TableCopy("", {0: part})
    for _ in range(chance.randint(1, 12)):
        size = chance.choice([0, 1, 2, 7, 40])
        more: list[Record] = [
            (chance.choice(keys), chance.choice([None, b"", b"%d" % chance.randrange(9)])) for _ in range(size)
        ]
        if chance.random() < 0.1:
            first = chance.randint(first, len(rows))
            part.drop_before(first)
        part.add(records(more, len(rows)), same)
        rows += more
        assert contents(copy) == model(rows, first)


def test_key_in_several_partitions_has_the_row_with_the_latest_timestamp() -> None:
    parts = {number: PartitionCopy() for number in range(2)}
    copy = TableCopy("", parts)
    parts[1].add(records([(b"a", b"late"), (b"b", b"1")], partition=1, timestamp=9), same)
    parts[0].add(records([(b"a", b"early"), (b"c", b"2")], timestamp=8), same)
    assert contents(copy) == [(b"a", b"late"), (b"b", b"1"), (b"c", b"2")]


def test_chunks_stay_few() -> None:
    part = PartitionCopy()
    for number in range(500):
        part.add(records([(b"%d" % number, b"x")], number), same)
    assert len(part.chunks) < 12


def copy_of(size: int) -> TableCopy:
    part = PartitionCopy()
    part.add(records([(b"k", b"x" * size)]), same)
    return TableCopy("", {0: part})


def test_memory_of_copies_is_limited() -> None:
    copies = Copies(limit=2_500)
    first, second, third = copy_of(1_000), copy_of(1_000), copy_of(1_000)
    copies.put("a", first)
    copies.put("b", second)
    assert copies.take("a") is first
    copies.put("a", first)
    copies.put("c", third)
    assert copies.take("b") is not second, "it was not used for the longest time"
    assert copies.take("a") is first
    copies.put("large", copy_of(3_000))
    assert copies.take("large").size == 0
    assert copies.take("c") is third
