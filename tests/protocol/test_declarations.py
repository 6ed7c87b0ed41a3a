"""Declared messages: constructors, defaults, equality, versions, errors."""

from __future__ import annotations

import copy
import pickle

import pytest

from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, RequestCursor
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire import DecodeError, EncodeError, VersionError


def test_fields_are_positional_or_named_and_have_defaults() -> None:
    request = HeartbeatRequest("g", generation_id=3)
    assert (request.group_id, request.generation_id, request.member_id, request.group_instance_id) == ("g", 3, "", None)
    assert request == HeartbeatRequest(group_id="g", generation_id=3)
    assert request != HeartbeatRequest(group_id="g")
    assert repr(request) == ("HeartbeatRequest(group_id='g', generation_id=3, member_id='', group_instance_id=None)")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError):
        HeartbeatRequest(grup_id="g")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        HeartbeatRequest().grup_id = "g"  # type: ignore[attr-defined]


def test_lists_and_structs_are_not_shared_between_messages() -> None:
    first, second = PartitionData(), PartitionData()
    assert first.aborted_transactions is not None
    first.aborted_transactions.append(AbortedTransaction(1, 2))
    first.diverging_epoch.epoch = 7
    assert second.diverging_epoch == EpochEndOffset(-1, -1)
    assert second.aborted_transactions == []


def test_messages_are_copied_and_pickled() -> None:
    request = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(1)])])
    assert copy.deepcopy(request) == request
    assert pickle.loads(pickle.dumps(request)) == request


def test_field_missing_in_a_version_is_skipped_and_decoded_as_default() -> None:
    request = HeartbeatRequest("g", 1, "m", "instance")
    assert HeartbeatRequest.decode(request.encode(2), 2).group_instance_id is None
    assert HeartbeatRequest.decode(request.encode(3), 3).group_instance_id == "instance"


def test_a_tagged_field_at_its_default_is_not_on_the_wire() -> None:
    plain = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=b"")])])
    hinted = FetchResponse(
        responses=[
            FetchableTopicResponse(partitions=[PartitionData(records=b"", diverging_epoch=EpochEndOffset(3, 9))])
        ]
    )
    # tag, size, epoch, end offset, no tagged fields within
    assert len(hinted.encode(12)) - len(plain.encode(12)) == 1 + 1 + 4 + 8 + 1
    assert FetchResponse.decode(hinted.encode(12), 12) == hinted


def test_a_struct_may_be_null() -> None:
    for cursor in (None, RequestCursor("t", 3)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        assert DescribeTopicPartitionsRequest.decode(request.encode(0), 0).cursor == cursor


def test_unknown_tagged_fields_and_later_bytes_are_skipped() -> None:
    body = HeartbeatRequest("g", 1, "m").encode(4)[:-1]
    unknown = b"\x02\x05\x03abc\x88\x01\x00"
    assert HeartbeatRequest.decode_from(body + unknown + b"rest", 0, 4) == (
        HeartbeatRequest("g", 1, "m"),
        len(body + unknown),
    )


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_a_version_that_is_not_declared_is_refused(version: int) -> None:
    with pytest.raises(VersionError, match="versions 0 to 4"):
        HeartbeatRequest().encode(version)
    with pytest.raises(VersionError):
        HeartbeatRequest.decode(b"", version)


def test_a_value_that_does_not_fit_names_the_message() -> None:
    for request in (
        HeartbeatRequest("g", 2**31),
        HeartbeatRequest("g" * 40_000),
        HeartbeatRequest(None),  # type: ignore[arg-type]
        HeartbeatRequest("\ud800"),
        MetadataRequest(None),  # null is allowed since version 1
    ):
        with pytest.raises(EncodeError):
            request.encode(0)


def test_long_records_are_neither_copied_in_nor_out() -> None:
    batch = bytearray(b"r" * 5000)
    request = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)])])
    parts: list[bytes | bytearray | memoryview] = []
    request.encode_parts(9, parts)
    assert any(part is batch for part in parts)
    assert b"".join(parts) == request.encode(9)
    received = bytearray(request.encode(9))
    records = ProduceRequest.decode(received, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    received[received.index(b"rrrr")] = ord("x")
    assert records[:2] == b"xr"
    assert not records.readonly


def test_an_error_of_a_decoder_names_the_message_and_the_version() -> None:
    with pytest.raises(DecodeError, match="FetchRequest version 12: "):
        FetchRequest.decode(b"short", 12)
