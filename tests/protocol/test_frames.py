"""Frames: the size prefix, and the header version of each message."""

from __future__ import annotations

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_reader

from ottla.protocol.frames import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from ottla.protocol.messages.api_versions import ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.registry import API
from ottla.protocol.wire import DecodeError


@pytest.mark.parametrize("client_id", [None, "", "client-é"])
@pytest.mark.parametrize("version", range(5))
def test_request_roundtrips(version: int, client_id: str | None) -> None:
    request = HeartbeatRequest("g", 1, "m")
    frame = b"".join(encode_request(request, version, 77, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(memoryview(frame), 4)
    assert header == RequestHeader(12, version, 77, client_id)
    assert HeartbeatRequest.decode(frame[position:], version) == request
    theirs, size = entity_reader(KioHeader2 if version == 4 else KioHeader1)(frame, 4)
    assert (theirs.request_api_key, theirs.correlation_id, theirs.client_id, size) == (12, 77, client_id, position - 4)


def test_flexible_request_header_may_have_tagged_fields() -> None:
    frame = b"\x00\x0c\x00\x04\x00\x00\x00\x01\xff\xff\x01\x05\x02ab"
    assert decode_request_header(frame) == (RequestHeader(12, 4, 1), len(frame))


def test_header_of_unknown_api_or_version_is_parsed_up_to_client_id() -> None:
    for head in (b"\x7f\xff\x00\x01", b"\x00\x12\x00\x63", b"\xff\xff\xff\xff"):
        header, _ = decode_request_header(head + b"\x00\x00\x00\x05\x00\x01c\x00")
        assert (header.correlation_id, header.client_id) == (5, "c")


@pytest.mark.parametrize("frame", [b"", b"\0" * 9, b"\0\x0c\0\0\0\0\0\1\0\5ab", b"\0\x0c\0\0\0\0\0\1\xff\xfe"])
def test_truncated_or_invalid_header_is_rejected(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(frame)


@pytest.mark.parametrize("version", [3, 4])
def test_response_roundtrips(version: int) -> None:
    frame = b"".join(encode_response(RequestHeader(12, version, 9), HeartbeatResponse(error_code=27)))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = decode_response_header(frame, 12, version, 4)
    assert (correlation_id, position) == (9, 8 if version == 3 else 9)
    assert HeartbeatResponse.decode(frame[position:], version).error_code == 27


@pytest.mark.parametrize("version", range(5))
def test_api_versions_response_never_has_a_flexible_header(version: int) -> None:
    frame = b"".join(encode_response(RequestHeader(18, version, 9), ApiVersionsResponse(error_code=35)))
    assert decode_response_header(frame, 18, version, 4) == (9, 8)
    assert frame[8:10] == b"\x00\x23"


def test_fetched_records_are_not_copied() -> None:
    records = memoryview(bytes(10_000))
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(0, records=records)])])
    parts = encode_response(RequestHeader(1, 12, 1), response)
    assert len(parts) <= 4
    assert any(part is records for part in parts)
    out = io.BytesIO()
    out.writelines(parts)
    assert int.from_bytes(out.getvalue()[:4], "big") == len(out.getvalue()) - 4


def test_registry_knows_the_flexible_versions() -> None:
    assert API[12].is_flexible(4)
    assert not API[12].is_flexible(3)
    assert not API[17].is_flexible(1)
    assert API[0].supports(3)
    assert not API[0].supports(2)
