"""The records in flight of a share partition, as runs of neighbouring offsets in one state.

Kafka keeps a state per batch, and per offset as soon as a part of the batch changes. A run is split only where its
state changes, so a batch that members acknowledge in two halves costs two objects and not one per record. Each run
remembers the batch it was first acquired in: Kafka's limits for records that fail repeatedly refer to that batch.

Invariant: runs are sorted and do not overlap. Offsets between two runs have no records.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from ottla.coordinators.share.state_batches import MOVES, TERMINAL, RecordState, StateBatch

LAST = attrgetter("last")
NO_MEMBER = ""


class Transition:
    """Changes of state that are being stored; undone together if that fails.

    All runs were acquired by `member_id` before. The offsets of a run cannot change state again until the outcome is
    known.
    """

    __slots__ = ("max_delivery_count", "member_id", "runs")

    def __init__(self, member_id: str, max_delivery_count: int) -> None:
        self.member_id = member_id
        self.max_delivery_count = max_delivery_count
        self.runs: list[Run] = []


class Run:
    """The offsets from `first` to `last`, both included, with one state.

    `deadline_ms` is the end of the acquisition lock, None without one.
    """

    __slots__ = (
        "batch_first",
        "batch_size",
        "deadline_ms",
        "delivery_count",
        "first",
        "last",
        "member_id",
        "state",
        "transition",
    )

    def __init__(self, first: int, last: int, state: RecordState, delivery_count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = NO_MEMBER
        self.deadline_ms: int | None = None
        self.transition: Transition | None = None
        self.batch_first = first
        self.batch_size = last - first + 1

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire the records."""
        return self.state is RecordState.AVAILABLE and self.transition is None

    @property
    def is_done(self) -> bool:
        """Whether delivery is complete and stored, so that the start offset may move past the records."""
        return self.state in TERMINAL and self.transition is None

    def acquire(self, member_id: str, deadline_ms: int) -> None:
        """Deliver the records to a member once more."""
        self._move(RecordState.ACQUIRED)
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.delivery_count += 1

    def leave(self, state: RecordState, max_delivery_count: int) -> None:
        """End the acquisition. Records that were delivered too often are archived instead of becoming available."""
        if state is RecordState.AVAILABLE and self.delivery_count >= max_delivery_count:
            state = RecordState.ARCHIVED
        self._move(state)
        self.member_id = NO_MEMBER

    def archive(self) -> None:
        """Archive the records in any state: they no longer exist, or their transaction was aborted."""
        self.state = RecordState.ARCHIVED
        self.member_id = NO_MEMBER
        self.deadline_ms = None
        self.transition = None

    def stored(self) -> None:
        """Complete the transition."""
        self.transition = None
        self.deadline_ms = None

    def undo(self, now_ms: int) -> None:
        """Undo the transition. If the lock has elapsed meanwhile, the records are released."""
        transition = self.transition
        assert transition is not None, "a run without a transition"
        self.transition = None
        if self.deadline_ms is not None and self.deadline_ms > now_ms:
            self.state = RecordState.ACQUIRED
            self.member_id = transition.member_id
            return
        is_last = self.delivery_count >= transition.max_delivery_count
        self.state = RecordState.ARCHIVED if is_last else RecordState.AVAILABLE
        self.deadline_ms = None

    def split(self, offset: int) -> Run:
        """Cut off and return the offsets from `offset` on."""
        assert self.first < offset <= self.last, f"{offset} is not inside {self.first} to {self.last}"
        rest = Run(offset, self.last, self.state, self.delivery_count)
        rest.member_id = self.member_id
        rest.deadline_ms = self.deadline_ms
        rest.batch_first, rest.batch_size = self.batch_first, self.batch_size
        rest.transition = self.transition
        if self.transition is not None:
            self.transition.runs.append(rest)
        self.last = offset - 1
        return rest

    def to_state_batch(self) -> StateBatch:
        """The run as it is stored."""
        return StateBatch(self.first, self.last, self.state, self.delivery_count)

    def _move(self, state: RecordState) -> None:
        assert state in MOVES[self.state], f"{self.state.name} -> {state.name}"
        assert self.transition is None, "a state change during another"
        self.state = state

    def __repr__(self) -> str:
        pending = " pending" if self.transition is not None else ""
        owner = f" of {self.member_id}" if self.member_id else ""
        return f"{self.first}-{self.last} {self.state.name}{pending}{owner} delivered {self.delivery_count}"


class Window:
    """The runs of a share partition."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def index_of(self, offset: int) -> int:
        """The index of the first run that ends at or after `offset`."""
        return bisect_left(self.runs, offset, key=LAST)

    def overlapping(self, first: int, last: int) -> list[Run]:
        """The runs with at least one offset from `first` to `last`."""
        runs = self.runs
        start = end = self.index_of(first)
        while end < len(runs) and runs[end].first <= last:
            end += 1
        return runs[start:end]

    def cut(self, first: int, last: int) -> list[Run]:
        """Split runs at both ends of the range, and return the runs that are inside."""
        self._cut_before(first)
        self._cut_before(last + 1)
        return self.overlapping(first, last)

    def drop_below(self, offset: int) -> None:
        """Remove all offsets below `offset`."""
        self._cut_before(offset)
        del self.runs[: self.index_of(offset)]

    def _cut_before(self, offset: int) -> None:
        index = self.index_of(offset)
        if index < len(self.runs) and self.runs[index].first < offset:
            self.runs.insert(index + 1, self.runs[index].split(offset))
