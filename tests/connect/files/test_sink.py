"""The file sink: exactly once across kills between any two steps, zombies, rotation, formats, S3."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ottla.connect import data
from ottla.connect.api import TopicPartition
from ottla.connect.connectors.files import storage as storages
from ottla.connect.connectors.files.settings import SINK
from ottla.connect.connectors.files.sink import FilesSinkConnector, FilesSinkTask
from ottla.connect.connectors.files.storage import LocalStorage, ObjectStorage, Storage, storage_of
from ottla.connect.errors import ConnectError, RetriableError
from tests.connect.files.servers import S3Server
from tests.connect.tasks import Kill, Sink, sink_record

# One S3 server for all of them.
pytestmark = pytest.mark.xdist_group("s3")
TP = TopicPartition("t", 0)
SCHEMA = data.struct({"id": data.INT64, "tags": data.mapping(data.STRING, data.INT32, optional=True)})


def config_of(path: object, **more: str) -> dict[str, str]:
    return {"path": str(path), "flush.size": "5", "rotate.interval.ms": "3600000"} | {
        name.replace("_", "."): value for name, value in more.items()
    }


def topic_of(count: int, **more: Any) -> dict[TopicPartition, list[Any]]:
    """Offsets have gaps, as after transactions and compaction."""
    return {TP: [sink_record("t", 0, number + number // 4, {"id": number}, **more) for number in range(count)]}


def ids(path: Path) -> list[int]:
    lines = (line for file in sorted(path.rglob("*.jsonl")) for line in file.read_text().splitlines())
    return [json.loads(line)["id"] for line in lines]


def names(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*.*") if "_ottla" not in str(each))


def test_files_are_named_by_their_offsets_and_only_durable_offsets_are_committed(tmp_path: Path) -> None:
    sink = Sink(FilesSinkTask, config_of(tmp_path), topic_of(12))
    sink.run()
    assert names(tmp_path) == [
        "t/partition=0/t+0+00000000000000000000+00000000000000000005.jsonl",
        "t/partition=0/t+0+00000000000000000006+00000000000000000011.jsonl",
    ]
    assert sink.committed == {TP: 12}
    assert ids(tmp_path) == list(range(10))


def test_files_rotate_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(FilesSinkTask, "clock", staticmethod(lambda: now))
    sink = Sink(FilesSinkTask, config_of(tmp_path, flush_size="100", rotate_interval_ms="1000"), topic_of(3))
    sink.run()
    assert names(tmp_path) == []
    assert sink.committed == {TP: 0}
    now = 1.0
    sink.flush()
    assert ids(tmp_path) == [0, 1, 2]
    assert sink.committed == {TP: 3}


def test_directories_by_time_of_records_and_rotation_by_size(tmp_path: Path) -> None:
    config = config_of(tmp_path, partition_by_time="day=%Y-%m-%d", rotate_bytes="30", flush_size="100")
    rows = [sink_record("t", 0, offset, {"id": offset}, timestamp=offset // 5 * 86_400_000) for offset in range(10)]
    Sink(FilesSinkTask, config, {TP: rows}).run()
    assert names(tmp_path) == [
        f"t/partition=0/day=1970-01-0{day}/t+0+{first:020}+{last:020}.jsonl"
        for day, first, last in [(1, 0, 3), (1, 4, 4), (2, 5, 8)]
    ]


class Killing:
    """Ends the process before or after the n-th step on the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        for module, name in [
            (storages.os, "fsync"),
            (storages.os, "replace"),
        ]:
            monkeypatch.setattr(module, name, self._stepped(getattr(module, name)))

    def _stepped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any) -> Any:
            self._count()
            result = call(*given)
            self._count()
            return result

        return step

    def _count(self) -> None:
        if self.left == 0:
            self.left = -1
            raise Kill
        self.left -= 1


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_kill_between_any_two_steps_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    killing = Killing(monkeypatch)
    kills = 0
    for step in range(200):
        path = tmp_path / str(step)
        sink = Sink(FilesSinkTask, config_of(path, format=form), topic_of(13, schema=SCHEMA))
        killing.left = step
        try:
            sink.run()
        except Kill:
            kills += 1
        else:
            break
        finally:
            killing.left = -1
        before = set(names(path))
        sink.config = {**sink.config, "flush.size": "3"}  # other boundaries must not repeat or lose records
        sink.start()
        sink.run(4)
        found = ids(path) if form == "jsonl" else _parquet_ids(path)
        assert found == list(range(len(found)))
        assert len(found) >= 10
        assert {each for each in before if not each.endswith(storages.TEMPORARY)} <= set(names(path))
    assert kills > 20


