"""Batches of text take a short way through connectors and converters: with the same bytes, offsets and files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.consumer.record import record_class
from ottla.connect import data
from ottla.connect.api import Config, SinkTask, SinkTaskContext, SourceTask, SourceTaskContext, TopicPartition
from ottla.connect.connectors.file_stream import FileStreamSinkTask, FileStreamSourceTask
from ottla.connect.connectors.files.sink import FilesSinkTask
from ottla.connect.connectors.files.source import FilesSourceTask
from ottla.connect.converters.api import Converter
from ottla.connect.converters.json import JsonConverter
from ottla.connect.converters.json_encoder import dumps, dumps_lines
from ottla.connect.converters.simple import ByteArrayConverter, StringConverter
from ottla.connect.records import EncodedBatch, PlainRecords, SinkRecord

LINES = b'plain\n\ncarriage\rreturn\r\nG\xc3\xb6teborg\n\xff broken \xc3\nquoted "a","b"\n\x1f\n'
VALUES = [b"plain", b"", "Göteborg".encode(), b"\xff broken \xc3", b'","', b"\x1f", b"a\nb", b'\\",\n,"'] * 3


def text_converters(encoding: str = "UTF-8") -> tuple[Converter, Converter]:
    converter = StringConverter()
    converter.configure({"converter.encoding": encoding}, is_key=False)
    return converter, converter


@contextmanager
def started(
    make: type[SourceTask], config: Config, converters: tuple[Converter, Converter] | None, offset: Any = None
) -> Iterator[SourceTask]:
    task = make()
    task.start(SourceTaskContext("c", 0, lambda _: offset, lambda: False, lambda _: None, converters), config)
    yield task
    task.stop()


def polled(
    make: type[SourceTask], config: Config, converters: tuple[Converter, Converter] | None, offset: Any = None
) -> list[tuple[list[bytes], Any]]:
    """Return the values of each poll in bytes, and the offset after them."""
    found = []
    with started(make, config, converters, offset) as task:
        while records := task.poll():
            if type(records[0]) is EncodedBatch:
                assert len(records) == 1
                found.append((list(records[0].value), records[0].source_offset))
            else:
                found.append(([each.value.encode() for each in records], records[-1].source_offset))
    return found


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "lines.txt").write_bytes(LINES)
    return {"topic": "t", "file": str(tmp_path / "lines.txt"), "path": str(tmp_path), "batch.size": "2"}


@pytest.mark.parametrize("make", [FileStreamSourceTask, FilesSourceTask])
def test_batches_have_the_values_and_offsets_of_single_records(make: type[SourceTask], config: Config) -> None:
    batches = polled(make, config, text_converters())
    assert batches == polled(make, config, None)
    assert [len(values) for values, _ in batches][:-1] == [2] * (len(batches) - 1)
    for number, (_, offset) in enumerate(batches, 1):
        assert polled(make, config, text_converters(), offset) == batches[number:]


@pytest.mark.parametrize("make", [FileStreamSourceTask, FilesSourceTask])
@pytest.mark.parametrize("value", [JsonConverter(), text_converters("UTF-16")[0], ByteArrayConverter()])
def test_other_converters_get_single_records(make: type[SourceTask], value: Converter, config: Config) -> None:
    with started(make, config, (text_converters()[0], value)) as task:
        found = task.poll()
    assert found
    assert not any(isinstance(each, EncodedBatch) for each in found)


def sink_record(raw: Any, *, is_text: bool) -> SinkRecord:
    value = raw.value.decode(errors="replace") if is_text and raw.value is not None else raw.value
    schema = data.OPTIONAL_STRING if is_text else data.OPTIONAL_BYTES
    return SinkRecord(
        "t", raw.partition, None, None, schema, value, 0, [], raw.offset, "", "t", raw.partition, raw.offset
    )


def plain(raw: list[Any], *, is_text: bool) -> PlainRecords:
    return PlainRecords(raw, lambda each: sink_record(each, is_text=is_text), is_text=is_text)


def written(make: type[SinkTask], config: Config, polls: list[Any], out: Path) -> dict[str, bytes]:
    """Return the files of a sink by name."""
    rejected: list[Any] = []
    task, now_s = make(), 0.0
    task.clock = lambda: now_s  # type: ignore[attr-defined]
    context = SinkTaskContext("c", 0, lambda _: None, lambda r, e: rejected.append(e), lambda: False, lambda _: None)
    task.start(context, config)
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    task.open(partitions)
    for each in polls:
        task.put(each)
    now_s = 1.0
    task.flush(dict.fromkeys(partitions, 100))
    task.stop()
    return {str(each.relative_to(out)): each.read_bytes() for each in out.rglob("*") if each.is_file()}


def polls_of(values: list[bytes | None], size: int, *, has_two: bool) -> list[list[Any]]:
    """Return records in polls, of one or two partitions."""
    records = [
        record_class("t", number % 5 % (1 + has_two))(number, 0, None, each, []) for number, each in enumerate(values)
    ]
    return [sorted(records[start : start + size], key=lambda r: r.partition) for start in range(0, len(records), size)]


@pytest.mark.parametrize("values", [VALUES, [*VALUES[:4], None, *VALUES[4:]]], ids=["values", "null"])
@pytest.mark.parametrize("has_two", [False, True], ids=["one partition", "two partitions"])
@pytest.mark.parametrize(
    ("make", "is_text", "more"),
    [
        (FileStreamSinkTask, True, {}),
        (FilesSinkTask, True, {"format": "jsonl"}),
        (FilesSinkTask, False, {"format": "jsonl"}),
        (FilesSinkTask, True, {"format": "jsonl", "include.kafka.metadata": "true"}),
        (FilesSinkTask, True, {"format": "jsonl", "partition.by.time": "%Y"}),
        (FilesSinkTask, True, {"format": "parquet"}),
        (FilesSinkTask, False, {"format": "parquet"}),
    ],
)
def test_sinks_write_the_same_files_from_plain_records(
    make: type[SinkTask], more: Config, values: list[bytes | None], tmp_path: Path, *, is_text: bool, has_two: bool
) -> None:
    polls = polls_of(values, 4, has_two=has_two)
    found = []
    for name in ("plain", "single"):
        out = tmp_path / name
        out.mkdir()
        config = {"path": str(out), "file": str(out / "f"), "flush.size": "9", "rotate.interval.ms": "1", **more}
        each = [plain(raw, is_text=is_text) for raw in polls]
        found.append(written(make, config, each if name == "plain" else [list(records) for records in each], out))
    assert found[0] == found[1]
    assert found[0]


def test_plain_records_are_created_once_and_only_if_they_are_needed() -> None:
    created: list[int] = []

    def convert(raw: Any) -> SinkRecord:
        created.append(raw.offset)
        return sink_record(raw, is_text=True)

    records = PlainRecords(polls_of(list(VALUES[:3]), 3, has_two=False)[0], convert, is_text=True)
    assert (len(records), records.valid_values(), created) == (3, VALUES[:3], [])
    assert records[0] is records[0]
    assert [each.value for each in records] == ["plain", "", "Göteborg"]
    assert created == [0, 1, 2]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(['","', '",\n,"', "\\", "\x1f"]), min_size=1
    )
)
def test_lines_of_json_are_the_json_of_each_text(texts: list[str]) -> None:
    assert dumps_lines(texts) == b"\n".join(map(dumps, texts))
