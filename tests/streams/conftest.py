"""Pipelines on a Spark session of their own, in one worker of pytest-xdist, beside the worker of `tests/spark`.

Programs that start Spark themselves run in a third worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ottla.streams.declarations import Pipeline
from ottla.streams.testing import PipelineTest
from tests.spark.conftest import _active_session, spark  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "tests/streams/"
Start = Callable[[Pipeline], PipelineTest]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(HERE):
            # Spark's Python workers pool their clients, which outlive a test. The plugin knows it of `ottla_streams`.
            if "ottla_streams" not in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.ottla_unclosed("keep"))
            # Not in a second group, of stock Kafka, which another worker might run with a session of its own.
            item.own_markers = [mark for mark in item.own_markers if mark.name != "xdist_group"]
            # Programs with a Java of their own take no session of the worker.
            is_program = item.path.name == "test_command.py"
            item.add_marker(pytest.mark.xdist_group("stream-programs" if is_program else "streams"))
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def ottla_spark(spark: SparkSession) -> SparkSession:  # noqa: F811
    return spark
