"""Writes the markers of decided transactions, until each partition has its own, and then completes the transactions.

Failures are retried after a pause that grows, for as long as the partition exists: the decision is final, and the
partition's readers wait for it. After a restart all markers are written again; a partition that has its marker ignores
the second one.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Effects, LogLine, Moment, log_line
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.events import MarkersWritten
from ottla.coordinators.transaction.follow_ups import Complete, Completion
from ottla.coordinators.transaction.timer_keys import Kind

# The partition has data of a later epoch, so that the transaction has ended there; or it never had any of its data.
_NOTHING_TO_END = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_RETRIED = (
    "Sending %s's transaction marker for partition %s-%d has failed with error %s,"
    " retrying with current coordinator epoch %d"
)
_REMOVED = (
    "Sending %s's transaction marker from partition %s-%d has failed with %s."
    " This partition will be removed from the set of partitions waiting for completion"
)
_SUPERSEDED = (
    "Sending %s's transaction marker for partition %s-%d has permanently failed with error %s"
    " with the current coordinator epoch %d; cancel sending any more transaction markers"
)


def proceed(core: Core, transactional_id: str, now: Moment) -> Effects:
    """Write the markers that are left; if there are none, complete the transaction."""
    completion = core.completions[transactional_id]
    if completion.unwritten:
        return [core.write_markers(transactional_id, completion)]
    next_value = core.transactions[transactional_id].completed(now.wall_ms)
    return [core.change(transactional_id, next_value, Complete(transactional_id))]


def written(core: Core, event: MarkersWritten, now: Moment) -> Effects:
    """Take in the outcome of a `WriteMarkers`."""
    sent = core.sent.pop(event.id, None)
    if sent is None:
        return []
    transactional_id = sent.transactional_id
    completion = core.completions[transactional_id]
    effects: Effects = []
    for partition in sent.partitions:
        error = event.results.get(partition, ErrorCode.REQUEST_TIMED_OUT)
        if error is ErrorCode.NONE:
            completion.unwritten.discard(partition)
            continue
        if error in _NOTHING_TO_END:
            completion.unwritten.discard(partition)
            effects.append(_line(_REMOVED, transactional_id, partition, error))
        elif error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            completion.superseded = True
            effects.append(_line(_SUPERSEDED, transactional_id, partition, error, core.coordinator_epoch))
        else:
            effects.append(_line(_RETRIED, transactional_id, partition, error, core.coordinator_epoch))
    if completion.superseded:
        return effects
    if completion.unwritten:
        _retry_later(core, transactional_id, completion, now)
        return effects
    return [*effects, *proceed(core, transactional_id, now)]


def completed(core: Core, follow_up: Complete, error: ErrorCode, now: Moment) -> Effects:
    """Retry if the last record of the transaction could not be appended."""
    if error is not ErrorCode.NONE:
        transactional_id = follow_up.transactional_id
        _retry_later(core, transactional_id, core.completions[transactional_id], now)
    return []


def _retry_later(core: Core, transactional_id: str, completion: Completion, now: Moment) -> None:
    config = core.config
    completion.pause_ms = min(max(2 * completion.pause_ms, config.marker_retry_ms), config.max_marker_retry_ms)
    core.timers.set((Kind.MARKERS, transactional_id), now.monotonic_ms + completion.pause_ms)


def _line(text: str, transactional_id: str, partition: tuple[str, int], error: ErrorCode, *more: object) -> LogLine:
    topic, index = partition
    return log_line(text, transactional_id, topic, index, error.name, *more)
