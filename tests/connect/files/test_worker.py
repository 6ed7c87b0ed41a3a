"""The file connectors in a worker on a real broker: files to a topic and back, exactly once across a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ottla.testing.connect import ConnectWorker
from ottla.testing.waiting import wait_until

JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}


def rows(directory: Path) -> list[int]:
    lines = [line for file in directory.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["id"] for line in lines)


def test_files_to_a_topic_and_back(ottla: Any, tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    topic, offsets = ottla.topic(partitions=2), ottla.topic(cleanup_policy="compact")
    settings = {"exactly.once.source.support": "enabled", "offset.storage.topic": offsets}
    reading = {"name": "in", "connector.class": "files", "path": str(source), "format": "jsonl", "topic": topic, **JSON}
    writing = {
        "name": "out",
        "connector.class": "files-sink",
        "topics": topic,
        "path": str(sink),
        "rotate.interval.ms": "1",
        "consumer.override.isolation.level": "read_committed",
        **JSON,
    }
    for part in range(2):
        (source / f"{part}").write_text("".join(f'{{"id": {part * 500 + each}}}\n' for each in range(500)))
        with ConnectWorker(ottla.bootstrap, settings) as worker:
            worker.start(reading)
            worker.start(writing)
            wait_until(lambda count=(part + 1) * 500: len(rows(sink)) >= count, what="rows")
    assert rows(sink) == list(range(1000))
