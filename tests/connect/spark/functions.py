"""Connectors for tests, as functions that both runtimes run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ottla.connect import Batch, SinkRecord, sink, source


@source(
    "pages",
    config={"pages": 3, "rows": 5, "file": "", "fail_at": -1},
    partitions=lambda config: [f"part-{each}" for each in range(2)],
    key="id",
    wait_s=0.2,
)
def pages(config: Any, part: str, after: int | None, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Return the rows of one page of a part; with `file`, other rows each time."""
    page = after or 0
    if page >= config.pages:
        return [], page
    if page == config.fail_at:
        raise ValueError(f"page {page} of {part} is broken")
    calls = 0
    if config.file:
        path = Path(f"{config.file}-{part}")
        calls = int(path.read_text()) if path.exists() else 0
        path.write_text(str(calls + 1))
    rows = [{"id": f"{part}/{page * config.rows + each}", "page": page, "call": calls} for each in range(config.rows)]
    return rows, page + 1


@sink("lines", config={"file": str, "fail_at": -1})
def lines(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
    """Append each record to the file of its partition."""
    with Path(f"{config.file}-{batch.partition}").open("a") as file:
        for each in rows:
            if each.original_offset == config.fail_at:
                raise ValueError(f"no space for {batch}")
            headers = [(name, str(value)) for name, value, _ in each.headers]
            row = [each.original_partition, each.original_offset, each.key, each.value, headers, each.timestamp]
            file.write(json.dumps(row) + "\n")


def _resume(config: Any, topic: str, partition: int) -> int | None:
    path = Path(f"{config.file}-{partition}")
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return max((row[1] + 1 for row in rows), default=None)


@sink("once", config={"file": str}, resume=_resume)
def once(config: Any, rows: list[SinkRecord], batch: Batch) -> None:
    """Append each record to the file of its partition, which has the offsets too."""
    with Path(f"{config.file}-{batch.partition}").open("a") as file:
        file.writelines(json.dumps([each.original_partition, each.original_offset]) + "\n" for each in rows)
