"""The source under a model of Spark's micro-batch loop that crashes after any step and restarts. Without Spark.

The model calls the source in the order of Spark 4.3 (MicroBatchExecution), and writes the same two logs to a
checkpoint. test_faults_killed does the same with processes at some of the steps.
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
from ottla.spark.readers import StreamReader
from ottla.testing import Ottla

SEEDS = 24
ROWS_A_TRIGGER = 6


class DiedError(Exception):
    """The driver has crashed."""


@dataclass
class Disk:
    """The state that survives a crash of the driver: the checkpoint's two logs, and an idempotent sink."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)
    sink: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


class Driver:
    """One run of a query. It crashes after `steps` steps; with None it ends when there are no records left."""

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
        """End a step of the driver: records may arrive, and the driver may crash."""
        self.check_group()
        if self._steps is not None:
            if self._chance.random() < 0.3:
                fill(self.ottla, self.topic, self._chance.randrange(1, 5), self._chance.randrange(2))
            self._steps -= 1
            if self._steps < 0:
                raise DiedError

    def check_group(self) -> None:
        """Check that the group's offsets are not ahead of the committed batches."""
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
            assert disk.sink.get(batch, rows) == rows, "a re-run batch has the same records"
            disk.sink[batch] = rows
            self.step()
            disk.commits.add(batch)
            batch, start, end = batch + 1, end, None
            self.step()

    def run_until_dead(self) -> None:
        """Run the query, repeatedly if it ends, until the driver crashes."""
        while True:
            self.run()

    def _where(self) -> tuple[int, str | None, str | None]:
        """Return the next batch, its start if known, and its end if it was planned."""
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
    """Return an offset as Spark stores it."""
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
    assert len(rows) == len(set(rows)), "no record is read twice"
    if begins == "latest":
        began = positions(json.loads(disk.offsets[0]))
        there = {row for row in there if row[1] >= began.get((topic, row[0]), 0)}  # type: ignore[call-overload]
    assert set(rows) == there, "no record is lost"
    assert max(disk.offsets) in disk.commits
    ends = {at.partition: offset for at, offset in positions(json.loads(disk.offsets[max(disk.offsets)])).items()}
    group = {partition: offset for (_, partition), offset in ottla.group(f"{topic}-group").positions.items()}
    assert group == ends, "the group has the position of the query"
