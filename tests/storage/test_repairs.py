"""A repair never changes a batch whose CRC is right, and takes no bytes out of a log without a copy beside it."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from zlib import crc32

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.log import Log, LogConfig, LogManager, salvage
from ottla.log.moves import LogMoves
from ottla.log.segment_file import file_name
from ottla.records import check_crc, patch, read_header
from tests.simulation.world.disk import SimulatedDisk
from tests.storage.helpers import START, TOPIC_ID, TP, ManualClock, append, batch, open_at, values
from tests.storage.test_moves import complete, other_directory
from tests.storage.test_unusual_directories import KINDS, Kind, at, reopened, write

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=64)
ENDS = ("clean", "killed", "running")


def fill(log: Log, count: int) -> list[bytes]:
    for i in range(count):
        append(log, batch(b"%03d" % i, timestamp=START + i))
    return [b"%03d" % i for i in range(count)]


def copies(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "t-0").iterdir() if salvage.is_copy(path.name))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def after_damage(log: Log, home: Path, ended: str) -> Log:
    """The log after its files were damaged: still running, or opened again."""
    end = log.log_end_offset
    if ended == "running":
        for segment in log.segments:
            segment.sound_to = 0  # as if an earlier process had written it
        return log
    log.abandon()
    return open_at(str(home), config=SMALL, clean=ended == "clean", recovery_point=end)


# Repairs, and how they are undone


@pytest.mark.parametrize("ended", ENDS)
@pytest.mark.parametrize("bit", [0, 1, 3, 8, 33, 62, 63])
def test_wrong_base_offset_is_corrected_and_costs_nothing(tmp_path: Path, ended: str, bit: int) -> None:
    origin = open_at(str(tmp_path / "origin"), config=SMALL)
    written = fill(origin, 14)
    origin.close()
    segment = origin.segments[1]
    size = len(batch(b"000"))
    count = segment.file.size // size
    for i in range(count):
        home = tmp_path / f"{i}"
        log = open_at(str(home), config=SMALL)
        fill(log, 14)
        log.flush()
        log.segments.seal_for_close(None)
        path = Path(log.segments[1].file.path())
        data = bytearray(path.read_bytes())
        data[i * size + 7 - bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        log = after_damage(log, home, ended)
        assert values(log) == written
        assert Path(log.segments[1].file.path()).read_bytes() == Path(segment.file.path()).read_bytes()
        log.abandon()


def test_replaced_header_can_be_written_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 12)
    log.close()
    path = Path(log.segments[1].file.path())
    damaged = bytearray(path.read_bytes())
    damaged[8] ^= 0x40  # a length that hides all later batches
    path.write_bytes(damaged)
    log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=12)
    assert values(log) == [b"%03d" % i for i in range(12)]
    assert path.read_bytes() != damaged
    (copy,) = copies(tmp_path)
    (line,) = errors(caplog)
    assert str(copy) in line
    position = int(re.search(r"seek=(\d+)", line)[1])  # type: ignore[index]
    restored = bytearray(path.read_bytes())
    restored[position : position + 61] = copy.read_bytes()
    assert restored == damaged


@pytest.mark.parametrize("ended", ENDS)
def test_repaired_header_does_not_make_a_corrupt_record_look_right(tmp_path: Path, ended: str) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 12)
    log.flush()
    log.segments.seal_for_close(None)
    path = Path(log.segments[1].file.path())
    data = bytearray(path.read_bytes())
    size = len(batch(b"000"))
    data[size + 8] ^= 0x40  # the length, and then a value
    data[2 * size - 2] ^= 1
    path.write_bytes(data)
    log = after_damage(log, tmp_path, ended)
    damaged = log.segments[1].base_offset + 1
    for offset in range(12):
        found = bytes(log.read(offset, 1, 12))
        assert read_header(found).base_offset == offset
        assert check_crc(found, 0, len(found)) == (offset != damaged)


def test_batch_with_a_wrong_crc_and_a_right_frame_is_not_changed(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 12)
    log.close()
    path = Path(log.segments[1].file.path())
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    Path(log.segments[1].file.path(".index")).unlink()
    log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=12)
    assert (log.log_end_offset, path.read_bytes(), copies(tmp_path)) == (12, damaged, [])


@pytest.mark.parametrize("ended", ENDS)
def test_batch_that_fits_nowhere_is_left_and_the_others_are_served(tmp_path: Path, ended: str) -> None:
    kind = Kind({0: [at(0), at(2), at(2, count=3), at(4)], 10: [at(10)]})
    write(tmp_path, kind)
    before = {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")}
    log = reopened(tmp_path, kind, SMALL, clean=ended != "killed", recovery_point=12)
    for offset, served in ((0, 0), (5, 4), (10, 10)):
        assert bytes(log.read(offset, 1, 12)) == at(served)
    for _ in range(2):
        with pytest.raises(KafkaError) as info:
            log.read(2, 1 << 20, 12)
        assert info.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.abandon()
    assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")} == before


@pytest.mark.parametrize("ended", ENDS)
def test_wrong_base_offset_next_to_a_gap_is_not_guessed(tmp_path: Path, ended: str) -> None:
    wrong = bytearray(at(4))
    patch(wrong, 0, 1, 3)
    kind = Kind({0: [at(0), bytes(wrong), at(8)], 10: [at(10)]})
    write(tmp_path, kind)
    log = reopened(tmp_path, kind, SMALL, clean=ended != "killed", recovery_point=12)
    for offset in (8, 10):
        assert bytes(log.read(offset, 1, 12)) == at(offset)
    log.abandon()
    assert Path(log.segments[0].file.path()).read_bytes() == at(0) + wrong + at(8)
    assert copies(tmp_path) == []


@pytest.mark.parametrize("ended", ["clean", "killed"])
def test_messages_of_kafka_before_0_11_are_left_as_they_are(tmp_path: Path, ended: str) -> None:
    content = bytes([1, 0]) + START.to_bytes(8, "big") + b"\xff\xff\xff\xff" + (40).to_bytes(4, "big") + b"v" * 40
    message = (
        (0).to_bytes(8, "big") + (len(content) + 4).to_bytes(4, "big") + crc32(content).to_bytes(4, "big") + content
    )
    write(tmp_path, Kind({0: [], 6: [at(6), at(8)]}))
    path = tmp_path / "t-0" / file_name(0)
    path.write_bytes(message * 3)
    (tmp_path / "t-0" / file_name(0, ".index")).unlink()
    log = open_at(str(tmp_path), config=SMALL, clean=ended == "clean", recovery_point=10)
    with pytest.raises(KafkaError):
        log.read(0, 100, 10)
    assert bytes(log.read(6, 1, 10)) == at(6)
    assert path.read_bytes() == message * 3


# Bytes that leave the log


def killed_with_unflushed_segments(home: Path) -> Log:
    log = open_at(str(home), config=SMALL)
    fill(log, 14)
    log.abandon()
    return log


def cut_to_batches(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[: count * len(batch(b"000"))])


def test_batches_that_a_power_cut_took_from_the_end_of_a_segment_end_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = killed_with_unflushed_segments(tmp_path)
    first, second, third = (Path(segment.file.path()) for segment in log.segments)
    whole, last = first.read_bytes(), third.read_bytes()
    cut_to_batches(first, 3)
    for _ in range(2):
        log = open_at(str(tmp_path), config=SMALL)
        assert values(log) == [b"000", b"001", b"002"]
        log.abandon()
    assert not second.exists()
    kept = copies(tmp_path)
    assert [path.name.partition("-")[0] for path in kept] == [f"{second.name}.0", f"{third.name}.0"]
    assert all(any(str(path) in line for line in errors(caplog)) for path in kept)
    # As the line says: the operator restores the first segment, and renames the others.
    first.write_bytes(whole)
    kept[0].rename(second)
    kept[1].rename(third)
    assert third.read_bytes() == last
    log = open_at(str(tmp_path), config=SMALL)
    assert values(log) == [b"%03d" % i for i in range(14)]


def test_gap_after_a_segment_that_this_log_did_not_end_there_is_accepted(tmp_path: Path) -> None:
    log = killed_with_unflushed_segments(tmp_path)
    cut_to_batches(Path(log.segments[0].file.path()), 3)
    for path in (tmp_path / "t-0").glob("*.rolled"):
        path.unlink()
    log = open_at(str(tmp_path), config=SMALL)
    assert len(values(log)) == 3 + 14 - log.segments[1].base_offset
    assert not copies(tmp_path)


def test_marks_of_rolled_segments_are_deleted_by_the_flush(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 14)
    marks = lambda: sorted(path.name for path in (tmp_path / "t-0").glob("*.rolled"))  # noqa: E731
    assert marks() == [file_name(segment.base_offset, ".rolled") for segment in log.segments[1:]]
    log.abandon()
    log = open_at(str(tmp_path), config=SMALL)
    assert len(marks()) == len(log.segments) - 1, "a power cut may still take the ends of these segments"
    log.flush()
    assert marks() == []
    (tmp_path / "t-0" / file_name(5, ".rolled")).touch()
    log.close()
    open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=14)
    assert marks() == []


def test_bytes_behind_a_torn_batch_are_copied_and_can_be_appended_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_at(str(tmp_path))
    fill(log, 6)
    log.abandon()
    path = Path(log.segments[0].file.path())
    size = len(batch(b"000"))
    damaged = bytearray(path.read_bytes())
    damaged[2 * size + 70] ^= 1
    path.write_bytes(damaged)
    log = open_at(str(tmp_path))
    assert values(log) == [b"000", b"001"]
    log.abandon()
    (copy,) = copies(tmp_path)
    assert copy.read_bytes() == damaged[2 * size :]
    assert any(str(copy) in line for line in errors(caplog))


@pytest.mark.parametrize("tail", [b"", bytes(500), b"x" * 40], ids=["half a batch", "zeros", "garbage"])
def test_ordinary_torn_tail_needs_no_copy(tmp_path: Path, tail: bytes, caplog: pytest.LogCaptureFixture) -> None:
    log = open_at(str(tmp_path))
    fill(log, 6)
    log.abandon()
    path = Path(log.segments[0].file.path())
    path.write_bytes(path.read_bytes()[:-9] + tail)
    log = open_at(str(tmp_path))
    assert len(values(log)) == 5
    assert (copies(tmp_path), errors(caplog)) == ([], [])


def test_copy_is_on_disk_before_the_bytes_are_cut() -> None:
    for moment in range(30):
        disk = SimulatedDisk(moment)
        log = open_at("/d", disk)
        fill(log, 6)
        log.flush()
        log.abandon()
        inode = disk.folders["/d/t-0"].names[file_name(0)]
        inode.data[len(batch(b"000")) + 70] ^= 1  # type: ignore[union-attr]
        inode.synced = whole = bytes(inode.data)  # type: ignore[union-attr]
        disk.crash_after = moment
        try:
            open_at("/d", disk).abandon()
        except Exception as error:  # noqa: BLE001 - the crash, at any call
            assert type(error).__name__ == "Crash"  # noqa: PT017
        after = disk.crash()
        names = after.list("/d/t-0")
        found = after.read(f"/d/t-0/{file_name(0)}")
        saved = [after.read(f"/d/t-0/{name}") for name in names if salvage.is_copy(name)]
        assert found == whole or any(found + each == whole for each in saved)


def test_log_that_ends_before_its_start_is_not_thrown_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_at(str(tmp_path))
    fill(log, 5)
    log.close()
    content = Path(log.segments[0].file.path()).read_bytes()
    log = open_at(str(tmp_path), clean=True, recovery_point=5, log_start_offset=900)
    assert log.log_end_offset == 900
    (copy,) = copies(tmp_path)
    assert copy.read_bytes() == content
    assert len(errors(caplog)) == 1


def test_clean_directory_with_a_short_segment_loses_no_later_segment(tmp_path: Path) -> None:
    log = open_at(str(tmp_path), config=SMALL)
    fill(log, 14)
    log.close()
    path = Path(log.segments[0].file.path())
    path.write_bytes(path.read_bytes()[:-40])
    Path(log.segments[0].file.path(".index")).unlink()
    log = open_at(str(tmp_path), config=SMALL, clean=True, recovery_point=14)
    assert values(log)[-9:] == [b"%03d" % i for i in range(5, 14)]
    assert copies(tmp_path)


# The copies


def test_copies_are_bounded_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "MOST_BYTES", 3 << 20)
    names = set()
    for _ in range(8):  # a crash loop
        log = open_at(str(tmp_path))
        fill(log, 6)
        log.abandon()
        path = Path(log.segments[0].file.path())
        data = bytearray(path.read_bytes())
        data[-5 * len(batch(b"000")) - 1] ^= 1
        path.write_bytes(data)
        open_at(str(tmp_path)).abandon()
        names |= {path.name for path in copies(tmp_path)}
        assert len(copies(tmp_path)) <= 3
    numbers = sorted(int(re.search(r"-(\d+)\.", path.name)[1]) for path in copies(tmp_path))  # type: ignore[index]
    assert (len(names), numbers) == (8, [6, 7, 8])


def test_copies_move_with_the_log_and_are_deleted_with_it(tmp_path: Path) -> None:
    homes = (str(tmp_path / "one"), str(tmp_path / "two"))
    logs = LogManager(homes, ManualClock(), SMALL)
    logs.load()
    log = logs.create(TP, TOPIC_ID)
    fill(log, 12)
    name = "00000000000000000000.log.61-1.removed"
    (tmp_path / "one" / "t-0" / name).write_bytes(b"records")
    moves = LogMoves(logs)
    complete(moves, log, future := moves.begin(log, other_directory(logs, log)))
    assert (Path(future.directory) / name).read_bytes() == b"records"
    logs.delete([TP])
    assert not list((tmp_path / "two").glob("t-0/*"))
    logs.abandon()


def test_completion_of_a_swap_deletes_no_copy(tmp_path: Path) -> None:
    write(tmp_path, KINDS["plain"])
    folder = tmp_path / "t-0"
    for base in (0, 6):
        (folder / f"{file_name(base)}.61-1.removed").write_bytes(b"records")
    (folder / f"{file_name(0)}.swap").write_bytes(at(0) + at(8))
    log = open_at(str(tmp_path), clean=True, recovery_point=16)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert len(copies(tmp_path)) == 2
