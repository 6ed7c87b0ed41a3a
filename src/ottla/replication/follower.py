"""A follower of one partition: where it fetches, and what it does with an answer. KIP-101, KIP-279, KIP-595 (truncation
with the fetch).

Each fetch names the epoch of the follower's last record. If the leader's log has another end of that epoch, the answer
names the leader's last epoch before it and where that ended; the follower truncates to the offset up to which both logs
are equal, which may take several fetches. Records below the high watermark are among those up to there, as long as the
leader was in the ISR. The follower's own high watermark decides nothing: it may be behind acknowledged records.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from ottla.common.errors import ErrorCode
from ottla.common.values import value


class FollowerLog(Protocol):
    """The part of a follower's log that the decisions use."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last record; -1 for an empty log."""
        ...

    def offset_for_leader_epoch(self, epoch: int) -> tuple[int, int]:
        """The greatest epoch up to `epoch`, and its end offset; (-1, -1) if unknown."""
        ...


class EpochEnd(NamedTuple):
    """An epoch of the leader's log and its end offset; -1 for an unknown value."""

    epoch: int
    end_offset: int


class Position(NamedTuple):
    """The position in a fetch of one partition."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


@value
class FetchAnswer:
    """The leader's answer to a fetch of one partition."""

    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None


class Action(Enum):
    """The next action of a follower."""

    APPEND = "append the records and follow the leader's offsets"
    TRUNCATE = "truncate to an offset"
    RESTART = "drop all records and continue at an offset"
    LOOK_UP = "ask for the leader's first and last offset"
    BACK_OFF = "fetch again after the backoff"
    WAIT = "wait for metadata: the leader epoch is over"
    NOTHING = "fetch again"


@value
class Step:
    """An action, with its offset if it has one."""

    action: Action
    offset: int = -1


_new_tuple = tuple.__new__
_APPEND, _NOTHING = Step(Action.APPEND), Step(Action.NOTHING)
_LOOK_UP, _BACK_OFF, _WAIT = Step(Action.LOOK_UP), Step(Action.BACK_OFF), Step(Action.WAIT)


def position_of(log: FollowerLog, leader_epoch: int) -> Position:
    """Where a follower in `leader_epoch` fetches: at the end of its log."""
    return _new_tuple(Position, (log.log_end_offset, log.latest_epoch, leader_epoch, log.log_start_offset))


def on_fetched(requested: Position, answer: FetchAnswer, log: FollowerLog, leader_epoch: int) -> Step:
    """Decide the step after an answer to the fetch of `requested`, for a follower that is in `leader_epoch` now."""
    if (
        requested.fetch_offset != log.log_end_offset
        or requested.last_fetched_epoch != log.latest_epoch
        or requested.leader_epoch != leader_epoch
    ):
        return _NOTHING  # The log or the epoch changed after the request.
    error = answer.error
    if error is ErrorCode.NONE:
        if answer.diverging is None:
            return _APPEND
        return Step(Action.TRUNCATE, truncation_offset(answer.diverging, log))
    if error is ErrorCode.OFFSET_OUT_OF_RANGE:
        return _LOOK_UP
    if error is ErrorCode.FENCED_LEADER_EPOCH:
        return _WAIT
    return _BACK_OFF


def truncation_offset(leader: EpochEnd, log: FollowerLog) -> int:
    """The offset up to which the follower's log may equal the leader's, which ends `leader.epoch` at its end offset.

    If the follower lacks that epoch, this is the end of its last epoch before it; the next fetch compares again.
    """
    end = log.log_end_offset
    if leader.end_offset < 0:
        return end
    if leader.epoch < 0:
        return min(leader.end_offset, end)
    own_epoch, own_end = log.offset_for_leader_epoch(leader.epoch)
    if own_end < 0:
        return min(leader.end_offset, end)
    if own_epoch != leader.epoch:
        return min(own_end, end)
    return min(own_end, leader.end_offset, end)


def on_leader_end(leader_end: int, log: FollowerLog) -> Step:
    """Decide the first step of a follower outside of its leader's log, when it knows where that log ends.

    A log that is longer than the leader's was written under a leader that an unclean election replaced.
    """
    if leader_end < log.log_end_offset:
        return Step(Action.TRUNCATE, leader_end)
    return _LOOK_UP


def on_leader_start(leader_start: int, log: FollowerLog) -> Step:
    """Decide its step when it also knows where the leader's log starts."""
    if leader_start > log.log_end_offset:
        return Step(Action.RESTART, leader_start)
    return _NOTHING


def on_source_start(source_start: int, log: FollowerLog) -> Step:
    """Decide the next step of a mirror that fetched outside of its source's log, when it knows where that starts.

    The fetch named an epoch, so that a shorter log of the source would have been reported as a divergence. The end of
    the source's log is not asked for: clients get the high watermark, which may be below records that exist.
    """
    return Step(Action.RESTART, source_start) if source_start > log.log_end_offset else _BACK_OFF
