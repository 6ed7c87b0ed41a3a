"""A topic is deleted during an operation and recreated under the same name: the two do not affect each other."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from ottla.common.errors import KafkaError
from ottla.log import Files, Log, LogConfig, LogManager
from ottla.log.checkpoints import read_offsets
from ottla.log.cleaner import Cleaner
from ottla.log.compaction import CleanJob, CleanResult, clean
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from tests.simulation.world.broker import NodeOnDisk
from tests.storage.helpers import START, TOPIC_ID, TP, ManualClock, append, batch, values
from tests.storage.test_failing_disk import Broker
from tests.unit.broker.harness import batch as produced

ANOTHER_ID = bytes(reversed(TOPIC_ID))
COMPACT = LogConfig(
    segment_bytes=500, index_interval_bytes=64, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01
)


def manager(path: Path, config: LogConfig | None = None, files: Files | None = None) -> LogManager:
    logs = LogManager([str(path)], ManualClock(), config, files=files)
    logs.load()
    return logs


async def _delete(node: NodeOnDisk, topic: str) -> None:
    await node.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)


async def _lives_twice(home: Path, *, killed_between: bool) -> None:
    home.mkdir()
    node = NodeOnDisk(Files(), home)
    await node.start()
    await node.create("t")
    for _ in range(8):
        await node.produce("t", produced(b"old", timestamp=node.clock.wall_ms()))
    partitions = [DeleteRecordsPartition(partition_index=0, offset=5)]
    topics = [DeleteRecordsTopic(name="t", partitions=partitions)]
    await node.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)
    node.chores()
    await asyncio.sleep(0)
    await _delete(node, "t")
    if killed_between:
        await node.abandon()
        node = NodeOnDisk(Files(), home)
        await node.start()
    await node.create("t")
    for i in range(3):
        assert await node.produce("t", produced(b"%d" % i, timestamp=node.clock.wall_ms())) == (0, i)
    await node.abandon()
    node = NodeOnDisk(Files(), home)
    await node.start()
    try:
        assert await node.read("t") == ({i: b"%d" % i for i in range(3)}, [])
    finally:
        await node.abandon()


@pytest.mark.parametrize("killed_between", [False, True])
def test_log_start_of_a_deleted_topic_hides_no_record_of_its_namesake(tmp_path: Path, *, killed_between: bool) -> None:
    with asyncio.Runner() as runner:
        runner.run(_lives_twice(tmp_path / "data", killed_between=killed_between))


def test_checkpoints_forget_a_deleted_topic(tmp_path: Path) -> None:
    logs = manager(tmp_path, LogConfig(segment_bytes=300))
    log = logs.create(TP, TOPIC_ID)
    for _ in range(20):
        append(log, batch(b"x" * 50))
    log.flush()
    logs.checkpoint()
    logs.delete([TP])
    logs.create(TP, ANOTHER_ID)
    assert read_offsets(Files(), str(tmp_path), "recovery-point-offset-checkpoint").get(TP, 0) == 0
    logs.abandon()


class Later:
    """A job that is done when its result is requested, in the directory that exists then."""

    def __init__(self, job: CleanJob) -> None:
        self.job = job
        self.stopped = False

    def poll(self) -> CleanResult:
        return clean(self.job, Files())

    def stop(self) -> None:
        self.stopped = True


def _fill(log: Log) -> None:
    for i in range(40):
        append(log, batch(b"%d" % i, key=b"k%d" % (i % 4)))
    log.high_watermark = log.log_end_offset
    log.roll(START)
    log.flush()


def test_compaction_of_a_recreated_topic_begins_at_its_start(tmp_path: Path) -> None:
    logs = manager(tmp_path, COMPACT)
    cleaner = Cleaner(logs, backoff_ms=0, start_work=Later)
    for topic_id in (TOPIC_ID, ANOTHER_ID):
        log = logs.create(TP, topic_id)
        _fill(log)
        assert cleaner.step(START)
        assert cleaner.step(START)
        assert values(log) == [b"36", b"37", b"38", b"39"]
        logs.delete([TP])
    log = logs.create(TP, TOPIC_ID)
    logs.abandon()
    logs = manager(tmp_path, COMPACT)
    reopened = logs.get(TP)
    assert reopened is not None
    assert reopened.segments.cleaned_to == 0
    logs.abandon()


def test_compaction_of_a_deleted_topic_leaves_nothing_in_its_namesake(tmp_path: Path) -> None:
    logs = manager(tmp_path, COMPACT)
    jobs: list[Later] = []

    def start(job: CleanJob) -> Later:
        jobs.append(Later(job))
        return jobs[-1]

    cleaner = Cleaner(logs, backoff_ms=0, start_work=start)
    _fill(logs.create(TP, TOPIC_ID))
    assert cleaner.step(START)
    logs.delete([TP])
    log = logs.create(TP, ANOTHER_ID)
    _fill(log)
    clean(jobs[0].job, Files())  # with the previous name of the directory
    cleaner.step(START)
    assert jobs[0].stopped
    assert not list(Path(log.directory).glob("*.cleaned"))
    logs.abandon()


def test_query_of_a_deleted_topic_leaves_the_directory_online(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        runner.run(_asked_for_and_deleted(tmp_path / "data"))


async def _asked_for_and_deleted(home: Path) -> None:
    home.mkdir()
    node = NodeOnDisk(Files(), home)
    await node.start()
    await node.create("t", segment_index_bytes=40, index_interval_bytes=0)
    for _ in range(100):
        await node.produce("t", produced(b"old", timestamp=node.clock.wall_ms()))
    await node.stop()
    node = NodeOnDisk(Files(), home)
    await node.start()
    try:
        log = node.node.broker.partitions.get("t", 0).log
        assert not log.learn_timestamps(4)
        await _delete(node, "t")
        with pytest.raises(KafkaError):
            log.learn_timestamps(4)
        await asyncio.sleep(0.01)
        assert not node.stopping.is_set()
        await node.create("t")
    finally:
        await node.abandon()


class DeletedMeanwhile(Files):
    """While a log is synced, its topic is deleted and recreated with the same name."""

    logs: LogManager
    times = 1

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        if self.times:
            self.times = 0
            self.logs.delete([TP])
            self.logs.create(TP, ANOTHER_ID)


def test_late_flush_of_a_deleted_topic_writes_nothing_into_its_namesake(tmp_path: Path) -> None:
    files = DeletedMeanwhile()
    logs = files.logs = manager(tmp_path, files=files)
    old = logs.create(TP, TOPIC_ID)
    append(old, batch(b"x"), epoch=7)
    old.flush()
    new = logs.get(TP)
    assert new is not None
    assert new is not old
    assert not (Path(new.directory) / "leader-epoch-checkpoint").exists()
    append(new, batch(b"y"), epoch=2)
    new.flush()
    logs.abandon()
    reopened = manager(tmp_path).get(TP)
    assert reopened is not None
    assert reopened.offset_for_leader_epoch(2) == (2, 1)


async def _deleted_on_a_broken_disk(home: Path, *, known_before: bool) -> None:
    async with Broker(home) as broker:
        await broker.node.create("c", 6)
        served = broker.node.node.broker.partitions
        homes = [served.get("c", i).log.log_directory for i in range(6)]
        broken = next(each for each in homes if each.path == str(broker.directories[1]))
        while broker.node.node.broker.logs.planned.create_next():
            pass
        broker.files.fail(broker.directories[1], rename=errno.EIO)
        if known_before:
            broken.fail(OSError(errno.EIO, "broken"))
            await broker.node.until(lambda: sum(each.topic_partition.topic == "c" for each in served) < len(homes))
        await _delete(broker.node, "c")
        await broker.node.create("c", 6)
        for i in range(6):
            assert await broker.node.produce("c", produced(b"new", timestamp=START), i) == (0, 0)
        broker.node.check()
        assert not broker.node.stopping.is_set()
        await broker.again()
        for i in range(6):
            assert await broker.node.read("c", index=i) == ({0: b"new"}, [])


@pytest.mark.parametrize("known_before", [False, True])
def test_topic_is_deleted_when_its_directory_cannot_be_renamed(tmp_path: Path, *, known_before: bool) -> None:
    with asyncio.Runner() as runner:
        runner.run(_deleted_on_a_broken_disk(tmp_path, known_before=known_before))
