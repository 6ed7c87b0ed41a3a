"""Runs the races: brokers (Ottla and stock Kafka in turn, same client), Python's clients, and Spark's connectors.

    python -m benchmarks [RACE ...] [--rounds N] [--quick]     also: brokers (as if none is named), clients, spark
    python -m benchmarks --quick --check                       fails if a ratio is worse than the last one kept
    python -m benchmarks --json benchmarks/last.json --docs    keeps them, and writes the tables of the docs
    python -m benchmarks spark --json benchmarks/spark.json --docs    the same for those on Spark

Each race warms both brokers up, then alternates them for some rounds and prints the median of each, with the ratio and,
where there is one, what the ratio is to reach. CPU is the broker process's own (user and system), the client excluded.
Nothing here is a test: figures depend on the machine, ratios much less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import clients, report, results, spark
from benchmarks.brokers import Broker, start_kafka, start_ottla
from benchmarks.races import RACES, Race
from benchmarks.wire import Figures

console = Console()


def main() -> int:
    """Run the races that were asked for; the exit code."""
    names = [*RACES, *clients.RACES, *spark.RACES]
    brokers = [name for name, race in RACES.items() if not race.by_name]
    kinds = {"brokers": brokers, "clients": list(clients.RACES), "spark": list(spark.RACES)}
    arguments = _arguments(names)
    chosen = [name for race in arguments.races or ["brokers"] for name in kinds.get(race, [race])]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
    scale = 0.1 if arguments.quick else 1.0
    conditions = results.conditions(arguments.rounds, scale)
    console.print("; ".join(f"{name}: {value}" for name, value in conditions.items()), highlight=False)
    found: results.Results = {}
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
            home = Path(directory)
            _race_clients([name for name in chosen if name in clients.RACES], home, arguments.rounds, scale, found)
            on_spark = [name for name in chosen if name in spark.RACES]
            _race_spark(on_spark, home, arguments.rounds, arguments.warm_ups, scale, found)
            _race_brokers([name for name in chosen if name in RACES], home, arguments.rounds, scale, found)
    finally:  # what was found is kept, also if a later race fails
        worse = results.regressions(found, results.last_results()) if arguments.check else []
        if arguments.json is not None and found:
            results.write(arguments.json, found, conditions)
    console.print(f"{time.monotonic() - begin:.0f} seconds in all")
    if arguments.docs:
        report.update()
    for line in worse:
        console.print(f"[red]worse than last time:[/] {line}")
    return 1 if worse else 0


def _arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "races",
        nargs="*",
        metavar="RACE",
        help="default: brokers, all but segments and restart-small, in a quarter of an hour; clients takes four "
        "minutes more, spark another quarter; the names: " + ", ".join(names),
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--warm-ups", type=int, default=spark.WARM_UPS, help="of races on Spark: runs that are not counted, at most"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures, ratios and conditions there")
    parser.add_argument(
        "--docs",
        action="store_true",
        help=f"write the tables of docs/performance-races.md from {results.LAST.name} and {results.SPARK.name}",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"exit code 1 if a ratio is worse than in {results.LAST.name} by more than {results.TOLERANCE}",
    )
    arguments = parser.parse_args()
    unknown = [race for race in arguments.races if race not in (*names, "brokers", "clients", "spark")]
    if unknown:
        parser.error(f"no such race: {', '.join(unknown)}; there are: {', '.join(names)}")
    return arguments


def _race_clients(names: list[str], home: Path, rounds: int, scale: float, found: results.Results) -> None:
    if not names:
        return
    with start_ottla(home / "ottla") as ottla:
        for name in names:
            medians = clients.run_race(name, clients.RACES[name], ottla, rounds, scale, console)[name]
            peer = "confluent-kafka"
            found[name] = results.compared(medians["Ottla"], peer, medians[peer])


def _race_spark(names: list[str], home: Path, rounds: int, warm_ups: int, scale: float, found: results.Results) -> None:
    if not names:
        return
    with start_ottla(home / "ottla3") as ottla:
        for name, medians in spark.run_races(names, ottla, rounds, scale, console, warm_ups):
            found[name] = results.compared(medians[spark.OURS], spark.PEER, medians[spark.THEIRS])


def _race_brokers(names: list[str], home: Path, rounds: int, scale: float, found: results.Results) -> None:
    if not names:
        return
    with start_ottla(home / "ottla2") as ottla, start_kafka(home / "kafka") as kafka:
        for name in names:
            found[name] = run_race(name, RACES[name], (ottla, kafka), rounds, scale)


def run_race(
    name: str, race: Race, brokers: tuple[Broker, Broker], rounds: int, scale: float
) -> dict[str, dict[str, float]]:
    """One warm-up each, then the brokers in turn; prints the medians and returns them."""
    found: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
    begin = time.monotonic()
    if not race.once:
        for broker in brokers:
            race.warm_up(broker, scale)
    for _ in range(1 if race.once else rounds):
        for broker in brokers:
            found[broker.name].append(race.run(broker, scale))
    medians = {
        who: {figure: statistics.median(each[figure] for each in runs) for figure in runs[0]}
        for who, runs in found.items()
    }
    rows = results.compared(medians["ottla"], "kafka", medians["kafka"])
    table = Table(title=f"{name}: {race.title} ({time.monotonic() - begin:.0f} s)", title_justify="left")
    for heading in ("figure", "Ottla", "Kafka", "ratio", "aim"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure, row in rows.items():
        table.add_row(figure, f"{row['ottla']:,.2f}", f"{row['kafka']:,.2f}", *_ratio(race, figure, row.get("ratio")))
    console.print(table)
    return rows


def _ratio(race: Race, figure: str, ratio: float | None) -> tuple[str, str]:
    """The ratio, coloured, and the aim."""
    aim = race.aims.get(figure)
    if figure in race.limits:
        return ("-" if ratio is None else f"{ratio:.2f}"), f"itself ≤ {race.limits[figure]:g}"
    if ratio is None:
        return "-", ""
    if aim is None:
        return f"{ratio:.2f}", ""
    colour = "green" if results.reaches(figure, ratio, aim) else "red"
    sign = "≥" if results.more_is_better(figure) else "≤"
    return f"[{colour}]{ratio:.2f}[/]", f"{sign} {aim:g}"


if __name__ == "__main__":
    sys.exit(main())
