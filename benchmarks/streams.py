"""The races of `ottla.streams` against Kafka Streams 4.3: the same broker (Ottla), records, machine and run.

    python -m benchmarks.streams [RACE ...] [--rounds N] [--scale X] [--full] [--json FILE]

Both sides have one warm process each (a Spark driver on local[2], a JVM with two stream threads), and process the same
topic in turn, after warm-ups that are not counted. Settings are the defaults, but pipelines have the latency 0 ms where
a race does not say otherwise. CPU includes all processes of a side: JVM, driver and Python's workers; the broker's is
beside it. A run begins when the program is started, and ends when the offsets of all records are committed. Its output
is then read with read_committed and checked.

`guarantees` compares two pipelines of Ottla, with a warm-up and pairs of its own (`streams_guarantees`).
`reprocess` and `restart` start processes of their own, after `ottla stream prepare`. Python finds its bytecode, also
where the environment forbids that it stores it. Maven fetches the jars of Kafka Streams (tests/peers/streams).
A race takes at most three minutes, one of guarantees up to nine. With --full, races with Kafka Streams have 5 million
records, and `reprocess` 10 million in two rounds, because the first contender pays for memory that the machine has not
used before.
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

from benchmarks import results, streams_guarantees, streams_latency
from benchmarks.brokers import SETTINGS, start_ottla
from benchmarks.process_times import spent
from benchmarks.streams_contenders import EXACTLY_ONCE, OTTLA, PEER
from benchmarks.streams_guarantees import CPU, RATE
from benchmarks.streams_latency import CPU_MINUTE
from benchmarks.streams_stage import Stage
from benchmarks.wire import Figures

PER_CPU = "records per CPU-second"
BROKER_CPU = "broker CPU s per million"
BROKER = {**SETTINGS, "log.retention.check.interval.ms": 1000}
GUARANTEE_ROUNDS = 5
"""With --full."""
FULL = 5.0
"""Times as many records as by default."""
MILLION = 1_000_000
SIDES = (OTTLA, PEER)


@dataclass(frozen=True)
class Race:
    """`run` does it once for one of `SIDES`; `aims` are for the ratio of the first side's figures to the other's."""

    title: str
    run: Callable[[Stage, str, float], Figures]
    aims: dict[str, float]
    warm_ups: int = 2
    limits: dict[str, float] | None = None
    """Aims for the figures of the first side alone."""
    full_rounds: int = 1


# -- what is raced -----------------------------------------------------------------------------------------------------


def _throughput(kind: str, records: int, keys: int) -> Callable[[Stage, str, float], Figures]:
    def race(stage: Stage, who: str, scale: float) -> Figures:
        return process(stage, who, kind, int(records * scale), keys)

    return race


def process(stage: Stage, who: str, kind: str, records: int, keys: int) -> Figures:
    """Process all records of a topic in a warm process."""
    source = stage.filled(records, keys)
    contender = stage.contender(who)
    with stage.program(kind, source, EXACTLY_ONCE) as program:
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


def _low_rate(kind: str) -> Callable[[Stage, str, float], Figures]:
    """As `_latency`, with the latency that a pipeline has by default."""

    def race(stage: Stage, who: str, scale: float) -> Figures:
        return streams_latency.latency(stage, who, kind, 40 * min(scale, 3.0), latency_ms=None)

    return race


RACES = {
    "stateless": Race("filter and map of 100 B records", _throughput("stateless", MILLION, 1_000), {PER_CPU: 2}),
    "count-1k": Race("count by 1,000 keys", _throughput("count", MILLION, 1_000), {PER_CPU: 1.5}),
    "count-1m": Race("count by a million keys", _throughput("count", MILLION, MILLION), {PER_CPU: 0.7}, warm_ups=1),
    "reprocess": Race(
        "filter and map from the beginning, with the start of the process", _reprocess, {RATE: 1.5}, 1, full_rounds=2
    ),
    "latency": Race(
        "filter and map, from produce to a read_committed reader, 100 records/s, latency 0 ms",
        _latency("stateless"), {}, 1, limits={"p50 ms": 150, "p99 ms": 400},
    ),
    "latency-count": Race(
        "count by 1,000 keys, the same", _latency("count"), {}, 1, limits={"p50 ms": 400, "p99 ms": 800}
    ),
    "low-rate": Race(
        "filter and map, 100 records/s, the latency of pipelines by default",
        _low_rate("stateless"), {}, 2, limits={"p50 ms": 1000, CPU_MINUTE: 15},
    ),
    "low-rate-count": Race(
        "count by 1,000 keys, the same", _low_rate("count"), {}, 2, limits={"p50 ms": 1200, CPU_MINUTE: 15}
    ),
    "idle": Race("a process without records", streams_latency.idle, {}, 0, limits={CPU_MINUTE: 2}),
    "restart": Race(
        "kill -9 of the driver, until the output of a record produced later", streams_latency.restart, {}, 0,
        limits={"seconds": 25},
    ),
}  # fmt: skip


# -- running them ------------------------------------------------------------------------------------------------------


def run_race(stage: Stage, race: Race, rounds: int, scale: float) -> dict[str, Figures]:
    """The medians of each side, in turn."""
    found: dict[str, list[Figures]] = {who: [] for who in SIDES}
    for number in range(race.warm_ups + rounds):
        for who in SIDES if number % 2 else reversed(SIDES):
            figures = race.run(stage, who, min(scale, 1.0) if number < race.warm_ups else scale)
            if number >= race.warm_ups:
                found[who].append(figures)
    return {
        who: {figure: statistics.median(each[figure] for each in runs) for figure in runs[0]}
        for who, runs in found.items()
    }


def show(name: str, race: Race, medians: dict[str, Figures], console: Console) -> None:
    """Print the table of a race."""
    ours, theirs = SIDES
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


def _guarantees(stage: Stage, name: str, rounds: int, scale: float, console: Console) -> dict[str, dict[str, float]]:
    """Run the race of two guarantees, and print its table."""
    size = streams_guarantees.SIZES[name]
    compared = streams_guarantees.compare(stage, size, rounds, scale)
    streams_guarantees.show(name, size, compared, console)
    ours, theirs = (compared.medians(who) for who in streams_guarantees.SIDES)
    rows = results.compared(ours, streams_guarantees.SIDES[1], theirs)
    rows[size.unit]["ratio"] = compared.ratio(size.unit)
    return rows


def main() -> None:
    """Run the races that were asked for."""
    known = [*RACES, *streams_guarantees.SIZES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="*", metavar="RACE", help=f"by default all: {', '.join(known)}")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1.0, help="times as many records")
    parser.add_argument("--full", action="store_true", help=f"{FULL:g} times as many records, one round or two")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures, ratios and conditions there")
    given = parser.parse_args()
    unknown = [name for name in given.races if name not in known]
    if unknown:
        parser.error(f"no such race: {', '.join(unknown)}; there are: {', '.join(known)}")
    scale = FULL if given.full else given.scale
    console = Console(width=110)
    conditions: dict[str, Any] = results.conditions(1 if given.full else given.rounds, scale)
    console.print("; ".join(f"{name}: {value}" for name, value in conditions.items()), highlight=False)
    found: results.Results = {}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-race-") as directory, ExitStack() as stack:
        broker = stack.enter_context(start_ottla(Path(directory) / "broker", BROKER))
        stage = Stage(broker, Path(directory), stack)
        try:
            rounds = GUARANTEE_ROUNDS if given.full else given.rounds
            for name in given.races or known:
                if name in streams_guarantees.SIZES:
                    found[name] = _guarantees(stage, name, rounds, scale, console)
                    continue
                race = RACES[name]
                medians = run_race(stage, race, race.full_rounds if given.full else given.rounds, scale)
                show(name, race, medians, console)
                found[name] = results.compared(medians[SIDES[0]], SIDES[1], medians[SIDES[1]])
        finally:
            if given.json is not None and found:
                results.write(given.json, found, conditions)
    console.print(f"{time.monotonic() - begin:.0f} seconds in all")


if __name__ == "__main__":
    main()
