"""The herder on a store in memory: requests, restarts, tasks, fencing and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.connect.api import SourceOffset
from ottla.connect.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConnectError,
    InvalidConfigError,
    NotFoundError,
    SignatureError,
)
from ottla.connect.herder.core import RestartRequest
from ottla.connect.herder.herder import Environment, Herder
from ottla.connect.herder.sole_member import SoleMember
from ottla.connect.runtime import State, TargetState, TaskId
from tests.connect.rest.serving import cluster_id, herder_in_memory
from tests.unit.connect.herder.simple_runtime import SimpleRuntime

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
CONFIG = {"name": "c", "connector.class": SOURCE, "topic": "t", "file": "/f"}
SINK_CONFIG = {"name": "s", "connector.class": SINK, "topics": "t", "file": "/f", "tasks.max": "3"}


def runtime_of(herder: Herder) -> SimpleRuntime:
    assert isinstance(herder.runtime, SimpleRuntime)
    return herder.runtime


def run(test: Callable[[Herder], Awaitable[None]]) -> None:
    """Run a test with a herder whose work has begun."""

    async def main() -> None:
        herder = herder_in_memory()
        assert isinstance(herder.membership, SoleMember)
        await herder.membership.start()
        async with asyncio.timeout(20):
            await test(herder)
        await herder.close()
        await herder.membership.close()

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; the caller limits the time."""
    while not holds():
        await asyncio.sleep(0.001)


def states(herder: Herder, name: str) -> list[str]:
    if herder.store.status(name) is None:
        return []
    found = herder.views.status(name)
    return [found["connector"]["state"], *(each["state"] for each in found["tasks"])]


def test_a_new_connector_runs_with_its_tasks() -> None:
    async def test(herder: Herder) -> None:
        is_new, info = await herder.put_config("s", SINK_CONFIG, replace=False)
        assert (is_new, info["type"]) == (True, "sink")
        await until(lambda: len(runtime_of(herder).tasks) == 3)
        assert states(herder, "s") == ["RUNNING"] * 4
        with pytest.raises(AlreadyExistsError, match="Connector s already exists"):
            await herder.put_config("s", SINK_CONFIG, replace=False)

    run(test)


def test_fewer_tasks_stop_and_have_no_status() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("s", SINK_CONFIG, replace=False)
        await until(lambda: len(runtime_of(herder).tasks) == 3)
        await herder.put_config("s", {**SINK_CONFIG, "tasks.max": "1"}, replace=True)
        await until(lambda: len(runtime_of(herder).tasks) == 1 and states(herder, "s") == ["RUNNING"] * 2)
        assert herder.store.task_status(TaskId("s", 2)) is None

    run(test)


def test_a_changed_configuration_starts_tasks_of_a_new_generation_alone() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: bool(runtime_of(herder).tasks))
        first = herder.store.task_generation("c")
        await herder.put_config("c", {**CONFIG, "errors.tolerance": "all"}, replace=True)
        await until(lambda: {each[2] for each in runtime_of(herder).tasks.values()} == {first + 1})
        calls = runtime_of(herder).calls
        assert calls.index("stop c-0") < calls.index(f"start c-0 STARTED {first + 1}")

    run(test)


def test_an_equal_configuration_does_not_restart_tasks() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: bool(runtime_of(herder).tasks))
        await herder.put_config("c", CONFIG, replace=True)
        await asyncio.sleep(0.02)
        assert runtime_of(herder).calls.count("stop c-0") == 0

    run(test)


def test_pause_resume_stop_and_resume() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: bool(runtime_of(herder).tasks))
        await herder.set_target("c", TargetState.PAUSED)
        await until(lambda: states(herder, "c") == ["PAUSED", "PAUSED"])
        await herder.set_target("c", TargetState.STARTED)
        await until(lambda: states(herder, "c") == ["RUNNING", "RUNNING"])
        await herder.stop("c")
        await until(lambda: states(herder, "c") == ["STOPPED"] and not runtime_of(herder).tasks)
        await herder.set_target("c", TargetState.STARTED)
        await until(lambda: bool(runtime_of(herder).tasks) and states(herder, "c") == ["RUNNING", "RUNNING"])

    run(test)


def test_offsets_change_only_while_the_connector_is_stopped() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: bool(runtime_of(herder).tasks))
        given = [SourceOffset({"filename": "/f"}, {"position": 3})]
        for target in (TargetState.STARTED, TargetState.PAUSED):
            await herder.set_target("c", target)
            with pytest.raises(BadRequestError, match="must be in the STOPPED state"):
                await herder.alter_offsets("c", given)
        await herder.stop("c")
        assert "altered successfully" in await herder.alter_offsets("c", given)
        assert await herder.offsets("c") == {"offsets": [{"partition": {"filename": "/f"}, "offset": {"position": 3}}]}
        assert "reset successfully" in await herder.alter_offsets("c", None)
        with pytest.raises(NotFoundError):
            await herder.alter_offsets("nothing", None)

    run(test)


def test_older_producers_are_fenced_before_tasks_of_an_exactly_once_source_start() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: bool(runtime_of(herder).tasks))
        assert runtime_of(herder).fenced == [("c", 0)]
        assert herder.store.task_count("c") == 1
        await herder.put_config("c", {**CONFIG, "batch.size": "5"}, replace=True)
        await until(lambda: len(runtime_of(herder).fenced) == 2)
        assert runtime_of(herder).fenced[1] == ("c", 1)
        await herder.put_config("s", SINK_CONFIG, replace=False)
        await until(lambda: len(runtime_of(herder).tasks) == 4)
        assert len(runtime_of(herder).fenced) == 2

    run(test)


