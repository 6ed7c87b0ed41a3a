"""The codecs in C and those in Python are the same: same bytes, same messages, and they refuse the same."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import compiler
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import API, request_class, response_class
from ottla.protocol.wire import DecodeError, EncodeError

from .protocol_strategies import bounded, carried, structs, versions_of

compiled = pytest.mark.skipif(not compiler.COMPILED, reason="the codecs are not built here")


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
def test_both_give_the_same_and_refuse_the_same(cls: type[Message]) -> None:
    both = {
        version: (
            compiler.write_encoder(cls, version),
            compiler.write_decoder(cls, version),
            compiler.build_encoder(cls, version),
            compiler.build_decoder(cls, version),
        )
        for version in versions_of(cls)
    }

    @bounded
    @given(structs(cls), st.randoms(use_true_random=False))
    def check(message: Any, random: Any) -> None:
        for version, (encode, decode, encode_in_c, decode_in_c) in both.items():
            assert encoded(encode_in_c, message) == encoded(encode, message)
            if encoded(encode, message) is not None:
                ours = compiler.build_framer(cls, version)(message, 77)
                theirs = compiler.write_framer(cls, version)(message, 77)
                assert b"".join(ours) == b"".join(theirs)
            whole = b"".join(encoded(encode, carried(message, version)) or ())
            assert decode_in_c(whole, 0) == decode(whole, 0)
            spoilt = bytearray(whole)
            for _ in range(random.randint(1, 3)):
                if spoilt:
                    spoilt[random.randrange(len(spoilt))] = random.choice((0, 1, 127, 128, 255))
            for data in (bytes(spoilt), bytes(spoilt[: random.randint(0, len(spoilt))])):
                mine, others = decoded(decode_in_c, data), decoded(decode, data)
                assert mine == others or "nan" in repr(mine)  # which differs from itself

    check()


@compiled
@pytest.mark.parametrize("field", ["generation_id", "group_id", "member_id"])
@pytest.mark.parametrize("value", [2**40, -(2**70), None, 1.5, "\ud800", "x" * 40_000, b"bytes", object()])
def test_both_refuse_values_that_no_field_holds(field: str, value: Any) -> None:
    message = HeartbeatRequest(**{field: value})
    for version in (0, 4):
        ours = encoded(compiler.build_encoder(HeartbeatRequest, version), message)
        assert ours == encoded(compiler.write_encoder(HeartbeatRequest, version), message)
        assert ours is None


@compiled
def test_a_message_of_another_class_with_the_same_names_is_encoded() -> None:
    class Like:
        group_id, generation_id, member_id, group_instance_id = "g", 7, "m", None

    encode = compiler.build_encoder(HeartbeatRequest, 4)
    real = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
    assert encoded(encode, Like()) == encoded(encode, real)


@compiled
def test_long_records_are_handed_over_and_views_are_of_the_buffer() -> None:
    records = memoryview(bytearray(b"r" * 5000))
    rows = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=records)])]
    parts: list[Any] = []
    compiler.build_encoder(ProduceRequest, 9)(ProduceRequest(topic_data=rows), parts)
    assert [part is records for part in parts] == [False, True, False]
    buffer = bytearray(b"".join(parts))
    message, end = compiler.build_decoder(ProduceRequest, 9)(memoryview(buffer), 0)
    view = message.topic_data[0].partition_data[0].records
    view[:1] = b"!"
    assert buffer.count(b"!") == 1
    assert end == len(buffer)


@compiled
def test_a_count_that_nothing_stands_behind_takes_no_memory_and_objects_are_let_go() -> None:
    data = b"".join(
        encoded(
            compiler.write_encoder(FetchRequest, 12),
            FetchRequest(topics=[FetchTopic(topic="topic", partitions=[FetchPartition(partition=1)])]),
        )
        or ()
    )
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
