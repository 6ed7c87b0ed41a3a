"""The program that `tests/forked.py` starts: it imports Ottla once, and forks for each request.

    python tests/forking_parent.py FD

FD is a socket that keeps the bounds of messages. A request is a pickled `(words, directory, python path, changed
environment)` with four descriptors: standard input, output and error of the new process, and a pipe. The parent writes
the process id into the pipe, and the exit status when the process has ended. The process has nothing else of the parent
but the imported modules: it runs `python -m WORDS` in its own directory, and ends as an interpreter ends.

The parent imports the modules of a command at the first request for it. For brokers, it also does what each of them
would do at its first requests: import their handlers, and compile the constructors of messages.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import runpy
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

COMMAND = "ottla.cli.main"
SHELL = (
    "ottla.cli.root", "uvloop",
    "ottla.clients.admin.blocking", "ottla.clients.consumer.blocking", "ottla.clients.producer.producer",
)  # fmt: skip
WORKER = (*SHELL, "ottla.cli.connectors_run", "ottla.web.server", "ottla.connect.converters")
# The last ones are what a broker imports when it has an address, a topic and a group.
BROKER = (
    "ottla.launch.serve", "ottla.broker.server", "ottla.testing.ports", "uvloop",
    "ottla.cluster.node.late", "ottla.controller.late", "ottla.coordination.late", "ottla.log.cleaner",
)  # fmt: skip
PRELOADED: dict[tuple[str, ...], tuple[str, ...]] = {
    (COMMAND, "registry", "serve"): (*SHELL, "ottla.cli.registry", "ottla.launch.registry", "httpcore"),
    (COMMAND, "connect", "serve"): (*WORKER, "ottla.connect.distributed"),
    (COMMAND, "connect", "run"): (*WORKER, "ottla.connect.standalone"),
    (COMMAND,): BROKER,
    ("ottla.testing.connect_child",): (*WORKER, "ottla.testing.connect"),
    ("tests.connect.worker_process",): (*WORKER, "ottla.testing.connect"),
    ("tests.cli.disturbed_redrive",): (*SHELL, "ottla.cli.dlq", "ottla.cli.dlq_redrive", "ottla.tools.redrive"),
    # Not a module with a plugin for pytest, as `anyio`: pytest warns of plugins whose assertions it cannot rewrite.
    ("pytest",): (
        "pytest", *BROKER, *SHELL, "ottla.testing.running", "ottla.testing.unclosed", "ottla.testing.view",
        "confluent_kafka", "kafka", "aiokafka",
    ),
}  # fmt: skip
"""The modules by the first words of a command.

Nothing of these starts a thread. Not the module of a command itself, which runs as `__main__`."""
PASSED_ON = ("PYTEST_CURRENT_TEST", "SPARK_", "PYSPARK_", "JAVA_HOME", "COLUMNS", "XDG_CONFIG_HOME")
"""The beginnings of variables that tests and Spark change meanwhile. No module of Ottla reads them at its import, so
that a forked process just gets their present values."""
ANSWER_BYTES = 4
LONGEST_REQUEST = 1 << 20
Request = tuple[list[str], str, list[str], dict[str, str]]


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
            _prepare(request[0])
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


_prepared: set[tuple[str, ...]] = set()


def command_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the first words of a command whose modules are imported ahead; nothing for another command."""
    begins = (tuple(words[:count]) for count in (3, 1))
    return next((begin for begin in begins if begin in PRELOADED), ())


def _prepare(words: Sequence[str]) -> None:
    """Import the modules of a command, once."""
    command = command_of(words)
    if not command or command in _prepared:
        return
    _prepared.add(command)
    for name in PRELOADED[command]:
        module = importlib.import_module(name)
        if name.endswith(".late"):
            for each in module.__all__:
                getattr(module, each)
    if BROKER[0] in PRELOADED[command]:
        _prepare_requests()
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"
    # The collector would write to all objects, and with that copy their memory into the new processes.
    gc.freeze()


def _prepare_requests() -> None:
    from ottla.broker.served import HANDLERS
    from ottla.protocol.compiler import build_init
    from ottla.protocol.message import Struct

    for name in HANDLERS.values():
        importlib.import_module(f"ottla.broker.handlers.{name}")
    known: list[type[Struct]] = [Struct]
    for each in known:
        known += each.__subclasses__()
        if "__init__" not in vars(each) and "FIELDS" in vars(each):
            each.__init__ = build_init(each)  # type: ignore[method-assign]


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
    del sys.path[0]  # the directory of the tests, whose packages have names of other distributions
    (module, *words), directory, python_path, environment = serve(control)
    for name in [each for each in os.environ if each.startswith(PASSED_ON)]:
        del os.environ[name]
    os.environ.update(environment)
    os.chdir(directory)
    sys.path[:0] = [str(Path.cwd()), *python_path]
    sys.argv[:] = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
