"""The purposes of the deadlines of a shard of transactions."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias


class Kind(IntEnum):
    """The purpose of a deadline. Deadlines of the same millisecond elapse in this order."""

    MARKERS = 0
    TIMEOUTS = 1
    EXPIRY = 2


TimerKey: TypeAlias = tuple[Kind, str]
"""Kind and transactional id, which is empty for timers of the whole shard."""

TIMEOUTS: TimerKey = (Kind.TIMEOUTS, "")
EXPIRY: TimerKey = (Kind.EXPIRY, "")
