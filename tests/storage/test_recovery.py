"""A log opened after a crash has all whole batches, nothing else, and accepts appends."""

import contextlib
import errno
import random
import shutil
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig
from ottla.log.open_files import OpenFiles
from ottla.records import BatchProducer, read_header
from tests.simulation.world.disk import Crash, SimulatedDisk
from tests.storage.helpers import START, append, batch, open_at, records, values

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=64)


def fill(log: Log, count: int) -> None:
    for i in range(count):
        append(log, batch(b"%03d" % i, producer=BatchProducer(1, 0, i), timestamp=START + i), epoch=i // 3)


def test_a_tail_torn_at_any_byte_is_cut_to_whole_batches(tmp_path: Path) -> None:
    origin = open_at(str(tmp_path / "origin"))
    fill(origin, 4)
    origin.abandon()
    content = Path(origin.segments[0].file.path()).read_bytes()
    size = len(content) // 4
    for length in range(len(content) + 1):
        root = tmp_path / "copy"
        shutil.copytree(tmp_path / "origin", root)
        (root / "t-0" / f"{0:020d}.log").write_bytes(content[:length])
        log = open_at(str(root))
        whole = length // size
        assert values(log) == [b"%03d" % i for i in range(whole)]
        assert log.segments.active.file.size == whole * size
        append(log, batch(b"next", producer=BatchProducer(1, 0, whole)))
        assert values(log)[whole:] == [b"next"]
        log.abandon()
        shutil.rmtree(root)


@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_more_segments_than_open_files_are_recovered_and_synced_by_the_next_flush(limit: int) -> None:
    disk = SimulatedDisk()
    log = open_at("/d", disk, SMALL)
    fill(log, 30)
    log.abandon()  # a killed process: the kernel has what it wrote, the disk may not
    log = open_at("/d", disk, SMALL, open_files=OpenFiles(limit))
    assert len(log.segments) > 5
    assert (values(log), len(disk.descriptors)) == ([b"%03d" % i for i in range(30)], min(limit + 1, len(log.segments)))
    assert log.flush() == 30
    log.abandon()
    assert not disk.descriptors
    log = open_at("/d", disk.crash(), SMALL, recovery_point=30)
    assert values(log) == [b"%03d" % i for i in range(30)]


def test_truncated_tail_does_not_come_back_after_the_next_power_cut() -> None:
    disk = SimulatedDisk()
    log = open_at("/d", disk)
    append(log, batch(b"kept"))
    log.flush()
    for value in (b"torn", b"lost"):
        append(log, batch(value))
    size = log.size // 3
    log.abandon()
    inode = disk.folders["/d/t-0"].names[f"{0:020d}.log"]
    inode.data[size + 65] ^= 1  # the first cut tore one batch and left the whole one after it
    inode.synced = bytes(inode.data)
    inode.changes.clear()

    log = open_at("/d", disk, recovery_point=1)
    assert values(log) == [b"kept"]
    append(log, batch(b"next"))  # as long as the torn one
    log.abandon()
    inode.changes = [change for change in inode.changes if change[1] is not None]  # the second cut took truncations
    inode.data = bytearray(inode.synced)
    for position, written in inode.changes:
        inode.data[position : position + len(written or b"")] = written or b""
    inode.synced = bytes(inode.data)

    assert values(open_at("/d", disk, recovery_point=1)) == [b"kept", b"next"]


def test_a_flipped_bit_of_unflushed_data_ends_the_log_before_its_batch_or_is_repaired(tmp_path: Path) -> None:
    origin = open_at(str(tmp_path / "origin"), config=SMALL)
    fill(origin, 12)
    origin.abandon()
    second = origin.segments[1]
    content = Path(second.file.path()).read_bytes()
    size = len(batch(b"000"))
    for position in range(0, size, 3):
        root = tmp_path / "copy"
        shutil.copytree(tmp_path / "origin", root)
        broken = bytearray(content)
        broken[size + position] ^= 0x10
        (root / "t-0" / Path(second.file.path()).name).write_bytes(broken)
        log = open_at(str(root), config=SMALL)
        expected = second.base_offset + 1
        if 12 <= position < 16:  # the CRC does not cover the leader epoch
            assert log.log_end_offset == 12
        elif position < 8:  # nor the base offset, but only one fits between the neighbours
            assert values(log) == [b"%03d" % i for i in range(12)]
        else:
            assert values(log) == [b"%03d" % i for i in range(expected)]
            assert log.segments[-1].base_offset == second.base_offset
        log.abandon()
        shutil.rmtree(root)


def test_only_segments_from_the_recovery_point_on_are_read(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 20)
    log.flush()
    point = log.flushed_offset
    log.abandon()
    first = Path(log.segments[0].file.path())
    broken = bytearray(first.read_bytes())
    broken[-1] ^= 1
    first.write_bytes(broken)
    log = open_at(str(tmp_path), config=SMALL, recovery_point=point)
    assert log.log_end_offset == 20
    assert log.flushed_offset == 20
    log.abandon()
    log = open_at(str(tmp_path), config=SMALL, recovery_point=0)
    assert log.log_end_offset == log.segments[-1].base_offset + len(records(log)[log.segments[-1].base_offset :])
    assert log.log_end_offset < 20


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd", "garbage", "zeros"])
def test_corrupt_indices_are_rebuilt(tmp_path: Path, kind: str, damage: str) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 20)
    log.close()
    for segment in log.segments:
        path = Path(segment.file.path(kind))
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "odd":
            path.write_bytes(content + b"x")
        elif damage == "garbage":
            path.write_bytes(b"\x01" * 24)
        else:  # preallocated by Kafka and never truncated
            path.write_bytes(content + bytes(1200 - len(content) % 24))
    log = open_at(str(tmp_path), config=SMALL, clean=damage != "zeros", recovery_point=20)
    assert values(log) == [b"%03d" % i for i in range(20)]
    assert [log.read(i, 1, 20)[7] for i in range(20)] == list(range(20))
    if damage != "garbage" or kind == ".index":
        assert log.offset_for_timestamp(START + 11, 20) == (START + 11, 11, 3)


