"""The states of a group member, their legal transitions, and what a poll must do for the member."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from ottla.common.ids import TopicPartition


class State(Enum):
    """The state of the member."""

    OUTSIDE = "not a member"
    PREPARING = "will join, after a poll has revoked partitions"
    JOINING = "JoinGroup is in flight or due"
    ASSIGNING = "leads the group, and waits for metadata to assign partitions"
    SYNCING = "SyncGroup is in flight"
    ADOPTING = "has an assignment, and waits for a poll to adopt it"
    STABLE = "reads its partitions"
    FAILED = "cannot be a member; polls raise the reason"

    __hash__ = object.__hash__


MOVES: Final[dict[State, frozenset[State]]] = {
    State.OUTSIDE: frozenset({State.PREPARING, State.FAILED}),
    State.PREPARING: frozenset({State.JOINING, State.OUTSIDE, State.FAILED}),
    State.JOINING: frozenset({State.ASSIGNING, State.SYNCING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.ASSIGNING: frozenset({State.SYNCING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.SYNCING: frozenset({State.ADOPTING, State.JOINING, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.ADOPTING: frozenset({State.STABLE, State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.STABLE: frozenset({State.PREPARING, State.OUTSIDE, State.FAILED}),
    State.FAILED: frozenset({State.OUTSIDE}),
}


@dataclass(frozen=True, slots=True)
class Duty:
    """The duty of the next poll: call the listener; before that commit, if `kind` is "revoked"."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[TopicPartition, ...]
