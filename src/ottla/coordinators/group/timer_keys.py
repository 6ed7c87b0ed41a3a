"""The purposes of the deadlines of a shard of groups."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias


class Kind(IntEnum):
    """The purpose of a deadline. Deadlines of the same millisecond elapse in this order."""

    JOIN = 0
    SYNC = 1
    SESSION = 2
    EXPIRY = 3
    REBALANCE = 4
    """A member of a consumer group must give up partitions."""
    MATCHING = 5
    """Topic names are matched with a consumer group's regular expressions."""
    ASSIGNMENT = 6
    """A new streams group gets its first assignment."""


TimerKey: TypeAlias = tuple[Kind, str, str]
"""Kind, group id, and member id (empty for timers of the whole group)."""
