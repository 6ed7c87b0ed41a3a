"""Races of three nodes of Ottla against three nodes of stock Kafka, on one machine with one client.

    python -m benchmarks.clusters [RACE ...] [--scale 0.1]

Every node is a broker and a controller. The two clusters run one after the other, so that neither takes time from the
other. CPU is the sum of all three processes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table
from tests.cluster.processes import Cluster
from tests.peers.kafka import StockKafka

from benchmarks import results
from benchmarks.brokers import cpu_times, resident_mb
from benchmarks.filling import fill
from benchmarks.wire import Figures
from ottla.clients import Admin

NODES = (1, 2, 3)
DEADLINE_S = 300.0
INTERVAL_S = 0.005
# Stock Kafka with 10,000 partitions never gets idle: it takes a fifth of a core per node then.
SETTLE_S = 120.0
# Both clusters get a client that notices a new leader at once.
QUICK = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "log_level": 0,
}
SETTINGS = {"log.segment.delete.delay.ms": 1000}


@dataclass(frozen=True)
class Nodes:
    """Three running nodes, and what a race does to them."""

    name: str
    bootstrap: str
    pid: Callable[[int], int]
    kill: Callable[[int], None]
    stop: Callable[[int], object]
    start: Callable[[int], None]

    def cpu_seconds(self, of: Sequence[int] = NODES) -> float:
        """User and system time of the processes."""
        return sum(sum(cpu_times(self.pid(node))) for node in of)

    def resident_mb(self) -> float:
        """Memory of a node, on average."""
        return statistics.mean(resident_mb(self.pid(node)) for node in NODES)

    def admin(self) -> AdminClient:
        """A client for topics."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def new_topic(self, partitions: int, first: int | None = None) -> str:
        """A topic of three replicas; with `first` it has one partition, which that node leads."""
        name = f"bench-{uuid.uuid4().hex[:8]}"
        others = [node for node in NODES if node != first]
        how = {"replication_factor": 3} if first is None else {"replica_assignment": [[first, *others]]}
        topic, admin = NewTopic(name, partitions, **how), self.admin()
        admin.create_topics([topic], operation_timeout=30)[name].result(60)
        self.wait_in_sync(name)
        return name

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every partition of the topic has a leader and three replicas in sync."""
        admin = self.admin()
        wait_until(lambda: all(len(p.isrs) == 3 and p.leader >= 0 for p in _partitions(admin, topic)), "in sync")

    def active_controller(self) -> int:
        """The node that leads the quorum."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            return admin.describe_quorum().leader


def _partitions(admin: AdminClient, topic: str) -> list[Any]:
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return list(found.values())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until it is true. Raises TimeoutError."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {what} within {DEADLINE_S:g} s")
        time.sleep(0.02)


@contextmanager
def ottla(directory: Path) -> Iterator[Nodes]:
    """Three nodes of Ottla with its defaults."""
    with Cluster(directory, properties=SETTINGS) as cluster:
        nodes = cluster.nodes
        yield Nodes(
            "ottla",
            cluster.bootstrap,
            lambda node: nodes[node].pid,
            cluster.kill,
            cluster.stop_node,
            lambda node: cluster.start_node(node, DEADLINE_S),
        )


@contextmanager
def kafka(directory: Path) -> Iterator[Nodes]:
    """Three nodes of stock Kafka, each with a heap of 1 GiB."""
    with StockKafka(directory, brokers=3, overrides=SETTINGS, for_speed=True) as stock:
        yield Nodes(
            "kafka",
            stock.bootstrap,
            lambda node: stock.pids[node - 1],
            stock.kill_node,
            stock.stop_node,
            stock.start_node,
        )


# -- the load of one producer ------------------------------------------------------------------------------------------


