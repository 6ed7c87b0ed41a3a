"""A quorum of one voter: the same rules, without other voters to wait for."""

from __future__ import annotations

from random import Random

import pytest

from ottla.raft import Election, LogEnd, QuorumConfig, RaftCore, ReplicaKey, Voter, VoterSet, quorum
from ottla.raft.control import LeaderChange
from ottla.raft.events import AppendControl, Appended, Commit, Flush, Flushed, Persist, Started

EMPTY = LogEnd(0, 0)
NEW = Election()


def started(election: Election = NEW, end: LogEnd = EMPTY) -> tuple[RaftCore, list[object]]:
    core = RaftCore(QuorumConfig(1, static_voters=VoterSet.of([Voter(ReplicaKey(1))])), election, Random(0))
    return core, list(core.step(Started(end, end.offset, ()), 0))


def test_single_voter_persists_the_election_before_it_leads_the_next_epoch() -> None:
    core, effects = started(Election(4, 1), LogEnd(10, 4))
    assert effects == [Persist(Election(5, 1), (1,), 0), AppendControl(5, (LeaderChange(1, (1,), (1,)),))]
    assert core.is_leader


def test_lost_quorum_state_does_not_restore_an_old_epoch() -> None:
    core, _ = started(Election(), LogEnd(10, 7))
    assert core.epoch == 8


def test_candidate_of_an_epoch_may_lead_it_after_a_restart() -> None:
    core, effects = started(Election(4, -1, ReplicaKey(1)), LogEnd(10, 3))
    assert core.epoch == 4, "it has its own vote of this epoch, and needs no other"
    assert effects[0] == Persist(Election(4, 1), (1,), 0)


def test_records_are_not_committed_before_they_are_on_disk() -> None:
    core, _ = started()
    assert core.step(Appended(1, 1), 0) == [Flush(1)]
    assert core.high_watermark == -1
    assert core.step(Flushed(1), 0) == [Commit(1)]


def test_next_flush_covers_all_records_appended_during_a_flush() -> None:
    core, _ = started()
    assert core.step(Appended(1, 1), 0) == [Flush(1)]
    assert core.step(Appended(3, 1), 0) == []
    assert core.step(Appended(9, 1), 0) == []
    assert core.step(Flushed(1), 0) == [Commit(1), Flush(9)]
    assert core.step(Flushed(9), 0) == [Commit(9)]


def test_record_of_the_new_epoch_commits_previous_records() -> None:
    core, _ = started(Election(4, 1), LogEnd(10, 4))
    core.step(Appended(11, 5), 0)
    assert core.step(Flushed(11), 0) == [Commit(11)]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [({1: 5}, -1), ({1: 5, 2: 3}, 3), ({1: 5, 2: 3, 3: 9}, 5), ({1: 5, 9: 100}, -1)],
)
def test_majority_of_voters_decides_and_other_nodes_do_not_count(ends: dict[int, int], expected: int) -> None:
    assert quorum.majority_offset({1, 2, 3}, ends) == expected
