"""The file connectors on a real broker: at least once, exactly once, and back into a file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.connect import ConnectWorker
from ottla.testing.waiting import wait_until

FILE_SOURCE = {
    "name": "lines",
    "connector.class": "FileStreamSource",
    "topic": "lines",
    "value.converter": "StringConverter",
}


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_lines_arrive_once_across_a_restart(ottla: Any, tmp_path: Path, support: str) -> None:
    path = tmp_path / "input.txt"
    path.write_text("a\nb\r\nü\n")
    topic, offsets = ottla.topic(), ottla.topic(cleanup_policy="compact")
    settings = {"exactly.once.source.support": support, "offset.storage.topic": offsets}
    config = {**FILE_SOURCE, "topic": topic, "file": str(path)}
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        assert [each.value for each in ottla.consume(topic, 3)] == [b"a", b"b", "ü".encode()]
    with path.open("a") as file:
        file.write("d\n")
    with ConnectWorker(ottla.bootstrap, settings) as worker:
        worker.start(config)
        assert [each.value for each in ottla.consume(topic, 1)] == [b"d"]
        offsets_of = partial(worker.runtime.offsets, "lines", config)
        wait_until(lambda: [each.offset for each in worker.call(offsets_of())] == [{"position": 10}], what="offsets")
        assert [each.partition for each in worker.call(offsets_of())] == [{"filename": str(path)}]
        assert worker.listener.topics == {topic}


def test_sink_writes_lines_and_commits(ottla: Any, tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    topic = ottla.topic(partitions=2)
    config = {
        "name": "out",
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": str(path),
        "value.converter": "StringConverter",
    }
    for number in range(10):
        ottla.produce(topic, f"line {number}".encode())
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        wait_until(lambda: path.exists() and len(path.read_text().splitlines()) == 10, what="lines")
        offsets_of = partial(worker.runtime.offsets, "out", config)
        wait_until(lambda: sum(each.offset["kafka_offset"] for each in worker.call(offsets_of())) == 10, what="offsets")
    with ConnectWorker(ottla.bootstrap) as worker:
        worker.start(config)
        ottla.produce(topic, b"last")
        wait_until(lambda: "last" in path.read_text(), what="the last line")
    assert sorted(path.read_text().splitlines()) == sorted([f"line {number}" for number in range(10)] + ["last"])
