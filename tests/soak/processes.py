"""The processes of a soak: three brokers, the load, a Connect worker with two connectors and if asked a Spark pipeline.

Brokers 1 and 2 are killed now and then. Broker 3 is not, so that one process is measured for hours.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ottla.clients.admin import ConfigResource
from ottla.testing.ports import ReservedPort
from tests.cluster.processes import Cluster
from tests.soak import clients

ROOT = Path(__file__).parents[2]
MINUTE_MS = 60_000
MIB = 1 << 20
KILLED = (1, 2)
LINES = "lines"
PIPELINE = Path(__file__).parent / "pipeline.py"
STOP_S = 120.0
ELECTIONS = 30
# Small segments and a short retention: the disk must level off within the warm-up of a run.
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "log.segment.bytes": MIB,
    "log.roll.ms": 5 * MINUTE_MS,
    "log.retention.ms": 10 * MINUTE_MS,
    "log.retention.check.interval.ms": 10_000,
    "log.segment.delete.delay.ms": 5_000,
    "log.cleaner.backoff.ms": 5_000,
    "offsets.topic.segment.bytes": MIB,
    "transaction.state.log.segment.bytes": MIB,
    "share.coordinator.state.topic.segment.bytes": MIB,
    "metadata.log.max.record.bytes.between.snapshots": MIB // 4,
    "metadata.log.segment.bytes": 8 * MIB,
    "metadata.max.retention.bytes": 8 * MIB,
}


class Program:
    """A process whose output is in files of its directory."""

    def __init__(self, name: str, directory: Path, *words: str) -> None:
        self.name = name
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "stdout.log").open("wb") as out, (directory / "stderr.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *words], stdin=subprocess.PIPE, stdout=out, stderr=log, cwd=directory,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            )  # fmt: skip

    def stop(self, within_s: float = STOP_S) -> int:
        """SIGTERM, and the exit code. Kills it at the deadline."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(STOP_S)
        finally:
            _close(self.process.stdin)


class LoadProgram(Program):
    """The process with producers and consumers."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        super().__init__("clients", directory, "-m", "tests.soak.clients", bootstrap)
        self._position = 0

    def reports(self) -> list[dict[str, object]]:
        """Return the reports since the previous call."""
        with (self.directory / "stdout.log").open("rb") as file:
            file.seek(self._position)
            lines = [line for line in file if line.endswith(b"\n")]
        self._position += sum(map(len, lines))
        return [json.loads(line) for line in lines]

    def finish(self) -> dict[str, object]:
        """Let it stop and read the rest; return its last report. Raises subprocess.TimeoutExpired."""
        _close(self.process.stdin)
        self.process.wait(2 * clients.TIMEOUT_S + clients.DRAIN_S + STOP_S)
        return self.reports()[-1]


class Connectors(Program):
    """A Connect worker that copies the lines of a file through a topic into another file."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._port = ReservedPort()
        directory.mkdir(parents=True, exist_ok=True)
        self._source, self._target = directory / "in.txt", directory / "out.txt"
        self._source.touch()
        common = {"topic": LINES, "topics": LINES, "value.converter": "StringConverter"}
        for name, kind, file in (("source", "Source", self._source), ("sink", "Sink", self._target)):
            settings = common | {"name": name, "connector.class": f"FileStream{kind}", "file": str(file)}
            unused = "topics" if kind == "Source" else "topic"
            (directory / f"{name}.json").write_text(json.dumps({k: v for k, v in settings.items() if k != unused}))
        super().__init__(
            "connect", directory, "-m", "ottla.cli.main", "connect", "run", "-b", bootstrap,
            "--listen", f"127.0.0.1:{self._port.number}", "source.json", "sink.json",
        )  # fmt: skip
        self.lines = 0

    def add(self) -> None:
        """Append a line to the file of the source."""
        with self._source.open("a") as file:
            file.write(f"line {self.lines}\n")
        self.lines += 1

    def missing(self) -> list[int]:
        """Return the numbers of the lines that are not in the file of the sink."""
        text = self._target.read_text() if self._target.exists() else ""
        written = {int(line.split()[1]) for line in text.splitlines()}
        return [number for number in range(self.lines) if number not in written]


