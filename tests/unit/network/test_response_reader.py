"""How received bytes become responses, without a socket."""

from __future__ import annotations

from itertools import product
from struct import pack

import pytest

from ottla.network.response_reader import (
    LARGEST_FIRST_RESPONSE_BYTES,
    LARGEST_RESPONSE_BYTES,
    SCRATCH_BYTES,
    ResponseMemoryError,
    ResponseReader,
    ResponseSizeError,
)


def framed(response: bytes) -> bytes:
    return pack(">i", len(response)) + response


def feed(reader: ResponseReader, data: bytes, read_bytes: int) -> list[memoryview]:
    """Pass `data` on in reads of at most `read_bytes`; the responses that come out."""
    responses: list[memoryview] = []
    while data:
        buffer = reader.get_buffer()
        size = min(len(buffer), read_bytes, len(data))
        buffer[:size] = data[:size]
        reader.received(size)
        data = data[size:]
        while (response := reader.next_response()) is not None:
            responses.append(response)
    return responses


SIZES = (4, 100, SCRATCH_BYTES - 4, SCRATCH_BYTES - 3, 3 * SCRATCH_BYTES, 5)


@pytest.mark.parametrize(("read_bytes", "shift"), tuple(product((1_000, SCRATCH_BYTES, 10**9), range(len(SIZES)))))
def test_responses_come_out_whole_and_in_order_however_they_are_split(read_bytes: int, shift: int) -> None:
    sizes = SIZES[shift:] + SIZES[:shift]
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    reader = ResponseReader()
    assert feed(reader, b"".join(map(framed, sent)), read_bytes) == sent


def test_single_bytes_are_enough_to_make_progress() -> None:
    sent = [b"abcd", b"efghijk", b"lmno"]
    assert feed(ResponseReader(), b"".join(map(framed, sent)), 1) == sent


def test_responses_stay_valid_while_later_ones_are_received() -> None:
    reader = ResponseReader()
    (small,) = feed(reader, framed(b"small"), 100)
    (large,) = feed(reader, framed(b"l" * 2 * SCRATCH_BYTES), SCRATCH_BYTES)
    feed(reader, framed(b"x" * 5) + framed(b"y" * 2 * SCRATCH_BYTES), SCRATCH_BYTES)
    assert (small, large) == (b"small", b"l" * 2 * SCRATCH_BYTES)


@pytest.mark.parametrize("size", [-1, 0, 3, LARGEST_FIRST_RESPONSE_BYTES + 1])
def test_invalid_size_is_reported_after_the_responses_before_it(size: int) -> None:
    reader = ResponseReader()
    data = framed(b"good") + pack(">i", size) + b"rest"
    reader.get_buffer()[: len(data)] = data
    reader.received(len(data))
    assert reader.next_response() == b"good"
    with pytest.raises(ResponseSizeError) as error:
        reader.next_response()
    assert (error.value.size, error.value.data) == (size, pack(">i", size) + b"rest")


def test_size_limit_can_be_raised() -> None:
    reader = ResponseReader()
    reader.largest_bytes = LARGEST_RESPONSE_BYTES
    assert feed(reader, pack(">i", LARGEST_FIRST_RESPONSE_BYTES + 1) + b"start", 100) == []


def test_missing_memory_is_reported_with_the_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(size: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    reader = ResponseReader()
    monkeypatch.setattr("ottla.network.buffers._anonymous_map", fail)
    with pytest.raises(ResponseMemoryError, match=f"{SCRATCH_BYTES} bytes"):
        feed(reader, framed(b"x" * SCRATCH_BYTES), SCRATCH_BYTES)


LARGE = 3 * SCRATCH_BYTES


def test_response_after_a_large_one_is_received_into_a_buffer_of_its_own_with_one_read() -> None:
    reader = ResponseReader()
    feed(reader, framed(b"a" * LARGE), 10**9)
    buffer = reader.get_buffer()
    assert len(buffer) == 4 + LARGE + 1, "a read that does not fill the buffer is the last one"
    second = framed(b"b" * (LARGE - 10))
    buffer[: len(second)] = second
    reader.received(len(second))
    response = reader.next_response()
    assert response == second[4:]
    buffer[100] = 0
    assert response is not None
    assert response[96] == 0, "it was not copied"


def test_large_responses_stay_valid_while_later_ones_are_received() -> None:
    reader = ResponseReader()
    sizes = (LARGE, LARGE - 1, 10, LARGE + 1, SCRATCH_BYTES + 1, LARGE, LARGE)
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    received: list[memoryview] = []
    for read_bytes in (10**9, SCRATCH_BYTES, 7_001):
        received += feed(reader, b"".join(map(framed, sent)), read_bytes)
    assert received == 3 * sent


def test_buffer_of_a_large_response_is_used_for_the_next_one() -> None:
    reader = ResponseReader()
    feed(reader, framed(b"a" * LARGE), 10**9)
    first = id(reader.get_buffer().obj)  # the object itself would be a reference to the buffer
    for _ in range(3):
        assert id(reader.get_buffer().obj) == first, "also if nothing was read"
        feed(reader, framed(b"b" * LARGE), 10**9)


def test_small_responses_return_to_the_scratch_buffer() -> None:
    reader = ResponseReader()
    feed(reader, framed(b"a" * LARGE), 10**9)
    for _ in range(20):
        feed(reader, framed(b"small"), 100)
    assert len(reader.get_buffer()) == SCRATCH_BYTES


def test_missing_memory_for_an_expected_response_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ResponseReader()
    feed(reader, framed(b"a" * LARGE), 10**9)

    def refuse(_: object, size: int) -> object:
        raise OSError(12, f"no memory for {size}")

    monkeypatch.setattr("ottla.network.buffers.FrameBuffers.take", refuse)
    assert feed(reader, framed(b"small"), 100) == [b"small"]