@dataclass
class Load:
    """One producer that sends a small record every few milliseconds, and the time at which each is acknowledged."""

    nodes: Nodes
    topic: str
    partitions: int = 1
    acknowledged: list[tuple[float, float]] = field(default_factory=list)
    """(sent, acknowledged), in seconds."""
    errors: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self.nodes.bootstrap, **QUICK})
        for count in itertools.count():
            if self._stop.is_set():
                break
            producer.produce(
                self.topic, b"x" * 100, partition=count % self.partitions, on_delivery=self._reporter(time.monotonic())
            )
            end = time.monotonic() + INTERVAL_S
            while (left := end - time.monotonic()) > 0:
                producer.poll(left)
        producer.flush(60)

    def has_sent_since(self, time_s: float) -> bool:
        """Whether a record that was sent after this time is acknowledged."""
        return bool(self.acknowledged) and self.acknowledged[-1][0] > time_s

    def _reporter(self, sent: float) -> Callable[[object, Message], None]:
        def report(error: object, _message: Message) -> None:
            if error is None:
                self.acknowledged.append((sent, time.monotonic()))
            else:
                self.errors.append(str(error))

        return report

    def wait_for(self, count: int) -> None:
        """Wait until `count` more records are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, "acknowledged")


# -- the races ---------------------------------------------------------------------------------------------------------


def produce(size: int, count: int) -> Callable[[Nodes, float], Figures]:
    """The race with records of one size."""

    def race(nodes: Nodes, scale: float) -> Figures:
        records = int(count * scale)
        megabytes = records * size / 1e6
        topic = nodes.new_topic(6)
        fill(nodes, topic, records // 4, size, "all")  # a JVM compiles what is called often
        rounds: list[tuple[float, float]] = []
        for _ in range(3):
            cpu, start = nodes.cpu_seconds(), time.perf_counter()
            fill(nodes, topic, records, size, "all")
            rounds.append((time.perf_counter() - start, nodes.cpu_seconds() - cpu))
        admin = nodes.admin()
        admin.delete_topics([topic])[topic].result(60)
        return {
            "MB/s": megabytes / statistics.median(each[0] for each in rounds),
            "MB per CPU-second of all brokers": megabytes / statistics.median(each[1] for each in rounds),
        }

    race.__doc__ = f"librdkafka produces records of {size} B, acks=all, 3 replicas, 6 partitions"
    return race


def failover(nodes: Nodes, scale: float) -> Figures:
    """kill -9 of the node that leads the partition and is the active controller, until the next accepted record"""
    gaps: list[float] = []
    for _ in range(max(3, int(10 * scale))):
        victim = nodes.active_controller()
        topic = nodes.new_topic(1, first=victim)
        with Load(nodes, topic) as load:
            load.wait_for(200)
            killed = time.monotonic()
            nodes.kill(victim)
            wait_until(partial(load.has_sent_since, killed), "accepted")
        gaps.append(min(done for sent, done in load.acknowledged if sent > killed) - killed)
        if load.errors:
            raise RuntimeError(f"{nodes.name} refused records: {load.errors[0]}")
        nodes.start(victim)
        nodes.wait_in_sync(topic)
    return {"p50 ms": statistics.median(gaps) * 1e3, "greatest ms": max(gaps) * 1e3}


def rolling_restart(nodes: Nodes, scale: float) -> Figures:  # noqa: ARG001 - three nodes are three nodes
    """clean restart of one node after the other under load: the longest wait of a producer for an acknowledgement"""
    topic = nodes.new_topic(6)
    with Load(nodes, topic, 6) as load:
        load.wait_for(200)
        began = time.monotonic()
        for node in NODES:
            nodes.stop(node)
            nodes.start(node)
            nodes.wait_in_sync(topic)
        seconds = time.monotonic() - began
        load.wait_for(100)
    if load.errors:
        raise RuntimeError(f"{nodes.name} refused records: {load.errors[0]}")
    longest = max(done - sent for sent, done in load.acknowledged if sent > began)
    return {"longest wait ms": longest * 1e3, "seconds in all": seconds}


def partitions(nodes: Nodes, scale: float) -> Figures:
    """10,000 partitions of three replicas: memory per node, time to create, time to fail over one node"""
    topics, admin = int(100 * scale), nodes.admin()
    cpu, begin = nodes.cpu_seconds(), time.perf_counter()
    for number in range(topics):
        name = f"topic-{number}"
        admin.create_topics([NewTopic(name, 100, 3)], operation_timeout=60)[name].result(DEADLINE_S)
    figures = {"seconds to create": time.perf_counter() - begin}
    _settle(nodes)
    # Ottla creates the files of logs without records in the background: their cost is in this figure.
    figures["CPU seconds of all nodes until idle"] = nodes.cpu_seconds() - cpu
    figures["resident MB per node"] = nodes.resident_mb()
    others = ",".join(nodes.bootstrap.split(",")[1:])
    watcher = AdminClient({"bootstrap.servers": others, "log_level": 0})
    watcher.list_topics(timeout=60)
    cpu = nodes.cpu_seconds((2, 3))
    killed = time.monotonic()
    nodes.kill(1)
    wait_until(lambda: _is_led_by_others(watcher), "led by other nodes")
    figures["seconds to fail over one node"] = time.monotonic() - killed
    _settle(nodes, (2, 3))
    figures["CPU seconds of the others after that"] = nodes.cpu_seconds((2, 3)) - cpu
    return figures


def _is_led_by_others(admin: AdminClient) -> bool:
    found = admin.list_topics(timeout=60).topics.values()
    return all(partition.leader in (2, 3) for topic in found for partition in topic.partitions.values())


def _settle(nodes: Nodes, of: Sequence[int] = NODES) -> None:
    before = nodes.cpu_seconds(of)
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        time.sleep(2)
        now = nodes.cpu_seconds(of)
        if now - before < 0.3:
            return
        before = now


@dataclass(frozen=True)
class Race:
    """A race and its aims: what Ottla's figure is over Kafka's, at least where more is better, else at most."""

    run: Callable[[Nodes, float], Figures]
    aims: Figures

    @property
    def title(self) -> str:
        """One line."""
        return (self.run.__doc__ or "").splitlines()[0]


_RATES = {"MB/s": 1.0, "MB per CPU-second of all brokers": 2.0}
RACES = {
    "produce-100": Race(produce(100, 1_000_000), _RATES),
    "produce-1k": Race(produce(1000, 300_000), _RATES),
    "failover": Race(failover, {"p50 ms": 0.05, "greatest ms": 0.05}),
    "rolling": Race(rolling_restart, {"longest wait ms": 0.1}),
    "partitions": Race(
        partitions, {"seconds to create": 1, "resident MB per node": 0.2, "seconds to fail over one node": 0.2}
    ),
}


def main() -> int:
    """Run the races that were asked for; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="*", metavar="RACE", help="default: all; " + ", ".join(RACES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of records, kills and partitions")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.races if name not in RACES]
    if unknown:
        parser.error(f"no such race: {', '.join(unknown)}; there are: {', '.join(RACES)}")
    console = Console()
    conditions = results.conditions(1, arguments.scale)
    console.print("; ".join(f"{name}: {value}" for name, value in conditions.items()), highlight=False)
    for name in arguments.races or RACES:
        race, found = RACES[name], {}
        begin = time.monotonic()
        for start in (ottla, kafka):
            with ExitStack() as stack:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-"))
                nodes = stack.enter_context(start(Path(directory)))
                found[nodes.name] = race.run(nodes, arguments.scale)
            os.sync()
        _print(console, name, race, found, time.monotonic() - begin)
    return 0


def _print(console: Console, name: str, race: Race, found: dict[str, Figures], seconds: float) -> None:
    table = Table(title=f"{name}: {race.title} ({seconds:.0f} s)", title_justify="left")
    for heading in ("figure", "Ottla", "Kafka", "ratio", "aim"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure, row in results.compared(found["ottla"], "kafka", found["kafka"]).items():
        aim, ratio = race.aims.get(figure), row.get("ratio", 0.0)
        sign = "≥" if results.more_is_better(figure) else "≤"
        shown = f"{ratio:.3f}"
        if aim is not None:
            shown = f"[{'green' if results.reaches(figure, ratio, aim) else 'red'}]{shown}[/]"
        wanted = "" if aim is None else f"{sign} {aim:g}"
        table.add_row(figure, f"{row['ottla']:,.2f}", f"{row['kafka']:,.2f}", shown, wanted)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
