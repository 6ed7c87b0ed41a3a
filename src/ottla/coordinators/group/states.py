"""The states of a classic group and the legal moves between them.

Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
PreparingRebalance -> Empty when no members are left; any state -> Dead when the group is deleted.
"""

from enum import Enum


class State(Enum):
    """Values are Kafka's names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"

    # Enum.__hash__ is Python code that hashes the name. Hashing by identity suffices and is ten times as fast.
    __hash__ = object.__hash__


MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.EMPTY, State.COMPLETING, State.DEAD}),
    State.COMPLETING: frozenset({State.PREPARING, State.STABLE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset(),
}

CAN_REBALANCE = frozenset(state for state, targets in MOVES.items() if State.PREPARING in targets)


class Lifecycle:
    """The state of a group, the previous state, and when the group entered the state (wall clock; None: unknown)."""

    __slots__ = ("entered_ms", "previous", "state")

    def __init__(self, wall_ms: int | None) -> None:
        self.state = State.EMPTY
        self.previous = State.DEAD
        self.entered_ms = wall_ms

    def move(self, state: State, wall_ms: int) -> None:
        """Enter `state`."""
        self.previous, self.state = self.state, state
        self.entered_ms = wall_ms
