"""Reads ranges of offsets as Arrow batches, as Spark's Python workers do, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from ottla.clients import Admin, ClientError, CorruptRecords, Producer, TopicPartition
from ottla.clients.admin import ConfigResource
from ottla.clients.consumer import ranges
from ottla.clients.consumer.ranges import RangeReader, RecordsLost
from ottla.spark import range_columns, range_reader
from ottla.spark.client_pool import ClientPool
from ottla.spark.offsets import OffsetRange
from ottla.spark.options import read_source_options
from ottla.spark.range_reader import arrow_schema, read_range, read_ranges
from ottla.spark.source import source_schema
from tests.clients.proxy import Proxy
from tests.clients.support import FIRST_TIMESTAMP, WAIT_S, Sent, sample_records, unique, wait_until
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

pytestmark = pytest.mark.both
FETCH = 1


class World:
    """A broker. Its methods create topics, send records and read ranges."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.client = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": "20000"}

    def topic(self, **config: object) -> str:
        name = unique("reading")
        with Admin(self.bootstrap) as admin:
            admin.create_topic(name, partitions=1, replication_factor=1, config=config)
        return name

    def send(self, topic: str, records: list[Sent], **settings: object) -> None:
        with Producer(bootstrap_servers=self.bootstrap, **settings) as producer:
            for row in records:
                producer.send(
                    topic, row.value, key=row.key, partition=0, timestamp_ms=row.timestamp, headers=row.headers
                )

    def rows(self, topic: str, start: int, end: int, **wishes: Any) -> list[dict[str, Any]]:
        client = self.client | wishes.pop("client", {})
        batches = read_range(client, OffsetRange(topic, 0, start, end), **wishes)
        return [row for batch in batches for row in batch.to_pylist()]

    def offsets(self, topic: str, start: int, end: int, **wishes: Any) -> list[int]:
        return [row["offset"] for row in self.rows(topic, start, end, **wishes)]


@pytest.fixture
def world(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    range_columns._readers.close()  # readers of other tests have threads, which these tests count
    pool: ClientPool[RangeReader] = ClientPool(RangeReader)
    monkeypatch.setattr(range_columns, "_readers", pool)
    yield World(broker.bootstrap)
    pool.close()


def numbered(count: int, size: int = 0) -> list[Sent]:
    return [Sent(b"k%d" % i, b"%d" % i + bytes(size), [], FIRST_TIMESTAMP + i) for i in range(count)]


def test_columns_have_the_sent_keys_values_headers_and_timestamps(world: World) -> None:
    sent = sample_records(60)
    topic = world.topic()
    world.send(topic, sent)
    rows = world.rows(topic, 0, 60, include_headers=True)
    assert [(row["key"], row["value"]) for row in rows] == [(row.key, row.value) for row in sent]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [row.timestamp for row in sent]
    assert [row["headers"] for row in rows] == [
        [{"key": name, "value": value} for name, value in row.headers] or None for row in sent
    ]
    assert [row["offset"] for row in rows] == list(range(60))
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {(topic, 0, 0)}


@pytest.mark.parametrize("include_headers", [False, True])
def test_arrow_schema_is_the_schema_that_spark_expects(include_headers: bool) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "includeHeaders": str(include_headers)}
    wanted = to_arrow_schema(source_schema(read_source_options(options)), timezone="UTC")
    assert arrow_schema(include_headers).equals(wanted)


def test_timestamp_type_of_log_append_time_is_returned(world: World) -> None:
    topic = world.topic()
    world.send(topic, numbered(3))
    with Admin(world.bootstrap) as admin:
        admin.alter_configs({ConfigResource.topic(topic): {"message.timestamp.type": "LogAppendTime"}})
    world.send(topic, numbered(2))
    assert [row["timestampType"] for row in world.rows(topic, 0, 5)] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_range_may_start_and_end_within_a_batch(world: World, codec: str) -> None:
    topic = world.topic()
    world.send(topic, numbered(1_000), compression_type=codec, linger_ms=200)
    for start, end in ((0, 1_000), (0, 1), (999, 1_000), (100, 350), (500, 500)):
        assert world.offsets(topic, start, end) == list(range(start, end))


