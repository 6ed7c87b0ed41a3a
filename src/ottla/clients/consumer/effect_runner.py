"""Carries out the effects of a core on one event loop.

After each event the runner calls the core's `advance`, and starts a task for each `Send` and `Refresh`. The task passes
the outcome to the core, which is the next event. Fetches and the requests of group membership use connections of their
own, because a broker may hold their responses back: a commit must not wait behind them on one connection.

The core is accessed only under `lock`. Methods that are not coroutines may be called from any thread. Every wait has a
deadline.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.clients.consumer.effects import (
    COORDINATOR,
    Effect,
    EffectId,
    ForgetCoordinator,
    Outbox,
    Outcome,
    Refresh,
    Send,
)
from ottla.clients.consumer.problem_reports import ProblemReports
from ottla.clients.errors import ClientError, Closed
from ottla.clients.events import Throttled
from ottla.clients.network import Cluster
from ottla.protocol.message import Message

logger = logging.getLogger("ottla.clients.consumer")

_OFFSET_COMMIT: Final = 8
_PURPOSES: Final = {
    1: "fetch",
    11: "group",
    14: "group",
    12: "group",
    68: "group",
    76: "group",
    78: "fetch",
    79: "fetch",
}
"""The connection to use, by API key: Fetch, ShareFetch, ShareAcknowledge; JoinGroup, SyncGroup and the heartbeats."""
_THROTTLE_LIMIT_S: Final = 60.0
_LEAVE_TIMEOUT_S: Final = 2.0


class Core(Protocol):
    outbox: Outbox

    @property
    def is_ready(self) -> bool:
        """Whether a poll can make progress without waiting."""

    def advance(self, now_ms: float) -> list[Effect]:
        """Return the effects that are due."""

    def complete(self, effect_id: EffectId, outcome: Outcome, now_ms: float) -> None:
        """Take the outcome of an effect."""

    def next_timer_ms(self) -> float | None:
        """When to call `advance` at the latest, if nothing happens."""


class Settings(Protocol):
    @property
    def group_id(self) -> str | None:
        """The group's id; None without a group."""

    @property
    def request_timeout_ms(self) -> int:
        """How long a broker may take to answer."""

    @property
    def api_timeout_ms(self) -> int:
        """How long a call may take if the program does not say."""

    @property
    def allow_auto_create_topics(self) -> bool:
        """Whether a request for a topic's metadata may create the topic."""

    @property
    def raise_problems(self) -> bool:
        """Whether polls raise what the client retries."""


C = TypeVar("C", bound=Core)
R = TypeVar("R")


def now_ms() -> float:
    """The clock of the core: monotonic, and the same as the event loop's."""
    return time.monotonic() * 1000


