"""Mirrors against MirrorMaker 2.

The source is one Ottla broker; each contender copies from it into an Ottla broker of its own. A mirror of Ottla is part
of the target's broker; MirrorMaker 2 is a process beside it, with its defaults, a heap of 1 GiB and G1.

- catch-up: the copy of records that are in the source already, to the last record: from the creation of Ottla's mirror,
  and from the first record that MirrorMaker 2 has copied, which excludes its start;
- steady: records at a fixed rate, and the CPU time that their copy costs;
- lag: the same rate, and the time from the send to a consumer of partition 0 at the target. A consumer at the source
  reads, too: how much later the same record arrives at the target excludes the producer and the source.

Counted is the CPU time of the target's broker and of MirrorMaker in that time, with the JVM's compilation. The source's
CPU time has a row of its own. No consumer reads from the target meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.ottla_process import OttlaProcess
from tests.peers.cache import CONNECT, KAFKA
from tests.peers.kafka import FULL_SPEED, java, stop_process

from benchmarks.brokers import cpu_times
from benchmarks.mirror.load import PARTITIONS, SIZE, LagReader, Load, records, start_mirror, until
from ottla.clients.admin import Admin

BACKLOG, STEADY = "backlog", "steady"
WARM_UP_S = 5.0
SMALL_TOPICS = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage", "status.storage")


class Mark(NamedTuple):
    """The begin of a measurement."""

    time_s: float
    cpu_s: float
    source_cpu_s: float
    records: int


@dataclass(frozen=True)
class Contender:
    """A copy: the processes that it needs, the prefix of its topics, and what happens before and in the catch-up."""

    bootstrap: str
    prefix: str
    pids: tuple[int, ...]
    prepare: Callable[[], None]
    begin: Callable[[], None]

    def cpu_s(self) -> float:
        """User and system time so far."""
        return sum(sum(cpu_times(pid)) for pid in self.pids)


@dataclass
class Figures:
    """The outcome of one contender."""

    catch_up_mb_s: float = 0.0
    catch_up_mb_per_cpu_s: float = 0.0
    catch_up_source_cpu_s: float = 0.0
    steady_mb_per_cpu_s: float = 0.0
    steady_source_cpu_s: float = 0.0
    lag_p50_ms: float = 0.0
    lag_p99_ms: float = 0.0
    later_p50_ms: float = 0.0
    """Than at a consumer of the source."""
    later_p99_ms: float = 0.0


@contextlib.contextmanager
def ottla(source: str, directory: Path) -> Iterator[Contender]:
    """A mirror in the target's broker."""
    with OttlaProcess(directory / "target") as target:

        def create() -> None:
            start_mirror(target.bootstrap, source, f"{BACKLOG}|{STEADY}")

        yield Contender(target.bootstrap, "", (target.pid,), lambda: None, create)