def test_wrong_index_is_detected_by_a_read_and_rebuilt(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=4 << 20)
    log = open_at(str(tmp_path), config=config)
    for i in range(60):
        append(log, batch(b"%02d" % i + b"x" * 60_000))
    log.roll(START)
    sealed = log.segments[0]
    path = Path(sealed.file.path(".index"))
    good = path.read_bytes()
    path.write_bytes(b"".join((i + 1).to_bytes(4, "big") + (i * 7 + 3).to_bytes(4, "big") for i in range(40)))
    assert log.read(30, 1, 60)[61 + 5 :].find(b"30x") >= 0
    assert path.read_bytes() == good
    assert sealed.file.size == log.size


@pytest.mark.parametrize("position", [1 << 30, -1 << 31], ids=["behind the end", "before the start"])
def test_index_entry_outside_of_its_segment_costs_no_record(tmp_path: Path, position: int) -> None:
    log = open_at(str(tmp_path), config=LogConfig(index_interval_bytes=0))
    for i in range(6):
        append(log, batch(b"%03d" % i))
        if i % 3 == 2:
            log.roll()
    log.close()
    for segment in log.segments[:-1]:
        path = Path(segment.file.path(".index"))
        path.write_bytes(path.read_bytes()[:-4] + position.to_bytes(4, "big", signed=True))
    log = open_at(str(tmp_path), clean=True, recovery_point=6)
    read = [read_header(log.read(offset, 1, 6)).base_offset for offset in range(6)]
    assert (read, log.log_directory.online) == (list(range(6)), True)


def test_index_that_was_not_synced_after_a_roll_is_not_trusted(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=LogConfig(index_interval_bytes=0))
    for i in range(6):
        append(log, batch(b"x" * 2000, timestamp=START + i))
    assert log.flush() == 6
    log.roll()  # at the recovery point: the indexes of the old segment may not be on disk
    append(log, batch(b"next", timestamp=START))
    log.abandon()
    path = Path(log.segments[0].file.path(".timeindex"))
    path.write_bytes(path.read_bytes()[:24])
    log = open_at(str(tmp_path), config=LogConfig(index_interval_bytes=0), recovery_point=6)
    assert log.offset_for_timestamp(START + 5, 7) == (START + 5, 5, 0)
    assert log.segments[0].indices.largest_timestamp() == (START + 5, 5), "by which it ages"


def test_leader_epochs_and_producers_are_rebuilt_from_the_batches(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 20)
    log.abandon()
    for path in Path(log.directory).glob("*.snapshot"):
        path.write_bytes(b"\0" * 7)
    log = open_at(str(tmp_path), config=SMALL)
    assert log.offset_for_leader_epoch(4) == (4, 15)
    assert [e.last_sequence for e in log.active_producers()] == [19]
    assert append(log, batch(b"019", producer=BatchProducer(1, 0, 19))).duplicate


def test_corrupt_epochs_and_a_corrupt_batch_do_not_end_the_log(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 20)
    log.close()
    (Path(log.directory) / "leader-epoch-checkpoint").write_bytes(b"0\n1\nx y\n")
    path = Path(log.segments[1].file.path())
    path.write_bytes(path.read_bytes()[:8] + b"\xff" * 4 + path.read_bytes()[12:])
    log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=20)
    assert log.log_end_offset == 20
    assert log.offset_for_leader_epoch(6) == (6, 20)


def test_log_that_ends_before_its_start_restarts_there(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 5)
    log.abandon()
    log = open_at(str(tmp_path), config=SMALL, log_start_offset=9)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert append(log, batch(b"x")).first_offset == 9


