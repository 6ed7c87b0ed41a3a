"""Votes and pre-votes of one replica: what is granted, what is stored, and Kafka's errors."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.common.errors import ErrorCode
from ottla.raft import Election, LogEnd, ReplicaKey, Role
from ottla.raft import messages as m
from ottla.raft.control import KRaftVersion
from ottla.raft.events import Disconnected, Persist, Respond, Started, Ticked
from ottla.raft.values import BOOTSTRAP_SNAPSHOT

from .support import EMPTY, Replica, key, voter, voters

NO_VOTE = ReplicaKey(-1)


def vote(candidate: int = 2, epoch: int = 5, end: LogEnd = EMPTY, *, pre_vote: bool = False) -> m.VoteRequest:
    return m.VoteRequest("c", key(1), key(candidate), epoch, end, pre_vote)


def with_log(end: LogEnd, election: Election) -> Replica:
    controls = ((-1, KRaftVersion(1)), (-1, voters(1, 2, 3)))
    snapshots = ((BOOTSTRAP_SNAPSHOT, 100),)
    return Replica(1, 2, 3, election=election, started=Started(end, end.offset, ((end.epoch, 0),), controls, snapshots))


def test_vote_is_stored_before_the_response() -> None:
    replica = Replica(1, 2, 3)
    response = replica.ask(vote())
    assert response == m.VoteResponse(ErrorCode.NONE, 5, -1, (), granted=True)
    kinds = [type(each) for each in replica.effects if isinstance(each, Persist | Respond)]
    assert kinds == [Persist, Respond]
    assert replica.core.election == Election(5, -1, key(2))


def test_one_candidate_per_epoch_gets_the_vote() -> None:
    replica = Replica(1, 2, 3)
    assert replica.ask(vote(2)).granted  # type: ignore[union-attr]
    assert not replica.ask(vote(3)).granted  # type: ignore[union-attr]
    assert replica.ask(vote(2)).granted, "the first response was lost"  # type: ignore[union-attr]
    assert replica.ask(vote(3, epoch=6)).granted  # type: ignore[union-attr]


def test_vote_survives_a_restart() -> None:
    replica = Replica(1, 2, 3, election=Election(5, -1, key(2)))
    assert not replica.ask(vote(3)).granted  # type: ignore[union-attr]


def test_candidate_of_an_old_epoch_is_fenced() -> None:
    replica = Replica(1, 2, 3, election=Election(7))
    assert replica.ask(vote(epoch=6)) == m.VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, 7)
    assert replica.core.election == Election(7)


@pytest.mark.parametrize(
    ("end", "granted"), [(LogEnd(9, 4), False), (LogEnd(20, 3), False), (LogEnd(10, 4), True), (LogEnd(5, 5), True)]
)
def test_only_a_log_with_all_own_records_gets_the_vote(end: LogEnd, granted: bool) -> None:
    replica = with_log(LogEnd(10, 4), Election(4))
    assert replica.ask(vote(epoch=6, end=end)).granted is granted  # type: ignore[union-attr]
    assert replica.core.epoch == 6, "the epoch is known in any case"


def test_candidate_names_the_end_of_its_log_on_disk() -> None:
    controls = ((-1, KRaftVersion(1)), (-1, voters(1, 2, 3)))
    replica = Replica(started=Started(LogEnd(10, 4), 5, ((1, 0), (4, 8)), controls))
    replica.now_ms = 5000
    replica.step(Ticked())
    (sent, _) = replica.sent(m.VoteRequest)
    assert isinstance(sent.request, m.VoteRequest)
    assert sent.request.end == LogEnd(5, 1)


def test_pre_vote_stores_nothing_and_may_be_given_to_several() -> None:
    replica = Replica(1, 2, 3, election=Election(5, -1, key(3)))
    assert replica.ask(vote(2, pre_vote=True)).granted  # type: ignore[union-attr]
    assert replica.core.election == Election(5, -1, key(3))


def follower(leader_id: int = 2) -> Replica:
    """Replica 1 follows a leader in epoch 5, and has fetched from it."""
    replica = Replica(1, 2, 3)
    replica.ask(m.BeginQuorumEpochRequest("c", key(1), leader_id, 5, voter(leader_id).endpoints))
    (sent,) = replica.sent(m.FetchRequest)
    replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, leader_id, high_watermark=0))
    return replica


def test_follower_that_hears_its_leader_rejects_pre_votes() -> None:
    replica = follower()
    assert not replica.ask(vote(3, pre_vote=True)).granted  # type: ignore[union-attr]
    replica.step(Disconnected(2))
    assert replica.ask(vote(3, pre_vote=True)).granted, "the leader's process has ended"  # type: ignore[union-attr]


def test_follower_whose_leader_disconnects_asks_for_pre_votes_within_milliseconds() -> None:
    replica = follower(3)
    replica.step(Disconnected(2))
    assert replica.core.deadline_ms > 100, "another node is not the leader"
    replica.step(Disconnected(3))
    assert replica.core.deadline_ms <= 1
    replica.now_ms = 1
    replica.step(Ticked())
    assert replica.core.role is Role.PROSPECTIVE
    assert (replica.core.epoch, replica.core.election.leader_id) == (5, 3), "a pre-vote changes no epoch"


def test_voters_whose_leader_disconnects_stand_one_after_the_other() -> None:
    """If they stood at once, each would vote for itself, and the next attempt would wait for the election timeout."""
    first, second = follower(3), follower(2)
    first.step(Disconnected(3))
    second.step(Disconnected(2))
    assert first.core.deadline_ms + 100 < second.core.deadline_ms < 300


def test_candidate_that_a_voter_rejects_stands_again_soon_and_later_each_time() -> None:
    replica = Replica(1, 2, 3)
    pauses = []
    for _ in range(6):
        while replica.core.role is not Role.CANDIDATE:
            replica.now_ms = max(replica.now_ms + 1, replica.core.deadline_ms)
            replica.step(Ticked())
            for sent in replica.sent(m.VoteRequest):
                replica.answer(sent, m.VoteResponse(ErrorCode.NONE, replica.core.epoch, granted=True))
                break
        sent = replica.sent(m.VoteRequest)[-1]
        assert isinstance(sent.request, m.VoteRequest)
        assert not sent.request.pre_vote
        replica.answer(sent, m.VoteResponse(ErrorCode.NONE, replica.core.epoch, granted=False))
        pauses.append(replica.core._q.state.election_deadline_ms - replica.now_ms)  # type: ignore[union-attr]
        replica.now_ms += pauses[-1]
        replica.step(Ticked())
        assert replica.core.role is Role.PROSPECTIVE
    longest = [100, 200, 400, 800, 1000, 1000]
    assert all(0 < pause <= limit + 1 for pause, limit in zip(pauses, longest, strict=True)), pauses
    assert max(pauses) > 100


def test_voter_without_pre_votes_is_asked_for_a_vote() -> None:
    replica = Replica(1, 2, 3)
    replica.now_ms = replica.core.deadline_ms + 5000
    replica.step(Ticked())
    sent = replica.sent(m.VoteRequest)[0]
    replica.answer(sent, m.VoteResponse(ErrorCode.UNSUPPORTED_VERSION, -1))
    assert replica.core.role is Role.CANDIDATE
    assert replica.core.epoch == 1


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (vote(end=LogEnd(0, 5)), ErrorCode.INVALID_REQUEST),
        (vote(end=LogEnd(-1, 0)), ErrorCode.INVALID_REQUEST),
        (vote(candidate=1), ErrorCode.INVALID_REQUEST),
        (m.VoteRequest("c", key(3), key(2), 5, EMPTY, pre_vote=False), ErrorCode.INVALID_VOTER_KEY),
        (m.VoteRequest("other", key(1), key(2), 5, EMPTY, pre_vote=False), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
)
def test_invalid_request_gets_kafkas_error_and_no_vote(request_: m.VoteRequest, error: ErrorCode) -> None:
    replica = Replica(1, 2, 3)
    assert replica.ask(request_).error is error
    assert not replica.core.election.has_voted


def test_second_leader_of_an_epoch_is_rejected() -> None:
    replica = follower()
    request = m.BeginQuorumEpochRequest("c", key(1), 3, 5, voter(3).endpoints)
    assert replica.ask(request).error is ErrorCode.INVALID_REQUEST
    assert replica.core.election.leader_id == 2


def test_successors_of_a_resigned_leader_wait_in_their_order() -> None:
    deadlines = []
    for preferred in ((key(1), key(3)), (key(3), key(1))):
        replica = follower()
        replica.ask(m.EndQuorumEpochRequest("c", 2, 5, preferred, voter(2).endpoints))
        deadlines.append((replica.core.role, replica.core.deadline_ms))
    assert deadlines[0][0] is Role.PROSPECTIVE, "the first one does not wait"
    assert deadlines[1] == (Role.FOLLOWER, 500)


def test_voter_that_is_denied_the_right_waits_longer_each_time() -> None:
    replica = Replica(1, 2, 3)
    asked_ms: list[int] = []
    while replica.now_ms < 30_000:
        replica.now_ms = max(replica.now_ms + 1, replica.core.deadline_ms)
        replica.step(Ticked())
        for sent in replica.sent(m.VoteRequest):
            if sent.to.node_id == 2:
                asked_ms.append(replica.now_ms)
            replica.answer(sent, m.VoteResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1))
    pauses = [end - begin for begin, end in pairwise(asked_ms)]
    assert pauses[0] < 100
    assert len(asked_ms) < 80
    assert sum(pauses[-5:]) > 2_000


def test_voter_that_was_denied_the_right_is_elected_once_it_has_it() -> None:
    replica = Replica(1, 2, 3)
    granted_from_ms = 10_000
    while replica.core.role is not Role.LEADER and replica.now_ms < granted_from_ms + 5_000:
        replica.now_ms = max(replica.now_ms + 1, replica.core.deadline_ms)
        replica.step(Ticked())
        waiting = replica.sent(m.VoteRequest)
        while waiting and replica.core.role is not Role.LEADER:
            denied = m.VoteResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1)
            granted = m.VoteResponse(ErrorCode.NONE, replica.core.epoch, granted=True)
            replica.answer(waiting.pop(0), denied if replica.now_ms < granted_from_ms else granted)
            waiting += replica.sent(m.VoteRequest)
    assert replica.core.role is Role.LEADER
