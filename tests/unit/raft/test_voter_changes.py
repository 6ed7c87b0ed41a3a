"""Changes of the voters at the leader: Kafka's errors, one change at a time, and the upgrade of kraft.version."""

from __future__ import annotations

from random import Random

import pytest

from ottla.common.errors import ErrorCode
from ottla.raft import Election, QuorumConfig, RaftCore, ReplicaKey, VoterSet
from ottla.raft import messages as m
from ottla.raft.control import KRaftVersion, decode, encode
from ottla.raft.events import (
    AppendControl,
    Appended,
    Failed,
    Flushed,
    Received,
    Respond,
    Started,
    Ticked,
    UpgradeRequested,
)
from ottla.raft.values import LogEnd
from ottla.raft.voters import History, VersionRange, Voter

from .support import EMPTY, Replica, key, voter, voters


def leader() -> Replica:
    """Replica 1 is the only voter; its first records are committed, and observer 2 has caught up."""
    replica = Replica(1)
    replica.step(Flushed(3))
    replica.ask(m.FetchRequest("c", key(2), 1, LogEnd(3, 1), -1, 0, 1 << 20))
    return replica


def add(node: int = 2) -> m.AddVoterRequest:
    return m.AddVoterRequest("c", 1000, key(node), voter(node).endpoints)


def responses(replica: Replica) -> list[tuple[object, ErrorCode]]:
    return [(each.token, each.response.error) for each in replica.effects if isinstance(each, Respond)]


def versions(lowest: int = 0, highest: int = 1) -> m.ApiVersionsResponse:
    return m.ApiVersionsResponse(kraft_versions=VersionRange(lowest, highest))


def begin(replica: Replica, request: m.Request) -> None:
    """Pass a request whose response comes later, and answer the question for the versions."""
    replica.step(Received("change", request))
    (sent,) = replica.sent(m.ApiVersionsRequest)
    replica.answer(sent, versions())


def test_voter_is_added_and_the_request_answered_when_the_new_set_commits() -> None:
    replica = leader()
    begin(replica, add())
    assert AppendControl(1, (voters(1, 2),)) in replica.effects
    assert replica.core.voters.ids == {1, 2}, "the new set takes effect at once"
    assert responses(replica) == []
    replica.step(Flushed(4))
    assert replica.core.high_watermark == 3, "a majority of two voters is both"
    replica.step(Received("fetch", m.FetchRequest("c", key(2), 1, LogEnd(4, 1), -1, 0, 1 << 20)))
    assert ("change", ErrorCode.NONE) in responses(replica)


def test_one_change_at_a_time() -> None:
    replica = leader()
    replica.step(Received("change", add()))
    (sent,) = replica.sent(m.ApiVersionsRequest)
    pending = "Request timed out waiting for leader to handle previous voter change request"
    assert replica.ask(add(3)) == m.VoterChangeResponse(ErrorCode.REQUEST_TIMED_OUT, pending)
    replica.answer(sent, versions())
    assert replica.ask(m.RemoveVoterRequest("c", key(2))).error is ErrorCode.REQUEST_TIMED_OUT
    replica.now_ms += 2000
    replica.step(Ticked())
    assert responses(replica) == [("change", ErrorCode.REQUEST_TIMED_OUT)]
    answer = replica.ask(add(3))
    assert answer == m.VoterChangeResponse(
        ErrorCode.REQUEST_TIMED_OUT, "Request timed out waiting for voters to commit the latest voter change"
    )


