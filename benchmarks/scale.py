"""How the cost of a cluster grows with partitions, brokers and clients: measures, fits a model, draws docs/scale-*.svg.

    python -m benchmarks.scale [--partitions 100,1000,10000] [--brokers 3,5,7] [--clients 100,400] [--draw RESULTS]

Every node is a real process on this machine, and every topic has three replicas. Processor time and memory hardly
depend on other load of the machine, times do. The results are printed as JSON; `--draw` reads such a file and draws.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.processes import Cluster

from benchmarks.brokers import cpu_times, resident_mb
from benchmarks.plots import Chart, write
from ottla.protocol.frames import encode_request
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

PER_TOPIC = 100
WINDOW_S = 10.0
SETTLE_S = 240.0
DOCS = Path(__file__).parents[1] / "docs"
Row = dict[str, float]


class Measured:
    """A running cluster and what its nodes cost."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._topics = 0

    def cpu_s(self) -> list[float]:
        """Processor seconds of each node so far."""
        return [sum(cpu_times(node.pid)) for node in self.cluster.nodes.values()]

    def create(self, partitions: int) -> Row:
        """Create topics until the cluster has `partitions`; return the cost for each new partition and node."""
        new = partitions // PER_TOPIC - self._topics
        cpu, begin = self.cpu_s(), time.perf_counter()
        for _ in range(new):
            name = f"scale-{self._topics}"
            self._topics += 1
            self.admin.create_topics([NewTopic(name, PER_TOPIC, 3)], operation_timeout=60)[name].result(120)
        seconds = time.perf_counter() - begin
        self.settle()
        used = sum(self.cpu_s()) - sum(cpu)
        return {"create_s": seconds, "create_ms_per_replica": used * 1e3 / (new * PER_TOPIC * 3)}

    def settle(self) -> None:
        """Wait until the nodes have nothing left to do."""
        before, deadline = sum(self.cpu_s()), time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            time.sleep(3)
            now = sum(self.cpu_s())
            if now - before < 0.04 * 3 * len(self.cluster.nodes):
                return
            before = now

    def idle(self) -> Row:
        """Return the average cost of the nodes while nothing happens."""
        pids = [node.pid for node in self.cluster.nodes.values()]
        cpu, wakeups, begin = self.cpu_s(), [_wakeups(pid) for pid in pids], time.perf_counter()
        time.sleep(WINDOW_S)
        took = time.perf_counter() - begin
        after = self.cpu_s()
        woken = [_wakeups(pid) - before for pid, before in zip(pids, wakeups, strict=True)]
        return {
            "idle_percent": statistics.mean(b - a for a, b in zip(cpu, after, strict=True)) / took * 100,
            "busiest_percent": max(b - a for a, b in zip(cpu, after, strict=True)) / took * 100,
            "wakeups_per_s": statistics.mean(woken) / took,
            "resident_mb": statistics.mean(map(resident_mb, pids)),
            "sockets": statistics.mean(map(_sockets, pids)),
        }

    def fence(self, node: int) -> Row:
        """Kill a node; the processor seconds of each other node until they are idle again."""
        others = [each for each in self.cluster.nodes if each != node]
        before = [sum(cpu_times(self.cluster.nodes[each].pid)) for each in others]
        self.cluster.kill(node)
        time.sleep(WINDOW_S)
        after = [sum(cpu_times(self.cluster.nodes[each].pid)) for each in others]
        return {"failover_cpu_s": max(b - a for a, b in zip(before, after, strict=True))}


