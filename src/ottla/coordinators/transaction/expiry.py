"""Deletes transactional ids that were not used for `transactional.id.expiration.ms` and have no open transaction.

`transaction.remove.expired.transaction.cleanup.interval.ms` is the interval of the checks. A check deletes a bounded
number of ids with one batch of tombstones; if more have expired, the next check follows soon.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Effects, Moment, log_line
from ottla.coordinators.expiry_clock import ExpiryClock
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.follow_ups import Expire
from ottla.coordinators.transaction.records import key_of
from ottla.coordinators.transaction.timer_keys import EXPIRY

MOST_TOMBSTONES = 500
# The ids of one batch may be long. The batch must stay below any limit on its size.
MOST_KEY_BYTES = 128 * 1024
SOON_MS = 5


def schedule(core: Core, now: Moment) -> None:
    """Set the time of the next regular check."""
    core.timers.set(EXPIRY, now.monotonic_ms + core.config.remove_expired_interval_ms)


def expire(core: Core, clock: ExpiryClock, now: Moment) -> Effects:
    """Write tombstones for expired ids.

    The check is skipped if the wall clock was set since the previous one: a wall clock that is wrong for a short time
    must not expire ids.
    """
    schedule(core, now)
    if clock.was_set(now):
        return []
    expired: list[str] = []
    pending: list[str] = []
    size = 0
    while size < MOST_KEY_BYTES and len(expired) + len(pending) < MOST_TOMBSTONES:
        transactional_id = core.expiries.pop_due(now.wall_ms)
        if transactional_id is None:
            break
        if core.is_pending(transactional_id):
            pending.append(transactional_id)
            continue
        expired.append(transactional_id)
        size += len(key_of(transactional_id))
    else:
        core.timers.set(EXPIRY, now.monotonic_ms + SOON_MS)
    _put_back(core, pending)
    return [core.delete(tuple(expired), Expire(tuple(expired)))] if expired else []


def appended(core: Core, follow_up: Expire, error: ErrorCode, _now: Moment) -> Effects:
    """Try again at a later check if the tombstones could not be appended."""
    if error is ErrorCode.NONE:
        return []
    _put_back(core, follow_up.transactional_ids)
    text = "Failed to remove %d expired transactional ids from cache. Tombstone append error code: %s"
    return [log_line(text, len(follow_up.transactional_ids), error.name)]


def _put_back(core: Core, transactional_ids: Iterable[str]) -> None:
    """Let the next check look at these ids again."""
    for transactional_id in transactional_ids:
        metadata = core.transactions[transactional_id]
        core.expiries.set(transactional_id, metadata.update_ms + core.config.id_expiration_ms)
