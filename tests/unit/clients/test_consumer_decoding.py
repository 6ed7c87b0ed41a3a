"""Decoding one fetch response to records and to columns: equal records, each once, and equal errors."""

import random
import sys
from typing import Any

import pytest

from ottla.clients.consumer.arrow import arrow_collector, schema, to_arrow
from ottla.clients.consumer.collectors import ColumnCollector, RecordCollector
from ottla.clients.consumer.decoding import Fetched
from ottla.clients.errors import CorruptRecords
from ottla.common.ids import TopicPartition
from ottla.records import (
    Codec,
    encode_batch,
    encode_end_transaction_marker,
    patch,
    read_header,
    set_timestamps,
)
from ottla.records.batch import TRANSACTIONAL, seal
from ottla.records.column_kernels import whole_batches
from tests.uncompiled import record_kernels

TP = TopicPartition("t", 3)
Row = tuple[Any, ...]


@pytest.fixture(params=["as built", "uncompiled"], autouse=True)
def columns_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "uncompiled":
        uncompiled = record_kernels()["_decode_columns"]
        monkeypatch.setattr("ottla.clients.consumer.collectors.Columns", uncompiled.Columns)
        monkeypatch.setattr("ottla.clients.consumer.arrow.repeat_texts", uncompiled.repeat_texts)


def random_log(chance: random.Random) -> tuple[bytearray, list[tuple[int, int]]]:
    """Return random batches of all kinds, and the aborted transactions."""
    log, aborted, offset = bytearray(), [], chance.randrange(5)
    for number in range(chance.randrange(1, 8)):
        kind = chance.choice(["plain", "plain", "plain", "stamped", "gap", "aborted", "committed", "crc", "malformed"])
        rows = [
            (chance.randrange(1 << 40), chance.choice([None, b"", b"key"]), chance.choice([None, b"v" * 50]),
             chance.choice([[], [], [("h", None), ("i", b"x")]]))
            for _ in range(chance.randrange(1, 12))
        ]  # fmt: skip
        batch = encode_batch(rows, codec=chance.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]))
        if kind == "stamped":
            set_timestamps(batch, 0, 1_000 + number, log_append=True)
        elif kind == "gap":
            offset += chance.randrange(100)
        elif kind == "crc":
            batch[-1] ^= 1
        elif kind == "malformed":
            batch[60] += 1
            seal(batch, 0)
        elif kind in {"aborted", "committed"}:
            if kind == "aborted":
                aborted.append((number, offset))
            batch[22] |= TRANSACTIONAL
            batch[43:51] = number.to_bytes(8, "big")
            seal(batch, 0)
            patch(batch, 0, offset, number)
            offset = read_header(batch).next_offset
            log += batch
            batch = encode_end_transaction_marker(
                commit=kind == "committed", producer_id=number, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
            )
        patch(batch, 0, offset, number)
        offset = read_header(batch).next_offset
        log += batch
    return log, aborted


def take_all(fetched: Fetched, chance: random.Random, kinds: str) -> tuple[list[Row], list[tuple[int, str]]]:
    """Return all rows and errors. Each step is one of `kinds` (r: records, c: columns)."""
    rows: list[Row] = []
    errors = []
    while not fetched.exhausted:
        limit = chance.choice([1, 2, 5, 1000])
        collector = RecordCollector(limit) if chance.choice(kinds) == "r" else ColumnCollector(limit)
        collector.expect(fetched.size)
        while not collector.is_full and not fetched.exhausted:
            before = len(collector)
            try:
                collector.take(fetched)
            except CorruptRecords as error:
                assert len(collector) == before
                errors.append((error.offset, str(error)))
        got = collector.records if isinstance(collector, RecordCollector) else arrow_rows(collector)
        assert len(got) == len(collector) <= limit
        rows += [tuple(row) for row in got]
        if got and not fetched.exhausted:
            assert fetched.next_offset > rows[-1][0]
    return rows, errors


