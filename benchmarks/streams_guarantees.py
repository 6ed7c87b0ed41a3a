"""Exactly once against at least once: what a pipeline of each guarantee costs in its steady state.

One warm driver runs both pipelines at the same time, from beginning to end. They get blocks of records in turn, each in
a topic of its own: a pair is a block of each, and the order changes from pair to pair. So both have the same JVM, the
same classes and the same machine, and no query is started while the CPU is read.

The processes of the driver stand still while a block is sent, so that it is there at once. The figures of a block are
the CPU from there until its offsets are committed and 0.2 s later, without the CPU of the other query meanwhile as it
looks for records: half the CPU of both while neither has any.

The JVM's compiler must have settled. The warm-up ends when it has at most 3 % of the CPU in three pairs, or after four
minutes. Then pairs run until there are enough in which it has at most 3 %, or for four minutes more; those with the
least of it count. The output says how many, and how much it had. The ratio is the median of the ratios of these pairs.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.process_times import COMPILER, spent
from benchmarks.streams_contenders import AT_LEAST_ONCE, EXACTLY_ONCE, OTTLA, Program
from benchmarks.streams_stage import Stage, tables
from benchmarks.wire import Figures

MS, CPU, RATE, BATCH_CPU = "ms a micro-batch", "CPU s per million", "records/s", "CPU ms a micro-batch"
BROKER = "broker"
SIDES = (EXACTLY_ONCE, AT_LEAST_ONCE)
PAIRS = 2
"""Pairs in a round, one in each order."""
MOST_CPU, MOST_MS = 1.05, 30
SETTLED, SETTLED_PAIRS = 0.03, 3
LONGEST_WARM_UP_S = LONGEST_RACE_S = 240.0
AFTER_S = 0.2
IDLE_S = 4.0
KEYS, FEW = 1_000, 10
SHORT: dict[str, Any] = {"segment.bytes": str(16 << 20), "retention.bytes": str(64 << 20)}
"""In ever new pages, which on a virtual machine the host must provide first, the broker's CPU would be chance."""


@dataclass(frozen=True)
class Size:
    """The blocks of a race."""

    title: str
    records: int
    unit: str
    """The figure of CPU: for one record, times `factor`."""
    factor: float
    most: int = 0
    """The largest number of records of a micro-batch; by default all of a block."""


SIZES = {
    "guarantees": Size("exactly once against at least once, a million records", 1_000_000, CPU, 1e6),
    "guarantees-small": Size("the same, ten records a micro-batch", 60 * FEW, BATCH_CPU, 1e3 * FEW, FEW),
}


@dataclass
class Compared:
    """The figures of the blocks, by side and in the order of the pairs."""

    settled: str
    """How the compiler settled."""
    blocks: dict[str, list[Figures]] = field(default_factory=lambda: {who: [] for who in SIDES})
    ms: dict[str, float] = field(default_factory=dict)
    """The median time of a micro-batch."""

    def medians(self, who: str) -> Figures:
        """Of one side."""
        figures = {name: statistics.median(row[name] for row in self.blocks[who]) for name in self.blocks[who][0]}
        return figures | {MS: self.ms[who]}

    def pairs(self, figure: str) -> list[tuple[float, float]]:
        """The figures of exactly once and of at least once, of each pair."""
        return [(one[figure], other[figure]) for one, other in zip(*self.blocks.values(), strict=True)]

    def ratio(self, figure: str) -> float:
        """The median of the ratios of the pairs."""
        return statistics.median(one / other for one, other in self.pairs(figure))


def compare(stage: Stage, size: Size, rounds: int, scale: float) -> Compared:
    """Run both pipelines, warm up, and measure the pairs."""
    with ExitStack() as stack:
        programs = {
            who: stack.enter_context(stage.program("stateless", stage.topic(**SHORT), who, size.most, **SHORT))
            for who in SIDES
        }
        both = _Both(stage, size, min(scale, 1.0), programs)
        warm_up = both.warm_up()
        both.measure_idle()
        pairs, counted = both.measure(rounds * PAIRS)
        found = Compared(f"{warm_up}\n{counted}")
        for pair in pairs:
            for who in SIDES:
                found.blocks[who].append(pair[who])
        found.ms = both.stop(len(pairs))
    return found


def show(name: str, size: Size, found: Compared, console: Console) -> None:
    """Print the table of a race."""
    title = f"{name}: {size.title} (load {os.getloadavg()[0]:.1f})\n{found.settled}"
    table = Table(title=title, title_justify="left")
    for heading in ("", "exactly once", "at least once", "difference", "ratio", "of pairs, from", "to", "aim"):
        table.add_column(heading, justify="right" if heading else "left")
    ours, theirs = (found.medians(who) for who in SIDES)
    for figure, value in ours.items():
        row = [f"{value:,.2f}", f"{theirs[figure]:,.2f}"]
        if figure == MS:
            row += [f"{value - theirs[figure]:+,.2f}", "", "", "", f"≤ {MOST_MS:+g} ms"]
        else:
            row.append(f"{statistics.median(one - other for one, other in found.pairs(figure)):+,.2f}")
        if figure in (size.unit, RATE):
            ratios = [one / other for one, other in found.pairs(figure)]
            row += [f"{ratio:.3f}" for ratio in (found.ratio(figure), min(ratios), max(ratios))]
            row += [f"≤ {MOST_CPU:g}"] if figure == size.unit else []
        part, _, unit = figure.partition(": ")
        table.add_row(f"  {part}" if unit else figure, *row)
    console.print(table)


