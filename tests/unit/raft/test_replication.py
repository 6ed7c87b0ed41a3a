"""A leader and a follower alone: what counts for a commit, divergence, snapshots, and limits."""

from __future__ import annotations

from random import Random

import pytest

from ottla.common.errors import ErrorCode
from ottla.raft import Election, LogEnd, QuorumConfig, QuorumError, RaftCore, Role
from ottla.raft import messages as m
from ottla.raft.control import KRaftVersion
from ottla.raft.events import (
    Appended,
    AppendFetched,
    AppendSnapshot,
    BeginSnapshot,
    Commit,
    Disconnected,
    Flush,
    Flushed,
    LoadSnapshot,
    Received,
    Respond,
    Responded,
    Send,
    ShutdownRequested,
    SnapshotLoaded,
    SnapshotRejected,
    SnapshotsChanged,
    Started,
    Ticked,
    Truncate,
)
from ottla.raft.values import BOOTSTRAP_SNAPSHOT, Node, SnapshotId

from .support import EMPTY, Replica, key, voter, voters

CONTROLS = ((-1, KRaftVersion(1)), (-1, voters(1, 2, 3)))


def leader() -> Replica:
    """Replica 1 leads epoch 1 of three voters; its log has 3 records, which are on disk."""
    replica = Replica(1, 2, 3)
    replica.now_ms = 2000
    replica.step(Ticked())
    for _ in range(2):  # a pre-vote, then a vote
        (sent, *_) = replica.sent(m.VoteRequest)
        replica.answer(sent, m.VoteResponse(ErrorCode.NONE, replica.core.epoch, granted=True))
    assert replica.core.is_leader
    replica.step(Flushed(3))
    return replica


def fetch(node: int, end: LogEnd, epoch: int = 1, wait_ms: int = 0) -> m.FetchRequest:
    return m.FetchRequest("c", key(node), epoch, end, -1, wait_ms, 1 << 20)


def test_record_is_committed_when_a_majority_has_it_on_disk() -> None:
    replica = leader()
    assert replica.core.high_watermark == -1
    replica.ask(fetch(2, LogEnd(3, 1)))
    assert replica.core.high_watermark == 3
    replica.step(Appended(4, 1))
    replica.ask(fetch(2, LogEnd(4, 1)))
    assert replica.core.high_watermark == 3, "the leader's own disk does not have it yet"
    replica.step(Flushed(4))
    assert replica.core.high_watermark == 4


def test_fetch_of_an_observer_or_of_another_directory_does_not_count() -> None:
    replica = leader()
    replica.ask(fetch(4, LogEnd(3, 1)))
    other = m.FetchRequest("c", key(2)._replace(directory_id=bytes(15) + b"x"), 1, LogEnd(3, 1), -1, 0, 1 << 20)
    replica.ask(other)
    assert replica.core.high_watermark == -1


def test_fetch_with_another_epoch_gets_kafkas_error() -> None:
    replica = leader()
    assert replica.ask(fetch(2, EMPTY, epoch=0)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replica.ask(fetch(2, EMPTY, epoch=2)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert replica.ask(fetch(2, LogEnd(3, 2))).error is ErrorCode.INVALID_REQUEST
    assert replica.ask(fetch(1, LogEnd(3, 1))).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_waiting_fetches_are_limited_to_one_per_replica() -> None:
    replica = leader()
    request = m.FetchRequest("c", key(2), 1, LogEnd(3, 1), 3, 500, 1 << 20)
    replica.step(Received("first", request))
    replica.step(Received("second", request))
    assert [each.token for each in replica.effects if isinstance(each, Respond)] == ["first"]
    replica.now_ms += 500
    replica.step(Ticked())
    assert [each.token for each in replica.effects if isinstance(each, Respond)] == ["second"]


def test_leader_without_a_majority_resigns_and_refuses_the_fetches_that_wait() -> None:
    replica = leader()
    replica.ask(fetch(2, LogEnd(3, 1)))
    replica.step(Received("waits", m.FetchRequest("c", key(4), 1, LogEnd(3, 1), 3, 60_000, 1 << 20)))
    replica.now_ms += 3000
    replica.step(Ticked())
    assert replica.core.role is Role.RESIGNED
    (refused,) = [each.response for each in replica.effects if isinstance(each, Respond)]
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replica.sent(m.EndQuorumEpochRequest)


def follower(end: LogEnd, starts: tuple[tuple[int, int], ...]) -> Replica:
    """Replica 1 follows node 2 in epoch 5."""
    started = Started(end, end.offset, starts, CONTROLS, ((BOOTSTRAP_SNAPSHOT, 1),))
    replica = Replica(election=Election(5, 2), started=started)
    assert replica.core.role is Role.FOLLOWER
    return replica


def test_truncation_below_the_high_watermark_stops_the_node() -> None:
    replica = follower(LogEnd(10, 4), ((1, 0), (4, 6)))
    (sent,) = replica.sent(m.FetchRequest)
    replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, high_watermark=8))
    assert replica.core.high_watermark == 8
    (sent,) = replica.sent(m.FetchRequest)
    with pytest.raises(QuorumError, match="truncation to 6, below the high watermark 8"):
        replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, diverging=LogEnd(9, 3)))


