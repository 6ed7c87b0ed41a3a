"""One share partition at its leader: the records in flight, the members that acquired them, and the state to store.

The caller's duties, in this order:

1. Read the stored state from the share coordinator, resolve a start offset of -1 by share.auto.offset.reset, and create
   the share partition with it.
2. Fetch from `next_fetch_offset` if `can_acquire`, and pass the ranges of the fetched batches to `acquire`.
3. A `StateWrite` from `acknowledge`, `release` or `expire`: send the writes to the share coordinator in their order,
   and pass each outcome to `written`. Answer an acknowledgement only after that.
4. Call `expire` at `next_deadline_ms`, and `advance_log_start` when records are deleted from the log.
5. If the coordinator fences the partition, discard it.

Acquisitions are not stored: after a crash the records are available again, which at-least-once delivery allows. Memory
is bounded by `ShareLimits.max_record_locks`: while that many offsets are in flight, no new ones come into the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.coordinators.share.acknowledgement import AcknowledgementBatch, Acknowledger, Refusal
from ottla.coordinators.share.acquisition import (
    AcquiredRange,
    Acquisition,
    Claim,
    OffsetRange,
    without_ranges,
)
from ottla.coordinators.share.limits import ShareLimits
from ottla.coordinators.share.state_batches import TERMINAL, RecordState, StateBatch
from ottla.coordinators.share.window import Run, Transition, Window


class StoredState(NamedTuple):
    """The state of a share partition that the share coordinator has stored."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch] = ()


