"""Memory of large reads: it is bounded, and reused only when no view of it is left."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.log.files import LARGE_READ_BYTES, Files
from ottla.log.read_buffers import KEPT_BYTES, ReadBuffers

MIB = 1024 * 1024


def test_large_read_returns_the_content(tmp_path: Path) -> None:
    content = os.urandom(3 * LARGE_READ_BYTES)
    (tmp_path / "file").write_bytes(content)
    files = Files()
    fd = files.open(str(tmp_path / "file"))
    for position in (0, 1, LARGE_READ_BYTES, 3 * LARGE_READ_BYTES - 1, 4 * LARGE_READ_BYTES):
        for size in (10, LARGE_READ_BYTES, 2 * LARGE_READ_BYTES + 7):
            assert files.pread_large(fd, size, position) == content[position : position + size]
    files.close(fd)


def test_buffer_with_a_view_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a" * MIB + b"b" * MIB)
    files = Files()
    fd = files.open(str(tmp_path / "file"))
    first = memoryview(files.pread_large(fd, MIB, 0))
    part = first[5:10]
    del first
    second = files.pread_large(fd, MIB, MIB)
    assert part == b"aaaaa"
    assert second[0] == ord("b")
    assert memoryview(second).readonly
    files.close(fd)


def test_memory_is_reused_and_bounded() -> None:
    buffers = ReadBuffers()
    one = buffers.take(MIB)
    place = id(one.obj)
    del one
    two = buffers.take(MIB - 5)
    assert id(two.obj) == place
    held = [buffers.take(4 * MIB) for _ in range(20)]
    assert len({id(view.obj) for view in (two, *held)}) == 21
    assert buffers.kept_bytes <= KEPT_BYTES
    del held, two
    large = buffers.take(KEPT_BYTES)  # free buffers that are too small are released
    place = id(large.obj)
    assert buffers.kept_bytes == KEPT_BYTES
    del large
    assert id(buffers.take(KEPT_BYTES).obj) == place
