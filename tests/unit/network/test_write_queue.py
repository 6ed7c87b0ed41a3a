"""WriteQueue: the order of responses, pieces of bounded size, and stalled clients."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.unread import Unread
from ottla.network.write_queue import JOIN_BYTES, PIECE_BYTES, WriteQueue


class Stored(Unread):
    """Bytes in a file; counts what was read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read = 0

    def __len__(self) -> int:
        return len(self.data) - self.read

    def take(self, size: int) -> bytes:
        piece = self.data[self.read : self.read + size]
        self.read += len(piece)
        return piece


class Unreadable(Stored):
    """Bytes whose file fails."""

    def take(self, size: int) -> bytes:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk failed")


in_memory = st.tuples(st.integers(0, 255), st.integers(1, 40_000)).map(lambda row: bytes([row[0]]) * row[1])
in_file = st.tuples(st.integers(0, 255), st.integers(JOIN_BYTES + 1, 90_000)).map(
    lambda row: Stored(bytes([row[0]]) * row[1])
)
# The first part of a response is its size and header, which are never in a file.
responses = st.tuples(in_memory, st.lists(st.one_of(in_memory, in_file), max_size=4)).map(lambda row: [row[0], *row[1]])


def content(response: list[Any]) -> bytes:
    return b"".join(part.data if isinstance(part, Stored) else part for part in response)


@given(st.lists(responses, max_size=6), st.lists(st.booleans(), max_size=6))
def test_responses_leave_whole_and_in_order(responses: list[list[Any]], sends_between: list[bool]) -> None:
    queue = WriteQueue()
    sent = bytearray()
    expected = bytearray()
    pauses = iter(sends_between)
    for response in responses:
        expected += content(response)
        at_once = queue.add(response)
        if at_once is not None:
            sent += at_once
        elif next(pauses, False):
            sent += b"".join(queue.take_piece())
    while queue:
        sent += b"".join(queue.take_piece())
    assert sent == expected


def test_small_response_leaves_at_once_as_one_buffer() -> None:
    queue = WriteQueue()
    assert queue.add([b"head", b"tail"]) == b"headtail"
    large = bytes(JOIN_BYTES + 1)
    assert queue.add([large]) is large, "one buffer is not copied"
    assert not queue


def test_small_response_behind_a_large_one_waits_for_it() -> None:
    queue = WriteQueue()
    assert queue.add([b"head", bytes(JOIN_BYTES)]) is None
    assert queue.add([b"next"]) is None
    assert b"".join(queue.take_piece()) == b"head" + bytes(JOIN_BYTES) + b"next"
    assert not queue


def test_bytes_in_a_file_are_read_one_piece_at_a_time() -> None:
    stored = Stored(bytes(3 * PIECE_BYTES))
    queue = WriteQueue()
    assert queue.add([b"head", stored, b"tail"]) is None
    assert stored.read == 0
    sizes = []
    while queue:
        sizes.append(sum(map(len, queue.take_piece())))
        assert stored.read <= PIECE_BYTES * len(sizes)
    assert sizes == [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 8]


def test_error_of_a_file_is_raised() -> None:
    queue = WriteQueue()
    queue.add([b"head", Unreadable(bytes(JOIN_BYTES))])
    with pytest.raises(KafkaError, match="the disk failed"):
        queue.take_piece()


def test_stall_lasts_until_the_client_takes_bytes() -> None:
    queue = WriteQueue()
    assert not queue.is_paused
    queue.pause(tick=10, unsent_bytes=500)
    assert queue.is_paused
    assert queue.stalled_ticks(13, 500) == 3
    assert queue.stalled_ticks(14, 400) == 0
    assert queue.stalled_ticks(16, 400) == 2
    queue.resume()
    assert not queue.is_paused


def test_clear_drops_all_parts() -> None:
    queue = WriteQueue()
    queue.add([b"head", bytes(JOIN_BYTES)])
    queue.clear()
    assert not queue
