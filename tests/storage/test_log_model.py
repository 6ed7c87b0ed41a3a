"""A log against a model, with random operations: appends, rolls, truncation at both ends, retention, compaction,
expiry, flushes, checkpoints, deletion and recreation, changes of cleanup.policy, and reassignment, after which the log
is a follower's. A run ends with a stop, a kill, a power cut or a disk failure.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ottla.common.errors import KafkaError
from ottla.common.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log import Log, LogConfig, LogManager
from ottla.log.cleaner import Cleaner
from ottla.log.follower import append_as_follower, restart_at
from ottla.log.salvage import is_copy
from ottla.records import BatchProducer, decode_batch, encode_batch, iter_batches
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.storage.helpers import ManualClock, append
from tests.storage.test_cleaner import Here

SEEDS = int(os.environ.get("OTTLA_LOG_MODEL", "60"))
LIVES = 5
HOUR = 3_600_000
KEPT_MS = 50 * HOUR
KEPT_BYTES = 1500
EXPIRY_MS = 30 * HOUR
NEVER = 1 << 62
DELETED = b""
SMALL = {
    "segment_bytes": 500,
    "segment_index_bytes": 60,
    "segment_ms": 20 * HOUR,
    "index_interval_bytes": 0,
    "retention_ms": -1,
    "delete_retention_ms": 10 * HOUR,
    "producer_id_expiration_ms": EXPIRY_MS,
    "min_cleanable_dirty_ratio": 0.01,
}
CONFIGS = {
    TopicPartition("kept", 0): LogConfig(**SMALL),  # type: ignore[arg-type]
    TopicPartition("aged", 0): LogConfig(**SMALL | {"retention_ms": KEPT_MS}),  # type: ignore[arg-type]
    TopicPartition("sized", 0): LogConfig(**SMALL | {"retention_bytes": KEPT_BYTES}),  # type: ignore[arg-type]
    TopicPartition("compacted", 0): LogConfig(**SMALL, cleanup_policy=frozenset({"compact"})),  # type: ignore[arg-type]
}


@dataclass
class Sent:
    """One batch."""

    keys: list[bytes]
    values: list[bytes | None]
    timestamp: int
    sequence: int
    first: int

    def data(self) -> bytearray:
        records = [(self.timestamp, key, value, ()) for key, value in zip(self.keys, self.values, strict=True)]
        return bytearray(encode_batch(records, producer=BatchProducer(7, 0, self.sequence)))


@dataclass
class Truth:
    """The records that were sent to one incarnation of a partition, and the promises made for them."""

    topic_id: Uuid
    sent: list[Sent] = field(default_factory=list)
    end: int = 0
    flushed: int = 0
    # Records below this offset may be deleted, as requested.
    start: int = 0
    # The disk failed, or the power was cut, while this batch was appended.
    in_doubt: Sent | None = None
    # Whether compaction may have left gaps, whatever cleanup.policy is now.
    may_have_gaps: bool = False

    def records(self) -> dict[int, tuple[bytes, bytes | None, int]]:
        return {
            each.first + i: (each.keys[i], value, each.timestamp)
            for each in self.sent
            for i, value in enumerate(each.values)
        }


class Story:
    """Two directories, four partitions, several runs of the log manager."""

    def __init__(self, seed: int, home: Path) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.clock = ManualClock()
        self.paths = [str(home / "1"), str(home / "2")]
        for path in self.paths:
            Path(path).mkdir()  # for the lock files
            self.disk.make_directory(path)
        self.disk.fsync_directory(str(home))
        self.configs = dict(CONFIGS)
        self.truth = {tp: Truth(self.random.randbytes(16)) for tp in CONFIGS}
        self.start()

    # Runs

    def start(self) -> None:
        self.logs = LogManager(self.paths, self.clock, LogConfig(file_delete_delay_ms=HOUR), files=self.disk)
        self.logs.load(lambda topic: self.configs[TopicPartition(topic, 0)], self.is_stray)
        for tp in CONFIGS:
            if self.truth[tp].topic_id == DELETED:
                self.truth[tp] = Truth(self.random.randbytes(16))
            self.open(tp)
        self.cleaner = Cleaner(self.logs, backoff_ms=0, start_work=lambda job: Here(job, self.disk))

    def is_stray(self, tp: TopicPartition, topic_id: Uuid) -> bool:
        known = self.truth[tp]
        if known.topic_id == DELETED:
            return True
        return topic_id not in {known.topic_id, ZERO_UUID}

    def open(self, tp: TopicPartition) -> None:
        log = self.logs.create(tp, self.truth[tp].topic_id, self.configs[tp])
        if log.topic_id == ZERO_UUID:
            log.adopt(self.truth[tp].topic_id)
        log.high_watermark = log.log_end_offset

    def live(self, steps: int) -> None:
        for _ in range(steps):
            tp = self.random.choice(list(CONFIGS))
            log = self.logs.get(tp)
            assert log is not None
            act = self.random.choices(
                (self.append, self.send_again, self.roll, self.flush, self.checkpoint, self.cut_start,
                 self.retain, self.compact, self.expire, self.wait, self.remove, self.recreate, self.change_policy,
                 self.reassign),
                (30, 5, 3, 5, 3, 3, 3, 3, 2, 6, 3, 1, 1, 1),
            )[0]  # fmt: skip
            act(tp, log, self.truth[tp])

    def end(self) -> None:
        """End this run in one of several ways, start the next one and check it."""
        way = self.random.choice(("stop", "kill", "power", "fails"))
        try:
            if way == "fails":
                number = self.random.choice((errno.EIO, errno.ENOSPC))
                self.disk.writes_until_failure = self.random.randrange(30)
                self.disk.fail_writes = number
            elif self.random.random() < 0.6:
                self.disk.crash_after = self.random.randrange(400)
            self.live(60)
            if way == "stop":
                self.logs.close()
                for truth in self.truth.values():
                    truth.flushed = truth.end
        except Crash:
            way = "kill" if way == "stop" else way
        except KafkaError:
            if way != "fails":
                raise
        self.disk.crash_after = self.disk.fail_writes = None
        self.logs.abandon()
        lost = way == "power"
        if lost:
            self.disk = self.disk.crash()
        self.disk.descriptors.clear()
        self.start()
        for tp, truth in self.truth.items():
            log = self.logs.get(tp)
            assert log is not None
            self.settle(log, truth, lost=lost)
            if lost and truth.may_have_gaps:
                self.settle_gaps(log, truth)
            self.look(log, truth)
        assert len(self.disk.descriptors) <= sum(len(log.segments) for log in self.logs.all())

    # Operations

    def append(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        keys = [b"k%d" % self.random.randrange(5)] * self.random.choice((1, 1, 3))
        values: list[bytes | None] = [
            b"%d:%s" % (truth.end + i, b"x" * self.random.randrange(40)) if self.random.random() < 0.9 else None
            for i in range(len(keys))
        ]
        timestamp = self.random.choice((self.clock.now, self.clock.now, self.clock.now - 5 * HOUR, -1))
        if self.random.random() < 0.01:
            timestamp = NEVER
        producer = next(iter(log.active_producers()), None)
        sequence = producer.last_sequence + 1 if producer else truth.end
        sent = truth.in_doubt = Sent(keys, values, timestamp, sequence, truth.end)
        assert append(log, sent.data(), now=self.clock.now).first_offset == truth.end
        self.take(truth)
        log.high_watermark = truth.end

    @staticmethod
    def take(truth: Truth) -> None:
        assert truth.in_doubt is not None
        truth.sent.append(truth.in_doubt)
        truth.end += len(truth.in_doubt.values)
        truth.in_doubt = None

    def send_again(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        if truth.sent and log.active_producers():
            sent = self.random.choice(truth.sent[-5:])
            known = [written.first_offset for entry in log.active_producers() for written in entry.batches]
            if sent.first in known:
                info = append(log, sent.data(), now=self.clock.now)
                assert (info.duplicate, info.first_offset) == (True, sent.first)

    def roll(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        log.roll(self.clock.now)

    def flush(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        truth.flushed = log.flush()
        assert truth.flushed == truth.end

    def checkpoint(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        self.random.choice(
            (self.logs.checkpoint_recovery_points, self.logs.checkpoint_log_starts, self.logs.checkpoint)
        )()

    def cut_start(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        offset = self.random.randint(log.log_start_offset, truth.end)
        truth.start = max(truth.start, offset)
        assert log.delete_records_before(offset) == offset

    def retain(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        asked = truth.start
        records = truth.records()
        truth.start = truth.end  # in case the power is cut before the reply
        log.delete_old_segments(self.clock.now)
        truth.start = max(asked, log.log_start_offset)
        old = log.config.retention_ms >= 0
        for offset in range(asked, log.log_start_offset):
            age = self.clock.now - records[offset][2]
            assert (old and age > KEPT_MS) or log.config.retention_bytes >= 0, f"{tp}: {offset} is {age} ms old"
        if not old and log.log_start_offset > asked:
            assert log.size >= KEPT_BYTES

    def compact(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        for each, config in self.configs.items():
            self.truth[each].may_have_gaps |= config.compacts
        for _ in range(2):
            self.cleaner.step(self.clock.now)
        self.look_at_files(log)

    def expire(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        self.logs.expire_producers(self.clock.now)

    def wait(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        self.clock.now += self.random.choice((1, 60_000, HOUR, 7 * HOUR))

    def remove(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        self.logs.remove_deleted(self.clock.now)

    def recreate(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        self.truth[tp] = Truth(DELETED)
        self.logs.delete([tp])
        self.truth[tp] = Truth(self.random.randbytes(16))
        self.open(tp)

    def change_policy(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        if CONFIGS[tp].compacts:
            policy = frozenset({self.random.choice(("compact", "delete"))})
            self.configs[tp] = replace(CONFIGS[tp], cleanup_policy=policy)
            log.reconfigure(self.configs[tp])

    def reassign(self, tp: TopicPartition, log: Log, truth: Truth) -> None:
        """Continue with the log of another broker, which fetched everything; nothing fails meanwhile."""
        disk = self.disk
        faults, disk.crash_after, disk.fail_writes = (disk.crash_after, disk.fail_writes), None, None
        start, end = log.log_start_offset, log.log_end_offset
        fetched = []
        while sum(map(len, fetched)) < log.size and (data := log.read(self._after(fetched, start), 300, end)):
            fetched.append(bytes(data))
        self.logs.delete([tp])
        self.open(tp)
        follower = self.logs.get(tp)
        assert follower is not None
        restart_at(follower, start)
        for data in fetched:
            append_as_follower(follower, data, 0, self.clock.now)
        follower.high_watermark = follower.log_end_offset
        truth.end = follower.log_end_offset  # of a log that ended with a gap
        truth.flushed = follower.flush()
        truth.start = start
        self.logs.checkpoint()
        disk.crash_after, disk.fail_writes = faults

    @staticmethod
    def _after(fetched: list[bytes], start: int) -> int:
        return max((header.next_offset for data in fetched[-1:] for _, header in iter_batches(data)), default=start)

    # Checks

    def settle(self, log: Log, truth: Truth, *, lost: bool) -> None:
        """Resolve operations with an unknown outcome by what the log has."""
        if truth.in_doubt is not None and log.log_end_offset > truth.end:
            self.take(truth)
        truth.in_doubt = None
        end = log.log_end_offset
        assert truth.flushed <= end <= truth.end
        assert lost or end == truth.end, f"{log} was acknowledged up to {truth.end}"
        while truth.sent and truth.sent[-1].first + len(truth.sent[-1].values) > end:
            truth.sent.pop()  # the whole last batch, if the log restarts within a batch
        truth.end = end
        truth.flushed = min(truth.flushed, end)
        truth.start = min(truth.start, end)
        assert log.log_start_offset <= truth.start, f"{log} may begin at {truth.start}"

    @staticmethod
    def settle_gaps(log: Log, truth: Truth) -> None:
        """Remove unflushed batches that the log lost from the expected state; offsets may have gaps."""
        found = _read(log)
        flushed = {record[0]: o for o, record in truth.records().items() if log.log_start_offset <= o < truth.flushed}
        for key, offset in flushed.items():
            there = any(found[o][0] == key for o in found if o >= offset)
            assert there or truth.records()[offset][1] is None, f"{log} has lost {key!r} at {offset}"
        start = log.log_start_offset  # records before it may reappear
        truth.sent = [
            s for s in truth.sent if s.first < start or any(s.first + i in found for i in range(len(s.values)))
        ]

    def look(self, log: Log, truth: Truth) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        records = {offset: record for offset, record in truth.records().items() if start <= offset < end}
        found = _read(log)
        assert {offset: records.get(offset) for offset in found} == found, f"{log} has something else"
        last = {key: offset for offset, (key, _, _) in records.items()}
        if truth.may_have_gaps:
            for key, offset in last.items():
                newest = max((o for o in found if found[o][0] == key), default=None)
                gone = newest is None and records[offset][1] is None
                assert newest == offset or gone, f"{log}: of {key!r} {offset} is the newest, not {newest}"
        else:
            assert not set(records) - set(found), f"{log} has lost something"
        for timestamp in {0, *(timestamp for _, _, timestamp in found.values() if timestamp >= 0)}:
            answer = log.offset_for_timestamp(timestamp, end)
            right = next((offset for offset, record in sorted(found.items()) if record[2] >= timestamp), None)
            assert (answer[1] if answer else None) == right, f"{log}: {timestamp}"
        self.look_at_producers(log, truth)
        self.look_at_files(log)

    def look_at_files(self, log: Log) -> None:
        bases = {f"{segment.base_offset:020d}" for segment in log.segments}
        doomed = {path for _, path in log.segments.deletions}
        for name in self.disk.list(log.directory):
            stem, _, kind = name.partition(".")
            known = stem in bases or kind in {"snapshot", "metadata"} or stem == "leader-epoch-checkpoint"
            known = known or kind == "rolled" or is_copy(name)
            assert known or (name.endswith(".deleted") and f"{log.directory}/{name}" in doomed), name
        snapshots = [name for name in self.disk.list(log.directory) if name.endswith(".snapshot")]
        assert len(snapshots) <= len(bases) + 1

    def look_at_producers(self, log: Log, truth: Truth) -> None:
        newest = truth.sent[-1] if truth.sent else None
        if newest is None or newest.first < log.log_start_offset:
            return
        known = {entry.producer_id: entry.last_sequence for entry in log.active_producers()}
        if self.clock.now - newest.timestamp < EXPIRY_MS:
            assert known == {7: newest.sequence + len(newest.values) - 1}


def _read(log: Log) -> dict[int, tuple[bytes | None, bytes | None, int]]:
    found = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 300, log.log_end_offset)
        if not data:
            break
        for position, header in iter_batches(data):
            for record in decode_batch(data, position):
                if record.offset >= offset:
                    found[record.offset] = (record.key, record.value, record.timestamp)
            offset = header.next_offset
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_log_keeps_its_promises_under_random_operations(tmp_path: Path, seed: int) -> None:
    story = Story(seed, tmp_path)
    for _ in range(LIVES):
        story.end()
    story.logs.abandon()
