"""Acknowledgements: their form, and what they change.

A batch of acknowledgements has one type for all its offsets or one for each. Its form is checked before anything
changes (`check_form`). Its changes become a `Transition`, which the caller stores or undoes as a whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.common.errors import ErrorCode
from ottla.coordinators.share.limits import ShareLimits
from ottla.coordinators.share.state_batches import RecordState
from ottla.coordinators.share.window import Run, Transition, Window


class AcknowledgeType(enum.IntEnum):
    """A member's answer for a record that it had acquired."""

    GAP = 0
    """There is no record at the offset, or none that the member can read."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver the record again."""
    REJECT = 3
    """Never deliver the record again."""
    RENEW = 4
    """Extend the acquisition lock. KIP-1222."""


NEW_STATES = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


class AcknowledgementBatch(NamedTuple):
    """Acknowledgements of the offsets from `first_offset` to `last_offset`, both included."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Refusal(NamedTuple):
    """Why acknowledgements changed nothing."""

    error: ErrorCode
    message: str


def check_form(batches: Sequence[AcknowledgementBatch], *, renews: bool) -> Refusal | None:
    """Check order, overlaps and types of a partition's acknowledgements; renewals are legal only if `renews`."""
    highest = AcknowledgeType.RENEW if renews else AcknowledgeType.REJECT
    previous_last = -1
    for batch in batches:
        if batch.first_offset > batch.last_offset or batch.first_offset < 0:
            return _invalid(f"Acknowledgement of the offsets {batch.first_offset} to {batch.last_offset}")
        if batch.first_offset < previous_last:  # as in Kafka; an equal one is refused when it is applied
            return _invalid(f"Acknowledgements of offset {batch.first_offset} overlap or are not in order")
        size = batch.last_offset - batch.first_offset + 1
        if not batch.types or (len(batch.types) > 1 and len(batch.types) != size):
            return _invalid(f"{len(batch.types)} acknowledge types for {size} offsets")
        if min(batch.types) < 0 or max(batch.types) > highest:
            return _invalid(f"Invalid acknowledge type in {list(batch.types)[:10]}")
        previous_last = batch.last_offset
    return None


class Acknowledger:
    """The acknowledgements of one request for one share partition. `transition` has the runs that changed so far."""

    __slots__ = ("_deadline_ms", "_is_renewal_enabled", "_start_offset", "_window", "transition")

    def __init__(self, window: Window, start_offset: int, member_id: str, limits: ShareLimits, now_ms: int) -> None:
        self._window = window
        self._start_offset = start_offset
        self._deadline_ms = now_ms + limits.lock_duration_ms
        self._is_renewal_enabled = limits.is_renewal_enabled
        self.transition = Transition(member_id, limits.max_delivery_count)

    def acknowledge(self, batch: AcknowledgementBatch) -> Refusal | None:
        """Change the states, or report why not; then the changes so far must be undone.

        Offsets below the start offset are ignored, since the start may move while a member processes records.
        """
        first = max(batch.first_offset, self._start_offset)
        if batch.last_offset < first:
            return None
        runs = self._window.overlapping(first, batch.last_offset)
        # The start offset may have moved to an offset without a record.
        if not self._window.runs or (runs and first == batch.first_offset and runs[0].first > first):
            return _not_acquired("The offsets are not in flight.")
        if not runs or runs[-1].last < batch.last_offset:
            return _invalid("Batch record not found. The last offset in request is past acquired records.")
        for last, type_ in _equal_types(batch, first):
            for run in self._window.overlapping(first, last):
                refusal = self._check(run)
                if refusal is not None:
                    return refusal
            refusal = self._apply(first, last, type_)
            if refusal is not None:
                return refusal
            first = last + 1
        return None

    def _check(self, run: Run) -> Refusal | None:
        if run.transition is not None:
            return _not_acquired("The record state is invalid. The acknowledgement could not be completed.")
        if run.state is not RecordState.ACQUIRED:
            return _not_acquired("The batch cannot be acknowledged. The batch is not in the acquired state.")
        if run.member_id != self.transition.member_id:
            return _not_acquired("Member is not the owner of batch record")
        return None

    def _apply(self, first: int, last: int, type_: AcknowledgeType) -> Refusal | None:
        if type_ is AcknowledgeType.RENEW and not self._is_renewal_enabled:
            return _not_acquired("Renewing acquisition locks is not enabled for the group.")
        for run in self._window.cut(first, last):
            if type_ is AcknowledgeType.RENEW:
                run.deadline_ms = self._deadline_ms
                continue
            run.leave(NEW_STATES[type_], self.transition.max_delivery_count)
            run.transition = self.transition
            self.transition.runs.append(run)
        return None


def _equal_types(batch: AcknowledgementBatch, first: int) -> Iterator[tuple[int, AcknowledgeType]]:
    """Neighbouring offsets of one type, from `first` on: the last offset and the type."""
    if len(batch.types) == 1:
        yield batch.last_offset, AcknowledgeType(batch.types[0])
        return
    index = first - batch.first_offset
    while index < len(batch.types):
        end = index
        while end + 1 < len(batch.types) and batch.types[end + 1] == batch.types[index]:
            end += 1
        yield batch.first_offset + end, AcknowledgeType(batch.types[index])
        index = end + 1


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _not_acquired(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD_STATE, message)
