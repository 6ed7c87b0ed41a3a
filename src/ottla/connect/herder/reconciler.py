"""Starts and stops connectors and tasks of this worker, until they are as the store and the assignment say.

The rounds of one connector follow each other; different connectors do not wait for each other.
`core.plan` decides; a round executes its plan with the runtime.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple

from ottla.connect.errors import ConnectError, NotLeaderError, RebalanceNeededError, RetriableError
from ottla.connect.herder.core import Force, Plan, Running, RunningTask, Wanted, plan
from ottla.connect.runtime import Runtime, State, StatusListener, Store, TaskId

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 60.0
_SETTLE_S: Final = 120.0

_LATER: Final = (RetriableError, RebalanceNeededError, NotLeaderError)
_Step = Callable[[str], Awaitable[None]]


class _Rounds(NamedTuple):
    task: asyncio.Task[None]
    woken: asyncio.Event


class Reconciler:
    """The work of this worker. `publish` asks a connector for its tasks and writes them; `fence` precedes its tasks."""

    def __init__(
        self, store: Store, runtime: Runtime, listener: StatusListener, publish: _Step, fence: _Step
    ) -> None:  # fmt: skip
        self._store = store
        self._runtime = runtime
        self._listener = listener
        self._publish = publish
        self._fence = fence
        self.connectors: frozenset[str] = frozenset()
        """The connectors that are assigned to this worker."""
        self.tasks: frozenset[TaskId] = frozenset()
        self._running: dict[str, Running] = {}
        self._rounds: dict[str, _Rounds] = {}
        self._force: dict[str, Force] = {}
        self._asks: set[str] = set()
        self._restarts: dict[str, list[asyncio.Future[asyncio.Future[State] | None]]] = {}
        """Requests that wait for the round with their restart."""
        self._starting: dict[str, asyncio.Future[State]] = {}
        """The first state of each instance that starts."""
        self._closed = False

    def names(self) -> set[str]:
        """Return the names of all connectors that run here, or should."""
        return {*self._running, *self.connectors, *(each.connector for each in self.tasks)}

    def assign(self, connectors: Collection[str], tasks: Collection[TaskId]) -> set[str]:
        """Take a new assignment; return the connectors to wake."""
        before = self.names()
        self.connectors, self.tasks = frozenset(connectors), frozenset(tasks)
        return before | self.names()

    def wake(self, name: str, force: Force | None = None, *, ask_tasks: bool = False) -> None:
        """Begin a round of a connector; one that runs is followed by another one."""
        if self._closed:
            return
        if force is not None:
            self._force[name] = self._force.get(name, Force()).plus(force)
        if ask_tasks:
            self._asks.add(name)
        rounds = self._rounds.get(name)
        if rounds is None:
            woken = asyncio.Event()
            task = asyncio.create_task(self._run(name, woken), name=f"reconcile {name}")
            rounds = self._rounds[name] = _Rounds(task, woken)
        rounds.woken.set()

    async def restart(self, name: str, force: Force) -> State | None:
        """Restart parts of a connector, and wait until they have started; the caller limits the time.

        Returns the first state of a new instance, None without an instance. Tasks report their states later.
        """
        done: asyncio.Future[asyncio.Future[State] | None] = asyncio.get_running_loop().create_future()
        self._restarts.setdefault(name, []).append(done)
        self.wake(name, force)
        starting = await done
        # Several requests may wait for one instance: the end of one must not cancel the others.
        return None if starting is None else await asyncio.shield(starting)

    def reported(self, name: str, state: State) -> None:
        """Learn the state of an instance."""
        starting = self._starting.pop(name, None)
        if starting is not None:
            starting.set_result(state)

    async def settle(self, names: Collection[str]) -> None:
        """Wait until the rounds of these connectors have ended. Raises ConnectError after two minutes."""
        rounds = [self._rounds[name].task for name in names if name in self._rounds]
        if rounds:
            _, pending = await asyncio.wait(rounds, timeout=_SETTLE_S)
            if pending:
                raise ConnectError(f"{', '.join(sorted(names))} did not stop within {_SETTLE_S:g} s")

    async def close(self) -> None:
        """End all rounds. What runs is stopped by the runtime."""
        self._closed = True
        rounds = [each.task for each in self._rounds.values()]
        for each in rounds:
            each.cancel()
        if rounds:
            await asyncio.wait(rounds, timeout=_SETTLE_S)

    async def _run(self, name: str, woken: asyncio.Event) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while woken.is_set():
                woken.clear()
                if await self._round(name):
                    pause_s = FIRST_PAUSE_S
                    continue
                try:
                    async with asyncio.timeout(pause_s):
                        await woken.wait()
                except TimeoutError:
                    woken.set()
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            del self._rounds[name]

    async def _round(self, name: str) -> bool:
        """Execute one plan; False: asking for tasks has to be repeated."""
        force, restarts = self._force.pop(name, Force()), self._restarts.pop(name, [])
        running = self._running.setdefault(name, Running())
        steps = plan(
            self._wanted(name),
            running,
            has_connector=name in self.connectors,
            my_tasks=[each.task for each in self.tasks if each.connector == name],
            force=force,
        )
        starting = asyncio.get_running_loop().create_future() if restarts and steps.start_connector else None
        done = await self._attempt(name, self._execute(name, steps, running, starting))
        if starting is not None and self._starting.get(name) is not starting and not starting.done():
            starting.set_result(State.FAILED)  # the instance was not started
        for each in restarts:
            if not each.done():
                each.set_result(starting)
        if running.is_empty:
            self._running.pop(name, None)
        if steps.ask_tasks:
            self._asks.add(name)
        return done and await self._ask(name, running)

    async def _attempt(self, name: str, step: Awaitable[None]) -> bool:
        """Await a step; False: it has to be repeated. Other errors are the state of the connector."""
        try:
            await step
        except _LATER as error:
            logger.warning("Repeating a step of the connector %s later: %s", name, error)
            return False
        except ConnectError as error:
            self._listener.connector_changed(name, State.FAILED, _trace(error))
        except Exception as error:  # the rounds of the other connectors go on
            logger.exception("Unhandled error while %s was started or stopped", name)
            self._listener.connector_changed(name, State.FAILED, _trace(error))
        return True

    def _wanted(self, name: str) -> Wanted | None:
        config = self._store.config(name)
        if config is None:
            return None
        tasks = len(self._store.task_configs(name))
        return Wanted(config, self._store.target(name), tasks, self._store.task_generation(name))

    async def _execute(
        self, name: str, steps: Plan, running: Running, starting: asyncio.Future[State] | None
    ) -> None:  # fmt: skip
        if steps.stop_tasks:
            await self._runtime.stop_tasks([TaskId(name, each) for each in steps.stop_tasks])
            for each in steps.stop_tasks:
                running.tasks.pop(each, None)
        if steps.stop_connector:
            await self._runtime.stop_connector(name)
            running.config = None
        config = self._store.config(name)
        if config is None:
            return
        target = self._store.target(name)
        if steps.start_connector:
            if starting is not None:
                # Not earlier: a report of the previous instance must not count.
                self.reported(name, State.RESTARTING)
                self._starting[name] = starting
            self._runtime.start_connector(name, config, target)
            running.config, running.target = config, target
        if steps.start_tasks:
            await self._start_tasks(name, steps.start_tasks, running)

    async def _start_tasks(self, name: str, numbers: Collection[int], running: Running) -> None:
        try:
            await self._fence(name)
        except _LATER:
            raise
        except ConnectError as error:
            for each in numbers:
                self._listener.task_changed(TaskId(name, each), State.FAILED, _trace(error))
            return
        configs, generation = self._store.task_configs(name), self._store.task_generation(name)
        connector = self._store.applied_config(name) or self._store.config(name)
        target = self._store.target(name)
        for each in numbers:
            if connector is None or each >= len(configs) or TaskId(name, each) not in self.tasks:
                continue  # it changed while older tasks were fenced; another round follows
            task = TaskId(name, each)
            try:
                self._runtime.start_task(task, connector, configs[each], target, generation)
            except ConnectError as error:
                self._listener.task_changed(task, State.FAILED, _trace(error))
            running.tasks[each] = RunningTask(generation, target)

    async def _ask(self, name: str, running: Running) -> bool:
        if name not in self._asks or running.config is None:
            self._asks.discard(name)
            return True
        if not await self._attempt(name, self._publish(name)):
            return False
        self._asks.discard(name)
        return True


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))
