"""The races of `ottla.streams` against Kafka Streams 4.3: the same broker (Ottla), records, machine and run.

    python -m benchmarks.streams [RACE ...] [--rounds N] [--scale X] [--full] [--json FILE]

Both sides have one warm process each with their defaults (a driver of Spark on local[2], a JVM with two stream
threads), and process the same topic in turn, after warm-ups that are not counted. CPU is that of all processes of a
side: JVM, driver and Python's workers; the broker's is beside it. A run begins when the program is started, and ends
when the offsets of all records are committed. What it wrote is then read with read_committed and checked.

`reprocess` and `restart` start processes of their own, after `ottla stream prepare`. Python finds its bytecode, also
where the environment forbids that it stores it. Maven fetches the jars of Kafka Streams (tests/peers/streams).
A race takes at most three minutes; with --full it has 5 million records, `reprocess` 10 million in two rounds, because
the first contender pays for memory that the machine has not used before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results, streams_latency
from benchmarks.brokers import start_ottla
from benchmarks.process_times import spent
from benchmarks.streams_contenders import AT_LEAST_ONCE, EXACTLY_ONCE, OTTLA, PEER
from benchmarks.streams_stage import Stage
from benchmarks.wire import Figures

PER_CPU, CPU, RATE = "records per CPU-second", "CPU s per million", "records/s"
BROKER_CPU = "broker CPU s per million"
MS, BATCH_CPU = "ms a micro-batch", "CPU ms a micro-batch"
FULL = 5.0
"""Times as many records as by default."""
MILLION = 1_000_000


@dataclass(frozen=True)
class Race:
    """`run` does it once for one of `sides`; `aims` are for the ratio of the first side's figures to the other's."""

    title: str
    run: Callable[[Stage, str, float], Figures]
    aims: dict[str, float]
    warm_ups: int = 2
    sides: tuple[str, str] = (OTTLA, PEER)
    limits: dict[str, float] | None = None
    """Aims for the figures of the first side alone."""
    full_rounds: int = 1


# -- what is raced -----------------------------------------------------------------------------------------------------


def _throughput(kind: str, records: int, keys: int) -> Callable[[Stage, str, float], Figures]:
    def race(stage: Stage, who: str, scale: float) -> Figures:
        return process(stage, who, kind, int(records * scale), keys)

    return race


def process(stage: Stage, who: str, kind: str, records: int, keys: int, guarantee: str = EXACTLY_ONCE) -> Figures:
    """Process all records of a topic in a warm process."""
    source = stage.filled(records, keys)
    contender = stage.contender(who)
    with stage.program(kind, source, guarantee) as program:
        before, broker, begin = contender.cpu_parts(), stage.broker.cpu_seconds(), time.perf_counter()
        contender.start(program)
        stage.wait_until_committed(program, contender)
        seconds = time.perf_counter() - begin
        parts, broker = spent(before, contender.cpu_parts()), stage.broker.cpu_seconds() - broker
        used = sum(parts.values())
        batches = contender.stop()
        stage.check(program, records, keys)
    figures = {
        PER_CPU: records / used, CPU: used * MILLION / records, RATE: records / seconds,
        BROKER_CPU: broker * MILLION / records,
        **{f"{part}: {CPU}": seconds * MILLION / records for part, seconds in parts.items()},
    }  # fmt: skip
    return figures | ({"micro-batches": float(len(batches))} if batches else {})


def _guarantees(stage: Stage, who: str, scale: float) -> Figures:
    """`who` is a guarantee; both run on Ottla's side."""
    figures = process(stage, OTTLA, "stateless", int(MILLION * scale), 1_000, who)
    return {name: figure for name, figure in figures.items() if name != PER_CPU}


