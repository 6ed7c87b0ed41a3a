"""What Spark's Python workers waste between two tasks and at the start of each, and how it is avoided.

Two things, which cost a micro-batch of ten rows 200 ms and nothing else did (pyspark 4.3):

- A worker that Spark keeps (`spark.python.worker.reuse`, the default) collects its garbage after every task and every
  call on the driver, before it takes the next. With pyspark, pyarrow and pandas imported that is a walk over hundreds
  of thousands of objects: 35 to 80 ms.
- Spark sends a worker the function first and the rows after it, in small writes over TCP. Its kernel keeps the second
  back until the first is acknowledged (Nagle), ours acknowledges when it has something to say, or after 40 ms.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from typing import Final

_QUICK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)  # Linux only
_known = [0]  # how many modules there were when the garbage collector last forgot what it need not look at


def settle() -> None:
    """Make this process a quick worker; to be called at the start of whatever Spark runs in one.

    Does nothing in a process that is not a worker of Spark's to be reused, and little when called again. What exists
    when it is first called, or when more was imported since, is left out by the garbage collector from then on; so call
    it before something is made that must go by garbage collection.
    """
    if "SPARK_REUSE_WORKER" not in os.environ:
        return
    acknowledge()
    if len(sys.modules) != _known[0]:
        _known[0] = len(sys.modules)
        gc.collect()  # or what is garbage now would stay
        gc.freeze()


def acknowledge() -> int:
    """Acknowledge now what came over this process's TCP connections within the machine; the number of those.

    Spark does not say which connection is its own; that others acknowledge as well does no harm.
    """
    if _QUICK is None:
        return 0
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            connection = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # closed meanwhile: the one that lists the directory, at least
            continue
        with connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
                continue
            try:
                if connection.getpeername()[0] not in ("127.0.0.1", "::1"):
                    continue
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
            except OSError:  # it listens, or has ended
                continue
            found += 1
    return found
