"""FrameReader: bytes in, frames out, without a socket."""

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.network.frame_reader import LEAST_BUFFER_BYTES, READ_AHEAD_BYTES, FrameReader
from ottla.network.limits import Limits
from ottla.network.receive_memory import SCRATCH_BYTES, ReceiveMemory
from ottla.protocol.wire import DecodeError


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Owner:
    """Counts the notifications that memory was released."""

    def __init__(self) -> None:
        self.notified = 0

    def memory_available(self) -> None:
        self.notified += 1


def make_reader(limits: Limits | None = None) -> tuple[FrameReader, ReceiveMemory]:
    memory = ReceiveMemory(limits or Limits())
    return FrameReader(memory, Owner()), memory


def put(reader: FrameReader, data: bytes) -> int:
    """Read once, as much of `data` as fits."""
    buffer = reader.get_buffer()
    size = min(len(buffer), len(data))
    buffer[:size] = data[:size]
    reader.received(size)
    return size


def read(reader: FrameReader, data: bytes, sizes: Iterable[int], most_frames: int = 1 << 30) -> list[bytes]:
    """Return the frames of `data`, which arrives in pieces of `sizes`; handle `most_frames` after each read."""
    frames: list[bytes] = []

    def handle() -> None:
        for _ in range(most_frames):
            frame = reader.next_frame()
            if frame is None:
                break
            frames.append(bytes(frame))
        reader.retain(LEAST_BUFFER_BYTES)

    position = 0
    pieces = iter(sizes)
    while position < len(data):
        size = next(pieces, len(data))
        position += put(reader, data[position : position + size])
        handle()
        assert reader.reserve(may_grow=True)
        while reader.has_frame:
            handle()
            assert reader.reserve(may_grow=True)
    return frames


payloads = st.lists(st.one_of(st.binary(max_size=50), st.integers(0, 5_000).map(bytes)), max_size=12)


@given(payloads, st.lists(st.integers(1, 3_000), max_size=40), st.integers(1, 5))
def test_any_split_of_the_bytes_gives_the_same_frames(payloads: list[bytes], sizes: list[int], most: int) -> None:
    reader, memory = make_reader()
    assert read(reader, b"".join(map(framed, payloads)), sizes, most) == payloads
    assert not reader.has_bytes
    assert memory.used_bytes == 0


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 5, SCRATCH_BYTES - 4, SCRATCH_BYTES, 1 << 20, 5 << 20])
def test_large_frame_between_small_frames_arrives_whole(size: int) -> None:
    reader, memory = make_reader()
    expected = [b"\x07", b"\x01" + bytes(size - 2) + b"\x02"] * 3
    assert read(reader, b"".join(map(framed, expected)), [100_000] * 1_000) == expected
    assert memory.used_bytes == 0


def test_frames_of_one_read_are_writable_views_of_the_scratch_buffer() -> None:
    reader, memory = make_reader()
    put(reader, framed(b"one") + framed(b"two"))
    first, second = reader.next_frame(), reader.next_frame()
    assert first is not None
    assert second is not None
    memory.scratch[4:7] = b"ONE"
    assert (bytes(first), bytes(second)) == (b"ONE", b"two")
    assert not first.readonly
    assert reader.next_frame() is None


@given(payloads, st.integers(0, 60))
def test_frames_that_are_handled_later_are_unchanged(payloads: list[bytes], handled: int) -> None:
    """Frames that must wait move from the shared scratch buffer, which other connections overwrite."""
    reader, memory = make_reader()
    data = b"".join(map(framed, payloads))
    put(reader, data)
    frames: list[bytes] = []
    while len(frames) < min(handled, len(payloads)):
        frame = reader.next_frame()
        assert frame is not None
        frames.append(bytes(frame))
    reader.retain(READ_AHEAD_BYTES)
    memory.scratch[:] = b"\xff" * len(memory.scratch)
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    assert frames == payloads


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (struct.pack(">i", -1), r"Invalid receive \(size = -1\)"),
        (struct.pack(">i", 1025), r"Invalid receive \(size = 1025 larger than 1024\)"),
        (b"GET /", "speaks HTTP"),
        (b"\x16\x03\x01\x02", "speaks TLS"),
    ],
)
def test_impossible_size_is_an_error_after_the_frames_before_it(first: bytes, message: str) -> None:
    reader, _ = make_reader(Limits(max_frame_bytes=1024))
    put(reader, framed(b"whole") + first)
    assert reader.next_frame() == b"whole"
    assert reader.has_frame
    with pytest.raises(DecodeError, match=message):
        reader.next_frame()


def test_claimed_size_allocates_little_until_bytes_arrive() -> None:
    reader, memory = make_reader()
    put(reader, struct.pack(">i", 100 << 20) + b"x")
    assert reader.next_frame() is None
    reader.retain(LEAST_BUFFER_BYTES)
    assert reader.reserve(may_grow=True)
    assert memory.used_bytes <= 4096


def test_read_ahead_is_bounded_while_a_request_is_in_progress() -> None:
    reader, memory = make_reader()
    put(reader, framed(b"in progress") + framed(bytes(100_000))[:1_000])
    assert reader.next_frame() == b"in progress"
    reader.retain(READ_AHEAD_BYTES)
    received = 1_000
    while reader.reserve(may_grow=False):
        received += put(reader, bytes(10_000))
    assert received == memory.used_bytes == READ_AHEAD_BYTES


def test_reader_waits_for_memory_until_another_reader_releases_its_buffer() -> None:
    memory = ReceiveMemory(Limits(max_buffered_bytes=300_000))
    readers = [FrameReader(memory, Owner()) for _ in range(3)]
    payload = framed(bytes(200_000))
    waiting = []
    for reader in readers:
        put(reader, payload[:20_000])
        reader.retain(LEAST_BUFFER_BYTES)
        if not reader.reserve(may_grow=True):
            waiting.append(reader)
    assert len(waiting) == memory.waiter_count > 0
    assert all(reader.waits_for_memory for reader in waiting)
    for reader in readers:
        if reader not in waiting:
            reader.clear()
    owner = waiting[0]._owner
    assert isinstance(owner, Owner)
    assert owner.notified == 1
    waiting[0].waits_for_memory = False
    assert waiting[0].reserve(may_grow=True)


def test_clear_drops_all_bytes() -> None:
    reader, memory = make_reader()
    put(reader, framed(b"half")[:6])
    reader.retain(LEAST_BUFFER_BYTES)
    assert reader.has_bytes
    reader.clear()
    assert not reader.has_bytes
    assert memory.used_bytes == 0
    assert read(reader, framed(b"next"), [3, 3]) == [b"next"]
