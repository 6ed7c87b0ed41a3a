"""The Delta and Iceberg sinks: exactly once with kills, lost races, unknown outcomes and delayed tasks; evolution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.connect import data
from ottla.connect.api import TopicPartition
from ottla.connect.connectors.delta.sink import DeltaSinkTable, DeltaSinkTask
from ottla.connect.connectors.iceberg.sink import IcebergSinkConnector, IcebergSinkTable, IcebergSinkTask
from ottla.connect.connectors.table_sink import LostRaceError, TableSinkTask
from ottla.connect.errors import ConnectError, DataError
from tests.connect.tasks import Kill, Sink, sink_record

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
SCHEMA = data.struct({"id": data.INT32})
WIDER = data.struct({"id": data.INT64, "text": data.OPTIONAL_STRING})

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Kind(NamedTuple):
    """A format of tables."""

    task: type[TableSinkTask]
    table: type[Any]
    config: dict[str, str]
    rows: Callable[[], Any]

    def ids(self) -> list[int]:
        return sorted(self.rows()["id"].to_pylist())


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    common = {"flush.size": "5", "commit.interval.ms": "3600000"}
    if request.param == "delta":
        from deltalake import DeltaTable

        path = str(tmp_path / "table")
        config = {**common, "table": path}
        return Kind(DeltaSinkTask, DeltaSinkTable, config, lambda: DeltaTable(path).to_pyarrow_table())
    from pyiceberg.catalog import load_catalog

    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    config = {**common, "table": "db.rows", **{f"catalog.{name}": value for name, value in catalog.items()}}

    def rows() -> Any:
        found = load_catalog("ottla", **catalog)
        try:
            return found.load_table("db.rows").scan().to_arrow()
        finally:
            found.close()

    return Kind(IcebergSinkTask, IcebergSinkTable, config, rows)


def topic_of(
    count: int, schema: Any = SCHEMA, tp: TopicPartition = TP, start: int = 0
) -> dict[TopicPartition, list[Any]]:
    """Rows of partition 1 begin with 100."""
    numbers = range(start, count)
    return {tp: [sink_record("t", tp.partition, each, {"id": each + 100 * tp.partition}, schema) for each in numbers]}


def test_rows_and_offsets_are_one_commit(kind: Kind) -> None:
    sink = Sink(kind.task, kind.config, topic_of(12) | topic_of(4, tp=OTHER))
    sink.run(3)
    assert kind.ids()[: len(kind.ids())] == sorted(
        [*range(sink.committed[TP]), *range(100, 100 + sink.committed[OTHER])]
    )
    sink.committed.clear()  # the consumer group has forgotten its offsets
    sink.task.stop()
    sink.start()
    sink.config = {**kind.config, "flush.size": "1"}
    sink.run(3)
    sink.task.stop()
    rows = kind.ids()
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("commit", [1, 2])
def test_kill_before_or_after_a_commit_loses_and_repeats_nothing(
    kind: Kind, monkeypatch: pytest.MonkeyPatch, when: str, commit: int
) -> None:
    commits = 0
    original = kind.table._write

    def killed(self: Any, *given: Any) -> None:
        nonlocal commits
        commits += 1
        if commits == commit and when == "before":
            raise Kill
        original(self, *given)
        if commits == commit:
            raise Kill

    monkeypatch.setattr(kind.table, "_write", killed)
    sink = Sink(kind.task, kind.config, topic_of(20))
    with pytest.raises(Kill):
        sink.run(4)
    sink.task.stop()
    sink.config = {**kind.config, "flush.size": "3"}
    sink.start()
    sink.run(3)
    sink.task.stop()
    assert kind.ids() == list(range(20))[: len(kind.ids())]
    assert len(kind.ids()) >= 18


def test_unknown_outcome_is_decided_by_the_table(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    original, outcomes = kind.table._write, iter(["lost response", "not sent", "lost response"])

    def unknown(self: Any, *given: Any) -> None:
        outcome = next(outcomes, "")
        if outcome == "not sent":
            raise OSError(outcome)
        original(self, *given)
        if outcome:
            raise OSError(outcome)

    monkeypatch.setattr(kind.table, "_write", unknown)
    sink = Sink(kind.task, kind.config, topic_of(20))
    sink.run(5)
    sink.task.stop()
    assert kind.ids() == list(range(20))


def test_delayed_task_adds_no_rows_after_its_successor(kind: Kind) -> None:
    zombie = Sink(kind.task, kind.config, topic_of(20))
    zombie.put(3)
    successor = Sink(kind.task, {**kind.config, "flush.size": "4"}, topic_of(20))
    successor.run(4)
    with pytest.raises(LostRaceError, match=r"Another task has committed t-0 up to offset 20"):
        zombie.run(5)
    zombie.task.stop()
    zombie.start()
    zombie.run(5)
    for each in (zombie, successor):
        each.task.stop()
    assert kind.ids() == list(range(20))


def test_race_between_check_and_commit_is_noticed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor commits after the delayed task has checked the offsets, just before its own commit."""
    original = kind.table._write
    successor: list[Sink] = []

    def raced(self: Any, *given: Any) -> None:
        monkeypatch.setattr(kind.table, "_write", original)
        successor.append(Sink(kind.task, {**kind.config, "flush.size": "4"}, topic_of(20)))
        successor[0].run(4)
        original(self, *given)

    Sink(kind.task, kind.config, topic_of(5)).run(5)
    zombie = Sink(kind.task, kind.config, topic_of(20))
    monkeypatch.setattr(kind.table, "_write", raced)
    with pytest.raises(LostRaceError):
        zombie.run(5)
    for each in (zombie, *successor):
        each.task.stop()
    assert successor
    rows = kind.ids()
    assert rows == list(range(len(rows)))


