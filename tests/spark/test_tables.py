"""Reads of tables by tasks without Spark: which records a micro-batch sees, and the worker's copy of a table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from pyspark.taskcontext import TaskContext

from ottla.clients import Admin, Producer, TopicPartition
from ottla.clients.offsets import OffsetAndMetadata
from ottla.spark import table_ends, table_reader
from ottla.spark.client_pool import ClientPool
from ottla.spark.options import OptionError
from ottla.spark.table_copy import Copies
from ottla.spark.table_ends import Claim, MicroBatch, TableError, TablePlace, find_extent, metadata
from ottla.spark.table_options import read_table_options
from ottla.spark.table_source import TableDataSource, TablePartition
from tests import deadlines
from tests.clients.support import unique
from tests.conftest import RunningBroker

from .tasks import Context


@dataclass
class Table:
    """A topic, and reads of it by tasks of one query."""

    bootstrap: str
    monkeypatch: pytest.MonkeyPatch
    partitions: int = 1
    topic: str = field(default_factory=lambda: unique("table"))
    query: str = field(default_factory=lambda: unique("query"))
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producer: Producer[Any, Any] = Producer(bootstrap_servers=self.bootstrap)
        with Admin(self.bootstrap) as admin:
            admin.create_topic(self.topic, partitions=self.partitions, replication_factor=1)

    def send(self, *rows: tuple[str | None, str | None]) -> None:
        for key, value in rows:
            key_bytes, value_bytes = (None if each is None else each.encode() for each in (key, value))
            self.producer.send(self.topic, value_bytes, key=key_bytes)
        self.producer.flush()

    def read(self, batch: int | None, **options: str) -> dict[str, str]:
        """The rows of all tasks."""
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "groupPrefix": "ottla.table.t."}
        source = TableDataSource({**given, **self.options, **options})
        # Spark pickles the reader for its tasks before it asks it for the partitions.
        reader, planner = source.reader(source.schema()), source.reader(source.schema())
        found: list[tuple[str, str]] = []
        for number, partition in enumerate(planner.partitions()):
            self.monkeypatch.setattr(TaskContext, "_taskContext", Context(number, self.properties(batch)))
            assert isinstance(partition, TablePartition)
            for rows in reader.read(partition):
                assert rows.schema.names == source.schema().fieldNames()
                found += [(row["key"].decode(), row["value"].decode()) for row in rows.to_pylist()]
        assert len(dict(found)) == len(found)
        return dict(found)

    def properties(self, batch: int | None) -> dict[str, str]:
        return {} if batch is None else {"sql.streaming.queryId": self.query, "streaming.sql.batchId": str(batch)}

    def place(self) -> TablePlace:
        return TablePlace(self.topic, {"bootstrap.servers": self.bootstrap}, "read_committed", "ottla.table.t.")


@pytest.fixture
def table(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    restart_worker(monkeypatch)
    made = Table(broker.bootstrap, monkeypatch)
    yield made
    made.producer.close()
    table_ends._claims.close()
    table_ends._admins.close()


def restart_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Continue as another worker would: without the clients and copies of this one."""
    monkeypatch.setattr(table_ends, "_claims", ClientPool(Claim))
    monkeypatch.setattr(table_ends, "_admins", ClientPool(Admin))
    monkeypatch.setattr(table_reader, "_copies", Copies())


@pytest.mark.both
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_each_read_of_a_micro_batch_has_the_same_records(table: Table, isolation: str) -> None:
    table.options = {"kafka.isolation.level": isolation}
    table.send(("a", "1"), ("b", "1"), (None, "x"))
    assert table.read(0) == {"a": "1", "b": "1"}
    table.send(("a", "2"), ("b", None), ("c", "1"))
    assert table.read(0) == {"a": "1", "b": "1"}
    first_worker = table_ends._claims, table_ends._admins
    restart_worker(table.monkeypatch)
    assert table.read(0) == {"a": "1", "b": "1"}, "another worker reads the same"
    assert table.read(1) == {"a": "2", "c": "1"}
    table.send(("c", None))
    table.monkeypatch.setattr(table_ends, "_claims", first_worker[0])
    assert table.read(1) == {"a": "2", "c": "1"}, "the worker whose claim was fenced reads the same"
    assert table.read(2) == {"a": "2"}
    assert table.read(None) == {"a": "2"}
    for pool in first_worker:
        pool.close()


