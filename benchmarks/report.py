"""Writes the tables of docs/performance-races.md and the summaries of docs/performance.md from stored results.

Only the text between a table's marks is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import races, results, spark

DOCS = Path(__file__).parent.parent / "docs"
PAGE, SUMMARY = DOCS / "performance-races.md", DOCS / "performance.md"
BEGIN, END = "<!-- races: written by `python -m benchmarks --docs` -->\n", "<!-- end of races -->\n"
# The rows of the summaries: what is measured, then the race and its figure.
BROKER_ROWS = (
    ("1 KB records produced: MB/s", "produce-1k", "MB/s"),
    ("1 KB records produced: MB for each CPU-second", "produce-1k", "MB per broker-CPU-second"),
    ("1 KB records consumed: MB/s", "consume", "MB/s"),
    ("1 KB records consumed: MB for each CPU-second", "consume", "MB per broker-CPU-second"),
    ("one 100 B record at a time: p50 ms", "single", "p50 ms"),
    ("one 100 B record at a time: p99 ms", "single", "p99 ms"),
    ("small requests, 8 connections: for each CPU-second", "pipelined-8", "requests per broker-CPU-second"),
    ("200 idle consumers: % of a core", "idle", "% of a core"),
    ("100 members join a group: seconds", "groups", "seconds"),
    ("start to the first acknowledged record: seconds", "start", "seconds"),
    ("start after kill -9 with 2 GB: seconds", "restart", "seconds"),
    ("start with 10,000 partitions: seconds", "many", "seconds to start with them"),
    ("memory of a fresh broker: MB", "memory", "resident MB after the start"),
    ("memory with 10,000 partitions: MB", "many", "resident MB with 10,000 partitions"),
    ("fetch at the end of a log of 50 GB: p99 ms", "flat", "fetch p99 ms, 50 GB"),
)
SPARK_ROWS = (
    ("batch read of 300 B rows: rows/s", "spark-read", "rows/s"),
    ("streaming read: rows/s", "spark-stream-read", "rows/s"),
    ("batch read to Arrow on the driver: rows/s", "spark-arrow", "rows/s"),
    ("typed columns of JSON, against `from_json`: rows/s", "spark-json", "rows/s"),
    ("typed columns of Avro, against `from_avro`: rows/s", "spark-avro", "rows/s"),
    ("batch write of 100 B rows: rows/s", "spark-write", "rows/s"),
    ("streaming write, 500,000 rows a micro-batch: rows/s", "spark-stream-write", "rows/s"),
    ("micro-batch of ten records: ms", "spark-tiny", "ms"),
    ("streaming read of 1 MB records: peak MB", "spark-large", "peak MB"),
    ("streaming read of 1,000 partitions: peak MB", "spark-wide", "peak MB"),
)
Aims = Mapping[str, tuple[str, Mapping[str, float], Mapping[str, float]]]
"""A race's title, its aims by figure, and what figures of Ottla itself may be at most."""


def update(
    stored: Path = results.LAST, page: Path = PAGE, summary: Path = SUMMARY, spark_stored: Path = results.SPARK
) -> None:
    """Rewrite the tables from the results in these files; raises ValueError if a page lacks a table's marks."""
    brokers = {name: (race.title, race.aims, race.limits) for name, race in races.RACES.items()}
    spark_races: Aims = {name: (race.title, race.aims, {}) for name, race in spark.RACES.items()}
    both = (
        ("races", stored, brokers, BROKER_ROWS, ("kafka", "Kafka")),
        ("races on Spark", spark_stored, spark_races, SPARK_ROWS, (spark.PEER, spark.PEER)),
    )
    for title, file, races_of, rows, peer in both:
        if file.exists():
            found = json.loads(file.read_text())
            _replace(page, title, table(found, races_of, peer))
            _replace(summary, f"summary of {title}", summary_table(found["races"], rows, peer))


def _replace(page: Path, title: str, new: str) -> None:
    """Replace what is between the marks of a table."""
    marks = BEGIN.replace("races", title, 1), END.replace("races", title, 1)
    text = page.read_text()
    head, begin, rest = text.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{page} lacks {marks[0].strip()} or {marks[1].strip()}")
    page.write_text(f"{head}{begin}\n{new}\n{end}{tail}")


def summary_table(found: Mapping[str, Any], rows: Iterable[tuple[str, str, str]], peer: tuple[str, str]) -> str:
    """The rows whose races were run, in Markdown."""
    key, heading = peer
    lines = [f"| | Ottla | {heading} | Ratio |", "|---|---:|---:|---:|"]
    for title, race, figure in rows:
        row = found.get(race, {}).get(figure)
        if row is not None:
            lines.append(f"| {title} | {_text(row['ottla'])} | {_text(row[key])} | {row['ratio']:.2g} |")
    return "\n".join(lines) + "\n"


def table(found: Mapping[str, Any], races_of: Aims, peer: tuple[str, str]) -> str:
    """Conditions and figures, in Markdown; ratios that miss their aim are bold. `peer`: its key and its heading."""
    key, heading = peer
    lines = ["; ".join(f"{name}: {value}" for name, value in found["conditions"].items()) + ".", ""]
    lines += [f"| Race | Figure | Ottla | {heading} | Ottla / {heading} | Aim |", "|---|---|---:|---:|---:|---:|"]
    for name, (title, aims, limits) in races_of.items():
        first = f"**{name}**: {title}"
        for figure, row in found["races"].get(name, {}).items():
            ratio = _ratio(aims.get(figure), limits.get(figure), figure, row)
            figures = f"{_text(row['ottla'])} | {_text(row[key])} | {ratio}"
            lines.append(f"| {first} | {figure} | {figures} |")
            first = ""
    return "\n".join(lines) + "\n"


def _ratio(aim: float | None, limit: float | None, figure: str, row: Mapping[str, float]) -> str:
    ratio = row.get("ratio")
    shown = "-" if ratio is None else f"{ratio:.3g}"
    if limit is not None:
        return f"{shown} | {'' if row['ottla'] <= limit else 'missed: '}Ottla's own ≤ {limit:g}"
    if aim is None:
        return f"{shown} | "
    if ratio is not None and not results.reaches(figure, ratio, aim):
        shown = f"**{shown}**"
    return f"{shown} | {'≥' if results.more_is_better(figure) else '≤'} {aim:g}"


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
