"""The follower's fetch session: what each request names."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.replication.follower import Position
from ottla.replication.session import LAST_EPOCH, FetchSettings, ReplicaSession

A, B = (b"a" * 16, 0), (b"b" * 16, 1)


def named(request: FetchRequest) -> dict[tuple[bytes, int], int]:
    return {
        (topic.topic_id, each.partition): each.fetch_offset for topic in request.topics for each in topic.partitions
    }


def forgotten(request: FetchRequest) -> set[tuple[bytes, int]]:
    return {(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions}


def at(offset: int) -> Position:
    return Position(offset, 0, 3, 0)


def opened() -> ReplicaSession:
    session = ReplicaSession(2, FetchSettings())
    session.want(A, at(0))
    session.want(B, at(5))
    session.build(7)
    assert session.on_response(FetchResponse(session_id=9))
    return session


def test_first_request_names_all_partitions_the_replica_and_its_broker_epoch() -> None:
    session = ReplicaSession(2, FetchSettings())
    session.want(A, at(0))
    session.want(B, at(5))
    request = session.build(7)
    assert named(request) == {A: 0, B: 5}
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (2, 7)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10 << 20)


def test_later_request_names_only_changed_positions() -> None:
    session = opened()
    session.want(A, at(0))
    session.want(B, at(6))
    request = session.build(7)
    assert named(request) == {B: 6}
    assert (request.session_id, request.session_epoch) == (9, 1)


def test_dropped_partition_is_forgotten_once_and_named_again_when_it_returns() -> None:
    session = opened()
    session.drop(A)
    assert forgotten(session.build(7)) == {A}
    session.on_response(FetchResponse(session_id=9))
    session.want(A, at(0))
    request = session.build(7)
    assert named(request) == {A: 0}
    assert not forgotten(request)


def test_partition_whose_answer_was_not_used_is_named_again() -> None:
    session = opened()
    session.repeat(B)
    session.repeat((b"c" * 16, 0))
    assert named(session.build(7)) == {B: 5}


def test_lost_response_makes_the_next_request_a_full_one_of_the_same_session() -> None:
    session = opened()
    session.drop(A)
    session.build(7)
    session.start_over()
    request = session.build(7)
    assert named(request) == {B: 5}
    assert (request.session_id, request.session_epoch) == (9, 0)
    assert not request.forgotten_topics_data


def test_unknown_session_is_opened_again() -> None:
    session = opened()
    assert not session.on_response(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    request = session.build(7)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == {A: 0, B: 5}


def test_leader_without_room_for_a_session_gets_full_requests() -> None:
    session = ReplicaSession(2, FetchSettings())
    session.want(A, at(0))
    session.build(7)
    session.on_response(FetchResponse(session_id=0))
    assert session.build(7).session_epoch == 0


def test_session_epoch_wraps_to_one() -> None:
    session = opened()
    session._epoch = LAST_EPOCH
    session.on_response(FetchResponse(session_id=9))
    assert session.build(7).session_epoch == 1


def test_answer_is_outdated_for_a_partition_that_moved_or_was_dropped_after_the_request() -> None:
    session = opened()
    assert session.requested(A) == at(0)
    session.want(A, at(0))
    assert session.requested(A) == at(0)
    session.want(A, at(3))
    session.drop(B)
    session.want(B, at(5))
    assert session.requested(A) is None
    assert session.requested(B) is None
    session.build(7)
    assert (session.requested(A), session.requested(B)) == (at(3), at(5))
