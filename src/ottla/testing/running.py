"""A broker in this process: a `Node` with its own event loop in its own thread.

Clients see no difference to a separate process. Operations of tests go through `call` to the event loop, with a
deadline. The broker has its own data directory. A restart keeps the directory and the port.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from ottla.broker.server import Node
from ottla.common.completion import Completion
from ottla.config import BrokerConfig
from ottla.testing.base import CALL_TIMEOUT_S, STOP_TIMEOUT_S, BrokerError
from ottla.testing.control import Control
from ottla.testing.listeners import completed
from ottla.testing.ports import ReservedPort

R = TypeVar("R")
LONGEST_PAUSE_S = 60.0
# Records of tests often have fixed, old timestamps: retention would delete them in the middle of a session.
# One partition for groups: creating fifty logs takes longer than most tests.
DEFAULTS = {
    "log.retention.hours": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "log.segment.delete.delay.ms": "0",
}


def settings(directory: str, port: int, properties: Mapping[str, object]) -> dict[str, str]:
    """The properties of a test's broker."""
    own = {name: _text(value) for name, value in properties.items()}
    listener = own.get("inter.broker.listener.name", "PLAINTEXT")
    return {"log.dirs": directory, "listeners": f"{listener}://127.0.0.1:{port}", **DEFAULTS, **own}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class ThreadBroker:
    """A broker in this process. `bootstrap` is HOST:PORT after the start."""

    kind = "thread"

    def __init__(
        self, properties: Mapping[str, object] | None = None, directory: str | None = None, port: int = 0
    ) -> None:
        self.bootstrap = ""
        self.properties = dict(properties or {})
        self._directory = directory or tempfile.mkdtemp(prefix="ottla-test-")
        self._owns_directory = directory is None
        self._port = port
        self._reserved: ReservedPort | None = None
        self._control = Control()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._gate: threading.Event | None = None

    # -- start and stop ------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the broker is running."""
        return self._thread is not None

    @property
    def paused(self) -> bool:
        """Whether the broker is paused."""
        return self._gate is not None

    @property
    def data(self) -> str:
        """The log directory."""
        return os.path.join(self._directory, "data")

    def start(self) -> None:
        """Start the broker with its previous data and port, and wait until it serves. Raises BrokerError."""
        if self.running:
            return
        if not self._port:
            self._reserved = ReservedPort()
            self._port = self._reserved.number
        started = threading.Event()
        problems: list[BaseException] = []
        loop = self._loop = _new_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop, started, problems), name="ottla-test-broker", daemon=True
        )
        self._thread.start()
        if not started.wait(CALL_TIMEOUT_S):
            raise BrokerError(f"The broker was not up within {CALL_TIMEOUT_S:g} s")
        if problems:
            self._forget_thread()
            raise BrokerError(f"The broker did not start: {problems[0]}") from problems[0]

    def _run(self, loop: asyncio.AbstractEventLoop, started: threading.Event, problems: list[BaseException]) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._open())
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits for the start
            problems.append(error)
        started.set()
        try:
            if not problems:
                loop.run_forever()
        finally:
            loop.close()

    async def _open(self) -> None:
        control = self._control
        config = BrokerConfig(settings(self.data, self._port, self.properties))
        node: Node = Node(
            config,
            control.clock,
            asyncio.Event(),
            wrap=lambda dispatcher: control.interceptor.attach(dispatcher, lambda: node.broker),
        )
        try:
            bootstrap = await node.start()
        except BaseException:
            await node.close()
            raise
        control.node = node
        await control.reopen_listeners()
        self._port, self.bootstrap = bootstrap.port, str(bootstrap)

    def stop(self) -> None:
        """Stop the broker like SIGTERM: pending requests are answered, logs are synced."""
        self._end(clean=True)

    def kill(self) -> None:
        """Stop the broker like SIGKILL, without responses or syncs. The next start recovers the logs."""
        self._end(clean=False)

    def _end(self, *, clean: bool) -> None:
        if not self.running:
            return
        self.resume()
        loop, thread, node = self._loop, self._thread, self._control.node
        assert loop is not None
        assert thread is not None
        assert node is not None
        self._control.node = None
        try:
            self._wait(node.close(clean=clean), STOP_TIMEOUT_S)
            self._wait(_finish(), STOP_TIMEOUT_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            self._forget_thread()

    def _forget_thread(self) -> None:
        thread, self._thread, self._loop = self._thread, None, None
        if thread is not None:
            thread.join(STOP_TIMEOUT_S)
            if thread.is_alive():
                raise BrokerError(f"The broker's thread did not end within {STOP_TIMEOUT_S:g} s")

    def close(self) -> None:
        """Stop the broker, and delete its data."""
        try:
            self._end(clean=False)
        finally:
            if self._reserved is not None:
                self._reserved.release()
            if self._owns_directory:
                shutil.rmtree(self._directory, ignore_errors=True)

    # -- pausing -------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Block the event loop like SIGSTOP, for at most a minute: connections stay open, without any I/O."""
        if self.paused:
            return
        loop = self._require_loop()
        gate = self._gate = threading.Event()
        stands = threading.Event()

        def stand() -> None:
            stands.set()
            gate.wait(LONGEST_PAUSE_S)

        loop.call_soon_threadsafe(stand)
        if not stands.wait(CALL_TIMEOUT_S):
            raise BrokerError("The broker's event loop did not pause")

    def resume(self) -> None:
        """Continue after `pause`."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    # -- operations ----------------------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of `Control`. Raises its errors, and BrokerError if the broker does not respond."""
        if self.paused:
            raise BrokerError(f"The broker is paused: it cannot answer {name!r} before resume()")
        if not self.running:
            if name in _WITHOUT_NODE:
                return getattr(self._control, name)(*arguments)
            raise BrokerError("The broker does not run: it was stopped or killed, and not started again")
        return self._wait(_answer(self._control, name, arguments), CALL_TIMEOUT_S)

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise BrokerError("The broker does not run")
        return self._loop

    def _wait(self, coroutine: Coroutine[Any, Any, R], timeout_s: float) -> R:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._require_loop())
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            if future.done():
                raise
            future.cancel()
            raise BrokerError(f"The broker did not answer within {timeout_s:g} s") from error


# Operations that need no running broker: they concern faults, counts and the clock.
_WITHOUT_NODE = frozenset(
    {
        "add_rule",
        "remove_rule",
        "rule",
        "requests",
        "advance_clock",
        "reset_clock",
        "now_ms",
        "save",
        "restore",
        "forget_listener",
    }
)


async def _answer(control: Control, name: str, arguments: tuple[Any, ...]) -> Any:
    result = getattr(control, name)(*arguments)
    if isinstance(result, Completion):
        return await completed(result)
    return await result if asyncio.iscoroutine(result) else result


async def _finish() -> None:
    """Cancel the remaining tasks of the event loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=STOP_TIMEOUT_S)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _new_loop() -> asyncio.AbstractEventLoop:
    with contextlib.suppress(ImportError):  # not on every platform
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
