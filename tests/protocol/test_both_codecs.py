"""Compiled and uncompiled codecs produce the same bytes and messages, and reject the same input."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.kernels import is_compiled
from ottla.protocol import _decoding, compiler
from ottla.protocol.frames import RequestHeader
from ottla.protocol.message import Message
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, OpData, RequestEntryData
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API, request_class, response_class
from ottla.protocol.wire import DecodeError, EncodeError
from tests.uncompiled import codecs

from .protocol_strategies import bounded, carried, structs, versions_of

compiled = pytest.mark.skipif(not is_compiled("ottla.protocol._decoding"), reason="the codecs are not compiled here")


def python_encoder(cls: type[Message], version: int) -> Any:
    return codecs()["_encoding"].Encoder(cls, version)


def python_decoder(cls: type[Message], version: int) -> compiler.Decode:
    decode: compiler.Decode = codecs()["_decoding"].Decoder(cls, version).decode
    return decode


def encoded(encode: compiler.Encode, message: Any) -> list[bytes] | None:
    parts: list[Any] = []
    try:
        encode(message, parts)
    except EncodeError:
        return None
    return [bytes(part) for part in parts]


def decoded(decode: compiler.Decode, data: bytes) -> Any:
    try:
        return decode(data, 0)
    except DecodeError:
        return None


@compiled
@pytest.mark.parametrize(
    "cls", [find(key) for key in API for find in (request_class, response_class)], ids=lambda cls: cls.__name__
)
def test_compiled_and_uncompiled_codecs_agree(cls: type[Message]) -> None:
    both = {
        version: (
            python_encoder(cls, version),
            python_decoder(cls, version),
            compiler.build_encoder(cls, version),
            compiler.build_framer(cls, version),
            compiler.build_decoder(cls, version),
        )
        for version in versions_of(cls)
    }

    @bounded
    @given(structs(cls), st.randoms(use_true_random=False))
    def check(message: Any, random: Any) -> None:
        for version, (encoder, decode, encode_in_c, frame_in_c, decode_in_c) in both.items():
            expected = encoded(encode_in_c, message)
            assert encoded(encoder.encode, message) == expected
            if expected is not None:
                assert encoder.encode_frame(message, 77) == frame_in_c(message, 77)
            whole = b"".join(encoded(encode_in_c, carried(message, version)) or ())
            assert decode_in_c(whole, 0) == decode(whole, 0)
            corrupt = bytearray(whole)
            for _ in range(random.randint(1, 3)):
                if corrupt:
                    corrupt[random.randrange(len(corrupt))] = random.choice((0, 1, 127, 128, 255))
            for data in (bytes(corrupt), bytes(corrupt[: random.randint(0, len(corrupt))])):
                mine, others = decoded(decode_in_c, data), decoded(decode, data)
                assert mine == others or "nan" in repr(mine)  # NaN is not equal to itself.

    check()


@compiled
@pytest.mark.parametrize("field", ["generation_id", "group_id", "member_id"])
@pytest.mark.parametrize("value", [2**40, -(2**70), None, 1.5, "\ud800", "x" * 40_000, b"bytes", object()])
def test_both_codecs_reject_values_of_a_wrong_type_or_range(field: str, value: Any) -> None:
    message = HeartbeatRequest(**{field: value})
    for version in (0, 4):
        assert encoded(compiler.build_encoder(HeartbeatRequest, version), message) is None
        assert encoded(python_encoder(HeartbeatRequest, version).encode, message) is None


@compiled
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("error_code", [-(2**15) - 1, -(2**15), 2**15 - 1, 2**15]),
        ("throttle_time_ms", [-(2**31) - 1, -(2**31), 2**31 - 1, 2**31]),
    ],
)
def test_both_codecs_encode_the_whole_range_of_an_integer(field: str, values: list[int]) -> None:
    for encode in (compiler.build_encoder(HeartbeatResponse, 1), python_encoder(HeartbeatResponse, 1).encode):
        outcomes = [encoded(encode, HeartbeatResponse(**{field: value})) is not None for value in values]
        assert outcomes == [False, True, True, False]


@compiled
@pytest.mark.parametrize("value", [1, 0.5, -(2**40), float("inf"), 10**400, None, "1.5", b"1", [1.5]])
def test_both_codecs_agree_on_floating_point_numbers(value: Any) -> None:
    message = AlterClientQuotasRequest(entries=[RequestEntryData(ops=[OpData(key="k", value=value)])])
    expected = encoded(compiler.build_encoder(AlterClientQuotasRequest, 1), message)
    assert encoded(python_encoder(AlterClientQuotasRequest, 1).encode, message) == expected
    assert (expected is None) == (not isinstance(value, int | float) or value == 10**400)


@compiled
@pytest.mark.parametrize(
    "client_id", [b"\xff\xff", b"\x00\x00", b"\x00\x03abc", b"\x00\x02\xc3\xa4", b"\xff\xfe", b"\x7f\xff"]
)
@pytest.mark.parametrize("head", [b"\x00\x0c\x00\x03", b"\x00\x0c\x00\x04", b"\xff\xff\xff\xff", b"\x7f\xff\x00\x00"])
@pytest.mark.parametrize("rest", [b"", b"\x00", b"\x01\x05\x00"])
def test_both_codecs_read_request_headers_alike(head: bytes, client_id: bytes, rest: bytes) -> None:
    header = head + b"\xff\x00\x00\x07" + client_id + rest
    in_python = codecs()["_decoding"].read_request_header
    for data in (header, memoryview(header), header[:9], b""):
        assert in_python(data, {12: 4}, RequestHeader) == _decoding.read_request_header(data, {12: 4}, RequestHeader)


@compiled
def test_a_rejected_message_does_not_lock_its_buffer() -> None:
    for decode in (compiler.build_decoder(HeartbeatRequest, 4), python_decoder(HeartbeatRequest, 4)):
        buffer = bytearray(b"\x09g")
        with pytest.raises(DecodeError) as caught:
            decode(buffer, 0)
        buffer.extend(b"more")
        assert "HeartbeatRequest version 4" in str(caught.value)


@compiled
def test_an_object_of_another_class_with_the_same_attributes_is_encoded() -> None:
    class Like:
        group_id, generation_id, member_id, group_instance_id = "g", 7, "m", None

    real = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    for encode in (compiler.build_encoder(HeartbeatRequest, 4), python_encoder(HeartbeatRequest, 4).encode):
        assert encoded(encode, Like()) == encoded(encode, real) == [real.encode(4)]


@compiled
def test_long_records_are_not_copied_and_decoded_records_are_views_of_the_buffer() -> None:
    records = memoryview(bytearray(b"r" * 5000))
    rows = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=records)])]
    for encode, decode in (
        (compiler.build_encoder(ProduceRequest, 9), compiler.build_decoder(ProduceRequest, 9)),
        (python_encoder(ProduceRequest, 9).encode, python_decoder(ProduceRequest, 9)),
    ):
        parts: list[Any] = []
        encode(ProduceRequest(topic_data=rows), parts)
        assert [part is records for part in parts] == [False, True, False]
        buffer = bytearray(b"".join(parts))
        message, end = decode(memoryview(buffer), 0)
        view = message.topic_data[0].partition_data[0].records
        view[:1] = b"!"
        assert buffer.count(b"!") == 1
        assert end == len(buffer)


@compiled
def test_compiled_codecs_leak_no_objects() -> None:
    data = FetchRequest(topics=[FetchTopic(topic="topic", partitions=[FetchPartition(partition=1)])]).encode(12)
    encode, decode = compiler.build_encoder(FetchRequest, 12), compiler.build_decoder(FetchRequest, 12)
    message, _ = decode(data, 0)
    before = len(gc.get_objects())
    for _ in range(1000):
        encode(decode(data, 0)[0], [])
        with pytest.raises(DecodeError):
            decode(data[:-3], 0)
    gc.collect()
    after = len(gc.get_objects())
    assert after - before < 200
    assert sys.getrefcount(message.topics[0].partitions[0]) <= 3
