"""The races between Python's clients: same broker, same records, each run in an interpreter of its own, in turn.

CPU is the whole client process's, all of its threads, from after the imports to the end; a million records of 100 B
unless the race says otherwise. Reading takes the topic whole, through a new group.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
import uuid
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.brokers import Broker
from benchmarks.contenders.task import Task
from benchmarks.races import fill
from benchmarks.wire import DEADLINE_S, Figures, new_topic

MODULES = {
    "Ottla": "ottla",
    "confluent-kafka": "confluent",
    "aiokafka": "aiokafka_",
    "kafka-python": "kafka_python",
    "confluent-kafka, consume(500)": "confluent",
    "confluent-kafka, produce_batch": "confluent",
}
# A contender's other way to do a race.
TASKS = {"confluent-kafka, consume(500)": "poll-many", "confluent-kafka, produce_batch": "send-many"}
TABLES = ("Ottla", "confluent-kafka", "confluent-kafka, produce_batch")
ALL = ("Ottla", "confluent-kafka", "aiokafka", "kafka-python")
# The share of a race that a slow client runs; the figures are per record.
SHARE = {"kafka-python": 0.1, "aiokafka": 0.3}
SHARE_OF_TABLES = {"confluent-kafka": 0.25, "confluent-kafka, produce_batch": 0.25}
# A race of fewer shows little but its start.
# Installed packages have bytecode. A checkout must be able to write it, or each run compiles the source again.
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
LEAST = {"memory": 300, "single": 3_000, "send-batch": 2_000_000, "poll-arrow": 1_000_000, "cold": 1}


@dataclass(frozen=True)
class Race:
    """One race: `task` names the contender's function, `aims` what Ottla's figure over confluent-kafka's may be."""

    title: str
    task: str
    contenders: tuple[str, ...]
    count: int
    size: int
    aims: dict[str, float]
    partitions: int = 6
    reads: bool = False
    keyed: bool = False


RACES: dict[str, Race] = {
    "send": Race(
        "send(), one call a record, every delivery checked", "send", ALL, 1_000_000, 100, {"CPU s per million": 0.5}
    ),
    "send-batch": Race(
        "send_batch() of Arrow tables; confluent-kafka: a call a record, and produce_batch() of 10,000",
        "send-batch", TABLES, 4_000_000, 100, {"CPU s per million": 0.1},
    ),
    "send-batch-keyed": Race(
        "the same with keys",
        "send-batch", TABLES, 4_000_000, 100, {"CPU s per million": 0.1}, keyed=True,
    ),
    "poll": Race(
        "poll() to records, key and value read",
        "poll", (*ALL, "confluent-kafka, consume(500)"), 1_000_000, 100, {"CPU s per million": 0.5}, reads=True,
    ),
    "poll-arrow": Race(
        "poll_arrow(); confluent-kafka: consume() and build the Arrow table",
        "poll-arrow", ("Ottla", "confluent-kafka"), 2_000_000, 100, {"CPU s per million": 0.1}, reads=True,
    ),
    "single-send": Race(
        "one send() at a time, each waited for, acks=1", "single", ALL, 5_000, 100, {"p50 us": 1.0, "p99 us": 1.0}, 1
    ),
    "cold": Race(
        "import, connect, and the first record delivered; the whole process",
        "cold", ALL, 1, 100, {"seconds": 1.0, "CPU seconds": 1.0}, 1,
    ),
    "memory-client": Race(
        "reading 1 MB records from 100 partitions", "memory", ALL, 1_000, 1_000_000, {"peak MB": 1.0}, 100, reads=True
    ),
}  # fmt: skip


def run_race(
    name: str, race: Race, broker: Broker, rounds: int, scale: float, console: Console
) -> dict[str, dict[str, Figures]]:
    """Run it and print its table; the figures by contender."""
    topic = new_topic(broker, race.partitions)
    count = max(min(race.count, LEAST.get(race.task, 500_000)), int(race.count * scale))
    if race.reads:
        fill(broker, topic, count, race.size, "1")
    found: dict[str, list[Figures]] = {contender: [] for contender in race.contenders}
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(name, total=rounds * len(race.contenders))
        for _ in range(rounds):
            for contender in race.contenders:
                share = (SHARE_OF_TABLES if race.task == "send-batch" else SHARE).get(contender, 1.0)
                if race.task in ("memory", "single"):
                    share = 1.0
                found[contender].append(_one_run(race, contender, broker, topic, max(1, int(count * share))))
                progress.advance(bar)
    medians = {
        contender: {figure: statistics.median(each[figure] for each in runs) for figure in runs[0]}
        for contender, runs in found.items()
    }
    _print(name, race, medians, console)
    return {name: medians}


def _one_run(race: Race, contender: str, broker: Broker, topic: str, count: int) -> Figures:
    task_name = TASKS.get(contender, race.task)
    group = f"group-{uuid.uuid4().hex[:8]}"
    task = Task(task_name, broker.bootstrap, topic, count, race.size, group, keyed=race.keyed)
    module = f"benchmarks.contenders.{MODULES[contender]}"
    start = time.perf_counter()
    before = _children_cpu()
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(asdict(task))],
        capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    seconds, used = time.perf_counter() - start, _children_cpu() - before
    if done.returncode:
        raise RuntimeError(f"{contender} failed in this race: {done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    if race.task == "cold":
        return {"seconds": seconds, "CPU seconds": used, "peak MB": figures["peak MB"]}
    return figures


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _print(name: str, race: Race, medians: dict[str, Figures], console: Console) -> None:
    table = Table(title=f"{name}: {race.title}", title_justify="left")
    table.add_column("client")
    shown = [figure for figure in medians["Ottla"] if figure != "start CPU s"]
    for figure in shown:
        table.add_column(figure, justify="right")
    for contender, figures in medians.items():
        table.add_row(contender, *(_text(figures[figure]) for figure in shown))
    console.print(table)
    for figure, aim in race.aims.items():
        ratio = medians["Ottla"][figure] / medians["confluent-kafka"][figure]
        colour = "green" if ratio <= aim else "red"
        console.print(f"  {figure}: [{colour}]{ratio:.2f}[/] of confluent-kafka's (aim: at most {aim:g})")
        for contender in TASKS.keys() & medians.keys():
            ratio = medians["Ottla"][figure] / medians[contender][figure]
            console.print(f"  {figure}: {ratio:.2f} of {contender}")


def _text(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