def test_batches_have_at_most_the_maximum_size_except_for_one_large_record(world: World) -> None:
    topic = world.topic()
    world.send(topic, [*numbered(40, 10_000), *numbered(1, 300_000), *numbered(9, 10_000)])
    batches = list(read_range(world.client, OffsetRange(topic, 0, 0, 50), max_bytes_per_batch=50_000))
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(50))
    assert max(batch.num_rows for batch in batches) <= 5
    assert all(batch.nbytes < 60_000 or batch.num_rows == 1 for batch in batches)


def test_consecutive_ranges_share_a_reader_without_extra_fetches(world: World) -> None:
    topic = world.topic()
    world.send(topic, numbered(30))
    fetches: list[int] = []

    def count(_: object, response: Any) -> Any:
        fetches.append(1)
        return response

    with Proxy(world.bootstrap) as proxy:
        proxy.answers[FETCH] = count
        client = {"bootstrap.servers": proxy.bootstrap}
        for start in (0, 10, 20):
            assert world.offsets(topic, start, start + 10, client=client) == list(range(start, start + 10))
        time.sleep(0.7)  # enough for the response of a fetch that waits at the broker
        range_columns._readers.close()
    assert len(fetches) == 3
    assert not [t for t in threading.enumerate() if t.name == "ottla-ranges"]


def test_idle_reader_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = world.topic()
    world.send(topic, numbered(3))
    monkeypatch.setattr(range_columns, "_readers", ClientPool(RangeReader, idle_s=0.2))
    assert world.offsets(topic, 0, 3) == [0, 1, 2]
    wait_until(lambda: not any(t.name == "ottla-ranges" for t in threading.enumerate()), "the reader is closed")
    assert world.offsets(topic, 1, 3) == [1, 2]


def test_abandoned_read_leaves_no_thread(world: World) -> None:
    topic = world.topic()
    world.send(topic, numbered(100, 1_000))
    batches = read_range(world.client, OffsetRange(topic, 0, 0, 100), max_bytes_per_batch=5_000)
    assert next(batches).num_rows
    del batches
    wait_until(lambda: not any(t.name == "ottla-ranges" for t in threading.enumerate()), "the reader is closed")


def test_records_deleted_by_retention_are_an_error_or_skipped(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = world.topic()
    world.send(topic, numbered(20))
    with Admin(world.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): 8})
    with pytest.raises(RecordsLost, match=rf"{topic}-0: offsets 2 to 7 .* failOnDataLoss=false") as lost:
        world.offsets(topic, 2, 12)
    assert (lost.value.offset, lost.value.until) == (2, 8)
    assert world.offsets(topic, 2, 12, fail_on_data_loss=False) == [8, 9, 10, 11]
    assert "offsets 2 to 7" in caplog.text
    assert world.offsets(topic, 0, 5, fail_on_data_loss=False) == []
    monkeypatch.setattr(ranges, "LOST_AFTER_S", 1.0)
    assert world.offsets(topic, 18, 40, fail_on_data_loss=False, client={"fetch.max.wait.ms": "50"}) == [18, 19]


def test_deleted_topic_is_an_error_or_skipped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "LOST_AFTER_S", 0.5)
    topic = unique("never")
    with pytest.raises(RecordsLost, match=f"{topic}-0: the topic does not exist"):
        world.offsets(topic, 0, 5)
    assert world.offsets(topic, 0, 5, fail_on_data_loss=False) == []
    with Admin(world.bootstrap) as admin:
        assert topic not in admin.list_topics()


