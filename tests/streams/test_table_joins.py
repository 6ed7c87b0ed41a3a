"""Joins of tables on real Spark: random changes of both sides, in random micro-batches, against plain Python."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from ottla.streams import Output, pipeline, stream, table, to
from ottla.streams.runtime import Runner
from ottla.streams.settings import Settings

from .test_tables import forget_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

SEEDS = int(os.environ.get("OTTLA_SEEDS", "1"))
STEPS = 2
Row = dict[str, Any]
Table = dict[str, Row]


@pipeline(exactly_once=True)
def joins(
    changed_orders: Any = stream("orders", key="text"),
    changed_products: Any = stream("products", key="text"),
    orders: Any = table("orders", key="id", schema="product STRING, number INT"),
    products: Any = table("products", key="product", schema="price INT"),
) -> list[Output]:
    """Orders and products: an inner join of equal keys, and a left join by the product of an order."""
    orders = orders.withColumn("is_order", F.lit(True))
    products = products.withColumn("is_product", F.lit(True))
    orders_of_key = changed_orders.select(F.col("key").alias("id"))
    same = orders_of_key.union(changed_products.select("key")).join(orders.drop("product"), "id", "left")
    same = same.join(products.withColumnRenamed("product", "id"), "id", "left")
    of_products = changed_products.select(F.col("key").alias("product")).join(orders, "product").select("id")
    by_product = orders_of_key.union(of_products).join(orders, "id", "left").join(products, "product", "left")
    no_pair = F.expr("is_order IS NULL OR is_product IS NULL")
    return [
        to("same", same.select("id", "number", "price", no_pair.alias("gone")), key="id", deleted="gone"),
        to(
            "by_product",
            by_product.select("id", "product", "number", "price", F.col("is_order").isNull().alias("gone")),
            key="id",
            deleted="gone",
        ),
    ]


def expected(orders: Table, products: Table) -> dict[str, Table]:
    return {
        "same": {
            key: {"id": key, "number": order["number"], **products[key]}
            for key, order in orders.items()
            if key in products
        },
        "by_product": {
            key: {"id": key, **order, **products.get(order["product"], {})} for key, order in orders.items()
        },
    }


def table_of(ottla: Ottla, topic: str) -> Table:
    """The latest values of an output, in plain Python."""
    latest: dict[str, bytes | None] = {}
    for record in ottla.records(topic):
        assert record.key is not None
        latest[record.key.decode()] = record.value
    return {key: json.loads(value) for key, value in latest.items() if value is not None}


class Changes:
    """Sends random changes, and applies them to plain dictionaries."""

    def __init__(self, ottla: Ottla, seed: int) -> None:
        self.tables: dict[str, Table] = {"orders": {}, "products": {}}
        self._ottla = ottla
        self._chance = random.Random(seed)

    def send(self, count: int) -> None:
        chance = self._chance
        for _ in range(count):
            topic, key = chance.choice(["orders", "products"]), chance.choice("abcdef")
            value: Row | None = {"price": chance.randrange(9)}
            if topic == "orders":
                value = {"product": chance.choice("abcdef"), "number": chance.randrange(9)}
            if chance.random() < 0.3:
                value = None
            self._ottla.produce(topic, None if value is None else json.dumps(value), key=key)
            if value is None:
                self.tables[topic].pop(key, None)
            else:
                self.tables[topic][key] = value


@pytest.mark.parametrize("seed", range(SEEDS))
def test_joins_of_tables_equal_joins_in_plain_python(
    seed: int, ottla_spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    changes, chance = Changes(ottla, seed), random.Random(seed)
    ottla.topic("orders", 2)
    ottla.topic("products", 1)
    names = expected({}, {})
    for topic in names:
        ottla.topic(topic, 2)
    settings = Settings({"bootstrap.servers": ottla.bootstrap}, str(tmp_path))
    written: dict[str, int] = {}
    for step in range(STEPS):
        # From the second run on, it begins with the last micro-batch of the previous one, after more changes.
        runner = Runner(ottla_spark, [joins], settings)
        runner.start()
        try:
            for _ in range(2):
                changes.send(chance.choice([1, 3, 12]))
                runner.process_available()
                assert {topic: table_of(ottla, topic) for topic in names} == expected(**changes.tables), f"step {step}"
        finally:
            runner.stop()
        forget_commit(tmp_path, "joins")
        written = {topic: len(ottla.records(topic)) for topic in names}
    runner = Runner(ottla_spark, [joins], settings)
    runner.start()
    try:
        runner.process_available()
    finally:
        runner.stop()
    assert {topic: len(ottla.records(topic)) for topic in names} == written, "a repetition writes nothing"
