"""How many of the process's open files connections may have, so that there are always some for the logs.

A log needs an open file for its active segment, a few more while it rolls, is flushed or looked up, and is faster with
a cache of sealed segments' files. What that takes is reserved; connections get the rest.
"""

import os
import resource
import sys
from typing import Final

# Files that are open for a moment: one or two in each of the threads for flushes and metadata, an index that is looked
# up, a checkpoint, a module that is imported, and the pipes and temporary files of a compaction's process.
WORKING: Final = 32
LEAST_CACHED: Final = 16
MOST_CACHED: Final = 1000


def open_file_limit() -> int:
    """How many files this process may have open now; the limit may be changed while it runs (prlimit)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def open_file_count() -> int:
    """How many files this process has open."""
    return len(os.listdir("/dev/fd")) - 1  # the listing's own


def cached_segments(limit: int) -> int:
    """How many sealed segments may have their files open under a limit of open files: an eighth, 16 to 1,000."""
    return min(max(limit // 8, LEAST_CACHED), MOST_CACHED)


def reserved(limit: int, fixed: int, logs: int, cached: int) -> int:
    """How many of `limit` open files are not for connections.

    `fixed` is what the process needs in any case (listeners, locks, its event loop), `logs` the number of logs, each
    with an active segment, `cached` that of sealed segments with an open file. A sixteenth of the limit is for new
    partitions. With very many logs half of what they leave is for connections: then the cache has to do with less.
    """
    needed = fixed + logs + WORKING
    comfort = cached + limit // 16
    return needed + min(comfort, max(limit - needed, 0) // 2)
