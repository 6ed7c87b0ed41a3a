"""Runs the races: brokers (Ottla and stock Kafka in turn, same client), and Python's clients.

    python -m benchmarks [RACE ...] [--rounds N] [--quick]     also: brokers, clients for all races of a kind

Each race warms both brokers up, then alternates them for some rounds and prints the median of each, with the ratio.
CPU is the broker process's own (user and system), the client excluded. Nothing here is a test: figures depend on the
machine, ratios much less.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import clients
from benchmarks.brokers import Broker, start_kafka, start_ottla
from benchmarks.races import RACES, TWICE
from benchmarks.wire import Figures

console = Console()


def main() -> None:
    """Run the races that were asked for."""
    names = [*RACES, *clients.RACES]
    kinds = {"brokers": list(RACES), "clients": list(clients.RACES)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="*", metavar="RACE", help="default: all; the names: " + ", ".join(names))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    arguments = parser.parse_args()
    chosen = [name for race in arguments.races or names for name in kinds.get(race, [race])]
    unknown = [race for race in chosen if race not in names]
    if unknown:
        parser.error(f"no such race: {', '.join(unknown)}; there are: {', '.join(names)}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
    scale = 0.1 if arguments.quick else 1.0
    console.print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, librdkafka {version('confluent-kafka')}, "
        f"stock Kafka 4.3 with a heap of 1 GiB; flush as by default (none); {arguments.rounds} rounds, medians"
    )
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        home = Path(directory)
        with start_ottla(home / "ottla") as ottla:
            for name in chosen:
                if name in clients.RACES:
                    clients.run_race(name, clients.RACES[name], ottla, arguments.rounds, scale, console)
        between_brokers = [name for name in chosen if name in RACES]
        if between_brokers:
            with start_ottla(home / "ottla2") as ottla, start_kafka(home / "kafka") as kafka:
                for name in between_brokers:
                    run_race(name, RACES[name], [ottla, kafka], arguments.rounds, scale)


def run_race(
    name: str, race: Callable[[Broker, float], Figures], brokers: list[Broker], rounds: int, scale: float
) -> None:
    """One warm-up each, then the brokers in turn."""
    found: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
    if name in TWICE:
        rounds = min(rounds, 2)
    else:
        for broker in brokers:
            race(broker, scale)
    for _ in range(rounds):
        for broker in brokers:
            found[broker.name].append(race(broker, scale))
    table = Table(title=f"{name}: {(race.__doc__ or '').splitlines()[0]}", title_justify="left")
    for heading in ("figure", "Ottla", "Kafka", "ratio"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure in found["ottla"][0]:
        ours, theirs = (statistics.median(each[figure] for each in found[broker.name]) for broker in brokers)
        table.add_row(figure, f"{ours:,.2f}", f"{theirs:,.2f}", f"{ours / theirs:.2f}" if theirs else "-")
    console.print(table)


if __name__ == "__main__":
    main()
