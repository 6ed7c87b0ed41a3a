"""Drives tasks of connectors as a worker does, on a topic in memory: kills, restarts, zombies, committed offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.connect.api import (
    Config,
    SinkTask,
    SinkTaskContext,
    SourceOffset,
    SourceTask,
    SourceTaskContext,
    TopicPartition,
)
from ottla.connect.data import Schema
from ottla.connect.errors import ConnectError
from ottla.connect.records import Position, SinkRecord, SourceRecord


class Kill(BaseException):
    """The process ends here."""


def sink_record(topic: str, partition: int, offset: int, value: Any, schema: Schema | None = None, **more: Any) -> Any:
    return SinkRecord(
        topic,
        partition,
        None,
        more.get("key"),
        schema,
        value,
        more.get("timestamp", 1_700_000_000_000 + offset),
        [],
        offset,
        "CreateTime",
        topic,
        partition,
        offset,
    )


class Sink:
    """A sink task with the records of partitions, and the committed offsets of its group."""

    def __init__(self, make: type[SinkTask], config: Config, records: Mapping[TopicPartition, Sequence[Any]]) -> None:
        self.make, self.config, self.topic = make, config, records
        self.committed: dict[TopicPartition, int] = {}
        self.rejected: list[tuple[SinkRecord, Exception]] = []
        self.has_dead_letters = True
        self.facts: dict[str, object] = {}
        self.start()

    def start(self) -> None:
        """Start a new task at the committed offsets, with all partitions. The old one frees its connections."""
        if hasattr(self, "task"):
            self.task.stop()
        self.positions = {tp: self.committed.get(tp, 0) for tp in self.topic}
        self.task = self.make()
        self.task.start(
            SinkTaskContext("sink", 0, self.positions.update, self._reject, lambda: False, self.facts.update),
            self.config,
        )
        self.task.open(list(self.topic))

    def _reject(self, record: SinkRecord, error: Exception) -> None:
        if not self.has_dead_letters:
            raise ConnectError("no dead letter topic") from error
        self.rejected.append((record, error))

    def put(self, most: int = 1 << 30) -> int:
        """Put up to a number of records of each partition. Returns how many."""
        found = [
            each
            for tp, rows in self.topic.items()
            for each in [row for row in rows if row.offset >= self.positions[tp]][:most]
        ]
        if found:
            self.task.put(found)
        for each in found:
            tp = TopicPartition(each.original_topic, each.original_partition)
            if each.offset >= self.positions[tp]:
                self.positions[tp] = each.offset + 1
        return len(found)

    def flush(self) -> None:
        self.committed |= self.task.flush(dict(self.positions))

    def run(self, most: int = 7) -> None:
        """Put all records, flushing after each put."""
        while self.put(most):
            self.flush()
        self.flush()


class Source:
    """A source task with its committed offsets."""

    def __init__(self, make: type[SourceTask], config: Config) -> None:
        self.make, self.config = make, config
        self.offsets: dict[str, Position] = {}
        self.facts: dict[str, object] = {}
        self.start()

    def start(self) -> None:
        """Start a new task at the committed offsets. The old one frees its connections."""
        if hasattr(self, "task"):
            self.task.stop()
        self.task = self.make()
        self.task.start(
            SourceTaskContext(
                "source",
                0,
                lambda partition: self.offsets.get(json.dumps(partition, sort_keys=True)),
                lambda: False,
                self.facts.update,
            ),
            self.config,
        )

    def poll(self, polls: int = 1) -> list[SourceRecord]:
        return [record for _ in range(polls) for record in self.task.poll()]

    def commit(self, records: Sequence[SourceRecord]) -> None:
        """Store the offsets as JSON, then notify the task."""
        rows = []
        for each in records:
            assert each.source_partition is not None
            key = json.dumps(each.source_partition, sort_keys=True)
            self.offsets[key] = json.loads(json.dumps(each.source_offset))
            rows.append(SourceOffset(each.source_partition, each.source_offset))
        self.task.commit(rows)
