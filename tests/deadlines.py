"""Ends of threads, forks and processes, each with a deadline and an error that names what did not end.

pytest-timeout interrupts a test once. A wait without a deadline after that, in a `finally` or a fixture, would last for
ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

END_S = 30.0
R = TypeVar("R")


class NotEnded(AssertionError):
    """A thread, fork or process did not end before its deadline."""


def join(thread: threading.Thread, what: str, within_s: float = END_S) -> None:
    """Wait until the thread has ended. Raises NotEnded."""
    thread.join(within_s)
    if thread.is_alive():
        raise NotEnded(f"not ended within {within_s:g} s: {what}")


def in_threads(calls: Iterable[Callable[[], R]], name: str) -> list[Future[R]]:
    """Start a thread for each call, and return their results as futures.

    Unlike the threads of a ThreadPoolExecutor, these neither hold up the `with` block nor the end of Python.
    """
    futures = []
    for call in calls:
        future: Future[R] = Future()
        threading.Thread(target=_call, args=(call, future), name=name, daemon=True).start()
        futures.append(future)
    return futures


def results(futures: Iterable[Future[R]], what: str, within_s: float = END_S) -> list[R]:
    """Return the results of calls in threads. Raises NotEnded, and what a call raised."""
    deadline_s = time.monotonic() + within_s
    found = []
    for future in futures:
        try:
            found.append(future.result(max(0.0, deadline_s - time.monotonic())))
        except TimeoutError:
            if future.done():
                raise
            raise NotEnded(f"not ended within {within_s:g} s: {what}") from None
    return found


def _call(call: Callable[[], R], future: Future[R]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised in the thread that takes the result
        future.set_exception(error)


def kill(process: subprocess.Popen[str] | subprocess.Popen[bytes], within_s: float = END_S) -> None:
    """Kill a process and close its pipes, without reading them: its own children may hold the other ends."""
    process.kill()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        raise NotEnded(f"process {process.pid} runs {within_s:g} s after SIGKILL: {process.args}") from None
    finally:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


def code_of_fork(call: Callable[[], int], within_s: float = END_S) -> int:
    """Return the exit code of a fork of this process that calls the function; 99 if that raises. Raises NotEnded.

    An exception must not leave the fork: it would go on as a second worker of pytest.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about forks in programs with threads
        child = os.fork()
    if child == 0:
        code = 99
        try:
            code = call()
        except BaseException:  # noqa: BLE001 - the fork ends here
            traceback.print_exc()
        finally:
            os._exit(code)
    return exit_code(child, within_s)


def exit_code(child: int, within_s: float = END_S) -> int:
    """Wait for a child process, and return its exit code. Kills it at the deadline, and raises NotEnded."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # SIGKILL ends it at once
    raise NotEnded(f"child process {child} not ended within {within_s:g} s")
