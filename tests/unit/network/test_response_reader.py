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
