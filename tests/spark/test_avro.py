"""Avro columns with Spark: the types and schemas of Spark's own converters, and a round trip through a topic."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.clients import Consumer, Producer
from ottla.serde.avro_schema import parse
from ottla.spark.avro_values import avro_schema
from ottla.spark.formats import column_type
from ottla.spark.options import read_source_options
from tests.clients.support import unique
from tests.conftest import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONVERTERS = "org.apache.spark.sql.avro.SchemaConverters"
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
SCHEMAS: list[Any] = [
    "string",
    ["null", "long"],
    ["int", "long"],
    ["null", "float", "double"],
    {"type": "array", "items": ["null", "bytes"]},
    {
        "type": "record",
        "name": "All",
        "namespace": "a.b",
        "fields": [
            {"name": "flag", "type": "boolean"},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
            {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
            {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "odd", "type": {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 9}},
            {"name": "mac", "type": {"type": "fixed", "name": "Mac", "size": 6}},
            {"name": "kind", "type": ENUM},
            {"name": "again", "type": "E"},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "either", "type": ["string", "null", "E", {"type": "array", "items": "Mac"}]},
        ],
    },
]
COLUMNS = (
    "id BIGINT NOT NULL, small SMALLINT, tiny TINYINT, name STRING, ratio DOUBLE, part FLOAT, flag BOOLEAN, "
    "raw BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, money DECIMAL(9,2) NOT NULL, wide DECIMAL(38,10), "
    "tags ARRAY<STRING>, counts MAP<STRING, STRUCT<n: INT, d: DECIMAL(5,1)>>, deep STRUCT<a: STRUCT<b: ARRAY<INT>>>"
)


@pytest.mark.parametrize("schema", SCHEMAS, ids=[f"schema{i}" for i in range(len(SCHEMAS))])
def test_types_equal_the_types_of_sparks_converter(spark: SparkSession, schema: Any) -> None:
    java = spark._jvm
    text = json.dumps(schema)
    theirs = getattr(java, CONVERTERS).toSqlType(getattr(java, "org.apache.avro.Schema$Parser")().parse(text))
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "avro", "value.avro.schema": text}
    ours = column_type("value", read_source_options(given, streaming=False))
    assert json.loads(ours.json()) == json.loads(theirs.dataType().json())


@pytest.mark.parametrize("nullable", [False, True])
def test_schemas_equal_the_schemas_of_sparks_converter(spark: SparkSession, nullable: bool) -> None:
    kind = spark.createDataFrame([], COLUMNS).schema
    java = spark._jvm
    theirs = getattr(java, CONVERTERS).toAvroType(
        getattr(java, "org.apache.spark.sql.types.DataType").fromJson(kind.json()), nullable, "topLevelRecord", ""
    )
    assert parse(avro_schema(kind, nullable=nullable)) == parse(theirs.toString())


def frame(spark: SparkSession) -> DataFrame:
    """Return rows of many types, some null."""
    return spark.range(1_000, numPartitions=2).selectExpr(
        "id",
        "cast(id % 99 AS SMALLINT) small",
        "cast(-id % 99 AS TINYINT) tiny",
        "if(id % 7 = 0, null, concat('flight é ', id)) name",
        "id / 3 ratio",
        "cast(id / 7 AS FLOAT) part",
        "id % 2 = 0 flag",
        "cast(cast(id AS STRING) AS BINARY) raw",
        "date_add(DATE'1969-12-01', cast(id AS INT)) day",
        "timestamp_micros(id * 1000001 - 500) at",
        "cast(timestamp_micros(id * 999999) AS TIMESTAMP_NTZ) local",
        "cast((id - 500) / 3 AS DECIMAL(9,2)) money",
        "cast((500 - id) / 7 AS DECIMAL(38,10)) wide",
        "if(id % 5 = 0, null, array('a', null, cast(id AS STRING))) tags",
        "map('k', named_struct('n', cast(id AS INT), 'd', cast(id / 100 AS DECIMAL(5,1)))) counts",
        "named_struct('a', named_struct('b', array(1, cast(id AS INT)))) deep",
    )


def test_written_avro_values_are_read_back(spark: SparkSession, broker: RunningBroker) -> None:
    topic = unique("avro")
    rows = frame(spark)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "value.format": "avro"}
    rows.write.format("ottla").options(topic=topic, **options).mode("append").save()
    options["value.avro.schema"] = avro_schema(rows.schema)
    back = spark.read.format("ottla").options(subscribe=topic, **options).load().select("value.*")
    assert back.schema["at"].dataType == rows.schema["at"].dataType
    assert sorted(back.collect()) == rows.collect()


def test_invalid_avro_value_fails_a_query_with_its_offset_or_is_null(
    spark: SparkSession, broker: RunningBroker
) -> None:
    topic = unique("avro")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in (b"\x0eflights", b"\x0eflight", None):
            producer.send(topic, value, partition=0)
        producer.flush()
    options = {"kafka.bootstrap.servers": broker.bootstrap, "value.format": "avro", "value.avro.schema": '"string"'}
    read = spark.read.format("ottla").options(subscribe=topic, **options)
    with pytest.raises(
        Exception, match=f"Topic '{topic}', partition 0, offset 1: the value ends before its value does"
    ):
        read.load().collect()
    rows = read.option("mode", "PERMISSIVE").load().orderBy("offset").collect()
    assert [row.value for row in rows] == ["flights", None, None]


def test_keys_and_values_are_written_with_the_given_schemas(spark: SparkSession, broker: RunningBroker) -> None:
    topic = unique("avro")
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    rows = spark.range(3).selectExpr("id key", "named_struct('n', id) value")
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": topic,
        "key.format": "avro",
        "value.format": "avro",
    }
    given = {"key.avro.schema": '"long"', "value.avro.schema": json.dumps(schema)}
    rows.write.format("ottla").options(**options, **given).mode("append").save()
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in consumer.partitions_of(topic)])
        found: list[Any] = []
        while len(found) < 3:
            more = consumer.poll(10)
            assert more, f"only {len(found)} records in 10 s"
            found += more
    assert sorted((record.key, record.value) for record in found) == [(b"\0", b"\0"), (b"\2", b"\2"), (b"\4", b"\4")]