def test_tasks_that_choose_at_the_same_time_agree(table: Table) -> None:
    place, stop = table.place(), threading.Event()

    def send() -> None:
        while not stop.wait(0.001):
            table.send(("k", "v"))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for number in range(8):
            batch = MicroBatch(table.query, number)
            tasks = deadlines.in_threads([partial(find_extent, place, batch, task % 2) for task in range(4)], "task")
            found = deadlines.results(tasks, "tasks that choose")
            assert len({tuple(extent.ends.items()) for extent in found}) == 1
    finally:
        stop.set()
        deadlines.join(sender, "the thread that sends")


def test_task_that_was_killed_while_it_chose_does_not_block_the_next_one(table: Table) -> None:
    place, batch = table.place(), MicroBatch(table.query, 0)
    settings = {"bootstrap.servers": table.bootstrap, "transactional.id": f"{place.group(batch)}.{table.topic}"}
    with Producer(settings) as killed:
        killed.init_transactions()
        killed.begin_transaction()
        row = OffsetAndMetadata(0, metadata=metadata(0))
        killed.send_offsets_to_transaction({TopicPartition(table.topic, 0): row}, place.group(batch))
        table.send(("a", "1"))
        assert table.read(0) == {"a": "1"}


def test_task_of_an_older_micro_batch_is_refused(table: Table) -> None:
    table.send(("a", "1"))
    table.read(5)
    with pytest.raises(TableError, match=r"Micro-batch 4 reads the table .* which micro-batch 5"):
        table.read(4)
    table.query = unique("other")
    assert table.read(4) == {"a": "1"}


def test_several_tasks_share_the_partitions(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Table(table.bootstrap, monkeypatch, partitions=5)
    wide.options = {"tasks": "3"}
    wide.send(*((str(number), "x") for number in range(50)))
    assert len(wide.read(0)) == 50
    wide.send(*((str(number), "y" if number % 2 else None) for number in range(50)))
    assert set(wide.read(0).values()) == {"x"}
    assert wide.read(1) == {str(number): "y" for number in range(1, 50, 2)}
    wide.producer.close()


def test_micro_batch_reads_only_what_is_new(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []
    real = table_reader.read_range

    def counted(client: Any, wanted: Any, **options: Any) -> Any:
        read.append((wanted.start, wanted.end))
        return real(client, wanted, **options)

    monkeypatch.setattr(table_reader, "read_range", counted)
    table.send(("a", "1"), ("b", "1"))
    table.read(0)
    table.read(0)
    table.send(("b", "2"))
    assert table.read(1) == {"a": "1", "b": "2"}
    assert read == [(0, 2), (2, 3)]


def test_recreated_topic_and_deleted_records_are_not_in_the_copy(table: Table) -> None:
    table.send(("a", "1"), ("b", "1"), ("c", "1"))
    table.read(0)
    with Admin(table.bootstrap) as admin:
        admin.delete_records({TopicPartition(table.topic, 0): 1})
        assert table.read(1) == {"b": "1", "c": "1"}
        admin.delete_topic(table.topic)
        admin.create_topic(table.topic, partitions=1, replication_factor=1)
    table.send(("d", "1"), ("e", "1"), ("f", "1"), ("g", "1"))
    assert table.read(2) == {"d": "1", "e": "1", "f": "1", "g": "1"}


def test_partition_that_was_added_is_read(table: Table) -> None:
    table.send(("a", "1"))
    table.read(0)
    with Admin(table.bootstrap) as admin:
        admin.create_partitions({table.topic: 2})
    table.producer.send(table.topic, b"1", key=b"new", partition=1)
    table.producer.flush()
    assert table.read(1) == {"a": "1", "new": "1"}


def test_table_as_it_was(table: Table) -> None:
    table.send(("a", "1"), ("b", "1"))
    table.send(("a", "2"))
    ends = f'{{"{table.topic}": {{"0": 2}}}}'
    assert table.read(0, endingOffsets=ends) == {"a": "1", "b": "1"}
    assert table.read(0) == {"a": "2", "b": "1"}


@pytest.mark.parametrize(("options", "reason"), [
    ({"subscribe": "a,b"}, "one topic"),
    ({"subscribePattern": "a.*"}, "one topic"),
    ({"subscribe": "a", "tasks": "0"}, "at least 1"),
    ({"subscribe": "a", "tusks": "1"}, "There is no option 'tusks'"),
])  # fmt: skip
def test_wrong_options_are_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        read_table_options({"kafka.bootstrap.servers": "localhost:9", **options})
