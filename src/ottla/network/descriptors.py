"""Divides the process's limit of open files, so that connections always leave enough for the logs.

A log needs an open file for its active segment, and a few more while it rolls, is flushed or looked up. A cache of the
files of sealed segments makes it faster. These files are reserved; connections get the rest.
"""

import os
import resource
import sys
from typing import Final

# Files that are open for a short time: one or two in each of the threads for flushes and metadata, an index, a
# checkpoint, a module during its import, and the pipes and temporary files of a compaction process.
WORKING: Final = 32
LEAST_CACHED: Final = 16
MOST_CACHED: Final = 1000


def open_file_limit() -> int:
    """The process's current limit of open files; it may be changed while the process runs (prlimit)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def open_file_count() -> int:
    """The number of files that this process has open."""
    return len(os.listdir("/dev/fd")) - 1  # without the descriptor of this listing


def cached_segments(limit: int) -> int:
    """The number of sealed segments with open files under a limit of open files: an eighth, 16 to 1,000."""
    return min(max(limit // 8, LEAST_CACHED), MOST_CACHED)


def reserved(limit: int, fixed: int, logs: int, cached: int) -> int:
    """Return how many of `limit` open files connections must leave free.

    `fixed` counts the files that are always open (listeners, locks, the event loop), `logs` the logs, each with an
    active segment, and `cached` the sealed segments with an open file. A sixteenth of the limit is for new partitions.
    With very many logs, connections get half of the remaining files, and the cache and new partitions the other half.
    """
    needed = fixed + logs + WORKING
    comfort = cached + limit // 16
    return needed + min(comfort, max(limit - needed, 0) // 2)