class Kills(threading.Thread):
    """Kills a broker every `every_s` or so, and starts it again."""

    def __init__(self, cluster: Cluster, every_s: float, seed: int, note: Callable[[dict[str, object]], None]) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.problem: Exception | None = None
        self._cluster, self._every_s, self._random, self._note = cluster, every_s, random.Random(seed), note
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            while not self._stopping.wait(self._every_s * self._random.uniform(0.5, 1.5)):
                node_id = self._random.choice(KILLED)
                self._cluster.kill(node_id)
                self.count += 1
                self._note({"killed": f"broker-{node_id}"})
                time.sleep(self._random.uniform(0.5, 15.0))
                self._cluster.start_node(node_id, 120.0)
        except Exception as problem:  # noqa: BLE001 - reported as a problem of the run
            self.problem = problem

    def stop(self) -> None:
        """End the kills; all brokers run."""
        self._stopping.set()
        self.join(180.0)


class Soak:
    """All processes of a run in a directory."""

    def __init__(self, directory: Path, *, with_pipeline: bool) -> None:
        self.cluster = Cluster(directory / "cluster", properties=SETTINGS)
        self.cluster.start()
        try:
            self._lead_by_the_survivor()
            self._create_topics()
            bootstrap = self.cluster.bootstrap
            self.load = LoadProgram(directory / "clients", bootstrap)
            self.connectors = Connectors(directory / "connect", bootstrap)
            self.programs: list[Program] = [self.load, self.connectors]
            if with_pipeline:
                words = ("-m", "ottla.cli.main", "stream", "run", str(PIPELINE), "-b", bootstrap)
                options = ("--master", "local[1]", "--latency", "20 seconds")
                self.programs.append(Program("pipeline", directory / "pipeline", *words, *options))
        except BaseException:
            self.cluster.close()
            raise

    def _lead_by_the_survivor(self) -> None:
        """Make broker 3 the active controller: if it became that later, its memory would grow by the role's."""
        for _ in range(ELECTIONS):
            active = self.cluster.active_controller()
            if active not in KILLED:
                return
            self.cluster.kill(active)
            self.cluster.wait_until(lambda active=active: self.cluster.active_controller() not in (-1, active), 60.0)
            self.cluster.start_node(active, 120.0)
        raise AssertionError(f"broker 3 is not the active controller after {ELECTIONS} elections")

    def _create_topics(self) -> None:
        with self.cluster.admin() as admin:
            admin.create_topic(clients.TOPIC, partitions=clients.PARTITIONS)
            for topic in (clients.JOBS, LINES, "counts"):
                admin.create_topic(topic, partitions=1)
            admin.alter_config(ConfigResource.group(clients.WORKERS), {"share.auto.offset.reset": "earliest"})

    def processes(self) -> dict[str, tuple[int, Path]]:
        """Return the process and the directory with the data of each part that runs."""
        brokers = {f"broker-{node_id}": node for node_id, node in self.cluster.nodes.items() if node.is_running}
        found = {name: (node.pid, node.data) for name, node in brokers.items()}
        running = (program for program in self.programs if program.process.poll() is None)
        return found | {program.name: (program.process.pid, program.directory) for program in running}

    def ended(self) -> list[str]:
        """Return the programs that ended by themselves."""
        return [
            f"{each.name} ended with code {each.process.returncode}: {each.directory / 'stderr.log'}"
            for each in self.programs
            if each.process.poll() is not None
        ]

    def finish(self) -> list[str]:
        """Read what was written, stop everything, and return the problems."""
        problems = self.ended()
        if self.load.process.poll() is None:
            problems += self.load.finish()["problems"]  # type: ignore[operator]
        end_s = time.monotonic() + STOP_S
        while (missing := self.connectors.missing()) and time.monotonic() < end_s:
            time.sleep(0.5)
        if missing:
            problems.append(f"connect: lines {missing[:20]} were not copied")
        for program in self.programs:
            if program.process.poll() is None and (code := program.stop()):
                problems.append(f"{program.name} stopped with code {code}")
        codes = self.cluster.stop()
        problems += [f"broker {node_id} stopped with code {code}" for node_id, code in codes.items() if code]
        for node in self.cluster.nodes.values():
            if "Traceback" in node.log_tail(limit=100 * MIB):
                problems.append(f"the log of broker {node.node_id} has a traceback: {node.log_path}")
        return problems

    def close(self) -> None:
        """Kill what still runs."""
        for program in self.programs:
            program.process.kill()
        self.cluster.close()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        pipe.close()
