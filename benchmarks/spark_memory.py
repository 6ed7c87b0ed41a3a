"""How much memory a streaming read takes at its peak: in a Spark of its own, so that no other run has grown the heap.

    python -m benchmarks.spark_memory FORMAT BOOTSTRAP TOPIC RECORDS     prints peak MB, as JSON

Counted are the JVM and all Python processes that it started, shared pages by their share (PSS); not this program, which
is the same for both. The heap may grow to 1 GB; a connector that makes less garbage grows it less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
from tests.peers.cache import connector_jars

from benchmarks.brokers import Broker
from benchmarks.wire import Figures, new_topic
from ottla.clients import Producer

TOTAL, PYTHON = "peak MB", "of it Python, MB"
SAMPLE_S = 0.1
WAIT_S = 120.0
BATCHES = 4


def connector() -> dict[str, str]:
    """The setting that gives a session the JVM's connector. Raises RuntimeError where it was not fetched."""
    jars = connector_jars()
    if not jars:
        raise RuntimeError("no jars of Spark's Kafka connector: run `make peers`")
    return {"spark.jars": ",".join(jars)}


def fill_large(broker: Broker, records: int) -> str:
    """A topic of six partitions with records of 1 MB."""
    topic = new_topic(broker, 6)
    value = os.urandom(1_000_000)
    with Producer(bootstrap_servers=broker.bootstrap, max_request_size=2_000_000) as producer:
        for number in range(records):
            producer.send(topic, value, partition=number % 6)
        producer.flush()
    return topic


def fill_wide(broker: Broker, records: int) -> str:
    """A topic of a thousand partitions, with `records` of 100 B spread over them."""
    topic = new_topic(broker, 1_000)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        values = pa.array([b"%0100d" % number for number in range(records)])
        partitions = pa.array([number % 1_000 for number in range(records)], pa.int32())
        producer.send_batch(topic, pa.table({"value": values, "partition": partitions}))
        producer.flush()
    return topic


def peak(who: str, broker: Broker, topic: str, records: int) -> Figures:
    """The figures of one run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.spark_memory", who, broker.bootstrap, topic, str(records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S + 60, check=False)
    if done.returncode:
        raise RuntimeError(f"{who} failed: {done.stderr[-2_000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


class _Peak:
    """Samples the memory of this process's children, until `stop`."""

    def __init__(self) -> None:
        self.figures: Figures = {TOTAL: 0.0, PYTHON: 0.0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> Figures:
        self._stop.set()
        self._thread.join()
        return self.figures

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            found = {"java": 0.0, "python": 0.0}
            for process_id, is_java in _children().items():
                found["java" if is_java else "python"] += _share_mb(process_id)
            total = sum(found.values())
            if total > self.figures[TOTAL]:
                self.figures = {TOTAL: total, PYTHON: found["python"]}


def _children() -> dict[int, bool]:
    """This process's children and theirs, and whether each is a JVM."""
    parents, names = {}, {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                head, _, rest = (process / "stat").read_text().rpartition(")")
            except OSError:  # it ended
                continue
            parents[int(process.name)] = int(rest.split()[1])
            names[int(process.name)] = head.partition("(")[2]
    found = {}
    for process_id, name in names.items():
        above = process_id
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and process_id != above:
            found[process_id] = name == "java"
    return found


def _share_mb(process_id: int) -> float:
    try:
        lines = Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines()
    except OSError:  # it ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def main() -> int:
    """Stream the topic once in a few micro-batches; the exit code."""
    from ottla.spark import session

    who, bootstrap, topic, records = sys.argv[1:5]
    settings: dict[str, Any] = {
        **connector(), "spark.ui.enabled": False, "spark.ui.showConsoleProgress": False,
        "spark.log.level": "ERROR", "spark.driver.memory": "1g",
    }  # fmt: skip
    spark = session("memory", "local[2]", None, **settings)
    measured = _Peak()
    options = {
        "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(int(records) // BATCHES),
        # Or the connector waits half a second in each task that comes to an end, minutes for a thousand partitions.
        "kafka.fetch.max.wait.ms": "20",
    }  # fmt: skip
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as checkpoint:
        rows = spark.readStream.format(who).options(**options).load().select("key", "value")
        stream = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = stream.trigger(availableNow=True).start()
        assert query.awaitTermination(int(WAIT_S))
    seconds = time.perf_counter() - begin
    figures = measured.stop()
    read = sum(row["numInputRows"] for row in query.recentProgress)
    assert read == int(records), f"{read} rows of {records}"
    spark.stop()
    print(json.dumps({**figures, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
