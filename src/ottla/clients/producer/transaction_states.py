"""The states of a transactional producer, and its legal transitions as a table.

`COMMITTING` and `ABORTING` include the wait for records and offsets in flight. `INITIALIZING` is also the state between
two transactions while the epoch is raised; the call that ended the first of them still waits then.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """The state of a transactional producer: its permitted calls."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()  # by `init_transactions`, or to raise the epoch after a transaction
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()  # the transaction can only be aborted
    FATAL_ERROR = auto()  # the producer can only be closed

    __hash__ = object.__hash__


class Event(Enum):
    INITIALIZE = auto()
    INITIALIZED = auto()
    REFUSED = auto()  # the broker refused to initialize; the program may try again
    BEGIN = auto()
    COMMIT = auto()
    ABORT = auto()
    FAILED = auto()  # a record or an offset of the transaction
    ENDED = auto()
    ENDED_FOR_NEW_EPOCH = auto()  # ended, and the next transaction needs a new epoch
    LEFT = auto()  # between two transactions, for another process to continue
    CONTINUED = auto()  # what another process left
    STOPPED = auto()  # fenced, not authorized, closed

    __hash__ = object.__hash__


MOVES = {
    (State.UNINITIALIZED, Event.INITIALIZE): State.INITIALIZING,
    (State.INITIALIZING, Event.INITIALIZED): State.READY,
    (State.INITIALIZING, Event.REFUSED): State.UNINITIALIZED,
    (State.READY, Event.INITIALIZE): State.INITIALIZING,
    (State.READY, Event.LEFT): State.UNINITIALIZED,
    (State.UNINITIALIZED, Event.CONTINUED): State.READY,
    (State.READY, Event.BEGIN): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Event.COMMIT): State.COMMITTING,
    (State.IN_TRANSACTION, Event.ABORT): State.ABORTING,
    (State.IN_TRANSACTION, Event.FAILED): State.ABORTABLE_ERROR,
    (State.COMMITTING, Event.FAILED): State.ABORTABLE_ERROR,
    (State.COMMITTING, Event.ENDED): State.READY,
    (State.COMMITTING, Event.ENDED_FOR_NEW_EPOCH): State.INITIALIZING,
    (State.ABORTABLE_ERROR, Event.FAILED): State.ABORTABLE_ERROR,
    (State.ABORTABLE_ERROR, Event.ABORT): State.ABORTING,
    (State.ABORTING, Event.FAILED): State.ABORTING,
    (State.ABORTING, Event.ENDED): State.READY,
    (State.ABORTING, Event.ENDED_FOR_NEW_EPOCH): State.INITIALIZING,
    **{(state, Event.STOPPED): State.FATAL_ERROR for state in State},
}
# The calls that a program may make instead of a call that does not fit the state.
ADVICE = {
    State.UNINITIALIZED: "call init_transactions() first",
    State.READY: "no transaction is open, begin_transaction() begins one",
    State.IN_TRANSACTION: "a transaction is open, commit_transaction() or abort_transaction() ends it",
}
NAMES = {
    Event.INITIALIZE: "init_transactions()",
    Event.BEGIN: "begin_transaction()",
    Event.COMMIT: "commit_transaction()",
    Event.ABORT: "abort_transaction()",
    Event.LEFT: "leave_transactions()",
    Event.CONTINUED: "continue_transactions()",
}
ENDING = (State.COMMITTING, State.ABORTING)
