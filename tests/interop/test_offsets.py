"""kafka-get-offsets and kafka-delete-records: where a partition begins and ends."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from .conftest import Tools

pytestmark = [pytest.mark.jvm, pytest.mark.both]


def offsets(tools: Tools, topic: str, *options: object) -> list[int]:
    """A topic's offsets by partition; partitions without an answer are omitted."""
    lines = tools.ok("get-offsets", "--topic", topic, *options).split()
    assert [line.rsplit(":", 2)[0] for line in lines] == [topic] * len(lines)
    return [int(line.rsplit(":", 1)[1]) for line in sorted(lines)]


def delete_before(tools: Tools, folder: Path, topic: str, offset: int) -> str:
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": offset}]}
    request = folder / "delete-records.json"
    request.write_text(json.dumps(wanted))
    return tools.ok("delete-records", "--offset-json-file", request)


def test_latest_and_earliest(tools: Tools, name: str) -> None:
    tools.create_topic(name, partitions=3)
    tools.produce(name, [f"key-{i}\t{i}" for i in range(30)])
    assert sum(offsets(tools, name)) == 30
    assert offsets(tools, name, "--time", "earliest") == [0, 0, 0]
    assert sum(offsets(tools, name, "--time", "latest")) == 30


def test_offset_by_time_is_the_first_record_not_older(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    tools.produce(name, ["a\t1", "b\t2"])
    time.sleep(0.02)
    between = int(time.time() * 1000)
    time.sleep(0.02)
    tools.produce(name, ["c\t3"])
    assert offsets(tools, name, "--time", between) == [2]
    assert offsets(tools, name, "--time", 0) == [0]
    assert offsets(tools, name, "--time", between + 3_600_000) == []
    assert offsets(tools, name, "--time", "max-timestamp") == [2]


def test_offsets_with_no_tiered_storage(tools: Tools, name: str) -> None:
    tools.create_topic(name)
    tools.produce(name, ["a\t1"])
    assert offsets(tools, name, "--time", "earliest-local") == [0]
    assert offsets(tools, name, "--time", "latest-tiered") == []


def test_offsets_of_an_unknown_topic(tools: Tools, name: str) -> None:
    assert "Could not match any topic-partitions" in tools.fails("get-offsets", "--topic", name)


def test_readers_do_not_see_deleted_records(tools: Tools, name: str, tmp_path: Path) -> None:
    tools.create_topic(name)
    tools.produce(name, [f"k\t{i}" for i in range(10)])
    assert f"partition: {name}-0\tlow_watermark: 4" in delete_before(tools, tmp_path, name, 4)
    assert offsets(tools, name, "--time", "earliest") == [4]
    assert tools.consume(name, 6) == [f"k\t{i}" for i in range(4, 10)]

    assert "low_watermark: 10" in delete_before(tools, tmp_path, name, -1)
    assert offsets(tools, name, "--time", "earliest") == [10]


def test_deleting_past_the_end_is_refused(tools: Tools, name: str, tmp_path: Path) -> None:
    tools.create_topic(name)
    tools.produce(name, ["k\tv"])
    assert "OffsetOutOfRangeException" in delete_before(tools, tmp_path, name, 100)
    assert offsets(tools, name, "--time", "earliest") == [0]
