"""The Spark session that the tests of this directory share. pytest-xdist runs these tests in one worker.

A machine without Java or pyspark fails these tests instead of skipping them: the development environment has both.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import ottla.spark
from ottla.spark.session import QUICK_JAVA
from ottla.streams.runtime import STOP_TIMEOUT
from ottla.streams.testing import stop
from tests.clients.secured import secured  # noqa: F401 - a fixture
from tests.peers.cache import connector_jars

from . import interrupted_calls
from .tasks import own_clients, query  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "tests/spark/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(HERE):
            # Spark's Python workers pool their clients, which outlive a test.
            item.add_marker(pytest.mark.ottla_unclosed("keep"))
            if "spark" in getattr(item, "fixturenames", ()) or item.path.name == "test_standalone_cluster.py":
                # Not in a second group, which another worker might run with a session of its own.
                item.own_markers = [mark for mark in item.own_markers if mark.name != "xdist_group"]
                item.add_marker(pytest.mark.xdist_group("spark"))
            elif "secured" in getattr(item, "fixturenames", ()):
                # Next to the other tests with this broker.
                item.add_marker(pytest.mark.jvm)
                item.add_marker(pytest.mark.xdist_group("stock-kafka"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A shared session on local[2] with `ottla.spark.settings`. Tests must restore its settings and catalog.

    It includes Spark's own Kafka connector if the jars are installed. Java uses only its first compiler, which halves
    the time of a short session.
    """
    directory = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # py4j logs when its connections are collected, possibly after pytest has closed the log's stream.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings: dict[str, Any] = {
        "spark.ui.enabled": False,
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.jars": ",".join(connector_jars()),
        "spark.local.dir": directory / "local",
        "spark.sql.warehouse.dir": directory / "warehouse",
        "spark.sql.streaming.stopTimeout": STOP_TIMEOUT,
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": True,
    }
    interrupted_calls.close_their_connections()
    running = ottla.spark.session("ottla tests", "local[2]", **settings)
    yield running
    stop(running)


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> None:
    if "spark" in request.fixturenames:
        interrupted_calls.activate_again(request.getfixturevalue("spark"))
