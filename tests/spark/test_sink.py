"""The sink: written records, rejected rows and columns, and errors in Spark."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.clients import Admin, MessageTooLarge, UnknownTopicOrPartition
from ottla.clients.producer import Producer
from ottla.spark import batch_writer
from ottla.spark.client_pool import ClientPool
from ottla.spark.options import SinkOptions
from ottla.spark.sink import BatchWriter, StreamWriter
from ottla.spark.write_plan import SinkError, WriteFailed, Written
from tests.clients.proxy import Proxy
from tests.clients.support import FIRST_TIMESTAMP, unique
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla

from .test_reading import World as Reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRODUCE = 0
WAIT_S = 150  # includes the start of Spark
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KINDS = {
    "key": StringType(), "value": BinaryType(), "topic": StringType(), "partition": IntegerType(),
    "headers": ArrayType(HEADER), "timestamp": TimestampType(), "offset": LongType(),
}  # fmt: skip
ARROW = {
    "key": pa.string(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "timestamp": pa.timestamp("us", "Europe/Berlin"),
}  # fmt: skip


def schema(*names: str, **other: Any) -> StructType:
    return StructType([StructField(name, other.get(name, KINDS.get(name))) for name in (*names, *other)])


class World(Reads):
    """A broker. Its methods create writers and write rows."""

    def writer(self, *names: str, topic: str | None = None, **settings: str) -> BatchWriter:
        client = {"bootstrap.servers": self.bootstrap, "max.block.ms": "20000", **settings}
        return BatchWriter(SinkOptions(topic=topic, client=client), schema(*names))

    def write(self, rows: list[dict[str, Any]], topic: str | None = None, copies: int = 1, **settings: str) -> Written:
        names = list(rows[0])
        batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, ARROW[name]) for name in names]))
        writer = self.writer(*names, topic=topic, **settings)
        return pickle.loads(pickle.dumps(writer)).write(iter([batch] * copies))  # type: ignore[no-any-return]


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientPool[Producer]]:
    pool: ClientPool[Producer] = ClientPool(Producer)
    monkeypatch.setattr(batch_writer, "_producers", pool)
    yield pool
    pool.close()


@pytest.fixture
def world(broker: RunningBroker, producers: ClientPool[Producer]) -> World:
    return World(broker.bootstrap)


@pytest.mark.both
class TestRows:
    """Rows of one task, without Spark."""

    def test_columns_are_written_to_their_records(self, world: World) -> None:
        topic, other = world.topic(), world.topic()
        rows = [
            {
                "topic": other if i % 3 == 0 else topic,
                "key": None if i % 4 == 0 else f"k{i}",
                "value": None if i % 5 == 0 else b"v%d" % i,
                "headers": None if i % 2 else [{"key": "h", "value": b"%d" % i}, {"key": "n", "value": None}],
                "timestamp": (FIRST_TIMESTAMP + i) * 1000,
            }
            for i in range(30)
        ]
        told = world.write(rows)
        assert told.records == 30
        assert told.by_partition == {(topic, 0): (20, 20), (other, 0): (10, 10)}
        for name in (topic, other):
            mine = [row for row in rows if row["topic"] == name]
            found = world.rows(name, 0, len(mine), include_headers=True)
            for sent, row in zip(mine, found, strict=True):
                assert row["value"] == sent["value"]
                assert row["key"] == (None if sent["key"] is None else sent["key"].encode())
                assert row["headers"] == sent["headers"]
                assert round(row["timestamp"].timestamp() * 1000) == sent["timestamp"] // 1000

    def test_topic_option_overrides_the_column_and_other_columns_are_ignored(self, world: World) -> None:
        topic = world.topic()
        told = world.write([{"topic": "elsewhere", "value": b"a", "offset": 7}], topic=topic)
        assert told.by_partition == {(topic, 0): (1, 1)}

    def test_partition_column_selects_the_partition(self, world: World) -> None:
        topic = unique("sink")
        with Admin(world.bootstrap) as admin:
            admin.create_topic(topic, partitions=3, replication_factor=1)
        told = world.write([{"value": b"%d" % i, "partition": i % 3} for i in range(10)], topic=topic)
        assert {partition: records for (_, partition), (records, _) in told.by_partition.items()} == {0: 4, 1: 3, 2: 3}
        with pytest.raises(WriteFailed, match=f"{topic}.*partition has 3"):
            world.write([{"value": b"", "partition": 3}], topic=topic)

    def test_many_small_batches_are_few_requests_in_order(self, world: World) -> None:
        topic = world.topic()
        requests: list[int] = []

        def count(_: object, response: Any) -> Any:
            requests.append(1)
            return response

        with Proxy(world.bootstrap) as proxy:
            proxy.answers[PRODUCE] = count
            own = World(proxy.bootstrap)
            own.write([{"value": b"%d" % i} for i in range(10)], topic=topic, copies=300)
            batch_writer._producers.close()
        assert [row["value"] for row in world.rows(topic, 0, 3_000)] == [b"%d" % (i % 10) for i in range(3_000)]
        assert len(requests) <= 3

    def test_row_without_a_topic_is_rejected(self, world: World) -> None:
        with pytest.raises(SinkError, match="Row 1 of a batch has no topic"):
            world.write([{"topic": world.topic(), "value": b""}, {"topic": None, "value": b""}])

    def test_missing_topic_is_named(self, world: World) -> None:
        name = unique("missing")
        with pytest.raises(WriteFailed, match=name) as failed:
            world.write([{"value": b"x"}], topic=name, **{"max.block.ms": "1500", "allow.auto.create.topics": "false"})
        assert isinstance(failed.value.__cause__, UnknownTopicOrPartition)

    def test_too_large_row_is_an_error_with_its_topic(self, world: World) -> None:
        topic = world.topic(**{"max.message.bytes": 2_000})
        for row in (bytes(5_000), bytes(2_000_000)):
            with pytest.raises(WriteFailed, match=topic) as failed:
                world.write([{"value": row}], topic=topic)
            assert isinstance(failed.value.__cause__, MessageTooLarge)
        assert world.write([{"value": b"small"}], topic=topic).records == 1

    def test_tasks_share_a_producer_unless_one_failed(self, world: World, producers: ClientPool[Producer]) -> None:
        topic = world.topic()
        made: list[Producer] = []
        plain = producers._make
        producers._make = lambda settings: made.append(plain(settings)) or made[-1]  # type: ignore[func-returns-value]
        for _ in range(3):
            world.write([{"value": b"x"}], topic=topic)
        assert len(made) == 1
        with pytest.raises(SinkError):
            world.write([{"topic": None, "value": b""}])
        world.write([{"value": b"x"}], topic=topic)
        assert len(made) == 2

    def test_lost_response_writes_no_duplicates(self, world: World) -> None:
        topic = world.topic()
        lost: list[int] = []

        def lose(_: object, response: Any) -> Any:
            if not lost:
                lost.append(1)
                return None
            return response

        with Proxy(world.bootstrap) as proxy:
            proxy.answers[PRODUCE] = lose
            told = World(proxy.bootstrap).write(
                [{"value": b"%d" % i} for i in range(100)], topic=topic, **{"request.timeout.ms": "1000"}
            )
            batch_writer._producers.close()
        assert told.by_partition == {(topic, 0): (100, 100)}
        assert [row["value"] for row in world.rows(topic, 0, 100)] == [b"%d" % i for i in range(100)]


def test_stopped_broker_is_retried_and_then_named(tmp_path: Path, producers: ClientPool[Producer]) -> None:
    with ForkedOttla(tmp_path / "broker") as process:
        world = World(process.bootstrap)
        topic = world.topic()
        world.write([{"value": b"0"}], topic=topic)
        process.kill()
        threading.Timer(1.0, process.start).start()
        assert world.write([{"value": b"1"}], topic=topic).by_partition == {(topic, 0): (1, 2)}
        process.kill()
        limits = {"delivery.timeout.ms": "1500", "request.timeout.ms": "500", "max.block.ms": "1500"}
        began = time.monotonic()
        with pytest.raises(WriteFailed, match=topic):
            world.write([{"value": b"2"}], topic=topic, **limits)
        assert time.monotonic() - began < 10
        process.start()


class TestSchema:
    """Columns that are rejected when a query is planned."""

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (schema("value"), "no column 'topic'.* option topic"),
            (schema("topic", "key"), "no column 'value' among topic, key"),
            (schema("topic", value=DoubleType()), "'value' is of double; it must be string or binary"),
            (schema("topic", "value", key=IntegerType()), "'key' is of int"),
            (schema("value", topic=BinaryType()), "'topic' is of binary; it must be string"),
            (schema("topic", "value", partition=StringType()), "'partition' is of string; it must be int"),
            (schema("topic", "value", headers=ArrayType(StringType())), "'headers' .* array<struct<key:string"),
            (schema("topic", "value", timestamp=StringType()), "'timestamp' is of string"),
            (StructType([*schema("topic", "value"), *schema("value")]), "several columns 'value'"),
        ],
    )
    def test_missing_columns_and_wrong_types_are_named(self, given: StructType, message: str) -> None:
        with pytest.raises(SinkError, match=message):
            BatchWriter(SinkOptions(topic=None, client={}), given)
        with pytest.raises(SinkError, match=message):
            StreamWriter(SinkOptions(topic=None, client={}), given)

    def test_columns_of_the_source_can_be_written(self) -> None:
        names = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
        BatchWriter(SinkOptions(topic=None, client={}), schema(*names))


@pytest.mark.both
@pytest.mark.timeout(WAIT_S)
class TestSpark:
    """Batch and streaming writes in a Spark session."""

    def test_batch_of_rows_is_written(self, spark: SparkSession, world: World) -> None:
        topic = world.topic()
        frame = spark.range(0, 1_000, 1, 3).selectExpr(
            "cast(id as string) key", "concat('v', id) value", f"'{topic}' topic", "0 partition",
            "array(named_struct('key', 'h', 'value', cast('1' as binary))) headers",
            f"timestamp_millis({FIRST_TIMESTAMP} + id) timestamp",
        )  # fmt: skip
        frame.write.format("ottla").option("kafka.bootstrap.servers", world.bootstrap).mode("append").save()
        rows = world.rows(topic, 0, 1_000, include_headers=True)
        assert sorted(int(row["key"]) for row in rows) == list(range(1_000))
        assert all(row["value"] == b"v" + row["key"] for row in rows)
        assert all(row["headers"] == [{"key": "h", "value": b"1"}] for row in rows)
        assert {round(row["timestamp"].timestamp() * 1000) - int(row["key"]) for row in rows} == {FIRST_TIMESTAMP}

    def test_errors_reach_the_user(self, spark: SparkSession, world: World) -> None:
        writes = spark.range(3).selectExpr("id value").write.format("ottla").mode("append")
        with pytest.raises(AnalysisException, match="'value' is of bigint; it must be string or binary"):
            writes.options(**{"kafka.bootstrap.servers": world.bootstrap, "topic": "t"}).save()
        rows = spark.range(3).selectExpr("cast(null as string) topic", "'x' value").write.format("ottla")
        with pytest.raises(PythonException, match="has no topic"):
            rows.mode("append").option("kafka.bootstrap.servers", world.bootstrap).save()

    def test_stream_is_written_and_continues_after_a_restart(
        self, spark: SparkSession, world: World, tmp_path: Path
    ) -> None:
        source, target = world.topic(), world.topic()
        world.write([{"value": b"%d" % i} for i in range(50)], topic=source)
        brokers = {"kafka.bootstrap.servers": world.bootstrap}

        def run() -> None:
            rows = spark.readStream.format("ottla").options(**brokers, subscribe=source, startingOffsets="earliest")
            query = (
                rows.load().select("value").writeStream.format("ottla").options(**brokers, topic=target)
                .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
            )  # fmt: skip
            assert query.awaitTermination(WAIT_S), "the query did not end"

        run()
        world.write([{"value": b"%d" % i} for i in range(50, 60)], topic=source)
        run()
        assert [row["value"] for row in world.rows(target, 0, 60)] == [b"%d" % i for i in range(60)]