class EffectRunner(Generic[C]):
    """Runs one core. `notify` is called in any thread when a poll may be able to make progress."""

    def __init__(self, cluster: Cluster, core: C, settings: Settings, notify: Callable[[], None]) -> None:
        self.cluster = cluster
        self.core = core
        self.lock = threading.RLock()
        self.closed = False
        self.commit_turn = asyncio.Lock()
        """Held while a commit is in flight, so that commits reach the broker in order."""
        self.advanced = asyncio.Event()
        """Set after each event, on the loop."""
        self._settings = settings
        self._notify = notify
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakes = False
        # Until when (loop time) no requests may be sent, by node and purpose (KIP-219).
        self._throttled: dict[tuple[int, str], float] = {}
        raise_later = self._raise_later if settings.raise_problems else None
        self._problems = ProblemReports(cluster.reporter, raise_later)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wake()

    def change(self, work: Callable[[C], R]) -> R:
        """Call `work` with the core under the lock, and carry out the resulting effects soon. Raises Closed."""
        if self.closed:
            raise Closed("The consumer was closed")
        try:
            with self.lock:
                return work(self.core)
        finally:
            if self.core.outbox.needs_advance:
                self.wake()

    def wake(self) -> None:
        """Have the loop call the core's `advance` soon; from any thread."""
        loop = self._loop
        if loop is None or self._wakes or self.closed:
            return
        self._wakes = True
        loop.call_soon_threadsafe(self._advance)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine on the loop until it ends or the client is closed."""
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def send(
        self,
        node: int,
        request: Message,
        timeout_s: float | None = None,
        max_version: int | None = None,
        min_version: int = 0,
    ) -> Any:
        """Send one request to a broker or to the COORDINATOR, without retries. Raises ClientError."""
        request_timeout_s = self._settings.request_timeout_ms / 1000
        deadline_s = request_timeout_s if timeout_s is None else timeout_s
        connect_s = min(deadline_s, request_timeout_s)
        if node == COORDINATOR:
            node = await self.cluster.coordinator(self._settings.group_id or "", timeout_s=connect_s)
        purpose = _PURPOSES.get(request.API_KEY, "")
        if self.cluster.connected(node, purpose) is None:
            await self.cluster.connection(node, purpose=purpose, timeout_s=connect_s)
        if self._throttled:
            await self._wait_throttled((node, purpose))
        response = await self.cluster.send(
            node, request, oldest=min_version, newest=max_version, timeout_s=deadline_s, purpose=purpose
        )
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            logger.debug("%s throttles this client for %d ms", self.cluster.name(node), throttle_ms)
            self._throttled[node, purpose] = asyncio.get_running_loop().time() + throttle_ms / 1000
            self.cluster.reporter.report(Throttled(self.cluster.reporter.client_id, node, throttle_ms))
        return response

    async def close(self, last_effects: Callable[[C], list[Effect]], timeout_s: float) -> None:
        """Send the requests of `last_effects`, cancel all tasks and close the connections.

        Does not raise if a broker does not respond.
        """
        with self.lock:
            effects = last_effects(self.core)
            self.closed = True
        for effect in effects:
            if isinstance(effect, Send):
                await self._send_last(effect, timeout_s)
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await self.cluster.close()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _send_last(self, effect: Send, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(min(_LEAVE_TIMEOUT_S, timeout_s)):
                await self.send(effect.node, effect.request, _LEAVE_TIMEOUT_S)
        except (ClientError, TimeoutError) as error:
            logger.info("No response when leaving the group: %s", error)

    # -- on the loop -------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        self._wakes = False
        if self.closed:
            return
        with self.lock:
            effects = self.core.advance(now_ms())
            is_ready = self.core.is_ready
            timer_ms = self.core.next_timer_ms()
            problems = self.core.outbox.take_problems()
        for subject, problem in problems.items():
            if problem is None:
                self._problems.end(subject)
            else:
                self._problems.begin(subject, problem)
        for effect in effects:
            if isinstance(effect, ForgetCoordinator):
                self.cluster.forget_coordinator(self._settings.group_id or "")
            else:
                self.spawn(self._run(effect))
        self._set_timer(timer_ms)
        self.advanced.set()
        if is_ready:
            self._notify()

    def _set_timer(self, at_ms: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None and self._loop is not None:
            self._timer = self._loop.call_later(max(0.001, (at_ms - now_ms()) / 1000), self._advance)

    async def _run(self, effect: Send | Refresh) -> None:
        outcome: Outcome = None
        try:
            if isinstance(effect, Refresh):
                create = self._settings.allow_auto_create_topics
                await self.cluster.refresh(effect.topics, allow_auto_create=create)
            else:
                outcome = await self._run_send(effect)
        except ClientError as error:
            outcome = error
        if isinstance(effect, Send) and not self.closed:
            self._report_outcome(effect.node, outcome)
        with self.lock:
            if not self.closed:
                self.core.complete(effect.id, outcome, now_ms())
        del outcome  # the traceback of an error refers to this frame: a cycle for the garbage collector
        self._advance()

    async def _run_send(self, effect: Send) -> Message:
        timeout_s = None if effect.timeout_ms is None else effect.timeout_ms / 1000
        async with self.commit_turn if effect.request.API_KEY == _OFFSET_COMMIT else nullcontext():
            response: Message = await self.send(
                effect.node, effect.request, timeout_s, effect.max_version, effect.min_version
            )
        return response

    def _report_outcome(self, node: int, outcome: Outcome) -> None:
        group_id = self._settings.group_id
        subject = f"The coordinator of group {group_id}" if node == COORDINATOR else self.cluster.name(node)
        if isinstance(outcome, ClientError):
            self._problems.unreachable(subject, outcome)
        else:
            self._problems.end(subject)

    def _raise_later(self, error: ClientError) -> None:
        with self.lock:
            self.core.outbox.poll_error = error
        self._notify()

    async def _wait_throttled(self, key: tuple[int, str]) -> None:
        left_s = self._throttled.get(key, 0.0) - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(min(left_s, _THROTTLE_LIMIT_S))
        else:
            self._throttled.pop(key, None)
