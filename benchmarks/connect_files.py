"""Race of file connectors: MB per CPU second of the worker's process, lines to a topic and the topic to files.

    python -m benchmarks.connect_files [--megabytes 30]

Stock Kafka Connect runs FileStreamSource and FileStreamSink, Ottla its connectors `files` and `files-sink` (JSON lines
and Parquet) and the same FileStream connectors. Both workers use one Ottla broker, one after the other, with
StringConverter. Counted is the CPU time from the creation of a connector until all records have arrived.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.peers.stock_connect import StockWorker, request

from benchmarks.brokers import cpu_times, start_ottla
from ottla.clients.admin import Admin, OffsetSpec
from ottla.common.ids import TopicPartition

LINE = "{number:08d} the quick brown fox jumps over the lazy dog and runs away from the cat; 100 bytes each...\n"
DEADLINE_S = 120.0
STRING = "org.apache.kafka.connect.storage.StringConverter"


class RunningWorker(NamedTuple):
    """A worker of either kind."""

    name: str
    url: str
    pid: int


@contextlib.contextmanager
def ottla_worker(bootstrap: str) -> Iterator[RunningWorker]:
    """Run Ottla's worker."""
    command = [sys.executable, "-m", "ottla", "connect", "serve", "-b", bootstrap, "--listen", "127.0.0.1:0"]
    command += ["--group", "race-ottla", "--log-level", "error", "-X", "offset.flush.interval.ms=500"]
    for name in ("config", "offset", "status"):
        command += ["-X", f"{name}.storage.topic=ottla-{name}", "-X", f"{name}.storage.replication.factor=1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("connect="), line
        yield RunningWorker("ottla", line.strip().removeprefix("connect="), process.pid)
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def stock_worker(bootstrap: str, directory: Path) -> Iterator[RunningWorker]:
    """Run stock Kafka Connect."""
    with StockWorker(directory / "stock", bootstrap, "race-stock", "stock") as worker:
        assert worker._process is not None  # noqa: SLF001
        yield RunningWorker("stock", worker.url, worker._process.pid)  # noqa: SLF001


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def cost(worker: RunningWorker, name: str, config: Mapping[str, str], is_done: Callable[[], bool]) -> float:
    """Return the CPU seconds of a connector until it is done."""
    before = sum(cpu_times(worker.pid))
    config = {**config, "value.converter": STRING, "key.converter": STRING, "tasks.max": "1"}
    request(f"{worker.url}/connectors", "POST", {"name": name, "config": config})
    wait_until(is_done)
    spent = sum(cpu_times(worker.pid)) - before
    request(f"{worker.url}/connectors/{name}", "DELETE")
    return spent


def end_of(admin: Admin, topic: str) -> int:
    """Return the end offset of a topic."""
    partition = TopicPartition(topic, 0)
    return admin.list_offsets({partition: OffsetSpec.LATEST})[partition].offset


def main() -> None:
    """Run the race and print one JSON line for each contender."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--megabytes", type=int, default=30)
    megabytes = options.parse_args().megabytes
    lines = megabytes * 10_000
    with tempfile.TemporaryDirectory() as place, start_ottla(Path(place) / "broker") as broker:
        directory = Path(place)
        source = directory / "in" / "lines.txt"
        source.parent.mkdir()
        with source.open("w") as file:
            file.writelines(LINE.format(number=number) for number in range(lines))
        size = source.stat().st_size
        with Admin(broker.bootstrap) as admin:
            race(admin, broker.bootstrap, directory, source, lines, size)


def race(admin: Admin, bootstrap: str, directory: Path, source: Path, lines: int, size: int) -> None:
    """Run all contenders."""

    def has_lines(topic: str) -> bool:
        return end_of(admin, topic) >= lines

    stream = "org.apache.kafka.connect.file.FileStream{}Connector"
    for start in (partial(stock_worker, bootstrap, directory), partial(ottla_worker, bootstrap)):
        with start() as worker:
            sources: dict[str, dict[str, str]] = {
                "stream": {"connector.class": stream.format("Source"), "file": str(source)}
            }
            sinks: dict[str, dict[str, str]] = {"stream": {"connector.class": stream.format("Sink")}}
            if worker.name == "ottla":
                sources["files"] = {"connector.class": "files", "path": str(source.parent)}
                for form in ("jsonl", "parquet"):
                    sinks[form] = {"connector.class": "files-sink", "format": form, "rotate.interval.ms": "500"}
            for kind, config in sources.items():
                topic = f"{worker.name}-{kind}"
                admin.create_topic(topic, partitions=1)
                spent = cost(worker, f"{kind}-in", {**config, "topic": topic}, partial(has_lines, topic))
                report(worker.name, f"{kind} source", size, spent)
            for kind, config in sinks.items():
                out = directory / f"{worker.name}-{kind}"
                place = {"file": str(out)} if kind == "stream" else {"path": str(out)}
                topic = f"{worker.name}-stream"
                spent = cost(
                    worker,
                    f"{kind}-out",
                    {**config, **place, "topics": topic},
                    partial(is_written, out, kind, lines, size),
                )
                report(worker.name, f"{kind} sink", size, spent)


def is_written(out: Path, kind: str, lines: int, size: int) -> bool:
    """Return whether all records are in files."""
    if kind == "stream":
        return out.exists() and out.stat().st_size >= size
    last = f"+{lines - 1:020}."
    return any(last in each.name for each in out.rglob(f"*.{kind}"))


def report(worker: str, what: str, size: int, spent: float) -> None:
    """Print a result."""
    row = {"worker": worker, "what": what, "MB per CPU second": round(size / 1e6 / spent, 1), "CPU s": round(spent, 2)}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
