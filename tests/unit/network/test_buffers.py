"""Buffers of frames are reused, but never while a view of them exists."""

import resource
from pathlib import Path

import pytest

from ottla.network.buffers import (
    LARGEST_REUSED_BYTES,
    MOST_POOLED_BYTES,
    MOST_REUSED,
    TRUSTED_FRAME_BYTES,
    BufferPool,
    FrameBuffers,
    frame_capacity,
    grown_capacity,
)

SIZE = 3 * 1024 * 1024


def test_buffer_is_reused_when_no_view_of_it_exists() -> None:
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


def test_buffer_that_is_too_small_is_replaced() -> None:
    frames = FrameBuffers()
    memoryview(frames.take(SIZE))[0] = 7
    assert len(frames.take(2 * SIZE)) >= 2 * SIZE
    memoryview(frames.take(2 * SIZE))[0] = 8
    assert memoryview(frames.take(SIZE))[0] == 8


def test_pool_has_at_most_two_buffers_and_no_large_one() -> None:
    frames = FrameBuffers()
    taken = [memoryview(frames.take(SIZE)) for _ in range(MOST_REUSED + 2)]
    for number, view in enumerate(taken):
        view[0] = 10 + number
    taken.clear()
    assert len(frames._pool) == MOST_REUSED
    memoryview(frames.take(LARGEST_REUSED_BYTES + 1))[0] = 99
    assert len(frames._pool) < 1 + MOST_REUSED
    assert memoryview(frames.take(LARGEST_REUSED_BYTES + 1))[0] == 0


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_claimed_size_allocates_no_memory() -> None:
    before = _resident_bytes()
    buffer = FrameBuffers().take(1 << 29)
    assert len(buffer) == 1 << 29
    assert _resident_bytes() - before < 1 << 24


@pytest.mark.parametrize(
    ("received", "needed", "capacity"),
    [
        (4, 1 << 30, 4096),
        (7, 100, 100),
        (1000, 1 << 20, 8000),
        (128 << 10, 1 << 20, 1 << 20),
        (1 << 20, 100 << 20, 2 << 20),
        (3 << 20, 100 << 20, 6 << 20),
        (60 << 20, 100 << 20, 100 << 20),
    ],
)
def test_capacity_depends_on_received_bytes_not_on_the_claimed_size(received: int, needed: int, capacity: int) -> None:
    assert frame_capacity(received, needed) == capacity


def test_growing_a_trusted_frame_copies_at_most_a_third_of_it() -> None:
    for needed in (100_000, 1 << 20, TRUSTED_FRAME_BYTES):
        copied, capacity = 0, frame_capacity(7, needed)
        for received in range(7, needed, 1000):
            assert capacity > received
            grown = grown_capacity(capacity, received, needed)
            copied += received if grown > capacity else 0
            capacity = grown
        assert capacity == needed
        assert 3 * copied <= needed


def test_trim_releases_buffers_that_were_not_used_since_the_last_trim() -> None:
    pool = BufferPool()
    buffers = [pool.take(1 << 20) for _ in range(8)]
    for buffer in buffers:
        pool.give_back(buffer)
    pool.trim()
    assert pool.pooled_bytes == 8 << 20
    taken = [pool.take(1 << 20) for _ in range(3)]
    for buffer in taken:
        pool.give_back(buffer)
    pool.trim()
    assert pool.pooled_bytes == 3 << 20
    pool.trim()
    assert pool.pooled_bytes == 0


def test_pool_retains_a_bounded_amount_and_only_its_own_sizes() -> None:
    pool = BufferPool()
    for size in (1000, 64 << 10, 3 << 20, 2 << 20):
        for buffer in [pool.take(size) for _ in range(20)]:
            pool.give_back(buffer)
    assert 0 < pool.pooled_bytes <= MOST_POOLED_BYTES
    assert len(pool.take(100 << 10)) == 128 << 10
