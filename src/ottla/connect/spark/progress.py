"""Facts about a query for reports, from Spark's progress. Without I/O and Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ottla.spark.offsets import PositionsError, positions


def facts_of(report: Mapping[str, Any]) -> dict[str, object]:
    """Return facts about the last micro-batch; `report` is Spark's progress as JSON."""
    duration_ms = int(report.get("batchDuration", 0))
    rows = int(report.get("numInputRows", 0))
    facts: dict[str, object] = {
        "batch": int(report["batchId"]),
        "rows": rows,
        "rows per second": round(rows * 1000 / max(1, duration_ms), 1),
        "batch duration ms": duration_ms,
    }
    phases = {name: ms for name, ms in report.get("durationMs", {}).items() if name != "triggerExecution"}
    if phases:
        slowest = max(phases, key=lambda name: phases[name])
        facts["slowest phase"] = f"{slowest}: {phases[slowest]} ms"
    behind = _lag(report)
    if behind is not None:
        facts["lag"] = behind
    return facts


def _lag(report: Mapping[str, Any]) -> int | None:
    """Return how many offsets the query is behind its topics; None if no source is a topic."""
    found: int | None = None
    for source in report.get("sources", ()):
        try:
            done, latest = (positions(_parsed(source.get(name))) for name in ("endOffset", "latestOffset"))
        except (PositionsError, ValueError):
            continue  # the offsets of another source
        found = (found or 0) + sum(max(0, end - done.get(tp, end)) for tp, end in latest.items())
    return found


def end_offset(report: Mapping[str, Any]) -> str:
    """Return where the sources go on, as JSON."""
    ends = [source.get("endOffset") for source in report.get("sources", ())]
    return json.dumps(ends[0] if len(ends) == 1 else ends, separators=(",", ":"))


def _parsed(given: Any) -> Any:
    return json.loads(given) if isinstance(given, str) else given


def wait_of(status: Mapping[str, Any]) -> str:
    """Return what a query without a running batch waits for; `status` is Spark's."""
    if status.get("isTriggerActive") and status.get("isDataAvailable"):
        return ""
    message = str(status.get("message", ""))
    if "Waiting for" in message or not status.get("isDataAvailable"):
        return "The query waits for records or for its next trigger."
    return ""