def test_diverging_log_is_truncated_to_the_common_epoch() -> None:
    replica = follower(LogEnd(10, 4), ((1, 0), (4, 6)))
    (sent,) = replica.sent(m.FetchRequest)
    effects = replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, diverging=LogEnd(4, 1)))
    assert Truncate(4) in effects
    assert replica.core.end == LogEnd(4, 1)
    (sent,) = replica.sent(m.FetchRequest)
    assert isinstance(sent.request, m.FetchRequest)
    assert sent.request.end == LogEnd(4, 1)


def test_truncation_restores_the_previous_voters() -> None:
    controls = (*CONTROLS, (7, voters(1, 2)))
    started = Started(LogEnd(10, 4), 10, ((1, 0), (4, 6)), controls)
    replica = Replica(election=Election(5, 2), started=started)
    assert replica.core.voters.ids == {1, 2}
    (sent,) = replica.sent(m.FetchRequest)
    replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, diverging=LogEnd(6, 1)))
    assert replica.core.voters.ids == {1, 2, 3}


def test_follower_fetches_on_when_everything_is_on_disk() -> None:
    replica = follower(EMPTY, ())
    (sent,) = replica.sent(m.FetchRequest)
    effects = replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, high_watermark=2, has_records=True))
    assert AppendFetched() in effects
    assert not replica.sent(m.FetchRequest)
    assert replica.step(Appended(2, 5)) == [Flush(2)]
    effects = replica.step(Flushed(2))
    assert Commit(2) in effects
    assert replica.sent(m.FetchRequest)


def test_second_leader_of_an_epoch_stops_the_node() -> None:
    replica = follower(EMPTY, ())
    (sent,) = replica.sent(m.FetchRequest)
    with pytest.raises(QuorumError, match="two voters led one epoch"):
        replica.answer(sent, m.FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 5, 3))


def test_snapshot_is_fetched_in_parts_and_replaces_log_and_voters() -> None:
    replica = follower(LogEnd(3, 1), ((1, 0),))
    snapshot = SnapshotId(50, 4)
    (sent,) = replica.sent(m.FetchRequest)
    assert BeginSnapshot(snapshot) in replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, snapshot=snapshot))
    for position, length in ((0, 60), (60, 40)):
        (sent,) = replica.sent(m.FetchSnapshotRequest)
        assert isinstance(sent.request, m.FetchSnapshotRequest)
        assert sent.request.position == position
        part = m.FetchSnapshotResponse(ErrorCode.NONE, 5, 2, (), snapshot, 100, position, length)
        assert AppendSnapshot(snapshot, position) in replica.answer(sent, part)
    assert LoadSnapshot(snapshot) in replica.effects
    assert not replica.sent(m.FetchRequest), "the snapshot is loaded first"
    effects = replica.step(SnapshotLoaded(snapshot, 100, ((49, KRaftVersion(1)), (49, voters(1, 2)))))
    assert Commit(50) in effects
    assert (replica.core.end, replica.core.voters.ids) == (LogEnd(50, 4), {1, 2})
    (sent,) = replica.sent(m.FetchRequest)
    assert isinstance(sent.request, m.FetchRequest)
    assert sent.request.end == LogEnd(50, 4)


def test_snapshot_that_the_leader_deleted_meanwhile_is_given_up() -> None:
    replica = follower(LogEnd(3, 1), ((1, 0),))
    (sent,) = replica.sent(m.FetchRequest)
    replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, snapshot=SnapshotId(50, 4)))
    (sent,) = replica.sent(m.FetchSnapshotRequest)
    replica.answer(sent, m.FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, 5, 2))
    assert replica.sent(m.FetchRequest), "the next fetch names a newer snapshot"