def test_tasks_of_other_partitions_may_commit_at_the_same_time(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    original, others = kind.table._write, []

    def raced(self: Any, *given: Any) -> None:
        monkeypatch.setattr(kind.table, "_write", original)
        others.append(Sink(kind.task, kind.config, topic_of(5, tp=OTHER)))
        others[0].run(5)
        original(self, *given)

    sink = Sink(kind.task, kind.config, topic_of(5))
    monkeypatch.setattr(kind.table, "_write", raced)
    sink.run(5)
    for each in (sink, *others):
        each.task.stop()
    assert kind.ids() == [*range(5), *range(100, 105)]


def test_schema_evolution_is_an_option(kind: Kind) -> None:
    sink = Sink(kind.task, kind.config, topic_of(5))
    sink.run(5)
    sink.topic = topic_of(10, WIDER, start=5)
    with pytest.raises(DataError, match=r"no column text; set schema\.evolution=add"):
        sink.run(5)
    sink.task.stop()
    sink.config = {**kind.config, "schema.evolution": "widen"}
    sink.start()
    sink.run(5)
    sink.task.stop()
    assert kind.ids() == list(range(10))
    assert kind.rows()["text"].null_count == 10


@pytest.mark.parametrize("kind", ["iceberg"], indirect=True)
def test_iceberg_widens_columns(kind: Kind) -> None:
    rows = topic_of(5)[TP] + [sink_record("t", 0, 5 + each, {"id": 1 << 40, "text": "x"}, WIDER) for each in range(5)]
    sink = Sink(kind.task, {**kind.config, "schema.evolution": "widen", "include.kafka.metadata": "true"}, {TP: rows})
    sink.run(5)
    sink.task.stop()
    assert kind.ids()[-1] == 1 << 40
    assert sorted(each["offset"] for each in kind.rows()["_kafka"].to_pylist()) == list(range(10))
    assert IcebergSinkConnector.problems({"table": "rows"})["table"]


def test_rows_that_do_not_fit_are_rejected_once_with_their_field(kind: Kind) -> None:
    rows = topic_of(6)[TP]
    rows[2] = sink_record("t", 0, 2, {"id": "x"}, SCHEMA)
    rows[3] = sink_record("t", 0, 3, None)
    sink = Sink(kind.task, kind.config, {TP: rows})
    sink.run(6)
    sink.task.stop()
    assert kind.ids() == [0, 1, 4, 5]
    assert [str(error).partition(": ")[0] for _, error in sink.rejected] == [
        "The record t-0 offset 3 has no value",
        "The record t-0 offset 2 field id does not fit",
    ]


def test_recreated_topic_stops_the_task(kind: Kind) -> None:
    sink = Sink(kind.task, kind.config, topic_of(10))
    sink.run(5)
    sink.task.stop()
    sink.start()
    sink.positions = {TP: 0}
    with pytest.raises(ConnectError, match="Was the topic recreated"):
        sink.put()
    sink.task.stop()