def test_a_failed_fencing_fails_the_tasks_and_starts_none() -> None:
    async def test(herder: Herder) -> None:
        async def fence(name: str, config: object, tasks: int | None) -> None:
            raise ConnectError(f"no transaction coordinator for {name} {tasks} {config is None}")

        runtime_of(herder).fence = fence  # type: ignore[method-assign]
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: states(herder, "c")[1:] == ["FAILED"])
        assert not runtime_of(herder).tasks
        assert "no transaction coordinator" in herder.views.status("c")["tasks"][0]["trace"]

    run(test)


def test_a_task_that_was_configured_again_may_not_start() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: bool(runtime_of(herder).tasks))
        generation = herder.store.task_generation("c")
        await herder.check_task(TaskId("c", 0), generation)
        for task, number in [(TaskId("c", 0), generation - 1), (TaskId("c", 1), generation)]:
            with pytest.raises(ConnectError):
                await herder.check_task(task, number)

    run(test)


def test_a_restart_starts_what_the_request_covers() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("s", SINK_CONFIG, replace=False)
        await until(lambda: len(runtime_of(herder).tasks) == 3)
        herder.task_changed(TaskId("s", 1), State.FAILED, "broken")
        calls = runtime_of(herder).calls
        calls.clear()
        found = await herder.restart(RestartRequest("s", only_failed=True, include_tasks=True))
        assert found is not None
        assert [each["state"] for each in found["tasks"]] == ["RUNNING", "RESTARTING", "RUNNING"]
        await until(lambda: states(herder, "s") == ["RUNNING"] * 4)
        assert [each for each in calls if each.startswith("stop")] == ["stop s-1"]
        await herder.restart(RestartRequest("s"))
        await until(lambda: "stop s" in calls and states(herder, "s") == ["RUNNING"] * 4)
        await herder.restart_task(TaskId("s", 2))
        await until(lambda: "stop s-2" in calls)
        for unknown in (TaskId("s", 3), TaskId("x", 0), TaskId("s", -1)):
            with pytest.raises(NotFoundError):
                await herder.restart_task(unknown)

    run(test)


def test_a_deleted_connector_leaves_nothing() -> None:
    async def test(herder: Herder) -> None:
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: bool(runtime_of(herder).tasks))
        await herder.delete("c")
        await until(lambda: not runtime_of(herder).tasks and not runtime_of(herder).connectors)
        await asyncio.sleep(0.01)
        assert herder.store.status("c") is None
        assert herder.store.task_status(TaskId("c", 0)) is None
        assert herder.store.topics("c") == []
        with pytest.raises(NotFoundError, match="Connector c not found"):
            await herder.delete("c")

    run(test)


def test_all_faults_of_a_configuration_are_in_one_message() -> None:
    async def test(herder: Herder) -> None:
        with pytest.raises(InvalidConfigError) as caught:
            await herder.put_config("c", {**CONFIG, "tasks.max": "0", "topic": ""}, replace=False)
        assert "the following 2 error(s)" in str(caught.value)
        assert "Value must be at least 1" in str(caught.value)
        assert herder.store.connectors() == []

    run(test)


def test_values_of_variables_are_not_in_the_result_of_a_validation() -> None:
    async def test(herder: Herder) -> None:
        herder.environment = Environment(cluster_id, resolve=lambda config: {**config, "batch.size": "hunter2"})
        found = await herder.validate({**CONFIG, "batch.size": "${env:SECRET}"})
        assert found.messages == ["Invalid value ${env:SECRET} for configuration batch.size: Not a number of type INT"]
        assert "hunter2" not in str(found.as_json())

    run(test)


def test_too_many_tasks_fail_the_connector() -> None:
    async def test(herder: Herder) -> None:
        async def task_configs(name: str) -> list[dict[str, str]]:
            return [{"connector": name}] * 2

        runtime_of(herder).task_configs = task_configs  # type: ignore[method-assign]
        await herder.put_config("c", CONFIG, replace=False)
        await until(lambda: states(herder, "c") == ["FAILED"])
        assert "has generated 2 tasks, which is greater than 1" in herder.views.status("c")["connector"]["trace"]
        await herder.put_config("c", {**CONFIG, "tasks.max.enforce": "false"}, replace=True)
        await until(lambda: len(runtime_of(herder).tasks) == 2)

    run(test)


def test_a_standalone_worker_accepts_no_requests_of_other_workers() -> None:
    async def test(herder: Herder) -> None:
        with pytest.raises(SignatureError):
            herder.membership.check_signature(b"[]", {})

    run(test)


def test_tasks_of_a_connector_that_was_stopped_meanwhile_are_not_written() -> None:
    async def test(herder: Herder) -> None:
        asked, answered = asyncio.Event(), asyncio.Event()

        async def task_configs(name: str) -> list[dict[str, str]]:
            asked.set()
            await answered.wait()
            return [{"connector": name}]

        runtime_of(herder).task_configs = task_configs  # type: ignore[method-assign]
        await herder.put_config("c", CONFIG, replace=False)
        await asked.wait()
        await herder.stop("c")
        answered.set()
        await until(lambda: states(herder, "c") == ["STOPPED"])
        assert herder.store.task_configs("c") == []

    run(test)