def test_damaged_snapshot_is_fetched_again_after_a_pause() -> None:
    replica = follower(LogEnd(3, 1), ((1, 0),))
    snapshot = SnapshotId(50, 4)
    (sent,) = replica.sent(m.FetchRequest)
    replica.answer(sent, m.FetchResponse(ErrorCode.NONE, 5, 2, snapshot=snapshot))
    (sent,) = replica.sent(m.FetchSnapshotRequest)
    replica.answer(sent, m.FetchSnapshotResponse(ErrorCode.NONE, 5, 2, (), snapshot, 60, 0, 60))
    assert LoadSnapshot(snapshot) in replica.effects
    assert replica.step(SnapshotRejected(snapshot)) == []
    assert replica.core.end == LogEnd(3, 1)
    assert replica.core.deadline_ms == replica.now_ms + replica.core.config.fetch_timeout_ms // 2
    replica.now_ms = replica.core.deadline_ms
    replica.step(Ticked())
    (sent,) = replica.sent(m.FetchRequest)
    assert isinstance(sent.request, m.FetchRequest)
    assert sent.request.end == LogEnd(3, 1)


def snapshot_request(position: int = 0, snapshot: SnapshotId = SnapshotId(3, 1)) -> m.FetchSnapshotRequest:  # noqa: B008
    return m.FetchSnapshotRequest("c", key(2), 1, snapshot, position, 60)


def test_leader_serves_snapshots_by_position() -> None:
    replica = leader()
    replica.step(SnapshotsChanged(((BOOTSTRAP_SNAPSHOT, 10), (SnapshotId(3, 1), 100)), 3))
    assert replica.ask(fetch(2, EMPTY)).snapshot == SnapshotId(3, 1)  # type: ignore[union-attr]
    assert replica.ask(fetch(2, LogEnd(3, 1))).snapshot is None  # type: ignore[union-attr]
    part = replica.ask(snapshot_request(60))
    assert isinstance(part, m.FetchSnapshotResponse)
    assert (part.error, part.size, part.position, part.length) == (ErrorCode.NONE, 100, 60, 40)
    assert replica.ask(snapshot_request(100)).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert replica.ask(snapshot_request(-1)).error is ErrorCode.POSITION_OUT_OF_RANGE
    assert replica.ask(snapshot_request(0, SnapshotId(4, 1))).error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert replica.ask(snapshot_request(0, BOOTSTRAP_SNAPSHOT)).error is ErrorCode.SNAPSHOT_NOT_FOUND


def test_leader_describes_voters_and_observers() -> None:
    replica = leader()
    replica.ask(fetch(2, LogEnd(3, 1)))
    replica.ask(fetch(4, LogEnd(1, 1)))
    described = replica.core.describe(replica.now_ms + 10, 1_000_000)
    assert described is not None
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, 1, 3)
    rows = [(row.key, row.log_end_offset, row.last_fetch_ms, row.last_caught_up_ms) for row in described.voters]
    assert rows == [(key(1), 3, 1_000_000, 1_000_000), (key(2), 3, 999_990, 999_990), (key(3), -1, -1, -1)]
    assert [(row.key, row.log_end_offset, row.last_caught_up_ms) for row in described.observers] == [(key(4), 1, -1)]
    assert described.voters[1].endpoints == voter(2).endpoints


def test_restarted_observer_follows_the_leader_that_it_knows_only_by_its_number() -> None:
    """Its log has no voters yet, so that it asks the bootstrap server, which is the leader itself."""
    config = QuorumConfig(
        node_id=4, directory_id=key(4).directory_id, cluster_id="c", bootstrap=(Node(-2, "node2", 9002),)
    )
    core = RaftCore(config, Election(1, 2), Random(0))
    (send,) = [each for each in core.step(Started(EMPTY, 0), 0) if isinstance(each, Send)]
    response = m.FetchResponse(ErrorCode.NONE, 1, 2, voter(2).endpoints, 3, 0, has_records=True)
    effects = core.step(Responded(send.request_id, response), 1)
    assert core.role is Role.FOLLOWER
    assert AppendFetched() in effects


# -- the stop of a leader ----------------------------------------------------------------------------------------------


def test_leader_waits_for_a_successor_only_while_others_can_elect_one() -> None:
    replica = leader()
    replica.step(Disconnected(3))  # before the stop: it may have returned since
    replica.step(ShutdownRequested())
    assert not replica.core.may_stop
    to_2, _ = replica.sent(m.EndQuorumEpochRequest)
    replica.answer(to_2, m.QuorumEpochResponse(ErrorCode.NONE, 1, 1))
    assert not replica.core.may_stop
    replica.step(Disconnected(3))
    assert replica.core.may_stop, "voter 2 alone cannot elect a leader"


def test_voter_that_answers_again_may_still_be_elected() -> None:
    replica = leader()
    replica.step(ShutdownRequested())
    to_2, _ = replica.sent(m.EndQuorumEpochRequest)
    replica.step(Disconnected(2))
    assert replica.core.may_stop
    replica.answer(to_2, m.QuorumEpochResponse(ErrorCode.NONE, 1, 1))
    assert not replica.core.may_stop
