"""The states of a transaction and the legal moves between them.

Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
Ongoing -> PrepareAbort -> CompleteAbort; Empty again after InitProducerId; Dead after the id has expired.
Since KIP-890, a producer that does not know the state may also abort a transaction that has not begun.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Values are the numbers in the records of `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    # On Kafka, the moment between the decision to fence a producer and the abort of its transaction. It is not stored.
    PREPARE_EPOCH_FENCE = 7

    # Enum.__hash__ is Python code that hashes the name. Hashing by identity suffices and is ten times as fast.
    __hash__ = object.__hash__

    @property
    def title(self) -> str:
        """Kafka's name of the state, as in DescribeTransactions."""
        return _TITLES[self]


_TITLES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
BY_TITLE = {title: state for state, title in _TITLES.items()}

_IDLE_MOVES = frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD})
MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: _IDLE_MOVES,
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: _IDLE_MOVES,
    State.COMPLETE_ABORT: _IDLE_MOVES,
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset(),
}

PREPARED = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
COMPLETED = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
# The transactional id expires in these states.
IDLE = frozenset(state for state, targets in MOVES.items() if State.DEAD in targets)
