"""`ottla stream run` with the pipelines of the examples, on a Spark standalone cluster of a master and two workers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ottla.clients import Admin, Consumer
from tests.conftest import RunningBroker

from .cluster import StandaloneCluster, quick_java

EXAMPLES = Path(__file__).parents[2] / "examples"
DAYS = 1


def example(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.timeout(900)
def test_pipeline_on_a_cluster_has_the_results_of_pandas(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    example("flights_broker")
    data = example("flights_data").Data.load(DAYS)
    flights, verdict = example("flights_replay"), example("flights_check")
    flights.create_topics(broker.bootstrap)
    try:
        flights.send_tables(broker.bootstrap, data)
        replay = flights.Replay(broker.bootstrap, list(example("flights_data").days(data)), 0.0)
        replay.run()
        assert not replay.failures
        command = ["stream", "run", EXAMPLES / "flights_spark.py", "-b", broker.bootstrap, "--once"]
        command += ["--checkpoints", tmp_path / "checkpoints"]
        with StandaloneCluster(tmp_path) as cluster:
            ran = subprocess.run(
                [sys.executable, "-m", "ottla.cli.main", *command, "--master", cluster.master],
                env={
                    **os.environ,
                    **quick_java(),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                },
                capture_output=True,
                text=True,
                timeout=800,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr[-4000:]
            assert f"wrote {len(data.expected()):,} rows to delays" in ran.stdout
            # The tasks ran in executors: each worker started one process.
            assert len(list(tmp_path.glob("worker-*/app-*/*"))) == 2
        results = flights.Results(broker.bootstrap)
        for topic, rows in (("delays", len(data.expected())), ("alerts", len(data.extreme(180)))):
            for value in read(broker.bootstrap, topic, rows):
                results.take(topic, value)
        assert verdict.compare(results, data.expected()) == []
        assert results.doubled == 0
    finally:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.delete_topics(flights.TOPICS)


def read(bootstrap: str, topic: str, count: int) -> list[dict[str, object]]:
    """Read all committed records of a topic, which must be `count`."""
    rows: list[dict[str, object]] = []
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        partitions = [(topic, partition) for partition in consumer.partitions_of(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        for _ in range(1_000):
            rows += [json.loads(record.value) for record in consumer.poll(0.1)]
            # The last offset of a partition may belong to a transaction marker.
            if all(consumer.position(each) >= ends[each] for each in ends):
                break
    assert len(rows) == count
    return rows
