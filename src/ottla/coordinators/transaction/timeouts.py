"""Aborts transactions that have been open for longer than their timeout, and fences their producers.

`transaction.abort.timed.out.transaction.cleanup.interval.ms` is the interval of the checks. A check aborts a bounded
number of transactions; if more are overdue, the next check follows soon.
"""

from __future__ import annotations

from ottla.coordinators.events import Effects, Moment
from ottla.coordinators.transaction.core import Core
from ottla.coordinators.transaction.end_transaction import prepare
from ottla.coordinators.transaction.follow_ups import EndOrder
from ottla.coordinators.transaction.timer_keys import TIMEOUTS

MOST_ABORTS = 100
SOON_MS = 5


def schedule(core: Core, now: Moment) -> None:
    """Set the time of the next regular check."""
    core.timers.set(TIMEOUTS, now.monotonic_ms + core.config.abort_timed_out_interval_ms)


def abort_timed_out(core: Core, now: Moment) -> Effects:
    """Abort transactions that are overdue."""
    schedule(core, now)
    effects: Effects = []
    skipped = []
    for _ in range(MOST_ABORTS):
        transactional_id = core.timeouts.pop_due(now.monotonic_ms)
        if transactional_id is None:
            break
        if core.is_pending(transactional_id):
            skipped.append(transactional_id)
            continue
        order = EndOrder(None, transactional_id, commit=False, bumps_epoch=core.bumps_epoch, fences=True)
        effects += prepare(core, order, now)
    else:
        core.timers.set(TIMEOUTS, now.monotonic_ms + SOON_MS)
    for transactional_id in skipped:
        core.expect_end(transactional_id, now)
    return effects
