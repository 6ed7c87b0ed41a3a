"""A broker in a separate process, controlled over a socket pair; otherwise like `ThreadBroker`.

The process ends with the tests, even if they are killed: it stops when the other end of the pair is closed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from ottla.common.errors import KafkaError
from ottla.testing.base import CALL_TIMEOUT_S, STOP_TIMEOUT_S, BrokerError
from ottla.testing.pipe import Pipe
from ottla.testing.ports import ReservedPort
from ottla.testing.running import ThreadBroker

START_TIMEOUT_S = 30.0


class ProcessBroker:
    """A broker in a separate process, with the methods of `ThreadBroker`."""

    kind = "process"

    def __init__(self, properties: Mapping[str, object] | None = None, directory: str | None = None) -> None:
        self.bootstrap = ""
        self.properties = dict(properties or {})
        self.paused = False
        self._directory = directory or tempfile.mkdtemp(prefix="ottla-test-")
        self._owns_directory = directory is None
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._reserved: ReservedPort | None = None
        self._asking = threading.Lock()
        # Faults and counts of a stopped broker; None before the first start.
        self._saved: Any = None

    @property
    def running(self) -> bool:
        """Whether the broker is running."""
        return self._process is not None

    @property
    def data(self) -> str:
        """The log directory."""
        return os.path.join(self._directory, "data")

    @property
    def pid(self) -> int:
        """The process id. Raises BrokerError if the broker is stopped."""
        if self._process is None:
            raise BrokerError("The broker does not run")
        return self._process.pid

    def start(self) -> None:
        """Start the broker with its previous data and port, and wait until it serves. Raises BrokerError."""
        if self.running:
            return
        if self._reserved is None:
            self._reserved = ReservedPort()
        ours, theirs = socket.socketpair()
        with theirs, open(os.path.join(self._directory, "log"), "ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-m", "ottla.testing.child", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for the tests
            )
        self._pipe = Pipe(ours)
        port = self._reserved.number
        try:
            self.bootstrap = self._ask(START_TIMEOUT_S, "start", self.properties, self._directory, port)
        except BrokerError:
            self._end(signal.SIGKILL)
            raise
        if self._saved is not None:
            self.call("restore", self._saved)
            self.call("reopen_listeners")

    def _ask(self, timeout_s: float, *question: Any) -> Any:
        assert self._pipe is not None
        try:
            with self._asking:  # one request at a time: responses carry no id
                self._pipe.send(question)
                failed, answer = self._pipe.receive(timeout_s)
        except TimeoutError as error:
            raise BrokerError(f"The broker did not answer {question[0]!r} within {timeout_s:g} s") from error
        except (EOFError, OSError) as error:
            raise BrokerError(f"The broker's process ended:\n{self._log_tail()}") from error
        if failed:
            raise KafkaError(*answer) if isinstance(answer, tuple) else answer
        return answer

    def _log_tail(self) -> str:
        with open(os.path.join(self._directory, "log"), "rb") as log:
            return log.read()[-4000:].decode(errors="replace")

    def stop(self) -> None:
        """Stop the broker cleanly: pending requests are answered, logs are synced."""
        if self.running:
            self.resume()
            self._saved = self.call("save")
            self._ask(STOP_TIMEOUT_S, "stop")
            self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process with SIGKILL. The next start recovers the logs."""
        if self.running:
            self.resume()
            self._saved = self.call("save")
            self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        self.paused = False
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(by)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        if pipe is not None:
            pipe.close()

    def close(self) -> None:
        """Stop the broker, and delete its data."""
        try:
            self._end(signal.SIGKILL)
        finally:
            if self._reserved is not None:
                self._reserved.release()
            if self._owns_directory:
                shutil.rmtree(self._directory, ignore_errors=True)

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, without any I/O."""
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        """Send SIGCONT."""
        if self.paused:
            os.kill(self.pid, signal.SIGCONT)
            self.paused = False

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of `Control`. Raises its errors, and BrokerError if the broker does not respond."""
        if self.paused:
            raise BrokerError(f"The broker is paused: it cannot answer {name!r} before resume()")
        if not self.running:
            if self._saved is not None:
                return self._ask_saved(name, arguments)
            raise BrokerError("The broker does not run")
        return self._ask(CALL_TIMEOUT_S, "call", name, *arguments)

    def _ask_saved(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method on the saved state while no process is running."""
        stand_in = ThreadBroker(directory=self._directory)
        stand_in.call("restore", self._saved)
        answer = stand_in.call(name, *arguments)
        self._saved = stand_in.call("save")
        return answer