def _parquet_ids(path: Path) -> list[int]:
    return [each for file in sorted(path.rglob("*.parquet")) for each in pq.read_table(file)["id"].to_pylist()]


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a directory, local or on a real S3 server."""
    if request.param == "local":
        yield {"path": str(tmp_path)}
        return
    server: S3Server = request.getfixturevalue("s3")
    yield {"path": f"s3://bucket/{tmp_path.name}", **server.settings}


def stored_ids(place: dict[str, str]) -> list[int]:
    storage = storage_of(place["path"], SINK.parse(place))
    keys = sorted(each.key for each in storage.entries() if each.key.endswith(".jsonl"))
    return [json.loads(line)["id"] for key in keys for line in storage.read(key, 0, 1 << 30).splitlines()]


def test_delayed_task_writes_nothing_after_its_successor(place: dict[str, str]) -> None:
    """A zombie has buffered records; its successor writes other boundaries; then the zombie completes its file."""
    config = {**config_of(""), **place}
    zombie = Sink(FilesSinkTask, config, topic_of(20))
    zombie.put(3)
    successor = Sink(FilesSinkTask, {**config, "flush.size": "2"}, topic_of(20))
    successor.run(6)
    with pytest.raises(RetriableError, match="Another task has written files of t-0"):
        zombie.run(3)
    zombie.start()
    zombie.run(3)
    assert stored_ids(place) == list(range(20))


@pytest.mark.parametrize("step", range(6))
def test_failed_steps_of_storage_are_retried_without_loss(
    place: dict[str, str], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Each write fails, before or after it had its effect: the outcome of the second kind is unknown."""
    failing = {"left": step}

    def failed(call: Callable[..., Any]) -> Callable[..., Any]:
        def attempt(self: Storage, *given: Any) -> Any:
            failing["left"] -= 1
            if failing["left"] == -1:
                raise RetriableError("before")
            result = call(self, *given)
            failing["left"] -= 1
            if failing["left"] == -1:
                raise RetriableError("after")
            return result

        return attempt

    for kind in (LocalStorage, ObjectStorage):
        monkeypatch.setattr(kind, "write", failed(kind.write))
        monkeypatch.setattr(kind, "replace", failed(kind.replace))
    sink = Sink(FilesSinkTask, {**config_of(""), **place}, topic_of(20))
    for _ in range(30):
        try:
            if not sink.put(4):
                break
        except RetriableError:
            continue
        try:
            sink.flush()
        except RetriableError:
            sink.start()
    sink.flush()
    found = stored_ids(place)
    assert found == list(range(len(found)))
    assert len(found) >= 15
    assert sum(each.offset < sink.committed[TP] for each in sink.topic[TP]) == len(found)


def test_recreated_topic_stops_the_task(tmp_path: Path) -> None:
    sink = Sink(FilesSinkTask, config_of(tmp_path), topic_of(20))
    sink.run()
    sink.start()
    sink.positions = {TP: 0}
    with pytest.raises(ConnectError, match=r"Was the topic recreated\?.* delete _ottla/t\+0\.json"):
        sink.put()


def test_parquet_has_types_metadata_and_rejects_records_that_do_not_fit(tmp_path: Path) -> None:
    schema = data.struct({"id": data.INT32, "price": data.decimal(2, optional=True)})
    rows = [sink_record("t", 0, 0, {"id": 1, "price": None}, schema, key=b"k")]
    rows += [sink_record("t", 0, 1, {"id": "x", "price": None}, schema), sink_record("t", 0, 2, None)]
    rows += [sink_record("t", 0, 3, {"id": 2, "price": None}, schema)]
    sink = Sink(
        FilesSinkTask, config_of(tmp_path, format="parquet", include_kafka_metadata="true", flush_size="2"), {TP: rows}
    )
    sink.run()
    assert [str(error) for _, error in sink.rejected][1].startswith("The record t-0 offset 2 has no value")
    assert "The record t-0 offset 1 field id does not fit" in str(sink.rejected[0][1])
    file = next(tmp_path.rglob("*.parquet"))
    table = pq.read_table(file, partitioning=None)
    assert table["id"].to_pylist() == [1]
    assert table["_kafka"].to_pylist()[0]["offset"] == 0
    assert str(table.schema.field("price").type) == "decimal128(38, 2)"
    sink.has_dead_letters = False
    with pytest.raises(ConnectError):
        sink.task.put([sink_record("t", 0, 9, None)])


def test_json_lines_with_gzip_and_ignored_tombstones(tmp_path: Path) -> None:
    rows = [sink_record("t", 0, 0, {"id": 0}), sink_record("t", 0, 1, None), sink_record("t", 0, 2, [1, b"x"])]
    config = config_of(tmp_path, compression="gzip", behavior_on_null_values="ignore", flush_size="2")
    sink = Sink(FilesSinkTask, config, {TP: rows})
    sink.run()
    file = next(tmp_path.rglob("*.jsonl.gz"))
    assert gzip.decompress(file.read_bytes()) == b'{"id":0}\n[1,"eA=="]\n'
    assert sink.committed == {TP: 3}
    assert FilesSinkConnector.problems(config_of("x", format="parquet", compression="gzip"))