def test_files_to_be_deleted_and_stray_indices_are_removed_and_unknown_ones_are_left(tmp_path: Path) -> None:
    log = open_at(str(tmp_path))
    fill(log, 3)
    log.close()
    directory = Path(log.directory)
    removed = [f"{7:020d}.index", f"{7:020d}.log.deleted", f"{7:020d}.log.cleaned", f"{7:020d}.timeindex"]
    kept = ["notes.txt", f"{0:020d}.checkpoint.deleted", "00000000000000000000-0000000001.checkpoint"]
    for name in removed + kept:
        (directory / name).write_bytes(b"?")
    log = open_at(str(tmp_path), clean=True)
    names = {path.name for path in directory.iterdir()}
    assert not names & set(removed)
    assert names >= set(kept)
    assert len(values(log)) == 3


@pytest.mark.parametrize("damage", [errno.EIO, errno.ENOSPC])
def test_failed_write_takes_the_directory_offline_and_leaves_no_partial_batch(damage: int) -> None:
    disk = SimulatedDisk()
    log = open_at("/d", disk)
    fill(log, 3)
    log.flush()
    disk.fail_writes = damage
    with pytest.raises(KafkaError) as info:
        append(log, batch(b"lost"))
    assert info.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.log_directory.online
    disk.fail_writes = None
    with pytest.raises(KafkaError):
        append(log, batch(b"lost"))
    with pytest.raises(KafkaError):
        log.read(0, 100, 3)
    assert disk.size(log.segments.active.file.path()) == log.segments.active.file.size
    log = open_at("/d", disk)
    assert values(log) == [b"000", b"001", b"002"]


def test_failed_fsync_is_not_retried() -> None:
    disk = SimulatedDisk()
    log = open_at("/d", disk)
    fill(log, 3)
    disk.fail_syncs = errno.EIO
    with pytest.raises(KafkaError):
        log.flush()
    disk.fail_syncs = None
    assert log.flushed_offset == 0
    with pytest.raises(KafkaError):
        log.flush()


class FewDescriptors(SimulatedDisk):
    """Has only `left` descriptors for `dup`."""

    left = 1 << 30

    def dup(self, fd: int) -> int:
        if self.left == 0:
            raise OSError(errno.EMFILE, "simulated")
        self.left -= 1
        return super().dup(fd)


def test_flush_without_descriptors_promises_nothing_and_is_retried() -> None:
    disk = FewDescriptors()
    log = open_at("/d", disk, SMALL)
    fill(log, 12)
    disk.left, held = 2, len(disk.descriptors)
    with pytest.raises(KafkaError) as info:
        log.flush()
    assert info.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.flushed_offset, log.log_directory.online, len(disk.descriptors)) == (0, True, held)
    disk.left = 1 << 30
    assert log.flush() == log.log_end_offset
    # Everything that is on disk now survives any crash, file names included.
    assert all(values(open_at("/d", disk.crash(), SMALL)) == values(log) for _ in range(20))


class Story:
    """The written records and the promises, to be compared with the state after a crash."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.written: list[bytes] = []
        self.flushed = 0
        self.point = 0
        self.start = 0
        self.log = open_at("/d", self.disk, SMALL)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            choice = self.random.random()
            if choice < 0.75:
                self.append()
            elif choice < 0.85:
                self.flushed = self.log.flush()
            elif choice < 0.9:
                self.point = self.log.flushed_offset  # the value that a checkpoint would have
                self.start = self.log.log_start_offset
            elif choice < 0.95:
                self.log.roll(START)
            elif self.log.log_end_offset > self.log.log_start_offset:
                self.log.high_watermark = self.flushed
                self.log.delete_records_before(self.random.randint(self.log.log_start_offset, self.log.high_watermark))
                self.log.delete_old_segments(START)

    def append(self) -> None:
        data = [
            b"%d:%s" % (len(self.written) + i, b"x" * self.random.randrange(50))
            for i in range(self.random.choice((1, 3)))
        ]
        self.written += data
        sequence = len(self.written) - len(data)
        append(self.log, batch(*data, producer=BatchProducer(1, 0, sequence)), epoch=sequence // 10)

    def crash(self) -> None:
        self.disk = self.disk.crash()
        self.log = open_at("/d", self.disk, SMALL, recovery_point=self.point, log_start_offset=self.start)
        found = records(self.log)
        first, end = self.log.log_start_offset, self.log.log_end_offset
        assert first <= self.flushed <= end
        assert found == [(offset, self.written[offset]) for offset in range(first, end)]
        assert all(epoch.start_offset <= end for epoch in self.log.epochs.entries)
        del self.written[end:]
        if self.log.active_producers() and end > first:
            (producer,) = self.log.active_producers()
            assert producer.last_sequence == end - 1
        self.flushed = min(self.flushed, end)
        self.point = min(self.point, end)


@pytest.mark.parametrize("seed", range(150))
def test_flushed_records_survive_any_crash_once_and_in_order(seed: int) -> None:
    story = Story(seed)
    for _ in range(4):
        story.disk.crash_after = story.random.randrange(200) if story.random.random() < 0.5 else None
        with contextlib.suppress(Crash):
            story.run(60)
        story.disk.crash_after = None
        story.crash()
