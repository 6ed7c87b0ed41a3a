"""The file source: formats, growing files, new files, restarts, and what is deleted when."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.connect.api import SourceOffset
from ottla.connect.connectors.files.settings import SOURCE
from ottla.connect.connectors.files.source import (
    FilesSourceConnector,
    FilesSourceTask,
    glob_pattern,
    split_path,
)
from ottla.connect.connectors.files.storage import storage_of
from ottla.connect.errors import BadRequestError, DataError
from tests.connect.files.servers import S3Server
from tests.connect.tasks import Source

# One S3 server for all of them.
pytestmark = pytest.mark.xdist_group("s3")


def config_of(path: object, **more: str) -> dict[str, str]:
    given = {"path": str(path), "topic": "t", "scan.interval.ms": "1"}
    return given | {name.replace("_", "."): value for name, value in more.items()}


def values_of(source: Source, polls: int = 1) -> list[Any]:
    records = source.poll(polls)
    source.commit(records)
    return [each.value for each in records]


def old(path: Path) -> None:
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_lines_of_new_and_growing_files_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("1\n\u00fc\r\npart".encode())
    source = Source(FilesSourceTask, config_of(tmp_path))
    assert values_of(source) == ["1", "\u00fc"]
    assert values_of(source) == []
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.txt").write_text("new\n")
    assert values_of(source) == ["new"]
    with (tmp_path / "a.txt").open("a") as file:
        file.write("ial\n")
    assert values_of(source, 2) == ["partial"]
    source.start()
    assert values_of(source, 2) == []


def test_uncommitted_records_are_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{number}\n" for number in range(10)))
    source = Source(FilesSourceTask, config_of(tmp_path, batch_size="4"))
    assert values_of(source) == ["0", "1", "2", "3"]
    assert [each.value for each in source.poll()] == ["4", "5", "6", "7"]
    source.start()
    assert values_of(source, 3) == ["4", "5", "6", "7", "8", "9"]


@pytest.mark.parametrize("seed", range(3))
def test_random_appends_commits_and_restarts_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    written: dict[str, bytes] = {}
    source, got = Source(FilesSourceTask, config_of(tmp_path, batch_size="3")), list[str]()
    for _ in range(60):
        name = chance.choice("abc")
        more = b"".join(chance.choice([b"x" * chance.randrange(5), b"\n", b"\r\n", b"\xc3"]) for _ in range(8))
        written[name] = written.get(name, b"") + more
        (tmp_path / name).write_bytes(written[name])
        records = source.poll()
        if chance.random() < 0.6:
            source.commit(records)
            got += [each.value for each in records]
        else:
            source.start()
    for _ in range(300):
        got += values_of(source)
        expected = [line for text in written.values() for line in text.split(b"\n")[:-1]]
        if len(got) >= len(expected):
            break
    assert sorted(got) == sorted(line.removesuffix(b"\r").decode(errors="replace") for line in expected)


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n[2]\n')
    source = Source(FilesSourceTask, config_of(tmp_path / "*.jsonl", format="jsonl"))
    assert values_of(source) == [{"a": 1}, [2]]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\nno\n')
    with pytest.raises(DataError, match=r"b\.jsonl at 9: the line is not JSON"):
        source.poll(3)


def test_csv_rows_have_quoted_line_ends_and_wait_for_their_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id;text\n1;"a\nb"\n2;"open\n')
    config = config_of(path.parent, format="csv", csv_delimiter=";")
    source = Source(FilesSourceTask, config)
    assert values_of(source) == [{"id": "1", "text": "a\nb"}]
    with path.open("a") as file:
        file.write("still")
    source.start()
    assert values_of(source) == []
    with path.open("a") as file:
        file.write('"\n')
    records = source.poll(3)
    assert [each.value for each in records] == [{"id": "2", "text": "open\nstill"}]
    assert [each.name for each in records[0].value_schema.fields] == ["id", "text"]  # type: ignore[union-attr]
    path.write_text(path.read_text() + "3\n")
    with pytest.raises(DataError, match="the row has 1 fields, but the header has 2"):
        source.poll(3)


def test_parquet_rows_continue_within_a_file(tmp_path: Path) -> None:
    rows = [{"id": number, "tags": ["x"], "inner": {"name": str(number)}} for number in range(10_000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    config = config_of(tmp_path, format="parquet", batch_size="3000")
    source = Source(FilesSourceTask, config)
    got = values_of(source)
    source.poll()
    source.start()
    while more := values_of(source):
        got += more
    assert got == rows
    (tmp_path / "b.parquet").write_bytes(b"PAR1 half")
    assert values_of(source) == []


def test_another_file_under_an_old_name_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old 1\nold 2\n")
    source = Source(FilesSourceTask, config_of(tmp_path))
    assert len(values_of(source)) == 2
    (tmp_path / "a").write_text("new 1\nnew 2\nnew 3\n")
    source.start()
    assert values_of(source) == ["new 1", "new 2", "new 3"]


@pytest.mark.parametrize("action", ["delete", "move"])
def test_finished_files_are_freed_only_after_their_commit(tmp_path: Path, action: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1\nlast")
    source = Source(FilesSourceTask, config_of(tmp_path, after_commit=action, finished_after_ms="60000"))
    assert values_of(source) == ["1"]
    source.poll()
    assert path.exists()
    old(path)
    records = source.poll(3)
    assert [each.value for each in records] == ["last"]
    source.poll(2)
    assert path.exists(), "the last record is not committed"
    source.commit(records)
    source.poll(2)
    assert not path.exists()
    assert (tmp_path / "done" / "a.txt").exists() == (action == "move")
    assert values_of(source, 2) == []


def test_kill_between_commit_and_deletion_deletes_after_the_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n")
    old(path)
    source = Source(FilesSourceTask, config_of(tmp_path, after_commit="delete"))
    assert values_of(source) == ["1", "2"]
    source.start()
    assert path.exists()
    assert values_of(source, 3) == []
    assert not path.exists()


def test_tasks_share_files_by_hash(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}").write_text(f"{number}\n")
    connector = FilesSourceConnector()
    connector.config = config_of(tmp_path)
    shares = [values_of(Source(FilesSourceTask, each), 12) for each in connector.task_configs(3)]
    assert all(shares)
    assert sorted(value for share in shares for value in share) == sorted(str(number) for number in range(12))


def test_globs() -> None:
    assert split_path("/a/b/*.txt") == ("/a/b", "*.txt")
    assert split_path("s3://bucket/a*/x") == ("s3://bucket", "a*/x")
    assert split_path("/a/b/") == ("/a/b", "**")
    assert glob_pattern("*.txt").fullmatch("a.txt")
    assert not glob_pattern("*.txt").fullmatch("a/a.txt")
    assert glob_pattern("**/[!x].txt").fullmatch("a/b/a.txt")
    assert not glob_pattern("**/[!x].txt").fullmatch("x.txt")


def test_offsets_are_checked(tmp_path: Path) -> None:
    partition = {"directory": str(tmp_path), "file": "a"}
    FilesSourceConnector.alter_offsets(config_of(tmp_path), [SourceOffset(partition, {"position": 0})])
    for wrong in (SourceOffset({"file": "a"}, None), SourceOffset(partition, {"position": -1})):
        with pytest.raises(BadRequestError):
            FilesSourceConnector.alter_offsets(config_of(tmp_path), [wrong])


def test_objects_of_s3_are_read_and_deleted(s3: S3Server) -> None:
    config = config_of("s3://bucket/in/*.txt", after_commit="delete") | s3.settings
    storage = storage_of("s3://bucket/in", SOURCE.parse(config))
    storage.write("a.txt", b"1\n2\nlast")
    storage.write("b.log", b"skipped\n")
    source = Source(FilesSourceTask, config)
    assert values_of(source, 2) == ["1", "2", "last"]
    values_of(source, 2)
    assert [each.key for each in storage.entries()] == ["b.log"]
