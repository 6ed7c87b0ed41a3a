"""The program that `tests/forked.py` starts: it imports Ottla once, and forks for each request.

    python tests/forking_parent.py FD

FD is a socket that keeps the bounds of messages. A request is a pickled `(words, directory, changed environment)` with
four descriptors: standard input, output and error of the new process, and a pipe. The parent writes the process id into
the pipe, and the exit status when the process has ended. The process has nothing else of the parent but the imported
modules: it runs `python -m WORDS` in its own directory, and ends as an interpreter ends.
"""

from __future__ import annotations

import importlib
import os
import pickle
import runpy
import select
import signal
import socket
import sys
from pathlib import Path

PRELOADED = ("ottla.launch.serve", "ottla.broker.server", "ottla.testing.ports", "uvloop")
"""Nothing of these starts a thread. Not the module of a command itself, which runs as `__main__`."""
PASSED_ON = ("PYTEST_CURRENT_TEST", "SPARK_", "PYSPARK_", "JAVA_HOME")
"""The beginnings of variables that pytest and Spark change meanwhile. No module of Ottla reads them at its import, so
that a forked process just gets their present values."""
ANSWER_BYTES = 4
LONGEST_REQUEST = 1 << 20
Request = tuple[list[str], str, dict[str, str]]


def serve(control: socket.socket) -> Request:
    """Fork for each request. Returns in the new process, whose standard streams are the request's."""
    pipes: dict[int, tuple[int, int]] = {}  # process id and pipe, by pidfd
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready != control.fileno():
                poll.unregister(ready)
                pid, pipe = pipes.pop(ready)
                status = os.waitpid(pid, 0)[1]
                os.close(ready)
                _answer(pipe, os.waitstatus_to_exitcode(status))
                os.close(pipe)
                continue
            message, descriptors, _, _ = socket.recv_fds(control, LONGEST_REQUEST, 4)
            if not message:
                os._exit(0)  # the tests ended
            request: Request = pickle.loads(message)
            *streams, pipe = descriptors
            pid = os.fork()
            if not pid:
                _become(control, streams)
                return request
            for stream in streams:
                os.close(stream)
            watched = os.pidfd_open(pid)
            pipes[watched] = (pid, pipe)
            poll.register(watched, select.POLLIN)
            _answer(pipe, pid)


def _answer(pipe: int, number: int) -> None:
    try:
        os.write(pipe, number.to_bytes(ANSWER_BYTES, "little", signed=True))
    except BrokenPipeError:
        return  # the test has dropped the process


def _become(control: socket.socket, streams: list[int]) -> None:
    """Take the standard streams, and close whatever else belongs to the parent."""
    control.detach()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    """Serve until the other end of the socket is closed; in a new process, run its module."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which close the socket
    for name in PRELOADED:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"
    (module, *words), directory, environment = serve(control)
    for name in [each for each in os.environ if each.startswith(PASSED_ON)]:
        del os.environ[name]
    os.environ.update(environment)
    os.chdir(directory)
    sys.path[0] = str(Path.cwd())
    sys.argv[:] = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
