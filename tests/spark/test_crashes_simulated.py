"""The source under a model of Spark's micro-batch loop that dies after any of its steps, and starts again. No Spark.

The model does in the order of Spark 4.3 (MicroBatchExecution) what it does with a source: the same calls, the same two
logs in a checkpoint. test_faults_killed has the same with real processes, at a few of the steps.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from ottla.clients import Admin
from ottla.spark.offsets import positions
from ottla.spark.options import read_source_options
from ottla.spark.source import StreamReader
from ottla.testing import Ottla

SEEDS = 24
ROWS_A_TRIGGER = 6


class DiedError(Exception):
    """The driver is gone."""


@dataclass
class Disk:
    """What outlives a driver: the checkpoint's two logs, and a sink that may be written to again."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    sink: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


class Driver:
    """One run of a query, which dies after `steps` steps; None: it ends when there is nothing to do."""

    def __init__(self, ottla: Ottla, topic: str, disk: Disk, chance: random.Random, steps: int | None) -> None:
        self.ottla = ottla
        self.topic = topic
        self.group = f"{topic}-group"
        self.disk = disk
        self._steps = steps
        self._chance = chance
        given = {
            "kafka.bootstrap.servers": ottla.bootstrap, "subscribe": topic, "commitGroup": self.group,
            "maxOffsetsPerTrigger": str(ROWS_A_TRIGGER), "kafka.metadata.max.age.ms": "0",
            "startingOffsets": "earliest" if topic.endswith("earliest") else "latest",
        }  # fmt: skip
        self.reader = StreamReader(read_source_options(given, streaming=True))

    def step(self) -> None:
        """Something was done. The world goes on; this may be the end."""
        self.check_group()
        if self._steps is not None:
            if self._chance.random() < 0.3:
                fill(self.ottla, self.topic, self._chance.randrange(1, 5), self._chance.randrange(2))
            self._steps -= 1
            if self._steps < 0:
                raise DiedError

    def check_group(self) -> None:
        """The group is never ahead of the batches that are known to be done."""
        if not self.disk.commits:
            return
        done = positions(json.loads(self.disk.offsets[max(self.disk.commits)]))
        for (topic, partition), offset in self.ottla.group(self.group).positions.items():
            assert offset <= max(done.get((topic, partition), 0), 0), "the group is ahead"  # type: ignore[call-overload]

    def run(self) -> None:
        disk, reader = self.disk, self.reader
        batch, start, end = self._where()
        while True:
            if end is None:
                at = start if start is not None else said(reader.initialOffset())
                self.step()
                end = said(reader.latestOffset(json.loads(at), ReadMaxRows(ROWS_A_TRIGGER)))
                self.step()
                if end == start:
                    return
                disk.offsets[batch] = end
                self.step()
                if batch:
                    reader.commit(json.loads(disk.offsets[batch - 1]))
                    self.step()
            at = start if start is not None else said(reader.initialOffset())
            parts = reader.partitions(json.loads(at), json.loads(end))
            self.step()
            rows = [row for part in parts for row in self._read(part)]
            self.step()
            assert disk.sink.get(batch, rows) == rows, "a batch that is done again is the same"
            disk.sink[batch] = rows
            self.step()
            disk.commits.add(batch)
            batch, start, end = batch + 1, end, None
            self.step()

    def run_until_dead(self) -> None:
        """A query that has nothing to do is asked again."""
        while True:
            self.run()

    def _where(self) -> tuple[int, str | None, str | None]:
        """The batch to do, where it starts if that is known, where it ends if it was planned."""
        if not self.disk.offsets:
            return 0, None, None
        last = max(self.disk.offsets)
        if last in self.disk.commits:
            return last + 1, self.disk.offsets[last], None
        return last, self.disk.offsets.get(last - 1), self.disk.offsets[last]

    def _read(self, part: Any) -> list[tuple[int, int]]:
        rows = []
        for batch in self.reader.read(part):
            rows += list(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True))
        return rows


def said(offset: object) -> str:
    """An offset as Spark keeps it."""
    return json.dumps(offset)


def fill(ottla: Ottla, topic: str, count: int, partition: int) -> None:
    ottla.produce(topic, *(f"v{i}" for i in range(count)), partition=partition)


@pytest.mark.parametrize("begins", ["earliest", "latest"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_driver_crash_at_any_point_neither_loses_nor_duplicates_records(ottla: Ottla, seed: int, begins: str) -> None:
    chance = random.Random(seed)
    topic = ottla.topic(f"crash-{seed}-{begins}", partitions=2)
    fill(ottla, topic, 5, 0)
    disk = Disk()
    for _ in range(4):
        driver = Driver(ottla, topic, disk, chance, chance.randrange(1, 16))
        with pytest.raises(DiedError):
            driver.run_until_dead()
        driver.reader.stop()
        fill(ottla, topic, chance.randrange(4), 1)
        if chance.random() < 0.2 and len({record.partition for record in ottla.records(topic)}) == 2:
            with Admin(ottla.bootstrap) as admin:
                admin.create_partitions({topic: 3})
            fill(ottla, topic, 3, 2)
    last = Driver(ottla, topic, disk, chance, None)
    last.run()
    last.reader.stop()

    there = {(record.partition, record.offset) for record in ottla.records(topic)}
    rows = [row for batch in disk.sink.values() for row in batch]
    assert len(rows) == len(set(rows)), "nothing is doubled"
    if begins == "latest":
        began = positions(json.loads(disk.offsets[0]))
        there = {row for row in there if row[1] >= began.get((topic, row[0]), 0)}  # type: ignore[call-overload]
    assert set(rows) == there, "nothing is lost"
    assert max(disk.offsets) in disk.commits
    ends = {at.partition: offset for at, offset in positions(json.loads(disk.offsets[max(disk.offsets)])).items()}
    group = {partition: offset for (_, partition), offset in ottla.group(f"{topic}-group").positions.items()}
    assert group == ends, "the group is where the query is"
