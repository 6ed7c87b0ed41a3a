"""A quorum of one voter: the same rules, without other voters to wait for."""

from __future__ import annotations

from random import Random

import pytest

from ottla.raft import quorum, quorum_state
from ottla.raft.core import RaftCore
from ottla.raft.events import (
    Appended,
    AppendLeaderChange,
    Commit,
    Election,
    Flush,
    Flushed,
    LogEnd,
    Persist,
    Started,
)

EMPTY = LogEnd(0, -1)
NEW = Election()


def started(election: Election = NEW, end: LogEnd = EMPTY) -> tuple[RaftCore, list[object]]:
    core = RaftCore(1, {1}, election, Random(0))
    return core, list(core.step(Started(end, end.offset, ()), 0))


def test_single_voter_persists_the_election_before_it_leads_the_next_epoch() -> None:
    core, effects = started(Election(4, 1, 1), LogEnd(10, 4))
    assert effects == [Persist(Election(5, 1, 1)), AppendLeaderChange(5, 1, (1,), (1,))]
    assert core.is_leader


def test_lost_quorum_state_does_not_restore_an_old_epoch() -> None:
    core, _ = started(Election(), LogEnd(10, 7))
    assert core.epoch == 8


def test_records_are_not_committed_before_they_are_on_disk() -> None:
    core, _ = started()
    assert core.step(Appended(1, 1), 0) == [Flush(1)]
    assert core.high_watermark == 0
    assert core.step(Flushed(1), 0) == [Commit(1)]


def test_next_flush_covers_all_records_appended_during_a_flush() -> None:
    core, _ = started()
    assert core.step(Appended(1, 1), 0) == [Flush(1)]
    assert core.step(Appended(3, 1), 0) == []
    assert core.step(Appended(9, 1), 0) == []
    assert core.step(Flushed(1), 0) == [Commit(1), Flush(9)]
    assert core.step(Flushed(9), 0) == [Commit(9)]


def test_record_of_the_new_epoch_commits_previous_records() -> None:
    core, _ = started(Election(4, 1, 1), LogEnd(10, 4))
    core.step(Appended(11, 5), 0)
    assert core.step(Flushed(11), 0) == [Commit(11)]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [({1: 5}, 0), ({1: 5, 2: 3}, 3), ({1: 5, 2: 3, 3: 9}, 5), ({1: 5, 9: 100}, 0)],
)
def test_majority_of_voters_decides_and_other_nodes_do_not_count(ends: dict[int, int], expected: int) -> None:
    assert quorum.majority_offset({1, 2, 3}, ends) == expected


def test_quorum_state_file_has_kafkas_format() -> None:
    text = quorum_state.encode(Election(3, 1, 1), {1})
    assert text == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert quorum_state.decode(text) == Election(3, 1, 1)
    newer = '{"leaderId":-1,"leaderEpoch":9,"votedId":2,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    assert quorum_state.decode(newer) == Election(9, -1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"data_version":2}',
        '{"data_version":0,"leaderId":1}',
        '{"data_version":0,"leaderId":1,"leaderEpoch":"3","votedId":1}',
        '{"data_version":0,"leaderId":1,"leaderEpoch":3.5,"votedId":1}',
        '{"data_version":0,"leaderId":1,"leaderEpoch":3,"votedId":1',
    ],
)
def test_corrupt_quorum_state_is_an_error_not_a_fresh_start(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        quorum_state.decode(text)