@contextlib.contextmanager
def mirror_maker(source: str, directory: Path) -> Iterator[Contender]:
    """MirrorMaker 2 beside the target's broker."""
    with OttlaProcess(directory / "target") as target:
        settings: dict[str, object] = {
            "clusters": "source, target",
            "source.bootstrap.servers": source,
            "target.bootstrap.servers": target.bootstrap,
            "source->target.enabled": "true",
            "source->target.topics": f"{BACKLOG}|{STEADY}",
            "target->source.enabled": "false",
            "replication.factor": 1,
            "config.storage.replication.factor": 1,
        }
        settings |= {f"{name}.replication.factor": 1 for name in SMALL_TOPICS}
        properties = directory / "mirror.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        command = java(main, str(properties), heap="1g", options=FULL_SPEED)
        command[command.index("-cp") + 1] = f"{KAFKA}/*:{CONNECT}/*"
        with open(directory / "mirror.log", "wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True)

        def wait() -> None:
            until(lambda: records(target.bootstrap, f"source.{BACKLOG}") > 0, 0.02)

        try:
            yield Contender(target.bootstrap, "source.", (target.pid, process.pid), wait, lambda: None)
        finally:
            stop_process(process)


def race(contender: Contender, source: OttlaProcess, megabytes: int, rate: float, seconds: float) -> Figures:
    """Run both races with one contender."""
    found = Figures()
    backlog, steady = f"{contender.prefix}{BACKLOG}", f"{contender.prefix}{STEADY}"

    def mark(topic: str) -> Mark:
        copied = records(contender.bootstrap, topic)
        return Mark(time.monotonic(), contender.cpu_s(), sum(cpu_times(source.pid)), copied)

    contender.prepare()
    before = mark(backlog)
    contender.begin()
    until(lambda: records(contender.bootstrap, backlog) >= megabytes * 1_000_000 // SIZE)
    after = mark(backlog)
    copied_mb = (after.records - before.records) * SIZE / 1e6
    found.catch_up_mb_s = copied_mb / (after.time_s - before.time_s)
    found.catch_up_mb_per_cpu_s = copied_mb / (after.cpu_s - before.cpu_s)
    found.catch_up_source_cpu_s = after.source_cpu_s - before.source_cpu_s

    def is_copied() -> bool:
        return records(contender.bootstrap, steady) == records(source.bootstrap, STEADY)

    until(is_copied)
    load = Load(source.bootstrap)
    per_second = rate * 1e6 / SIZE
    load.steady(STEADY, per_second, WARM_UP_S)
    until(is_copied)
    before = mark(steady)
    load.steady(STEADY, per_second, seconds)
    until(is_copied)
    after = mark(steady)
    copied_mb = (after.records - before.records) * SIZE / 1e6
    found.steady_mb_per_cpu_s = copied_mb / (after.cpu_s - before.cpu_s)
    found.steady_source_cpu_s = after.source_cpu_s - before.source_cpu_s
    readers = [LagReader(source.bootstrap, STEADY), LagReader(contender.bootstrap, steady)]
    load.steady(STEADY, per_second, WARM_UP_S)
    first = records(source.bootstrap, STEADY) // PARTITIONS + 1
    load.steady(STEADY, per_second, seconds)
    end = records(source.bootstrap, STEADY) // PARTITIONS
    at_source, at_target = (reader.finish(end)[first:end] for reader in readers)
    ages_ms = sorted((arrived - sent) * 1000 for sent, arrived in at_target)
    found.lag_p50_ms, found.lag_p99_ms = ages_ms[len(ages_ms) // 2], ages_ms[len(ages_ms) * 99 // 100]
    later_ms = sorted((copied[1] - read[1]) * 1000 for copied, read in zip(at_target, at_source, strict=True))
    found.later_p50_ms, found.later_p99_ms = later_ms[len(later_ms) // 2], later_ms[len(later_ms) * 99 // 100]
    return found


def run(megabytes: int, rate: float, seconds: float) -> None:
    """Run the races with both contenders, and print ratios."""
    results: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="ottla-mirror-") as folder, OttlaProcess(Path(folder) / "source") as source:
        with Admin(source.bootstrap) as admin:
            for topic in (BACKLOG, STEADY):
                admin.create_topic(topic, partitions=PARTITIONS)
        load = Load(source.bootstrap)
        load.send(BACKLOG, megabytes * 1_000_000 // SIZE)
        load.send(STEADY, PARTITIONS)
        load.finish()
        for name, start in (("Ottla", ottla), ("MirrorMaker", mirror_maker)):
            directory = Path(folder) / name
            directory.mkdir()
            with start(source.bootstrap, directory) as contender:
                results[name] = race(contender, source, megabytes, rate, seconds)
            print(f"{name}: {results[name]}", flush=True)
    _report(results, f"catch-up of {megabytes} MB, then {rate:g} MB/s for {seconds:g} s")


def _report(results: Mapping[str, Figures], conditions: str) -> None:
    """Print conditions and ratios."""
    own, their = results["Ottla"], results["MirrorMaker"]
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(
        f"{conditions}; records of {SIZE} bytes, {PARTITIONS} partitions, no compression, {os.cpu_count()} cores, "
        f"load {load}"
    )
    for name, figure in (
        ("catch-up, MB/s", "catch_up_mb_s"),
        ("catch-up, MB per CPU second", "catch_up_mb_per_cpu_s"),
        ("catch-up, CPU s of the source", "catch_up_source_cpu_s"),
        ("steady, MB per CPU second", "steady_mb_per_cpu_s"),
        ("steady, CPU s of the source", "steady_source_cpu_s"),
        ("send to consumer, p50 ms", "lag_p50_ms"),
        ("send to consumer, p99 ms", "lag_p99_ms"),
        ("later than at the source, p50 ms", "later_p50_ms"),
        ("later than at the source, p99 ms", "later_p99_ms"),
    ):
        a, b = getattr(own, figure), getattr(their, figure)
        print(f"{name:32} Ottla {a:10,.2f}   MirrorMaker {b:10,.2f}   Ottla / MirrorMaker {a / b:6.3f}")
