"""The metrics of plain queries in a real Spark session: lag by partition, a failed query, and a closed endpoint."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.clients import Admin, Producer
from ottla.streams import serve_metrics
from tests.clients.support import unique
from tests.conftest import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 120


def samples(address: tuple[str, int]) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    found = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {key.removeprefix("ottla_stream_"): float(value) for key, _, value in found}


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def test_scrape_has_the_figures_of_plain_queries(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> None:
    topic = unique("queries")
    app = spark.sparkContext.appName
    with Admin(broker.bootstrap) as admin, Producer(bootstrap_servers=broker.bootstrap) as producer:
        admin.create_topic(topic, partitions=2, replication_factor=1)
        for number in range(8):
            producer.send(topic, b"v", partition=0 if number < 6 else 1)
        producer.flush()
    read = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("ottla").options(**read, maxOffsetsPerTrigger="4").load()

    def fail(_: DataFrame, number: int) -> None:
        raise ValueError(f"batch {number} is refused")

    with serve_metrics(spark, "127.0.0.1:0") as metrics:
        until(lambda: metrics.address)
        assert metrics.address is not None
        counted = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "a")).queryName("counted")
        query = counted.start()
        query.processAllAvailable()
        failing = rows.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path / "b"))
        failed = failing.queryName("failing").start()
        labels = f'pipeline="{app}",query="counted"'
        # A body of the endpoint is at most a second old.
        until(lambda: f'state{{pipeline="{app}",query="failing",state="failed"}}' in samples(metrics.address))
        assert failed.exception() is not None
        until(lambda: samples(metrics.address).get(f"records_total{{{labels}}}") == 8)
        found = samples(metrics.address)
        query.stop()
        until(lambda: f'state{{{labels},state="stopped"}}' in samples(metrics.address))
    assert found[f'state{{{labels},state="running"}}'] == 1
    assert found[f"batches_total{{{labels}}}"] >= 2
    assert found[f"processed_records_per_second{{{labels}}}"] > 0
    for partition in "01":
        assert found[f'partition_lag_records{{{labels},topic="{topic}",partition="{partition}"}}'] == 0
