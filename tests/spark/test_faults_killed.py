"""A streaming query whose driver is killed (SIGKILL) at each step of a micro-batch and continues in another process.

A killed driver leaves only its files and its group's offsets. So the test pauses one driver at each step and copies its
files, which is the state after a kill at that step. Only the last step kills the driver.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from ottla.clients import Admin
from ottla.testing import Ottla

from .processes import kill_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 300.0  # starts take minutes on a very busy machine
DRIVER = '''
import json, sys, time
from pathlib import Path
import ottla.spark
from ottla.spark.session import QUICK_JAVA

bootstrap, topic, group, home = sys.argv[1:]
home = Path(home)
spark = ottla.spark.session("killed", "local[2]", **{
    "spark.ui.enabled": False, "spark.log.level": "OFF", "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})

def keep(rows, batch):
    """A sink that may be written to again: what a batch has replaces what it had."""
    found = sorted([row.partition, row.offset] for row in rows.select("partition", "offset").collect())
    part = home / f"{batch}.part"
    part.write_text(json.dumps(found))
    part.rename(home / f"{batch}.json")
    while (home / "hold").exists() and found:
        (home / "held").touch()
        time.sleep(0.02)

stream = spark.readStream.format("ottla").options(**{
    "kafka.bootstrap.servers": bootstrap, "subscribe": topic, "commitGroup": group,
})
query = stream.load().writeStream.foreachBatch(keep).option("checkpointLocation", str(home / "checkpoint"))
query.trigger(processingTime="200 milliseconds").start().awaitTermination()
'''


class Home:
    """The directory with a query's checkpoint and sink."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, kind: str, batch: int) -> bool:
        """Whether the checkpoint has the batch in its log of planned ("offsets") or finished ("commits") batches."""
        return (self.path / "checkpoint" / kind / str(batch)).exists()

    def batches(self) -> dict[int, list[list[int]]]:
        """Return the records in the sink, by batch."""
        return {int(path.stem): json.loads(path.read_text()) for path in self.path.glob("*.json")}

    def rows(self) -> list[tuple[int, ...]]:
        """Return the records in the sink, sorted."""
        return sorted(tuple(row) for batch in self.batches().values() for row in batch)

    def done(self) -> int:
        """Return the number of records in finished batches."""
        return sum(len(rows) for batch, rows in self.batches().items() if self.has("commits", batch))

    def copy(self, name: str) -> Home:
        """Copy the directory."""
        return Home(Path(shutil.copytree(self.path, self.path.with_name(name))))


class Driver:
    """The query's driver as a process."""

    def __init__(self, ottla: Ottla, home: Home, program: str = DRIVER) -> None:
        self.ottla = ottla
        self.home = home
        self.topic = ottla.topic(partitions=2)
        self.group = f"{self.topic}-group"
        self._process: subprocess.Popen[bytes] | None = None
        home.path.mkdir()
        (home.path / "driver.py").write_text(program)

    def __enter__(self) -> Self:
        command = [sys.executable, "driver.py", self.ottla.bootstrap, self.topic, self.group, str(self.home.path)]
        with (self.home.path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.home.path, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the driver, Java and the Python workers with SIGKILL."""
        assert self._process is not None
        if self._process.returncode is None:
            kill_session(self._process.pid)
            self._process.wait(30)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until the condition is true. Fails if the driver ends or the time is over."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"not true: {what}\n{(self.home.path / 'log').read_text()[-3000:]}")
            time.sleep(0.02)

    def committed(self) -> int:
        """Return the number of processed records according to the group."""
        with Admin(self.ottla.bootstrap) as admin:
            return sum(at.offset for at in admin.list_group_offsets(self.group).values())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_query_killed_at_any_step_neither_loses_nor_duplicates_records(
    spark: SparkSession, ottla: Ottla, tmp_path: Path
) -> None:
    home = Home(tmp_path / "query")
    driver = Driver(ottla, home)
    topic, faults = driver.topic, ottla.faults
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for partition in (0, 1):
            ottla.produce(topic, *(f"v{i}" for i in range(count)), partition=partition)
        sent += 2 * count

    send(3)
    before = sent  # the query starts at the latest offsets, after these records
    hold = home.path / "hold"
    with driver:
        driver.until(lambda: home.has("commits", 0), "the first batch is finished")
        hold.touch()
        send(10)
        driver.until((home.path / "held").exists, "the batch is in the sink")
        in_sink = home.copy("in-sink")
        assert driver.committed() == before, "the group is never ahead of the finished batches"

        with faults.fail("ListOffsets", "LEADER_NOT_AVAILABLE", times=None) as unanswered:
            hold.unlink()
            driver.until(lambda: home.has("commits", 1) and unanswered.count > 1, "the driver asks for the next batch")
            send(4)
            before_offsets = home.copy("before-offsets")

        driver.until(lambda: home.has("commits", 2), "batch 2 is finished")
        with faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None, topic=topic, partition=1) as unread:
            send(5)
            driver.until(lambda: home.has("offsets", 3) and unread.count > 1, "batch 3 is being read")
            half_read = home.copy("half-read")
            assert driver.committed() <= before + home.done()

        driver.until(lambda: home.has("commits", 3), "batch 3 is finished")
        with faults.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None) as uncommitted:
            send(6)
            driver.until(lambda: home.has("commits", 4) and uncommitted.count > 1, "the driver commits to the group")
            driver.kill()

    assert driver.committed() < before + home.done() == sent
    assert not in_sink.has("commits", 1)
    assert in_sink.batches()[1], "it was in the sink"
    assert not before_offsets.has("offsets", 2)
    assert half_read.has("offsets", 3)
    assert not half_read.has("commits", 3)

    whole = [(partition, offset) for partition in (0, 1) for offset in range(before // 2, sent // 2)]
    for left in (in_sink, before_offsets, half_read, home):
        had = left.batches()
        _run_to_the_end(spark, driver, left)
        assert left.rows() == whole, left.path.name
        assert had.items() <= left.batches().items(), "a re-run batch has the same records"
    assert driver.committed() == sent


def _run_to_the_end(spark: SparkSession, driver: Driver, home: Home) -> None:
    def keep(rows: DataFrame, batch: int) -> None:
        found = sorted([row.partition, row.offset] for row in rows.select("partition", "offset").collect())
        (home.path / f"{batch}.json").write_text(json.dumps(found))

    options = {"kafka.bootstrap.servers": driver.ottla.bootstrap, "subscribe": driver.topic}
    stream = spark.readStream.format("ottla").options(**options, commitGroup=driver.group).load()
    writes = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(home.path / "checkpoint"))
    assert writes.trigger(availableNow=True).start().awaitTermination(int(WAIT_S))