def arrow_rows(collector: ColumnCollector) -> list[Row]:
    batch = to_arrow(collector)
    batch.validate(full=True)
    assert batch.schema == schema()
    rows = []
    for row in batch.to_pylist():
        assert (row["topic"], row["partition"]) == TP
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        rows.append((row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"], headers))
    return rows


@pytest.mark.parametrize("seed", range(60))
def test_columns_and_records_can_be_taken_alternately(seed: int) -> None:
    log, aborted = random_log(random.Random(seed))
    next_offset, end = whole_batches(memoryview(log))
    assert end == len(log)
    offset = random.Random(seed).randrange(max(1, next_offset))

    def everything(kinds: str) -> tuple[Any, ...]:
        fetched = Fetched(TP, memoryview(log), offset, aborted=aborted)
        rows, errors = take_all(fetched, random.Random(seed), kinds)
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        return rows, errors, fetched.next_offset, fetched.epoch

    rows, errors, after, epoch = everything("r")
    assert after == next_offset
    for kinds in ("c", "rc"):
        got, their_errors, their_after, their_epoch = everything(kinds)
        assert (got, [offset for offset, _ in their_errors]) == (rows, [offset for offset, _ in errors])
        assert (their_after, their_epoch) == (after, epoch)


@pytest.mark.parametrize("kinds", ["r", "c"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_batches_around_a_corrupt_batch_are_read_for_any_corrupt_byte(kinds: str, codec: Codec) -> None:
    log = bytearray()
    for first in (0, 5, 10):
        batch = encode_batch([(5, None, b"x", [])] * 5, codec=codec)
        patch(batch, 0, first, 0)
        log += batch
    size = len(log) // 3
    for byte in range(17, size):  # the checksum, and all that it covers
        for flip in (0x01, 0x80, 0xFF):
            harmed = bytearray(log)
            harmed[size + byte] ^= flip
            fetched = Fetched(TP, memoryview(harmed), 0)
            rows, errors = take_all(fetched, random.Random(byte), kinds)
            assert [row[0] for row in rows] == [*range(5), *range(10, 15)], f"byte {byte} ^ {flip}"
            assert [offset for offset, _ in errors] == [5]


def test_columns_of_several_partitions_have_topic_and_partition_of_each_row() -> None:
    collector = ColumnCollector(100)
    collector.expect(1000)
    for topic, partition, count in (("ä", 0, 3), ("ä", 1, 2), ("b", 0, 1)):
        log = encode_batch([(5, None, b"x", [])] * count)
        collector.take(Fetched(TopicPartition(topic, partition), memoryview(log), 0))
    batch = to_arrow(collector)
    batch.validate(full=True)
    assert batch.column("topic").to_pylist() == 5 * ["ä"] + ["b"]
    assert batch.column("partition").to_pylist() == [0, 0, 0, 1, 1, 0]
    assert batch.column("offset").to_pylist() == [0, 1, 2, 0, 1, 0]


def test_decompressed_size_of_batches_limits_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.clients.consumer.collectors.ARROW_BYTES", 10_000)
    log = encode_batch([(5, None, bytes(1000), [])] * 100, codec=Codec.ZSTD)
    fetched = Fetched(TP, memoryview(log), 0)
    counts = []
    while not fetched.exhausted:
        collector = ColumnCollector(1000)
        collector.expect(fetched.size)
        while not collector.is_full and not fetched.exhausted:
            collector.take(fetched)
        counts.append(len(collector))
    assert sum(counts) == 100
    assert set(counts[:-1]) == {9}


def test_arrow_batch_does_not_share_memory_with_the_fetch() -> None:
    log = bytearray(encode_batch([(5, b"key", b"value", [])] * 10))
    collector = ColumnCollector(100)
    collector.expect(len(log))
    collector.take(Fetched(TP, memoryview(log), 0))
    batch = to_arrow(collector)
    del collector
    log[:] = bytes(len(log))
    assert batch.column("value").to_pylist() == 10 * [b"value"]


def test_missing_pyarrow_is_reported_before_a_poll_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    schema.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="poll_arrow needs pyarrow: `pip install pyarrow` installs it"):
        arrow_collector(1)
