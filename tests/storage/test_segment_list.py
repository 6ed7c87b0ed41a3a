"""`SegmentList`: the list of segments and the files behind it, without producers, epochs or watermarks."""

import os
from pathlib import Path

import pytest

from ottla.log import Files
from ottla.log.segment_list import SegmentList
from ottla.log.slices import FileSlice
from tests.simulation.world.disk import SimulatedDisk
from tests.storage.helpers import START
from tests.storage.parts import context_at, segment_list, write

DELAY_MS = 60_000


def rolled(path: Path, *sizes: int) -> SegmentList:
    """A list of segments with these numbers of records; the last one is active."""
    segments = segment_list(context_at(str(path)))
    for i, size in enumerate(sizes):
        if i:
            segments.roll(START, None)
        write(segments, size)
    return segments


def offsets(segments: SegmentList) -> list[int]:
    return [segment.base_offset for segment in segments]


def read(segments: SegmentList, offset: int, max_bytes: int = 1 << 20, upper_bound: int | None = None) -> bytes:
    bound = segments.end_offset if upper_bound is None else upper_bound
    data = segments.read(offset, max_bytes, bound, min_one_batch=True)
    assert not isinstance(data, FileSlice)
    return bytes(data)


def test_list_has_length_items_and_slices(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 2, 3, 1)
    assert len(segments) == 3
    assert offsets(segments) == [0, 2, 5]
    assert segments[-1] is segments.active
    assert segments[:2] == list(segments)[:2]
    assert segments.size == sum(segment.file.size for segment in segments)


def test_append_moves_the_end_offset(tmp_path: Path) -> None:
    segments = segment_list(context_at(str(tmp_path)))
    write(segments, 3)
    assert segments.end_offset == 3
    assert segments.active.file.size == os.path.getsize(segments.active.file.path())


def test_failed_append_leaves_no_partial_batch() -> None:
    class HalfWriting(SimulatedDisk):
        fails = False

        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
            super().pwrite(fd, data[: len(data) // 2] if self.fails else data, position)
            if self.fails:
                raise OSError(28, "simulated")

    disk = HalfWriting()
    segments = segment_list(context_at("/data", disk))
    write(segments)
    disk.fails = True
    with pytest.raises(OSError, match="simulated"):
        write(segments)
    assert segments.end_offset == 1
    assert disk.size(segments.active.file.path()) == segments.active.file.size


@pytest.mark.parametrize(("offset", "index"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 2), (99, 2)])
def test_index_at_finds_the_segment_of_an_offset(tmp_path: Path, offset: int, index: int) -> None:
    assert rolled(tmp_path, 2, 3, 1).index_at(offset) == index


def test_segment_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 2, 3, 1)
    assert [segments.end_of(i) for i in range(3)] == [2, 5, 6]


def test_roll_leaves_the_old_segment_and_the_snapshot_to_the_next_flush(tmp_path: Path) -> None:
    segments = segment_list(context_at(str(tmp_path)))
    write(segments)
    old = segments.active
    segments.unsynced.directory_changed = False
    new = segments.roll(START, "/snapshot")
    assert segments.active is new
    assert (old.file.sealed, old.file.evictable, new.base_offset) == (True, False, 1)
    assert segments.unsynced.segments == [old]
    assert segments.unsynced.paths == ["/snapshot"]
    assert segments.unsynced.directory_changed


def test_failed_roll_changes_nothing() -> None:
    class NoNewFiles(SimulatedDisk):
        fails = False

        def open(self, path: str, *, create: bool = False, truncate: bool = False, read_only: bool = False) -> int:
            if self.fails and path.endswith("1.log"):
                raise OSError(24, "simulated")
            return super().open(path, create=create, truncate=truncate, read_only=read_only)

    disk = NoNewFiles()
    segments = segment_list(context_at("/data", disk))
    write(segments)
    old = segments.active
    disk.fails = True
    with pytest.raises(OSError, match="simulated"):
        segments.roll(START, None)
    assert (len(segments), segments.active, old.file.sealed, segments.unsynced.segments) == (1, old, False, [])
    write(segments)
    assert segments.end_offset == 2