class StateWrite(NamedTuple):
    """State that the share coordinator must store. `id` refers to it in `written`."""

    id: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class SharePartition:
    """The records in flight of one topic partition for one share group.

    `start_offset` (SPSO): everything below is acknowledged, archived or deleted. `end_offset` (SPEO): the last offset
    in flight, or the start offset if nothing is in flight. `limits` may be replaced at any time.
    """

    __slots__ = (
        "_deadline_ms",
        "_may_have_available",
        "_next_write_id",
        "_window",
        "_writes",
        "end_offset",
        "limits",
        "start_offset",
        "state_epoch",
    )

    def __init__(self, stored: StoredState, limits: ShareLimits) -> None:
        """Restore a share partition. Raises ValueError if the stored state contradicts itself."""
        self.limits = limits
        self.state_epoch = stored.state_epoch
        self.start_offset = self.end_offset = stored.start_offset
        self._window = Window()
        self._writes: dict[int, Transition | None] = {}
        self._next_write_id = 0
        # A lower bound of all deadlines, so that acknowledgements need not search for the earliest one.
        self._deadline_ms: int | None = None
        self._restore(stored)
        self._may_have_available = bool(self._window.runs)
        self._advance_start()

    def _restore(self, stored: StoredState) -> None:
        next_offset = stored.start_offset
        for batch in stored.batches:
            if not next_offset <= batch.first_offset <= batch.last_offset:
                raise ValueError(f"{batch} after offset {next_offset - 1}, start offset {stored.start_offset}")
            if batch.first_offset > next_offset:
                # These offsets were delivered before later ones, and nothing about them was stored.
                self._window.runs.append(Run(next_offset, batch.first_offset - 1, RecordState.AVAILABLE, 0))
            state = RecordState(batch.delivery_state)
            if state not in TERMINAL:
                state = RecordState.AVAILABLE
            self._window.runs.append(Run(batch.first_offset, batch.last_offset, state, batch.delivery_count))
            self.end_offset = batch.last_offset
            next_offset = batch.last_offset + 1

    # -- questions -------------------------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """How many offsets are in flight."""
        return self.end_offset - self.start_offset + 1 if self._window.runs else 0

    @property
    def delivery_complete_count(self) -> int:
        """How many offsets from the start offset on need no delivery any more. KIP-1226."""
        return sum([run.last - run.first + 1 for run in self._window.runs if run.state in TERMINAL])

    def next_fetch_offset(self) -> int:
        """The first offset that may have a record to acquire."""
        if self._may_have_available:
            for run in self._window.runs:
                if run.is_available:
                    return run.first
            self._may_have_available = False
        return self.end_offset + 1 if self._window.runs else self.end_offset

    def can_acquire(self) -> bool:
        """Whether a fetch can acquire anything: released records, or new ones if the window has room."""
        has_room = self.in_flight_count < self.limits.max_record_locks
        return has_room or self.next_fetch_offset() != self.end_offset + 1

    def last_useful_offset(self, max_records: int) -> int:
        """No batch after the one with this offset can be acquired by a fetch of `max_records`."""
        return self.end_offset + max_records

    def next_deadline_ms(self) -> int | None:
        """When `expire` must be called, at the latest; None if no record is locked."""
        return self._deadline_ms

    # -- acquisition -----------------------------------------------------------------------------------------------

    def acquire(
        self,
        request: Acquisition,
        fetch_offset: int,
        fetched: Sequence[OffsetRange],
        now_ms: int,
        aborted: Sequence[OffsetRange] = (),
    ) -> list[AcquiredRange]:
        """Acquire records for a member, from what was fetched at `fetch_offset`; sorted.

        `fetched` are the ranges of the record batches. `aborted` are the ranges whose transaction was aborted, for
        groups that read committed records: they are archived.
        """
        if not fetched or fetched[-1].last < self.start_offset:
            return []
        last = fetched[-1].last
        room = min(request.max_records, self.limits.max_record_locks - self.in_flight_count)
        if room <= 0 and fetch_offset <= self.end_offset:
            # The window is full. Records that were released may be acquired again nevertheless.
            last = min(last, self.end_offset)
            room = min(request.max_records, self.end_offset - fetch_offset + 1)
        if room <= 0:
            return []
        self._archive_missing(fetch_offset, fetched[0].first)
        claim = Claim(request, room, self.limits, now_ms)
        wanted = OffsetRange(max(fetched[0].first, self.start_offset), last)
        claim.take_in_flight(self._window, wanted)
        first_new = self.end_offset + 1 if self._window.runs else self.end_offset
        first_new = max(first_new, wanted.first)
        if claim.remaining and first_new <= last:
            self._take_new(claim, OffsetRange(first_new, last), fetched, request.batch_size)
        if claim.acquired:
            self._add_deadline(claim.deadline_ms)
        return self._without_aborted(claim.acquired, aborted)

    def _take_new(self, claim: Claim, new: OffsetRange, fetched: Sequence[OffsetRange], batch_size: int) -> None:
        if not self._window.runs:
            self.start_offset = new.first
        self.end_offset = claim.take_new(self._window, new, fetched, batch_size)
        if self._window.runs[-1].is_available:
            self._may_have_available = True

    def _archive_missing(self, fetch_offset: int, first_fetched: int) -> None:
        """Archive what is available below the fetched batches: the log has no records there, e.g. after compaction."""
        if fetch_offset >= first_fetched or not self._window.overlapping(fetch_offset, first_fetched - 1):
            return
        for run in self._window.cut(fetch_offset, first_fetched - 1):
            if run.is_available:
                run.archive()
        self._advance_start()

    def _without_aborted(self, acquired: list[AcquiredRange], aborted: Sequence[OffsetRange]) -> list[AcquiredRange]:
        if not aborted or not acquired:
            return acquired
        result = without_ranges(acquired, aborted)
        for hole in without_ranges(acquired, [OffsetRange(piece.first, piece.last) for piece in result]):
            for run in self._window.cut(hole.first, hole.last):
                run.archive()
        self._advance_start()
        return result

    # -- acknowledgement and release -------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgementBatch], now_ms: int
    ) -> StateWrite | Refusal | None:
        """Acknowledge records, all or none; None if there is nothing to store.

        The caller has checked the form with `check_form`. INVALID_RECORD_STATE if the member has not acquired one of
        the records; INVALID_REQUEST for offsets that were never delivered.
        """
        acknowledger = Acknowledger(self._window, self.start_offset, member_id, self.limits, now_ms)
        for batch in batches:
            refusal = acknowledger.acknowledge(batch)
            if refusal is not None:
                self._undo(acknowledger.transition, now_ms)
                return refusal
        return self._write(acknowledger.transition)

    def release(self, member_id: str) -> StateWrite | None:
        """Release all records that a member has acquired; None if there are none."""
        transition = Transition(member_id, self.limits.max_delivery_count)
        for run in self._window.runs:
            if run.state is RecordState.ACQUIRED and run.member_id == member_id:
                run.leave(RecordState.AVAILABLE, transition.max_delivery_count)
                run.transition = transition
                transition.runs.append(run)
        return self._write(transition)

    def expire(self, now_ms: int) -> StateWrite | None:
        """Release the records whose lock has elapsed. They are available at once, not only after the write."""
        expired: list[Run] = []
        earliest: int | None = None
        for run in self._window.runs:
            if run.deadline_ms is None or run.transition is not None:
                continue
            if run.deadline_ms <= now_ms:
                run.leave(RecordState.AVAILABLE, self.limits.max_delivery_count)
                run.deadline_ms = None
                expired.append(run)
            elif earliest is None or run.deadline_ms < earliest:
                earliest = run.deadline_ms
        self._deadline_ms = earliest
        if not expired:
            return None
        self._may_have_available = True
        return self._new_write([run.to_state_batch() for run in expired], None)

    def written(self, write_id: int, *, succeeded: bool, now_ms: int) -> None:
        """Report the outcome of a `StateWrite`. After a failure the records are acquired by their member again."""
        transition = self._writes.pop(write_id)
        if transition is None:
            self._advance_start()
        elif succeeded:
            for run in transition.runs:
                if run.transition is transition:
                    run.stored()
            self._may_have_available = True
            self._advance_start()
        else:
            self._undo(transition, now_ms)

    def _write(self, transition: Transition) -> StateWrite | None:
        if not transition.runs:
            return None
        return self._new_write([run.to_state_batch() for run in transition.runs], transition)

    def _new_write(self, batches: list[StateBatch], transition: Transition | None) -> StateWrite:
        self._next_write_id += 1
        self._writes[self._next_write_id] = transition
        merged: list[StateBatch] = []
        for batch in batches:
            if merged and merged[-1].last_offset + 1 == batch.first_offset and merged[-1].rank == batch.rank:
                merged[-1] = merged[-1]._replace(last_offset=batch.last_offset)
            else:
                merged.append(batch)
        return StateWrite(self._next_write_id, self.start_offset, self.delivery_complete_count, tuple(merged))

    def _undo(self, transition: Transition, now_ms: int) -> None:
        for run in transition.runs:
            if run.transition is transition:
                run.undo(now_ms)
                if run.deadline_ms is not None:
                    self._add_deadline(run.deadline_ms)
        self._may_have_available = True
        self._advance_start()

    # -- offsets ---------------------------------------------------------------------------------------------------

    def advance_log_start(self, log_start_offset: int) -> None:
        """Forget the records below the log start offset: retention or DeleteRecords has deleted them."""
        if log_start_offset <= self.start_offset:
            return
        self._window.drop_below(log_start_offset)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        if not self._window.runs:
            self.end_offset = log_start_offset
        self._advance_start()

    def _advance_start(self) -> None:
        """Move the start offset past records whose delivery is complete and stored."""
        runs = self._window.runs
        done = 0
        while done < len(runs) and runs[done].is_done:
            done += 1
        if not done:
            return
        last = runs[done - 1].last
        del runs[:done]
        if runs:
            self.start_offset = runs[0].first
        else:
            self.start_offset = self.end_offset = last + 1

    def _add_deadline(self, deadline_ms: int) -> None:
        if self._deadline_ms is None or deadline_ms < self._deadline_ms:
            self._deadline_ms = deadline_ms

    def validate(self) -> None:
        """Check the invariants. For tests."""
        runs = self._window.runs
        assert all(run.first <= run.last for run in runs), runs
        assert all(left.last < right.first for left, right in pairwise(runs)), runs
        assert not runs or (self.start_offset <= runs[0].last and runs[-1].last == self.end_offset), self
        assert runs or self.end_offset == self.start_offset, self
        for run in runs:
            is_acquired = run.state is RecordState.ACQUIRED
            assert is_acquired == bool(run.member_id), run
            assert not is_acquired or run.deadline_ms is not None, run
            assert run.transition is None or run in run.transition.runs, run
            locked = is_acquired and run.deadline_ms is not None
            assert not locked or (self._deadline_ms is not None and self._deadline_ms <= (run.deadline_ms or 0)), run

    def __repr__(self) -> str:
        return f"{self.start_offset}..{self.end_offset} {self._window.runs}"
