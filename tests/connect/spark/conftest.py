"""Spark connectors in a worker of this process, on one Spark session for all tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.testing.connect import ConnectWorker
from tests.spark.conftest import _active_session, spark  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = "tests/connect/spark/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(HERE):
            # Spark's Python workers pool their clients, which outlive a test.
            item.add_marker(pytest.mark.ottla_unclosed("keep"))
            item.own_markers = [mark for mark in item.own_markers if mark.name != "xdist_group"]
            # The tests of `tests/spark` have the same session.
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture
def worker(ottla: Any, spark: SparkSession) -> Iterator[ConnectWorker]:  # noqa: F811
    del spark
    offsets = ottla.topic(cleanup_policy="compact")
    settings = {
        "offset.storage.topic": offsets,
        "group.id": offsets,
        "exactly.once.source.support": "enabled",
        "key.converter": "StringConverter",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    with ConnectWorker(ottla.bootstrap, settings) as running:
        yield running


@pytest.fixture
def base(ottla: Any, tmp_path: Path) -> dict[str, str]:
    """Settings of all Spark connectors; the name is a topic's, so that it is unique."""
    return {"name": f"spark-{ottla.topic()}", "spark.checkpoint.dir": str(tmp_path / "checkpoints")}
