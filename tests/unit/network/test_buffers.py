"""Frames' buffers are used again, but never while somebody looks at one."""

import resource
from pathlib import Path

from ottla.network.buffers import LARGEST_KEPT_BYTES, MOST_KEPT, FrameBuffers

SIZE = 3 * 1024 * 1024


def test_a_buffer_is_used_again_once_no_view_of_it_is_left() -> None:
    frames = FrameBuffers()
    frame = memoryview(frames.take(SIZE))[:SIZE]
    frame[:3] = b"abc"
    part = frame[:3]
    del frame
    other = memoryview(frames.take(SIZE))
    other[:3] = b"xyz"
    assert part == b"abc"
    del part
    again = memoryview(frames.take(SIZE - 5))
    assert again[:3] == b"abc"
    assert other[:3] == b"xyz"


def test_a_buffer_that_is_too_small_gives_way() -> None:
    frames = FrameBuffers()
    memoryview(frames.take(SIZE))[0] = 7
    assert len(frames.take(2 * SIZE)) >= 2 * SIZE
    memoryview(frames.take(2 * SIZE))[0] = 8
    assert memoryview(frames.take(SIZE))[0] == 8


def test_no_more_than_two_are_kept_and_no_large_one() -> None:
    frames = FrameBuffers()
    taken = [memoryview(frames.take(SIZE)) for _ in range(MOST_KEPT + 2)]
    for number, view in enumerate(taken):
        view[0] = 10 + number
    taken.clear()
    assert len(frames._kept) == MOST_KEPT
    memoryview(frames.take(LARGEST_KEPT_BYTES + 1))[0] = 99
    assert len(frames._kept) < 1 + MOST_KEPT
    assert memoryview(frames.take(LARGEST_KEPT_BYTES + 1))[0] == 0


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_size_that_is_only_claimed_takes_no_memory() -> None:
    before = _resident_bytes()
    buffer = FrameBuffers().take(1 << 29)
    assert len(buffer) == 1 << 29
    assert _resident_bytes() - before < 1 << 24
