"""JSON columns as Spark's own from_json and to_json have them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.spark.formats import column_type, decode
from ottla.spark.json_texts import to_json
from ottla.spark.options import read_source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "a INT, b STRING, c DOUBLE, d STRUCT<e: BIGINT, f: ARRAY<STRING>>, t TIMESTAMP, y BOOLEAN, n DECIMAL(9,2)"
TEXTS = [
    '{"a":1,"b":"x","c":1.5,"d":{"e":7,"f":["p",null]},"t":"2013-01-01T05:00:00Z","y":true,"n":1.25}',
    '{"b":"say \\"é\\"","other":{"a":1},"c":-3}',
    '{ "a" : null,\n "d":{} }',
    "{}",
    None,
]


def test_texts_become_what_from_json_makes_of_them(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in TEXTS], "text STRING")
    theirs = frame.select(F.to_json(F.from_json("text", SCHEMA)).alias("json")).collect()
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "json", "value.schema": SCHEMA}
    values = pa.array([None if text is None else text.encode() for text in TEXTS], pa.binary())
    (typed,) = decode(iter([pa.record_batch({"value": values})]), read_source_options(given, streaming=False))
    ours = to_json(typed.column("value")).to_pylist()
    for our, their in zip(ours, theirs, strict=True):
        assert (our is None) == (their.json is None)
        if our is not None:
            assert {k: v for k, v in json.loads(our).items() if k != "t"} == {
                k: v for k, v in json.loads(their.json).items() if k != "t"
            }


def test_the_schema_is_the_one_that_spark_reads_from_the_same_words(spark: SparkSession) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "value.format": "json", "value.schema": SCHEMA}
    assert column_type("value", read_source_options(given, streaming=False)) == spark.createDataFrame([], SCHEMA).schema
