"""`flush.messages=1`: an acknowledgement waits for its fsync, appends share fsyncs, and a failed fsync is an error.

The test decides when a flush ends, and the simulated disk loses data that was not synced.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from ottla.common.completion import Completion
from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import LogConfig
from ottla.log.open_files import OpenFiles
from ottla.partitions.partition import Partition
from ottla.partitions.topic_settings import TopicSettings
from ottla.records import ProduceRules
from tests.simulation.world.disk import SimulatedDisk
from tests.storage.helpers import batch, open_at, values

RULES = ProduceRules("t", 1 << 20, "producer", None, "CreateTime", 1 << 62, 1 << 62, compacted=False)
READ_UNCOMMITTED = 0


class SlowDisk:
    """One partition whose fsyncs end when the test calls `sync`."""

    def __init__(
        self, seed: int = 0, flush_messages: int = 1, segment_bytes: int = 1 << 30, open_files: int = 1000
    ) -> None:
        self.disk = SimulatedDisk(seed)
        self.flushes: list[tuple[Callable[[], object], Completion[None]]] = []
        self.partition = Partition(
            open_at(
                "/logs",
                self.disk,
                LogConfig(flush_messages=flush_messages, segment_bytes=segment_bytes),
                open_files=OpenFiles(open_files),
            ),
            leader_epoch=0,
            settings=TopicSettings(LogConfig(), RULES, 1, None),
            flush_in_thread=self._later,
        )
        self.acknowledged: list[bytes] = []

    def _later(self, work: Callable[[], object]) -> Completion[None]:
        completion: Completion[None] = Completion()
        self.flushes.append((work, completion))
        return completion

    def append(self, value: bytes) -> Completion[None] | None:
        info = self.partition.append(memoryview(batch(value)))
        durable = self.partition.when_durable(info.last_offset + 1)
        if durable is None:
            self.acknowledged.append(value)
        else:
            durable.on_done(lambda done: None if _failed(done) else self.acknowledged.append(value))
        return durable

    def sync(self) -> Callable[[], None]:
        """Finish the oldest flush on the disk; the returned function notifies the partition."""
        work, completion = self.flushes.pop(0)
        try:
            work()
        except KafkaError as error:
            failure = error
            return lambda: _ignore(completion.fail(failure))
        return lambda: _ignore(completion.complete(None))


def _ignore(_: object) -> None:
    return None


def _failed(done: Completion[None]) -> bool:
    try:
        done.result()
    except KafkaError:
        return True
    return False


def test_acknowledgement_and_readers_wait_for_the_fsync() -> None:
    slow = SlowDisk()
    slow.append(b"a")
    assert slow.acknowledged == []
    assert slow.partition.high_watermark == 0
    assert slow.partition.look_up(0, 1000, READ_UNCOMMITTED, min_one_batch=True) == b""
    slow.sync()()
    assert slow.acknowledged == [b"a"]
    assert slow.partition.high_watermark == 1
    assert slow.partition.look_up(0, 1000, READ_UNCOMMITTED, min_one_batch=True) != b""
    assert slow.flushes == []


def test_appends_during_an_fsync_share_the_next_one_and_are_answered_in_order() -> None:
    slow = SlowDisk()
    slow.append(b"a")
    tell = slow.sync()
    for value in (b"b", b"c", b"d"):
        slow.append(value)
    assert len(slow.flushes) == 0, "one fsync at a time"
    tell()
    assert slow.acknowledged == [b"a"]
    assert slow.partition.high_watermark == 1
    slow.sync()()
    assert slow.acknowledged == [b"a", b"b", b"c", b"d"]
    assert slow.partition.high_watermark == 4
    assert slow.flushes == []


def test_failed_fsync_fails_waiting_requests_and_exposes_no_records() -> None:
    slow = SlowDisk()
    first = slow.append(b"a")
    second = slow.append(b"b")
    slow.disk.fail_syncs = errno.EIO
    slow.sync()()
    for durable in (first, second):
        assert durable is not None
        with pytest.raises(KafkaError) as error:
            durable.result()
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert slow.acknowledged == []
    assert slow.partition.high_watermark == 0
    slow.disk.fail_syncs = None
    with pytest.raises(KafkaError) as error:
        slow.append(b"c")
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR, "a failed fsync is not retried"


def test_without_a_flush_policy_no_request_waits() -> None:
    slow = SlowDisk(flush_messages=1 << 60)
    assert slow.append(b"a") is None
    assert slow.flushes == []


@pytest.mark.parametrize("seed", range(30))
def test_power_failure_loses_no_acknowledged_record(seed: int) -> None:
    chance = random.Random(seed)
    slow = SlowDisk(seed)
    sent: list[bytes] = []
    tell: Callable[[], None] | None = None
    for _ in range(chance.randrange(60)):
        step = chance.random()
        if step < 0.6:
            sent.append(b"%d" % len(sent))
            slow.append(sent[-1])
        elif tell is not None:
            tell()
            tell = None
        elif slow.flushes:
            tell = slow.sync()
    stored = values(open_at("/logs", slow.disk.crash()))
    assert slow.acknowledged == sent[: len(slow.acknowledged)], "in order"
    assert stored == sent[: len(stored)], "once and in order"
    assert len(stored) >= len(slow.acknowledged)


def test_log_that_rolls_faster_than_its_disk_syncs_waits_before_descriptors_run_out() -> None:
    slow = SlowDisk(flush_messages=1 << 62, segment_bytes=200, open_files=5)
    sent = 0
    while sent < 20 and slow.append(b"%03d" % sent + bytes(100)) is None:  # one segment each
        sent += 1
    assert 4 <= sent <= 6
    assert len(slow.acknowledged) == sent
    assert len(slow.flushes) == 1, "a flush was started for the waiting requests"
    slow.append(bytes(100))
    assert len(slow.acknowledged) == sent
    slow.sync()()
    assert len(slow.acknowledged) == sent + 2
    assert slow.append(b"again") is None
    assert len(slow.disk.descriptors) <= 5 + 4
