"""Spark's source and sink with schemas in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import Admin, Consumer, Producer
from ottla.clients.serializers import AvroDeserializer, AvroSerializer
from tests.clients.support import unique
from tests.conftest import RunningBroker
from tests.registry.stand_in import StandIn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = unique("registry")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


def send(broker: RunningBroker, topic: str, *values: bytes | None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, key=b"k")


def encode(registry: StandIn, topic: str, schema: str, value: Any) -> bytes:
    made = AvroSerializer(schema, schema_registry_url=registry.url)(value, topic=topic)
    assert made is not None
    return made


def read(spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str, **more: str) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "schema": "registry",
        "schema.registry.url": registry.url,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return spark.read.format("ottla").options(**options).load()


def test_values_of_several_schemas_become_columns_of_the_latest(
    spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str
) -> None:
    old = encode(registry, topic, record(ID), {"id": 1})
    send(broker, topic, old, encode(registry, topic, record(ID, NOTE), {"id": 2, "note": "a"}), None)
    found = read(spark, broker, registry, topic).select("value.*").collect()
    assert [tuple(row) for row in found] == [(1, None), (2, "a"), (None, None)]


def test_reader_schema_of_the_query(spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str) -> None:
    send(broker, topic, encode(registry, topic, record(ID, NOTE), {"id": 2, "note": "a"}))
    frame = read(spark, broker, registry, topic, value_avro_readerSchema=record(ID))
    assert [tuple(row) for row in frame.select("value.*").collect()] == [(2,)]


def test_bad_value_fails_the_query_or_becomes_null(
    spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str
) -> None:
    good = encode(registry, topic, record(ID), {"id": 1})
    send(broker, topic, good, b"bad", good)
    with pytest.raises(Exception, match="partition 0, offset 1"):
        read(spark, broker, registry, topic).collect()
    frame = read(spark, broker, registry, topic, mode="PERMISSIVE", includeErrors="true")
    rows = frame.select("value.id", "error.message").collect()
    assert [row["id"] for row in rows] == [1, None, 1]
    assert "header of Confluent's wire format" in rows[1]["message"]


def test_sink_registers_the_schema_and_ottlas_deserializer_reads_the_values(
    spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str
) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, None)], "id BIGINT NOT NULL, note STRING").coalesce(1)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "schema": "registry",
        "schema.registry.url": registry.url,
    }  # fmt: skip
    frame.write.format("ottla").options(**options).mode("append").save()
    assert list(registry.subjects) == [f"{topic}-value"]
    with Consumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(schema_registry_url=registry.url),
    ) as consumer:
        consumer.assign([(topic, 0)])
        values: list[Any] = []
        for _ in range(100):
            values += [each.value for each in consumer.poll(0.2)]
            if len(values) == 2:
                break
    assert values == [{"id": 1, "note": "a"}, {"id": 2, "note": None}]
    assert [row["id"] for row in read(spark, broker, registry, topic).select("value.id").collect()] == [1, 2]


def test_sink_writes_with_the_latest_version(
    spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str
) -> None:
    registry.register(f"{topic}-value", {"schema": record(ID, NOTE)})
    options = {
        "kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "schema": "registry",
        "schema.registry.url": registry.url, "use.latest.version": "true",
    }  # fmt: skip
    spark.createDataFrame([(7,)], "id BIGINT NOT NULL").write.format("ottla").options(**options).mode("append").save()
    assert len(registry.subjects[f"{topic}-value"]) == 1
    assert [tuple(row) for row in read(spark, broker, registry, topic).select("value.*").collect()] == [(7, None)]


def test_secrets_of_the_registry_are_not_in_the_plan(
    spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    send(broker, topic, encode(registry, topic, record(ID), {"id": 1}))
    frame = read(spark, broker, registry, topic, basic_auth_user_info="user:hidden")
    frame.explain(extended=True)
    assert "hidden" not in capsys.readouterr().out
    assert frame.count() == 1
    assert "Basic dXNlcjpoaWRkZW4=" in registry.authorizations


def test_schema_that_is_missing_or_of_another_type_is_an_error(
    spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str
) -> None:
    with pytest.raises(Exception, match=f"The schema of {topic}-value cannot be read"):
        read(spark, broker, registry, topic).collect()
    registry.register(f"{topic}-value", {"schema": "{}", "schemaType": "JSON"})
    with pytest.raises(Exception, match="of type JSON, but"):
        read(spark, broker, registry, topic, value_schemaType="avro").collect()


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_protobuf_and_json_schema_in_both_directions(
    spark: SparkSession, broker: RunningBroker, registry: StandIn, topic: str, kind: str
) -> None:
    columns = "id BIGINT NOT NULL, note STRING, tags ARRAY<STRING>, inner STRUCT<x: INT>"
    rows = [(1, "a", ["x"], (7,)), (2, None, [], (8,))]
    options = {
        "kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "schema": "registry",
        "schema.registry.url": registry.url, "value.schemaType": kind,
    }  # fmt: skip
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    frame.write.format("ottla").options(**options).mode("append").save()
    assert registry.subjects[f"{topic}-value"][0]["schemaType"] == kind
    found = [tuple(row) for row in read(spark, broker, registry, topic).select("value.*").collect()]
    assert found == rows
    send(broker, topic, b"bad")
    with pytest.raises(Exception, match="partition 0, offset 2"):
        read(spark, broker, registry, topic).collect()
