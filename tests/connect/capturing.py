"""Drives a task without a worker: polls, commits, crashes, and keeps its records as a topic would.

`Capture` emulates an exactly-once worker: the records and the last offset of a batch are durable together, `commit`
comes after that, and a crash at any step loses what is not durable. With `requested`, the task says which records are
durable together (transaction.boundary=connector).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ottla.connect.api import SourceOffset, SourceTask, SourceTaskContext
from ottla.connect.records import Position, SourceRecord
from ottla.connect.worker.transaction_boundaries import End, RequestedEnds

DEADLINE_S = 30.0


class Kafka:
    """Durable records and offsets."""

    def __init__(self) -> None:
        self.records: list[SourceRecord] = []
        self.offset: Position | None = None

    def table(self, topic: str) -> dict[Any, Any]:
        """Rebuild a table from its topic."""
        rows: dict[Any, Any] = {}
        for each in self.records:
            if each.topic != topic:
                continue
            key = tuple(each.key.values())
            if each.value is None or each.value["op"] == "d":
                rows.pop(key, None)
            else:
                rows[key] = tuple(each.value["after"].values())
        return rows


class Capture:
    """A task that is polled by hand."""

    def __init__(
        self,
        task: SourceTask,
        config: Mapping[str, str],
        kafka: Kafka | None = None,
        converters: tuple[object, object] | None = None,
        requested: RequestedEnds | None = None,
    ) -> None:
        self.kafka = kafka or Kafka()
        self.requested, self.open = requested, list[SourceRecord]()
        self.facts: dict[str, object] = {}
        self.config = dict(config)
        self.task = task
        context = SourceTaskContext(
            "c", 0, lambda _: self.kafka.offset, lambda: False, self.facts.update, converters, requested
        )
        try:
            self.task.start(context, self.config)
        except BaseException:
            self.task.stop()
            raise

    def poll(self, *, commit: bool = True) -> list[SourceRecord]:
        """One round of a worker."""
        records = list(self.task.poll())
        if self.requested is None:
            self._commit(records, commit=commit)
            return records
        begin = 0
        for number, end in self.requested.ends(records):
            self.open += records[begin:number]
            begin = number
            if end is End.COMMIT:
                self._commit(self.open, commit=commit)
                self.open = []
        return records

    def _commit(self, records: list[SourceRecord], *, commit: bool) -> None:
        self.kafka.records += [each for each in records if each.topic]
        if records:
            last = records[-1]
            assert last.source_offset
            self.kafka.offset = dict(last.source_offset)
            if commit:
                self.task.commit([SourceOffset(last.source_partition or {}, last.source_offset)])

    def until(self, done: Callable[[], bool]) -> list[SourceRecord]:
        """Poll until something is true; returns all records."""
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, f"no progress: {len(self.kafka.records)} records"
            self.poll()
        return self.kafka.records

    def take(self, count: int) -> list[SourceRecord]:
        """Poll until there is this number of records, and no more at once; return them."""
        self.until(lambda: len(self.kafka.records) >= count)
        self.poll()
        assert len(self.kafka.records) == count, [summary(each) for each in self.kafka.records]
        return self.kafka.records

    def stop(self) -> None:
        """Stop the task as a worker does."""
        self.task.stop()

    def crash(self) -> Kafka:
        """Cut the connections without any goodbye; what is durable stays."""
        self.task.stop()
        return self.kafka


def summary(record: SourceRecord) -> tuple[Any, ...]:
    """Operation, key values and row values of an event."""
    key = None if record.key is None else tuple(record.key.values())
    if record.value is None:
        return ("tombstone", key)
    row = record.value["after"] or record.value["before"]
    return (record.value["op"], key, None if row is None else tuple(row.values()))


def numbers(records: list[SourceRecord]) -> list[int]:
    """The ids of rows that were inserted."""
    return [each.value["after"]["id"] for each in records if each.value and each.value["after"]]


def assert_transactions_are_whole(kafka: Kafka, transactions: list[list[int]]) -> None:
    """Assert that what is durable are the first of these transactions, none of them in part."""
    found = numbers(kafka.records)
    for each in transactions:
        assert found[: len(each)] in ([], each), f"a part of a transaction is visible: {numbers(kafka.records)}"
        found = found[len(each) :]
    assert not found
