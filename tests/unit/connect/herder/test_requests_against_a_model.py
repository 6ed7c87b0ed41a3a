"""Random requests to a herder and to a model: after each request, the worker runs what the model says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.connect.errors import AlreadyExistsError, BadRequestError, NotFoundError
from ottla.connect.herder.core import RestartRequest
from ottla.connect.herder.herder import Herder
from ottla.connect.herder.sole_member import SoleMember
from ottla.connect.runtime import TargetState, TaskId
from tests.connect.rest.serving import herder_in_memory
from tests.unit.connect.herder.simple_runtime import SimpleRuntime

SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
NAMES = st.sampled_from(["a", "b", "c"])
COUNTS = st.integers(1, 3)
T = TypeVar("T")


class Requests(RuleBasedStateMachine):
    """`connectors` is the model: the number of tasks and the target state of each connector."""

    def __init__(self) -> None:
        super().__init__()
        self.connectors: dict[str, tuple[int, TargetState]] = {}
        self.loop = asyncio.new_event_loop()
        self.herder: Herder = self.run(self.start)

    async def start(self) -> Herder:
        herder = herder_in_memory()
        assert isinstance(herder.membership, SoleMember)
        await herder.membership.start()
        return herder

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(20):
                return await call()

        return self.loop.run_until_complete(limited())

    def refused(self, error: type[Exception], call: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(error):
            self.run(call)

    @rule(name=NAMES, count=COUNTS, wish=st.sampled_from(list(TargetState)))
    def create(self, name: str, count: int, wish: TargetState) -> None:
        config = self.config(name, count)
        if name in self.connectors:
            self.refused(AlreadyExistsError, lambda: self.herder.put_config(name, config, wish, replace=False))
        else:
            self.run(lambda: self.herder.put_config(name, config, wish, replace=False))
            self.connectors[name] = count, wish

    @rule(name=NAMES, count=COUNTS)
    def put(self, name: str, count: int) -> None:
        is_new, _ = self.run(lambda: self.herder.put_config(name, self.config(name, count), replace=True))
        assert is_new == (name not in self.connectors)
        self.connectors[name] = count, self.connectors.get(name, (0, TargetState.STARTED))[1]

    @rule(name=NAMES, count=COUNTS)
    def patch(self, name: str, count: int) -> None:
        if name not in self.connectors:
            self.refused(NotFoundError, lambda: self.herder.patch_config(name, {"tasks.max": str(count)}))
        else:
            self.run(lambda: self.herder.patch_config(name, {"tasks.max": str(count)}))
            self.connectors[name] = count, self.connectors[name][1]

    @rule(name=NAMES, wish=st.sampled_from(list(TargetState)))
    def change(self, name: str, wish: TargetState) -> None:
        def call() -> Awaitable[None]:
            stops = wish is TargetState.STOPPED
            return self.herder.stop(name) if stops else self.herder.set_target(name, wish)

        if name not in self.connectors:
            self.refused(NotFoundError, call)
        else:
            self.run(call)
            self.connectors[name] = self.connectors[name][0], wish

    @rule(name=NAMES, failed=st.booleans(), tasks=st.booleans())
    def restart(self, name: str, failed: bool, tasks: bool) -> None:
        request = RestartRequest(name, failed, tasks)
        if name not in self.connectors:
            self.refused(NotFoundError, lambda: self.herder.restart(request))
        else:
            self.run(lambda: self.herder.restart(request))

    @rule(name=NAMES)
    def reset_offsets(self, name: str) -> None:
        if name not in self.connectors:
            self.refused(NotFoundError, lambda: self.herder.alter_offsets(name, None))
        elif self.connectors[name][1] is not TargetState.STOPPED:
            self.refused(BadRequestError, lambda: self.herder.alter_offsets(name, None))
        else:
            self.run(lambda: self.herder.alter_offsets(name, None))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name not in self.connectors:
            self.refused(NotFoundError, lambda: self.herder.delete(name))
        else:
            self.run(lambda: self.herder.delete(name))
            del self.connectors[name]

    @staticmethod
    def config(name: str, count: int) -> dict[str, str]:
        return {"name": name, "connector.class": SINK, "topics": "t", "tasks.max": str(count)}

    def expected(self) -> tuple[dict[str, TargetState], dict[TaskId, TargetState]]:
        connectors = {name: target for name, (_, target) in self.connectors.items()}
        tasks: dict[TaskId, TargetState] = {
            TaskId(name, number): target
            for name, (count, target) in self.connectors.items()
            if target is not TargetState.STOPPED
            for number in range(self.written(name, count))
        }
        return connectors, tasks

    def written(self, name: str, count: int) -> int:
        """A connector that is paused has the tasks that it had before."""
        paused = self.connectors[name][1] is TargetState.PAUSED
        return len(self.herder.store.task_configs(name)) if paused else count

    @invariant()
    def the_worker_runs_what_the_model_says(self) -> None:
        runtime = self.herder.runtime
        assert isinstance(runtime, SimpleRuntime)

        async def settle() -> None:
            for _ in range(2000):
                running = {name: each[2] for name, each in runtime.connectors.items()}
                tasks = {task: each[1] for task, each in runtime.tasks.items()}
                if (running, tasks) == self.expected():
                    return
                await asyncio.sleep(0.0005)
            raise AssertionError(f"{running} {tasks} instead of {self.expected()}")

        self.run(settle)
        assert set(self.herder.store.connectors()) == set(self.connectors)
        generations = {name: self.herder.store.task_generation(name) for name in self.connectors}
        assert all(each[2] == generations[task.connector] for task, each in runtime.tasks.items())

    def teardown(self) -> None:
        async def close() -> None:
            await self.herder.close()
            assert isinstance(self.herder.membership, SoleMember)
            await self.herder.membership.close()

        self.run(close)
        self.loop.close()


TestRequests = Requests.TestCase
TestRequests.settings = settings(
    max_examples=30, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
