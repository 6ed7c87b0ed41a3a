"""The garbage collector of servers."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (20_000, 10, 50)


def search_less() -> None:
    """Let the collector search only young objects, and rarely: for a server at the end of its start.

    Code and partitions are never garbage, and requests and records make few cycles. With Python's thresholds (700, 10,
    10) the collector searches a large response, or the records of a poll, several times while they are built. That
    doubled the time of a large response; a worker of Connect spent 30 % of its time in it.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
