"""Settings of glibc's allocator for the running process. With another C library, nothing changes.

A user's settings in the environment (MALLOC_*, GLIBC_TUNABLES) have precedence.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import Final

TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
ARENA_MAX: Final = -8
"""Options of mallopt, by malloc.h."""
_VARIABLES: Final = {
    TRIM_THRESHOLD: "MALLOC_TRIM_THRESHOLD_",
    MMAP_THRESHOLD: "MALLOC_MMAP_THRESHOLD_",
    ARENA_MAX: "MALLOC_ARENA_MAX",
}


def set_options(options: Mapping[int, int]) -> bool:
    """Set options of mallopt, unless the environment has one of them. Returns whether all were set."""
    is_set = any(_VARIABLES[option] in os.environ for option in options)
    is_set = is_set or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if is_set or mallopt is None:
        return False
    return all(mallopt(option, value) for option, value in options.items())


def share_one_arena() -> bool:
    """Let all threads allocate from one arena: for a server whose threads wait more than they compute.

    By default each thread gets an arena, up to eight for each core. What a thread has freed stays in its arena, where
    other threads cannot use it: a Connect worker with two connectors, whose broker was killed every 15 seconds, grew by
    4 MiB in seven minutes, and with one arena by 1 MiB. Python's lock serializes the threads anyway: the CPU time of
    connectors did not change. Call it before the first thread starts.
    """
    return set_options({ARENA_MAX: 1})