def test_control_records_at_the_end_and_aborted_records_end_a_range(broker: RunningBroker, world: World) -> None:
    topic = world.topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(WAIT_S)
    for end in ("commit", "abort"):
        producer.begin_transaction()
        for i in range(3):
            producer.produce(topic, f"{end} {i}".encode(), partition=0)
        producer.flush(WAIT_S)
        (producer.commit_transaction if end == "commit" else producer.abort_transaction)(WAIT_S)
    assert world.offsets(topic, 0, 8) == [0, 1, 2, 4, 5, 6]
    assert world.offsets(topic, 0, 8, isolation_level="read_committed") == [0, 1, 2]
    assert world.offsets(topic, 3, 8, isolation_level="read_committed") == []


def test_range_with_compaction_gaps_returns_no_records_beyond_its_end(world: World) -> None:
    topic = world.topic()
    world.send(topic, numbered(10))
    world.send(topic, numbered(10))

    def without_first_batch(request: Any, response: Any) -> Any:
        for topic_row in response.responses:
            for row in topic_row.partitions:
                data = bytes(row.records or b"")
                if int.from_bytes(data[:8], "big") == 0:
                    row.records = data[12 + int.from_bytes(data[8:12], "big") :]
        return response

    with Proxy(world.bootstrap) as proxy:
        proxy.answers[FETCH] = without_first_batch
        client = {"bootstrap.servers": proxy.bootstrap}
        first = 10 if world.offsets(topic, 0, 20, client=client)[0] == 10 else 20
        assert world.offsets(topic, 0, first, client=client) == []
        assert world.offsets(topic, 0, first + 2, client=client) == [10, 11]
        range_columns._readers.close()


def test_corrupt_batch_is_an_error_with_its_offset(world: World) -> None:
    topic = world.topic()
    world.send(topic, numbered(5))
    world.send(topic, numbered(5))

    def damage(_: object, response: Any) -> Any:
        for topic_row in response.responses:
            for row in topic_row.partitions:
                data = bytearray(bytes(row.records or b""))
                at = 0 if int.from_bytes(data[:8], "big") == 5 else 12 + int.from_bytes(data[8:12], "big")
                if len(data) > at:
                    data[-3] ^= 1
                    row.records = bytes(data)
        return response

    with Proxy(world.bootstrap) as proxy:
        proxy.answers[FETCH] = damage
        with pytest.raises(CorruptRecords, match=f"{topic}-0 at offset 5"):
            world.offsets(topic, 0, 10, client={"bootstrap.servers": proxy.bootstrap})


def test_stopped_broker_is_retried_and_then_named(tmp_path: Path) -> None:
    with ForkedOttla(tmp_path / "broker") as process:
        world = World(process.bootstrap)
        topic = world.topic()
        world.send(topic, numbered(20, 10_000), batch_size=1)
        client = world.client | {"max.partition.fetch.bytes": "20000"}
        batches = read_range(client, OffsetRange(topic, 0, 0, 20), max_bytes_per_batch=20_000)
        first = next(batches)
        process.kill()
        threading.Timer(1.0, process.start).start()
        seen = [offset for batch in [first, *batches] for offset in batch.column("offset").to_pylist()]
        assert seen == list(range(20))
        process.kill()
        with pytest.raises(ClientError, match=rf"{topic}-0 at offset 3: no records within 1\.5 s \(.*refused"):
            world.offsets(topic, 3, 9, client={"default.api.timeout.ms": "1500"})
        process.start()


def test_small_ranges_of_a_task_share_a_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, other = world.topic(), world.topic()
    world.send(topic, numbered(30, 1_000))
    world.send(other, numbered(20, 1_000))
    wanted = [OffsetRange(topic, 0, 0, 10), OffsetRange(other, 0, 5, 20), OffsetRange(topic, 0, 20, 30)]
    (batch,) = read_ranges(world.client, wanted)
    assert batch.schema.equals(arrow_schema())
    rows = [(row["topic"], row["offset"]) for row in batch.to_pylist()]
    assert rows == [(rng.topic, offset) for rng in wanted for offset in range(rng.start, rng.end)]
    monkeypatch.setattr(range_reader, "BATCH_BYTES", 20_000)
    assert [part.num_rows for part in read_ranges(world.client, wanted)] == [10, 15, 10]
