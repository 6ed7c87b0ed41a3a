"""Avoids two delays of Spark's Python workers, and makes them keep their memory.

The delays made up almost all of the 200 ms that a micro-batch of ten rows took (pyspark 4.3):

- A reused worker (`spark.python.worker.reuse`, the default) collects its garbage after every task and every call on the
  driver. With pyspark, pyarrow and pandas imported, a collection visits hundreds of thousands of objects: 35 to 80 ms.
- Spark sends a worker the function and then the rows, in small writes over TCP. Spark's kernel delays the second write
  until the first is acknowledged (Nagle's algorithm), and the worker's kernel delays that acknowledgement by 40 ms.

glibc returns freed memory to the kernel as soon as 128 KB to some MB of it are free, and the kernel clears each page
that it hands out again. A task frees megabytes with each request, so that a third of a worker's CPU was spent there.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from typing import Final

from ottla.common.allocator import MMAP_THRESHOLD, TRIM_THRESHOLD, set_options

_QUICK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # Linux only
KEPT_BYTES: Final = 32 * 1024 * 1024
"""Freed memory that a worker keeps, in each of glibc's arenas: about what a producer buffers."""
MAPPED_BYTES: Final = 4 * 1024 * 1024
"""Larger allocations are mappings of their own, which return to the kernel when they are freed."""
_known = [0]  # the number of imported modules at the last gc.freeze()


def tune_worker() -> None:
    """Avoid both delays in this process, and keep its memory.

    Call it at the start of everything that Spark runs in a worker.

    Does nothing in a process that is not a reusable Spark worker, and little in repeated calls. The first call, and
    each call after new imports, excludes all existing objects from later garbage collections. So call it before
    creating objects that need garbage collection.
    """
    if "SPARK_REUSE_WORKER" not in os.environ:
        return
    acknowledge_at_once()
    if len(sys.modules) != _known[0]:
        keep_memory()
        _known[0] = len(sys.modules)
        gc.collect()  # existing garbage would never be freed after freeze
        gc.freeze()


def keep_memory() -> bool:
    """Have glibc keep freed memory for the next task. Returns whether it does.

    Does nothing with another C library, and if the environment has these settings of malloc.
    """
    return set_options({TRIM_THRESHOLD: KEPT_BYTES, MMAP_THRESHOLD: MAPPED_BYTES})


def acknowledge_at_once() -> int:
    """Set TCP_QUICKACK on all TCP connections of this process within the machine, and return their number.

    Which connection is Spark's is unknown; on the others the option is of no consequence.
    """
    if _QUICK is None:
        return 0
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # closed meanwhile, as the descriptor that lists the directory always is
            continue
        with connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
                continue
            try:
                if connection.getpeername()[0] not in ("127.0.0.1", "::1"):
                    continue
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
            except OSError:  # a listening or disconnected socket
                continue
            found += 1
    return found
