"""One Spark session for all tests of this directory that want one, which pytest-xdist gives to one worker.

A machine without Java or pyspark fails these tests instead of skipping them: the development environment has both.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla.spark
from tests.peers.cache import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        starts_spark = "spark" in getattr(item, "fixturenames", ()) or item.path.name == "test_standalone_cluster.py"
        if HERE in item.path.parents:
            # Spark's Python workers pool their clients, which outlive a test.
            item.add_marker(pytest.mark.ottla_unclosed("keep"))
            if starts_spark:
                item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on local[2] with `ottla.spark.settings`; shared, so leave its settings and its catalog as they were.

    It has Spark's own Kafka connector too, if that was fetched. Java compiles but once: a short life of it is half as
    long then.
    """
    directory = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Its connections log when they are collected, which may be after pytest has closed what they log to.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings: dict[str, Any] = {
        "spark.ui.enabled": False,
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.jars": ",".join(connector_jars()),
        "spark.local.dir": directory / "local",
        "spark.sql.warehouse.dir": directory / "warehouse",
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": True,
    }
    running = ottla.spark.session("ottla tests", "local[2]", **settings)
    yield running
    running.stop()
