"""For any bytes a decoder returns a message or raises DecodeError, and a false size does not allocate memory."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import consumer_protocol, control_records
from ottla.protocol.frames import decode_request_header, decode_response_header
from ottla.protocol.group_records import RECORD_TYPES
from ottla.protocol.keyed import decode_keyed
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.metadata_records import decode_metadata_record
from ottla.protocol.registry import API, request_class, response_class
from ottla.protocol.wire import DecodeError, read_uvarint

from .protocol_strategies import bounded, carried, structs, versions_of


def survives(cls: type[Message], data: bytes, version: int) -> None:
    """Decode bytes and the same bytes in a memoryview; both must give the same result or both must fail."""
    outcomes: list[Any] = []
    for buffer in (data, memoryview(data)):
        try:
            outcomes.append(cls.decode(buffer, version))
        except DecodeError:
            outcomes.append(None)
    # Random bytes may contain NaN, which differs from itself.
    assert outcomes[0] == outcomes[1] or "nan" in repr(outcomes[0])


@pytest.mark.parametrize(
    "cls", [find(key) for key in API for find in (request_class, response_class)], ids=lambda cls: cls.__name__
)
def test_mutated_messages_are_decoded_or_rejected(cls: type[Message]) -> None:
    @bounded
    @given(structs(cls), st.randoms(use_true_random=False))
    def check(message: Any, random: Any) -> None:
        for version in versions_of(cls):
            data = bytearray(carried(message, version).encode(version))
            for _ in range(random.randint(0, 3)):
                if data:
                    data[random.randrange(len(data))] = random.choice((0, 1, 127, 128, 255))
            survives(cls, bytes(data[: random.randint(0, len(data))]), version)
            survives(cls, bytes(data), version)

    check()


@bounded
@given(st.binary(max_size=60))
def test_random_bytes_are_decoded_or_rejected(data: bytes) -> None:
    for key in (0, 1, 3, 18, 68):
        for version in (request_class(key).MIN_VERSION, request_class(key).MAX_VERSION):
            survives(request_class(key), data, version)
    for decode in (
        decode_request_header,
        decode_metadata_record,
        consumer_protocol.decode_subscription,
        consumer_protocol.decode_assignment,
        control_records.decode_control_key,
        lambda buffer: decode_response_header(buffer, 0, 9),
        lambda buffer: decode_keyed(RECORD_TYPES, buffer, buffer),
    ):
        try:
            decode(data)  # type: ignore[operator]
        except DecodeError:
            continue


def test_request_truncated_anywhere_is_rejected() -> None:
    for version in versions_of(HeartbeatRequest):
        whole = HeartbeatRequest("group", 1, "member").encode(version)
        for length in range(len(whole)):
            with pytest.raises(DecodeError):
                HeartbeatRequest.decode(whole[:length], version)


@pytest.mark.parametrize("count", [2, 1_000_001, 2**31 - 1, -2])
def test_array_larger_than_its_bytes_is_rejected_before_allocation(count: int) -> None:
    data = struct.pack(">i", count) + b"\0\0"
    MetadataRequest.decode(struct.pack(">i", 0), 0)  # compiles the decoder, whose memory must not be measured
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="claims length"):
            MetadataRequest.decode(data, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_more_than_a_million_elements_are_rejected_even_if_present() -> None:
    with pytest.raises(DecodeError, match="claims length 1000001"):
        MetadataRequest.decode(struct.pack(">i", 1_000_001) + bytes(2_000_002), 0)


def test_more_than_ten_thousand_tagged_fields_are_rejected() -> None:
    body = HeartbeatRequest("g", 1, "m").encode(4)[:-1]
    fields = b"".join(bytes((tag & 127 | 128, tag >> 7, 0)) for tag in range(128, 10_129))
    assert HeartbeatRequest.decode(body + b"\x90\x4e" + fields[:-3], 4).group_id == "g"
    with pytest.raises(DecodeError, match="Tagged section"):
        HeartbeatRequest.decode(body + b"\x91\x4e" + fields, 4)


def test_a_tagged_field_must_fill_its_size() -> None:
    body = FetchRequest().encode(12)[:-1]
    assert FetchRequest.decode(body + b"\x01\x00\x02\x02c", 12).cluster_id == "c"
    for tagged in (b"\x01\x00\x03\x02c\x00", b"\x01\x00\x01\x02c", b"\x01\x00\x7f\x02c"):
        with pytest.raises(DecodeError):
            FetchRequest.decode(body + tagged, 12)


def test_null_for_a_non_nullable_field_is_rejected() -> None:
    with pytest.raises(DecodeError, match="group_id"):
        HeartbeatRequest.decode(b"\xff\xff", 0)
    with pytest.raises(DecodeError, match="group_id"):
        HeartbeatRequest.decode(b"\x00", 4)


def test_invalid_utf8_is_rejected() -> None:
    with pytest.raises(DecodeError, match="utf-8"):
        HeartbeatRequest.decode(b"\x00\x01\xff" + bytes(6), 0)


def test_records_longer_than_the_request_are_rejected() -> None:
    data = ProduceRequest(acks=1).encode(3)[:-4] + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0" + struct.pack(">i", 1000) + b"x"
    with pytest.raises(DecodeError, match="records claims length 1000, 1 bytes remain"):
        ProduceRequest.decode(data, 3)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f"])
def test_varints_are_bounded(data: bytes) -> None:
    with pytest.raises(DecodeError):
        read_uvarint(data, 0)
