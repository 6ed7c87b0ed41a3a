"""A run with metrics: a scrape while it runs, and an address that is in use at its start."""

from __future__ import annotations

import logging
import socket
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import Output, metrics_server, pipeline, stream, to
from ottla.streams.metrics_address import MetricsAddress
from ottla.streams.runtime import Stop, run_in
from ottla.streams.settings import Settings
from tests.deadlines import in_threads, results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Ottla

WAIT_S = 120
QUERY = 'pipeline="words",query="words"'


@pipeline
def words(lines: Any = stream("lines", value="text")) -> Output:
    return to("words", lines.groupBy("value").count(), key="value", mode="updates")


def samples(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    found = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {key.removeprefix("ottla_stream_").replace(QUERY, "Q"): float(value) for key, _, value in found}


def test_run_serves_its_metrics_as_soon_as_their_address_is_free(
    ottla: Ottla,
    ottla_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(metrics_server, "RETRY_S", 0.1)
    caplog.set_level(logging.INFO, "ottla.streams")
    ottla.topic("lines", 2)
    ottla.topic("words")
    ottla.produce("lines", "a", "b", "a")
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    settings = Settings(
        {"bootstrap.servers": ottla.bootstrap}, str(tmp_path), metrics=MetricsAddress("127.0.0.1", port)
    )
    stop = Stop()

    def watch() -> dict[str, float]:
        """Return the first samples with all records, and stop the run."""
        try:
            ottla.wait_until(lambda: ottla.records("words"), WAIT_S)
            assert "Metrics not served" in caplog.text
            other.close()
            ottla.wait_until(lambda: "Serving metrics at" in caplog.text, WAIT_S)
            ottla.wait_until(lambda: samples(port).get("records_total{Q}") == 3, WAIT_S)
            return samples(port)
        finally:
            stop.set()

    with other:
        watching = in_threads([watch], "scrape")
        (status,) = run_in(ottla_spark, [words], settings, stop)
        (found,) = results(watching, "the scrape")
    assert (status.phase, status.records, status.lag) == ("stopped", 3, 0)
    assert found['state{Q,state="running"}'] == 1
    assert found['lag_records{Q,topic="lines"}'] == 0
    assert found["batches_total{Q}"] >= 1
    assert found["batch_duration_seconds{Q}"] > 0
    assert found["processed_records_per_second{Q}"] > 0
    (rows,) = (value for key, value in found.items() if key.startswith("state_rows{"))
    assert rows == 2
    assert any(key.startswith("state_bytes{") and value > 0 for key, value in found.items())
