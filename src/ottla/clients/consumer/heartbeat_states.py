"""The states of a member whose partitions the broker assigns (KIP-848, KIP-932), and their legal transitions."""

from __future__ import annotations

from enum import Enum
from typing import Final


class MemberState(Enum):
    """The state of the member, by the names of Kafka's Java client."""

    UNSUBSCRIBED = "not a member"
    JOINING = "the first heartbeat, with epoch 0, is in flight or due"
    RECONCILING = "has an assignment that differs from what it owns, and waits for a poll to adopt it"
    ACKNOWLEDGING = "has adopted an assignment; the heartbeat that says so is due"
    STABLE = "owns what it was assigned"
    PREPARE_LEAVING = "will leave, after a poll has revoked its partitions"
    LEAVING = "the heartbeat that leaves the group is in flight"
    FENCED = "was removed by the coordinator, and joins again after a poll has dropped its partitions"
    STALE = "left because the user did not poll in time, and joins again after a poll has dropped its partitions"
    FATAL = "cannot be a member; polls raise the reason"

    __hash__ = object.__hash__


_S = MemberState
MEMBERS: Final = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})
"""The states of a member, or of one that is about to be a member, that does not leave."""
HEARTBEATS: Final = MEMBERS | {_S.PREPARE_LEAVING}
"""The states that need heartbeats: a listener may take longer than the session timeout."""
JOINED: Final = frozenset({_S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE, _S.PREPARE_LEAVING})
"""The states in which the group knows the member by its epoch, so that it may commit."""
_OUT: Final = frozenset({_S.PREPARE_LEAVING, _S.FENCED, _S.STALE, _S.FATAL, _S.UNSUBSCRIBED})

MOVES: Final[dict[MemberState, frozenset[MemberState]]] = {
    _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
    _S.JOINING: _OUT | {_S.RECONCILING},
    _S.RECONCILING: _OUT | {_S.ACKNOWLEDGING},
    _S.ACKNOWLEDGING: _OUT | {_S.RECONCILING, _S.STABLE},
    _S.STABLE: _OUT | {_S.RECONCILING},
    _S.PREPARE_LEAVING: frozenset({_S.LEAVING, _S.FENCED, _S.FATAL, _S.UNSUBSCRIBED}),
    _S.LEAVING: frozenset({_S.UNSUBSCRIBED}),
    _S.FENCED: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
    _S.STALE: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
    _S.FATAL: frozenset({_S.UNSUBSCRIBED}),
}