def _small_batches(stage: Stage, who: str, scale: float) -> Figures:
    """`who` is a guarantee: ten records, and the next ten when they have been processed."""
    contender, batches = stage.contender(OTTLA), max(int(120 * scale), 30)
    source = stage.topic()
    with stage.program("stateless", source, who) as program:
        contender.start(program)
        before = contender.cpu_parts()
        for number in range(batches):
            if number == batches // 3:
                before = contender.cpu_parts()
            stage.send_few(source, 10)
            stage.wait_until_committed(program, contender)
        parts = spent(before, contender.cpu_parts())
        told = contender.stop()
    times = [float(row["durationMs"]["triggerExecution"]) for row in told[len(told) // 3 :]]
    counted = batches - batches // 3
    return {
        MS: statistics.median(times), BATCH_CPU: sum(parts.values()) * 1000 / counted,
        **{f"{part}: {BATCH_CPU}": seconds * 1000 / counted for part, seconds in parts.items()},
    }  # fmt: skip


def _reprocess(stage: Stage, who: str, scale: float) -> Figures:
    """From the start of a process until it has committed all records; with Ottla, until it has ended (--once)."""
    records = int(2 * MILLION * scale)
    source = stage.filled(records, 1_000)
    with stage.program("stateless", source, EXACTLY_ONCE) as program, stage.alone(who, program, once=True) as one:
        begin = time.perf_counter()
        stage.wait_until_committed(program, one)
        if who == OTTLA:
            one.wait_for_end()
        seconds = time.perf_counter() - begin
        stage.check(program, records, 1_000)
    return {RATE: records / seconds, "seconds": seconds}


def _latency(kind: str) -> Callable[[Stage, str, float], Figures]:
    def race(stage: Stage, who: str, scale: float) -> Figures:
        return streams_latency.latency(stage, who, kind, 20 * min(scale, 3.0))

    return race


ONCE_SIDES = (EXACTLY_ONCE, AT_LEAST_ONCE)
RACES = {
    "stateless": Race("filter and map of 100 B records", _throughput("stateless", MILLION, 1_000), {PER_CPU: 2}),
    "count-1k": Race("count by 1,000 keys", _throughput("count", MILLION, 1_000), {PER_CPU: 1.5}),
    "count-1m": Race("count by a million keys", _throughput("count", MILLION, MILLION), {PER_CPU: 0.7}, warm_ups=1),
    "reprocess": Race(
        "filter and map from the beginning, with the start of the process", _reprocess, {RATE: 1.5}, 1, full_rounds=2
    ),
    "guarantees": Race("exactly once against at least once", _guarantees, {CPU: 1.05}, sides=ONCE_SIDES),
    "guarantees-small": Race(
        "the same, ten records a micro-batch", _small_batches, {BATCH_CPU: 1.05}, 8, ONCE_SIDES
    ),
    "latency": Race(
        "filter and map, from produce to a read_committed reader, 100 records/s",
        _latency("stateless"), {}, 1, limits={"p50 ms": 150, "p99 ms": 400},
    ),
    "latency-count": Race(
        "count by 1,000 keys, the same", _latency("count"), {}, 1, limits={"p50 ms": 400, "p99 ms": 800}
    ),
    "restart": Race(
        "kill -9 of the driver, until the output of a record produced later", streams_latency.restart, {}, 0,
        limits={"seconds": 25},
    ),
}  # fmt: skip


# -- running them ------------------------------------------------------------------------------------------------------


def run_race(stage: Stage, race: Race, rounds: int, scale: float) -> dict[str, Figures]:
    """The medians of each side, in turn."""
    found: dict[str, list[Figures]] = {who: [] for who in race.sides}
    for number in range(race.warm_ups + rounds):
        for who in race.sides if number % 2 else reversed(race.sides):
            figures = race.run(stage, who, min(scale, 1.0) if number < race.warm_ups else scale)
            if number >= race.warm_ups:
                found[who].append(figures)
    return {
        who: {figure: statistics.median(each[figure] for each in runs) for figure in runs[0]}
        for who, runs in found.items()
    }


def show(name: str, race: Race, medians: dict[str, Figures], console: Console) -> None:
    """Print the table of a race."""
    ours, theirs = race.sides
    load = os.getloadavg()[0]
    table = Table(title=f"{name}: {race.title} (load {load:.1f})", title_justify="left")
    for heading in ("figure", ours, theirs, "ratio", "must reach"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure, value in medians[ours].items():
        other = medians[theirs].get(figure)
        sign = "≥" if results.more_is_better(figure) else "≤"
        aim = f"{sign} {race.aims[figure]:g} times" if figure in race.aims else ""
        if race.limits and figure in race.limits:
            aim = f"{sign} {race.limits[figure]:g}"
        ratio = f"{value / other:.2f}" if other else ""
        table.add_row(figure, f"{value:,.2f}", "" if other is None else f"{other:,.2f}", ratio, aim)
    console.print(table)


def main() -> None:
    """Run the races that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="*", metavar="RACE", help=f"by default all: {', '.join(RACES)}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="times as many records")
    parser.add_argument("--full", action="store_true", help=f"{FULL:g} times as many records, one round or two")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures, ratios and conditions there")
    given = parser.parse_args()
    unknown = [name for name in given.races if name not in RACES]
    if unknown:
        parser.error(f"no such race: {', '.join(unknown)}; there are: {', '.join(RACES)}")
    scale = FULL if given.full else given.scale
    console = Console(width=110)
    conditions: dict[str, Any] = results.conditions(1 if given.full else given.rounds, scale)
    console.print("; ".join(f"{name}: {value}" for name, value in conditions.items()), highlight=False)
    found: results.Results = {}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-race-") as directory, ExitStack() as stack:
        broker = stack.enter_context(start_ottla(Path(directory) / "broker"))
        stage = Stage(broker, Path(directory), stack)
        try:
            for name in given.races or RACES:
                race = RACES[name]
                medians = run_race(stage, race, race.full_rounds if given.full else given.rounds, scale)
                show(name, race, medians, console)
                found[name] = results.compared(medians[race.sides[0]], race.sides[1], medians[race.sides[1]])
        finally:
            if given.json is not None and found:
                results.write(given.json, found, conditions)
    console.print(f"{time.monotonic() - begin:.0f} seconds in all")


if __name__ == "__main__":
    main()