def test_no_change_before_a_record_of_the_own_epoch_is_committed() -> None:
    replica = Replica(1)
    message = "Request timed out waiting for leader to establish HWM and fence previous voter changes"
    assert replica.ask(add()) == m.VoterChangeResponse(ErrorCode.REQUEST_TIMED_OUT, message)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (m.AddVoterRequest("c", 1, ReplicaKey(2), voter(2).endpoints), ErrorCode.INVALID_REQUEST),
        (m.AddVoterRequest("c", 1, key(2), ()), ErrorCode.INVALID_REQUEST),
        (m.AddVoterRequest("c", 1, key(1), voter(1).endpoints), ErrorCode.DUPLICATE_VOTER),
        (m.AddVoterRequest("x", 1, key(2), voter(2).endpoints), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (m.RemoveVoterRequest("c", key(2)), ErrorCode.VOTER_NOT_FOUND),
        (m.RemoveVoterRequest("c", key(1)), ErrorCode.VOTER_NOT_FOUND),
        (m.UpdateVoterRequest("c", 1, key(1), (), VersionRange(0, 1)), ErrorCode.INVALID_REQUEST),
        (m.UpdateVoterRequest("c", 1, key(1), voter(1).endpoints, VersionRange(1, 0)), ErrorCode.INVALID_REQUEST),
        (m.UpdateVoterRequest("c", 0, key(1), voter(1).endpoints, VersionRange()), ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_impossible_change_gets_kafkas_error(request_: m.Request, error: ErrorCode) -> None:
    assert leader().ask(request_).error is error


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (versions(0, 0), ErrorCode.INVALID_REQUEST),
        (m.ApiVersionsResponse(), ErrorCode.INVALID_REQUEST),
        (m.ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_voter_that_does_not_support_the_quorums_version_is_not_added(
    response: m.ApiVersionsResponse, error: ErrorCode
) -> None:
    replica = leader()
    replica.step(Received("change", add()))
    (sent,) = replica.sent(m.ApiVersionsRequest)
    replica.answer(sent, response)
    assert responses(replica) == [("change", error)]
    assert replica.core.voters.ids == {1}


def test_voter_that_lags_or_does_not_answer_is_not_added() -> None:
    replica = leader()
    begin(replica, add(3))
    assert responses(replica) == [("change", ErrorCode.REQUEST_TIMED_OUT)]
    replica.step(Received("change", add(2)))
    (sent,) = replica.sent(m.ApiVersionsRequest)
    replica.step(Failed(sent.request_id))
    assert responses(replica) == [("change", ErrorCode.REQUEST_TIMED_OUT)]


def static_leader() -> tuple[RaftCore, list[object]]:
    """Node 1 leads two voters of the configuration, with kraft.version 0."""
    static = VoterSet.of_addresses("CONTROLLER", {1: ("node1", 9001)})
    config = QuorumConfig(1, key(1).directory_id, "c", static, endpoints=voter(1).endpoints)
    core = RaftCore(config, Election(), Random(0))
    core.step(Started(EMPTY, 0), 0)
    core.step(Appended(1, 1), 0)
    return core, list(core.step(Flushed(1), 0))


def test_upgrade_of_kraft_version_writes_the_reported_voters() -> None:
    core, _ = static_leader()
    effects = core.step(UpgradeRequested("up", 1), 0)
    assert effects == [AppendControl(1, (KRaftVersion(1), voters(1)))]
    core.step(Appended(3, 1, ((1, KRaftVersion(1)), (2, voters(1)))), 0)
    effects = core.step(Flushed(3), 0)
    assert Respond("up", m.VoterChangeResponse()) in effects
    assert (core.kraft_version, core.voters) == (1, voters(1))
    assert core.is_leader


def test_invalid_upgrade_changes_nothing() -> None:
    core, _ = static_leader()
    for level in (2, -1):
        (response,) = core.step(UpgradeRequested("up", level), 0)
        assert isinstance(response, Respond)
        assert response.response.error is ErrorCode.INVALID_UPDATE_VERSION
    assert core.step(UpgradeRequested("up", 1, validate_only=True), 0) == [Respond("up", m.VoterChangeResponse())]
    assert core.step(UpgradeRequested("up", 0), 0) == [Respond("up", m.VoterChangeResponse())]


def test_voters_cannot_be_changed_with_kraft_version_0() -> None:
    core, _ = static_leader()
    (response,) = core.step(Received("t", add()), 0)
    assert isinstance(response, Respond)
    assert response.response.error is ErrorCode.UNSUPPORTED_VERSION


def test_control_records_survive_their_encoding() -> None:
    for record in (KRaftVersion(1), voters(1, 2, 3), VoterSet.of([Voter(ReplicaKey(1))])):
        assert decode(*encode(record)) == record


def test_history_returns_to_the_previous_voters_when_the_log_is_truncated() -> None:
    history: History[VoterSet] = History(voters(9))
    assert (history.last, history.last_offset) == (voters(9), None)
    for offset, value in ((-1, voters(1)), (5, voters(1, 2)), (8, voters(1, 2, 3))):
        history.add(offset, value)
    assert (history.at(7), history.at(8), history.previous) == (voters(1, 2), voters(1, 2, 3), voters(1, 2))
    history.truncate_from(8)
    assert (history.last, history.last_offset) == (voters(1, 2), 5)