def test_read_ends_at_its_bound_its_size_and_its_segment(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 3, 1)
    size = segments[0].file.size // 3
    assert len(read(segments, 0)) == 3 * size
    assert len(read(segments, 1)) == 2 * size
    assert len(read(segments, 0, upper_bound=2)) == 2 * size
    assert len(read(segments, 0, max_bytes=2 * size + 1)) == 2 * size
    assert len(read(segments, 0, max_bytes=1)) == size
    assert segments.read(0, 1, 3, min_one_batch=False) == b""


def test_read_skips_segments_that_compaction_emptied(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 2, 2, 1)
    middle = segments[1]
    Path(middle.file.path()).write_bytes(b"")
    middle.file.size = 0
    middle.indices.rebuild(4096)
    assert read(segments, 2) == read(segments, 4)
    assert segments.index_of_read(2) == 2


def test_replaced_segments_are_renamed_now_and_deleted_after_their_delay(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 2, 3, 1)
    first = segments[0]
    segments.max_timestamps.append(1)
    segments.remove([first])
    assert offsets(segments) == [2, 5]
    assert segments.max_timestamps == []
    assert first not in segments.unsynced.segments
    assert first.file.fd < 0
    assert Path(first.file.path()).name == f"{0:020d}.log.deleted"
    assert segments.take_due_deletions(START + DELAY_MS - 1) == []
    due = segments.take_due_deletions(START + DELAY_MS)
    assert first.file.path() in due
    assert segments.take_due_deletions(START + DELAY_MS) == []


def test_deletions_go_on_after_the_clock_was_set_back(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 1, 1)
    segments.remove([segments[0]])
    assert segments.take_due_deletions(START - 1) != []


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_truncation_activates_the_segment_of_the_offset(tmp_path: Path, offset: int) -> None:
    segments = rolled(tmp_path, 2, 3, 1)
    truncations = segments.unsynced.truncations
    segments.truncate_to(offset)
    assert segments.end_offset == offset
    assert segments.active is segments[-1]
    assert not segments.active.file.sealed
    assert segments.active not in segments.unsynced.segments
    assert segments.unsynced.truncations == truncations + 1
    write(segments)
    assert segments.end_offset == offset + 1
    assert len(read(segments, offset)) > 0


def test_truncation_rebuilds_a_corrupt_index(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 3, 1)
    Path(segments[0].file.path(".timeindex")).write_bytes(b"\xff" * 24)
    segments.truncate_to(2)
    assert (segments.end_offset, len(segments)) == (2, 1)


def test_restart_continues_with_one_empty_segment(tmp_path: Path) -> None:
    segments = rolled(tmp_path, 2, 1)
    segments.restart_at(100)
    assert (offsets(segments), segments.size, segments.end_offset) == ([100], 0, 100)
    write(segments)
    assert len(read(segments, 100)) == segments.size


def test_close_closes_every_descriptor(tmp_path: Path) -> None:
    context = context_at(str(tmp_path))
    segments = segment_list(context)
    write(segments)
    segments.roll(START, None)
    segments.close()
    assert context.closed
    assert [segment.file.fd for segment in segments] == [-1, -1]


def test_partial_batch_that_cannot_be_cut_takes_the_directory_offline(tmp_path: Path) -> None:
    class Broken(Files):
        fails = False

        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
            if self.fails:
                raise OSError(5, "simulated")
            super().pwrite(fd, data, position)

        def truncate(self, fd: int, size: int) -> None:
            raise OSError(5, "simulated")

    files = Broken()
    context = context_at(str(tmp_path), files)
    segments = segment_list(context)
    files.fails = True
    with pytest.raises(OSError, match="simulated"):
        write(segments)
    assert not context.log_directory.online
