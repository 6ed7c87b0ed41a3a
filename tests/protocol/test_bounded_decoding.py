"""The array elements of a request are bounded. Compiled decoders hide messages from the garbage collector."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from ottla.common.kernels import is_compiled
from ottla.protocol import compiler
from ottla.protocol.elements import Elements, encode_element
from ottla.protocol.message import Message
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire import MAX_PRODUCE_ELEMENTS, MAX_REQUEST_ELEMENTS, DecodeError
from tests.uncompiled import codecs

compiled = pytest.mark.skipif(not is_compiled("ottla.protocol._decoding"), reason="the codecs are not compiled here")


def decoders(cls: type[Message], version: int) -> list[compiler.Decode]:
    return [codecs()["_decoding"].Decoder(cls, version).decode, compiler.build_decoder(cls, version)]


def fetch(topics: int, partitions: int) -> FetchRequest:
    rows = [FetchPartition(partition=i) for i in range(partitions)]
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=rows) for _ in range(topics)])


@pytest.mark.parametrize("version", [4, 12])
def test_elements_of_all_arrays_count(version: int) -> None:
    data = fetch(10, 9).encode(version)
    for decode in decoders(FetchRequest, version):
        assert len(decode(data, 0, 100)[0].topics) == 10
        with pytest.raises(DecodeError, match="more than 99 array elements"):
            decode(data, 0, 99)
        assert len(decode(data, 0)[0].topics) == 10


@pytest.mark.parametrize("count", [9, 300])
def test_unknown_tagged_fields_count(count: int) -> None:
    plain = HeartbeatRequest(group_id="g").encode(4)
    tags = b"".join(bytes([0x80 | (100 + i) & 127, (100 + i) >> 7, 0]) for i in range(count))
    size = bytes([count]) if count < 128 else bytes([count & 127 | 128, count >> 7])
    data = plain[:-1] + size + tags
    for decode in decoders(HeartbeatRequest, 4):
        assert decode(data, 0, count)[0].group_id == "g"
        with pytest.raises(DecodeError, match="array elements"):
            decode(data, 0, count - 1)


def test_request_of_a_client_is_bounded_and_an_answer_is_not() -> None:
    for more, accepted in ((0, True), (1, False)):
        data = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (MAX_REQUEST_ELEMENTS + more)).encode(9)
        if accepted:
            assert MetadataRequest.decode_request(data, 0, 9).topics is not None
        else:
            with pytest.raises(DecodeError):
                MetadataRequest.decode_request(data, 0, 9)
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="t")] * (MAX_REQUEST_ELEMENTS + 1)).encode(9)
    assert len(MetadataResponse.decode(answer, 9).topics) == MAX_REQUEST_ELEMENTS + 1


def test_produce_request_has_a_limit_of_its_own() -> None:
    rows = [PartitionProduceData(index=0, records=b"")] * MAX_PRODUCE_ELEMENTS
    data = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=rows)]).encode(9)
    with pytest.raises(DecodeError, match=f"more than {MAX_PRODUCE_ELEMENTS}"):
        ProduceRequest.decode_request(data, 0, 9)


def large_requests() -> list[tuple[Message, int]]:
    """Requests of large clusters."""
    committed = [OffsetFetchRequestTopics(name=f"t{i}", partition_indexes=list(range(20))) for i in range(5_000)]
    return [
        (fetch(10_000, 5), 12),
        (MetadataRequest(topics=[MetadataRequestTopic(name=f"t{i}") for i in range(100_000)]), 9),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=committed)]), 9),
    ]


@pytest.mark.parametrize(("request_", "version"), large_requests(), ids=lambda value: type(value).__name__)
def test_requests_of_large_clusters_are_decoded(request_: Message, version: int) -> None:
    assert type(request_).decode_request(request_.encode(version), 0, version) == request_


@compiled
def test_decoded_messages_are_not_tracked_by_the_garbage_collector() -> None:
    data = fetch(3, 2).encode(12)
    request = FetchRequest.decode_request(data, 0, 12)
    parts: list[Any] = [request, request.topics, request.forgotten_topics_data]
    parts += [part for topic in request.topics for part in (topic, topic.partitions, *topic.partitions)]
    assert not any(gc.is_tracked(part) for part in parts)
    assert request == FetchRequest.decode(data, 12)


def topic(number: int, partitions: int = 2) -> MetadataResponseTopic:
    rows = [MetadataResponsePartition(partition_index=i, replica_nodes=[1], isr_nodes=[1]) for i in range(partitions)]
    return MetadataResponseTopic(name=f"t{number}", partitions=rows)


@pytest.mark.parametrize("version", [1, 12])
@pytest.mark.parametrize("in_c", [pytest.param(True, marks=compiled), False])
def test_elements_that_were_encoded_before_produce_the_same_bytes(
    version: int, monkeypatch: pytest.MonkeyPatch, *, in_c: bool
) -> None:
    if not in_c:
        monkeypatch.setattr(compiler, "Encoder", codecs()["_encoding"].Encoder)
    monkeypatch.setattr("ottla.protocol.elements._encoders", {})
    encode = compiler.build_encoder(MetadataResponse, version)

    def encoded(topics: Any) -> bytes:
        parts: list[Any] = []
        encode(MetadataResponse(topics=topics), parts)
        return b"".join(parts)

    topics = [topic(number, partitions=number % 100) for number in range(500)]
    expected = encoded(topics)
    assert encoded([encode_element(MetadataResponse, version, each) for each in topics]) == expected
    elements = Elements(MetadataResponse, version, topics)
    assert len(elements) == 500
    assert encoded(elements) == expected
    assert encoded(elements) == expected, "it can be encoded twice"
    assert elements.size == sum(map(len, elements))
    assert encoded(Elements(MetadataResponse, version)) == encoded([])


@compiled
def test_long_elements_are_not_copied() -> None:
    shared = encode_element(MetadataResponse, 12, topic(1, partitions=500))
    parts: list[Any] = []
    MetadataResponse(topics=[shared] * 3).encode_parts(12, parts)  # type: ignore[list-item]
    assert sum(part is shared for part in parts) == 3