def _wakeups(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    return 0


def _sockets(pid: int) -> int:
    links = (str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink())
    return sum(link.startswith("socket:") for link in links)


@contextmanager
def _running(brokers: int) -> Iterator[Measured]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        cluster = Cluster(Path(directory), brokers=brokers)
        try:
            cluster.start(300.0)
            yield Measured(cluster)
        finally:
            cluster.close()


# -- the series ---------------------------------------------------------------------------------------------------


def by_partitions(counts: Sequence[int]) -> list[Row]:
    """Three nodes with more and more partitions; at the end one of them is killed."""
    rows = []
    with _running(3) as measured:
        rows.append({"partitions": 0.0, **measured.idle()})
        for count in counts:
            row: Row = {"partitions": float(count), **measured.create(count), **measured.idle()}
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
        victim = next(each for each in measured.cluster.nodes if each != measured.cluster.active_controller())
        rows[-1] |= measured.fence(victim)
    return rows


def by_brokers(counts: Sequence[int], partitions: int = 1000) -> list[Row]:
    """More and more brokers with the same number of partitions; three of them are controllers as well."""
    rows = []
    for count in counts:
        with _running(count) as measured:
            row: Row = {"brokers": float(count), **measured.create(partitions), **measured.idle()}
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def by_clients(counts: Sequence[int]) -> list[Row]:
    """One broker and idle consumers: each has a connection with a Fetch that waits for 500 ms."""
    rows = []
    with _running(1) as measured:
        name = "clients"
        measured.admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=30)[name].result(30)
        host, port = measured.cluster.bootstrap.rsplit(":", 1)
        connections: list[socket.socket] = []
        for count in (0, *counts):
            connections += [socket.create_connection((host, int(port))) for _ in range(count - len(connections))]
            row: Row = {"clients": float(count), **_while_polling(measured, connections)}
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
        for connection in connections:
            connection.close()
    return rows


def _while_polling(measured: Measured, connections: Sequence[socket.socket]) -> Row:
    fetch = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(topic="clients", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
        ],
    )
    frame = b"".join(encode_request(fetch, 11, 1, "scale"))
    pid = os.fork() if connections else 0
    if pid == 0 and connections:
        _poll(connections, frame)
    try:
        time.sleep(1)
        return measured.idle()
    finally:
        if pid:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            time.sleep(1)
            for connection in connections:
                connection.setblocking(False)
                try:
                    connection.recv(1 << 16)
                except BlockingIOError:
                    continue
                finally:
                    connection.setblocking(True)


def _poll(connections: Sequence[socket.socket], frame: bytes) -> None:
    """Send the frame on each connection again and again, for ever: this process is killed."""
    while True:
        for connection in connections:
            connection.sendall(frame)
        for connection in connections:
            connection.recv(1 << 16)


# -- the model --------------------------------------------------------------------------------------------------------


def line(rows: Sequence[Row], x: str, y: str) -> tuple[float, float]:
    """(value at 0, increase for each unit of x), by least squares."""
    slope, start = np.polyfit([row[x] for row in rows], [row[y] for row in rows], 1)
    return float(start), float(slope)


def draw(results: dict[str, Any]) -> None:
    """Draw the charts and print the coefficients of the model."""
    partitions, brokers, clients = results["partitions"], results["brokers"], results["clients"]
    charts = {
        "memory": (partitions, "partitions", "resident_mb", "Memory of a node", "MB"),
        "idle": (partitions, "partitions", "idle_percent", "Idle node", "% of a core"),
        "clients": (clients, "clients", "idle_percent", "Idle consumers of one broker", "% of a core"),
        "connections": (brokers, "brokers", "sockets", "Sockets of a node", "sockets"),
    }
    for name, (rows, x, y, title, unit) in charts.items():
        start, slope = line(rows, x, y)
        print(f"{title}, {unit}: {start:.4g} + {slope:.4g} for each of the {x}")
        points = [(row[x], row[y]) for row in rows if row[x]]

        def model(value: float, start: float = start, slope: float = slope) -> float:
            return start + slope * value

        write(DOCS / f"scale-{name}.svg", Chart(title, x, unit, {"measured": points}, model))
    created = [(row["partitions"], row["create_ms_per_replica"]) for row in partitions if row["partitions"]]
    write(
        DOCS / "scale-creation.svg", Chart("Creation", "partitions", "CPU ms for each replica", {"measured": created})
    )


def main() -> int:
    """Measure and print, or draw; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("partitions", "100,300,1000,3000,10000"), ("brokers", "3,5,7"), ("clients", "100,400")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--draw", type=Path, metavar="RESULTS")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(json.loads(arguments.draw.read_text()))
        return 0
    numbers = {
        name: [int(each) for each in getattr(arguments, name).split(",")]
        for name in ("partitions", "brokers", "clients")
    }
    results = {
        "clients": by_clients(numbers["clients"]),
        "brokers": by_brokers(numbers["brokers"]),
        "partitions": by_partitions(numbers["partitions"]),
    }
    print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