class _Both:
    """The two pipelines while they run."""

    def __init__(self, stage: Stage, size: Size, scale: float, programs: dict[str, Program]) -> None:
        self._stage, self._size, self._programs = stage, size, programs
        self._contender = stage.contender(OTTLA)
        self._records = int(size.records * scale)
        self._rows = list(tables(self._records, KEYS)) if not size.most else []
        self._idle: dict[str, float] = {}
        for program in programs.values():
            self._contender.start(program)

    def warm_up(self) -> str:
        """Run pairs until the compiler has little to do, and return how long it took."""
        shares: list[float] = []
        begin = time.monotonic()
        while len(shares) < SETTLED_PAIRS or max(shares[-SETTLED_PAIRS:]) > SETTLED:
            if time.monotonic() > begin + LONGEST_WARM_UP_S:
                break
            shares.append(self._compiled(self._pair(len(shares))))
            if len(shares) == 1 and not self._size.most:  # before the retention deletes something
                for program in self._programs.values():
                    self._stage.check(program, self._records, KEYS)
        return (
            f"warm-up: {len(shares)} pairs in {time.monotonic() - begin:.0f} s; the JVM's compiler had {shares[0]:.0%} "
            f"of the CPU in the first, at most {max(shares[-SETTLED_PAIRS:]):.1%} in the last {SETTLED_PAIRS}"
        )

    def measure(self, wanted: int) -> tuple[list[dict[str, Figures]], str]:
        """Run pairs until the compiler is calm in this many, and return them, and what is to be said about them.

        After a time, those in which it is the calmest.
        """
        pairs: list[dict[str, Figures]] = []
        begin = time.monotonic()
        while time.monotonic() < begin + LONGEST_RACE_S:
            pairs.append(self._pair(len(pairs)))
            if sum(self._compiled(pair) <= SETTLED for pair in pairs) >= wanted:
                break
        counted = sorted(pairs, key=self._compiled)[:wanted]
        most = self._compiled(counted[-1])
        return counted, f"{len(counted)} of {len(pairs)} pairs count: the compiler had at most {most:.1%} in them"

    def measure_idle(self) -> None:
        """Measure what one query uses in a second in which there are no records."""
        before = self._contender.cpu_parts()
        time.sleep(IDLE_S)
        used = spent(before, self._contender.cpu_parts())
        self._idle = {part: seconds / IDLE_S / len(SIDES) for part, seconds in used.items()}

    def _pair(self, number: int) -> dict[str, Figures]:
        """The figures of a block of each side; the order depends on the number."""
        return {who: self._block(self._programs[who]) for who in (SIDES if number % 2 else reversed(SIDES))}

    def _compiled(self, pair: dict[str, Figures]) -> float:
        """The part of its CPU that the compiler had."""
        compiled, used = (
            sum(figures[name] for figures in pair.values())
            for name in (f"{COMPILER}: {self._size.unit}", self._size.unit)
        )
        return compiled / used

    def stop(self, blocks: int) -> dict[str, float]:
        """Stop both. The median time in ms of the micro-batches of these last blocks, or of the last 100."""
        batches = blocks * (self._records // self._size.most if self._size.most else 1)
        names = {program.name: who for who, program in self._programs.items()}
        found: dict[str, list[float]] = {who: [] for who in SIDES}
        for row in self._contender.stop():
            found[names[row["name"]]].append(float(row["durationMs"]["triggerExecution"]))
        return {who: statistics.median(times[-batches:]) for who, times in found.items()}

    def _block(self, program: Program) -> Figures:
        size, broker, contender = self._size, self._stage.broker, self._contender
        with contender.paused():
            if not size.most:
                self._stage.send(program.source, self._rows)
            else:
                self._stage.send_few(program.source, size.most, self._records // size.most)
            before, broker_before, begin = contender.cpu_parts(), broker.cpu_seconds(), time.perf_counter()
        self._stage.wait_until_committed(program, contender)
        seconds = time.perf_counter() - begin
        time.sleep(AFTER_S)
        parts = spent(before, contender.cpu_parts())
        for part, idle in self._idle.items():
            parts[part] -= idle * (seconds + AFTER_S)
        each = size.factor / self._records
        return {
            size.unit: sum(parts.values()) * each, RATE: self._records / seconds,
            **{f"{part}: {size.unit}": used * each for part, used in parts.items()},
            f"{BROKER}: {size.unit}": (broker.cpu_seconds() - broker_before) * each,
        }  # fmt: skip
