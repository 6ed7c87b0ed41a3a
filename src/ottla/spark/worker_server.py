"""Forks for each `worker_launcher` that connects, after it has imported what Spark's Python processes need.

    python -m ottla.spark.worker_server SOCKET      the number of a listening socket; `forked_workers` starts it

It has one thread, so that forks are safe.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import marshal
import os
import runpy
import select
import signal
import socket
import sys
import time
from array import array
from pathlib import Path
from typing import Final

from ottla.spark.internals.names import SOURCE_RUNNER, WORKER_MODULES

PRELOADED: Final = (
    *WORKER_MODULES,
    "pyarrow.compute",
    "pyspark_ottla",
    "ottla.spark.cluster",
    "ottla.spark.range_reader",
    "ottla.spark.transactional_writer",
    "pandas",  # pyarrow imports it for the answer of each task that writes
)
_SETSIG: Final = 10
"""F_SETSIG of Linux, which the module fcntl does not have."""
_MOST_REQUEST: Final = 1 << 24
_REQUEST_S: Final = 10.0


def serve(listener: socket.socket) -> socket.socket | None:
    """Fork for each launcher until the end of standard input. Returns its connection in a fork, None at the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel removes those that have ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver; Spark's Java ignores it, too
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(listener, select.POLLIN)
    while True:
        ready = [number for number, _ in poller.poll()]
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return connection
        connection.close()


def become(connection: socket.socket) -> None:
    """Run the module of a launcher in this fork. Returns when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    received = _receive(connection)
    if received is None:
        return
    (module, *rest), environment, directory = received
    os.environb.clear()
    os.environb.update(environment)
    time.tzset()
    os.chdir(directory)
    sys.path[0] = directory
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [each for each in given if each and each not in sys.path]
    if "numpy.random" in sys.modules:  # else all forks would have the same numbers
        sys.modules["numpy.random"].seed()
    # For `ps`, which shows the command line of the server. The kernel keeps 15 characters.
    Path("/proc/self/comm").write_text(module.rpartition(".")[2], encoding="utf-8")
    _end_with(connection.fileno())
    if module == SOURCE_RUNNER:
        # A killed Java does not end the launcher, and a call of the reader ends only when its brokers respond.
        _end_with(0)
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _receive(connection: socket.socket) -> tuple[list[str], dict[bytes, bytes], str] | None:
    """Take over the standard streams, and return module and arguments, environment, and directory."""
    connection.settimeout(_REQUEST_S)
    streams = array("i")
    size, rights, _, _ = connection.recvmsg(4, socket.CMSG_LEN(3 * streams.itemsize))
    for level, kind, numbers in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            streams.frombytes(numbers)
    wanted = int.from_bytes(size, sys.byteorder)
    text = b""
    while len(text) < wanted <= _MOST_REQUEST and (more := connection.recv(wanted - len(text))):
        text += more
    if len(streams) != 3 or not text or len(text) != wanted:
        return None
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    found: tuple[list[str], dict[bytes, bytes], str] = marshal.loads(text)  # noqa: S302 - only this user connects
    connection.sendall(b"1")
    connection.settimeout(None)
    return found


def _end_with(number: int) -> None:
    """Let the kernel send SIGTERM to this process when the other end of a socket or pipe is closed."""
    fcntl.fcntl(number, _SETSIG, signal.SIGTERM)
    fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
    poller = select.poll()
    poller.register(number, select.POLLHUP)
    if poller.poll(0):  # it was closed before
        os._exit(1)


def main() -> None:
    """Serve at the given socket."""
    for name in PRELOADED:
        # What is missing here is missing in the fork too, which says so.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # objects of the modules are never garbage; a collection in a fork would copy their pages
    connection = serve(socket.socket(fileno=int(sys.argv[1])))
    if connection is not None:
        become(connection)


if __name__ == "__main__":
    main()
