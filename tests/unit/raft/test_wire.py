"""Requests and responses survive each version of Kafka's messages, except for the fields that a version lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.common.errors import ErrorCode
from ottla.protocol.message import Message
from ottla.protocol.messages import api_versions, fetch, fetch_snapshot, vote
from ottla.raft import messages as m
from ottla.raft import wire_requests, wire_responses
from ottla.raft.values import Endpoint, LogEnd, ReplicaKey, SnapshotId
from ottla.raft.voters import VersionRange

from .support import key

ENDPOINTS = (Endpoint("CONTROLLER", "localhost", 9093), Endpoint("SECURE", "localhost", 9094))
LEADER = (Endpoint("CONTROLLER", "localhost", 9093),)

REQUESTS: list[tuple[m.Request, int]] = [
    (m.VoteRequest("c", key(2), key(1), 5, LogEnd(10, 4), pre_vote=False), 1),
    (m.VoteRequest(None, key(2), key(1), 5, LogEnd(10, 5), pre_vote=True), 2),
    (m.BeginQuorumEpochRequest("c", key(2), 1, 5, ENDPOINTS), 1),
    (m.EndQuorumEpochRequest("c", 1, 5, (key(3), key(2)), ENDPOINTS), 1),
    (m.FetchRequest("c", key(2), 5, LogEnd(10, 4), 9, 500, 1 << 20), 18),
    (m.FetchSnapshotRequest("c", key(2), 5, SnapshotId(10, 4), 100, 1 << 20), 1),
    (m.AddVoterRequest("c", 2000, key(2), ENDPOINTS, ack_when_committed=False), 1),
    (m.RemoveVoterRequest("c", key(2)), 0),
    (m.UpdateVoterRequest("c", 5, key(2), ENDPOINTS, VersionRange(0, 1)), 0),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda value: type(value).__name__)
def test_request_of_the_latest_version_has_all_fields(request_: m.Request, version: int) -> None:
    message = wire_requests.encode(request_)
    read = type(message).decode(message.encode(version), version)
    assert wire_requests.decode(read) == request_


@pytest.mark.parametrize(("request_", "latest"), REQUESTS, ids=lambda value: type(value).__name__)
def test_request_of_each_possible_version_names_the_replica(request_: m.Request, latest: int) -> None:
    message = wire_requests.encode(request_)
    for version in range(max(wire_requests.lowest_version(request_), message.MIN_VERSION), latest):
        read = wire_requests.decode(type(message).decode(message.encode(version), version))
        for field in ("candidate", "replica", "voter"):
            expected, found = getattr(request_, field, None), getattr(read, field, None)
            assert found is None or found.node_id == expected.node_id


def test_versions_without_directories_name_replicas_by_their_nodes() -> None:
    request = m.VoteRequest("c", key(2), key(1), 5, LogEnd(10, 4), pre_vote=False)
    read = wire_requests.decode(vote.VoteRequest.decode(wire_requests.encode(request).encode(0), 0))
    assert read == replace(request, voter=None, candidate=ReplicaKey(1))
    ended = m.EndQuorumEpochRequest("c", 1, 5, (key(3), key(2)), ())
    message = wire_requests.encode(ended)
    read = wire_requests.decode(type(message).decode(message.encode(0), 0))
    assert read == replace(ended, preferred=(ReplicaKey(3), ReplicaKey(2)))


def test_pre_vote_needs_version_2() -> None:
    assert wire_requests.lowest_version(REQUESTS[0][0]) == 0
    assert wire_requests.lowest_version(REQUESTS[1][0]) == 2


def test_fetch_of_an_old_version_does_not_wait_for_a_high_watermark() -> None:
    request, _ = REQUESTS[4]
    read = wire_requests.decode(fetch.FetchRequest.decode(wire_requests.encode(request).encode(17), 17))
    assert isinstance(read, m.FetchRequest)
    assert read.high_watermark == 2**63 - 1, "the high watermark of the response is never higher"


VIEW = (5, 2, LEADER)
NONE = ErrorCode.NONE
VOTE, BEGIN, END, FETCH, SNAPSHOT, ADD, REMOVE, UPDATE = (
    REQUESTS[0][0], REQUESTS[2][0], REQUESTS[3][0], REQUESTS[4][0], REQUESTS[5][0], REQUESTS[6][0], REQUESTS[7][0],
    REQUESTS[8][0],
)  # fmt: skip
RESPONSES: list[tuple[m.Request, m.Response, int]] = [
    (VOTE, m.VoteResponse(NONE, *VIEW, granted=True), 2),
    (VOTE, m.VoteResponse(ErrorCode.INVALID_VOTER_KEY, *VIEW), 2),
    (BEGIN, m.QuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, *VIEW), 1),
    (END, m.QuorumEpochResponse(NONE, *VIEW), 1),
    (FETCH, m.FetchResponse(NONE, *VIEW, 9, 3, has_records=True), 18),
    (FETCH, m.FetchResponse(NONE, *VIEW, 9, 3, diverging=LogEnd(7, 2)), 18),
    (FETCH, m.FetchResponse(NONE, *VIEW, 9, 3, snapshot=SnapshotId(7, 2)), 18),
    (FETCH, m.FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 5), 18),
    (SNAPSHOT, m.FetchSnapshotResponse(NONE, *VIEW, SnapshotId(10, 4), 1000, 100, 3), 1),
    (ADD, m.VoterChangeResponse(ErrorCode.DUPLICATE_VOTER, "text"), 1),
    (REMOVE, m.VoterChangeResponse(), 0),
    (UPDATE, m.UpdateVoterResponse(NONE, *VIEW), 0),
]


@pytest.mark.parametrize(("request_", "response", "version"), RESPONSES, ids=lambda value: type(value).__name__)
def test_response_of_the_latest_version_has_all_fields(request_: m.Request, response: m.Response, version: int) -> None:
    has_bytes = getattr(response, "has_records", False) or getattr(response, "length", 0)
    message = wire_responses.encode(request_, response, "CONTROLLER", b"abc" if has_bytes else b"")
    read = type(message).decode(message.encode(version), version)
    assert wire_responses.decode(read, "CONTROLLER") == response
    assert wire_responses.records_of(read) == (b"abc" if has_bytes else b"")


def test_error_of_the_cluster_id_is_at_the_top_level() -> None:
    for request, response, version in RESPONSES[:9]:
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
        message = wire_responses.encode(request, type(response)(error, *VIEW), "CONTROLLER")
        read = type(message).decode(message.encode(version), version)
        assert read.error_code == error  # type: ignore[attr-defined]
        assert wire_responses.decode(read, "CONTROLLER").error is error


def test_response_names_the_endpoint_of_the_listener_of_the_request() -> None:
    response = m.VoteResponse(NONE, 5, 2, ENDPOINTS)
    message = wire_responses.encode(VOTE, response, "secure")
    assert isinstance(message, vote.VoteResponse)
    assert [(node.node_id, node.port) for node in message.node_endpoints] == [(2, 9094)]
    assert not wire_responses.encode(VOTE, response, "OTHER").node_endpoints  # type: ignore[attr-defined]


def test_api_versions_name_the_levels_of_kraft_version() -> None:
    keys = [api_versions.SupportedFeatureKey("metadata.version", 1, 30)]
    message = api_versions.ApiVersionsResponse(supported_features=keys)
    assert wire_responses.decode(message, "CONTROLLER") == m.ApiVersionsResponse()
    keys.append(api_versions.SupportedFeatureKey("kraft.version", 0, 1))
    assert wire_responses.decode(message, "CONTROLLER") == m.ApiVersionsResponse(kraft_versions=VersionRange(0, 1))


def wrong_requests() -> Iterator[Message]:
    """Requests about no partition, several, or another topic."""
    for request, _ in REQUESTS[:6]:
        for topics in (0, 2):
            message = wire_requests.encode(request)
            message.topics = message.topics * topics  # type: ignore[attr-defined]
            yield message
        message = wire_requests.encode(request)
        message.topics[0].partitions *= 2  # type: ignore[attr-defined]
        yield message


@pytest.mark.parametrize("message", list(wrong_requests()), ids=lambda value: type(value).__name__)
def test_request_about_other_partitions_is_rejected_at_the_top_level(message: Message) -> None:
    with pytest.raises(wire_requests.WrongPartitionError):
        wire_requests.decode(message)
    response = wire_responses.encode_error(message, ErrorCode.INVALID_REQUEST)
    assert response.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]


def test_response_about_other_partitions_is_an_error() -> None:
    for message in (vote.VoteResponse(), fetch.FetchResponse(), fetch_snapshot.FetchSnapshotResponse()):
        with pytest.raises(wire_responses.InvalidResponseError):
            wire_responses.decode(message, "CONTROLLER")
