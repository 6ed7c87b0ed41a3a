"""The store on Connect's topics with several workers in one process: topics, fencing of leaders, statuses."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from ottla.clients import Admin, AsyncProducer
from ottla.common.failure import Failure
from ottla.connect.cluster.config_writer import LeaderFencedError
from ottla.connect.cluster.settings import ClusterSettings
from ottla.connect.cluster.store import KafkaStore
from ottla.connect.errors import NotLeaderError
from ottla.connect.runtime import State, Status, TargetState, TaskId
from tests.conftest import RunningBroker
from tests.connect.cluster.workers import committed

WITHIN_S = 60
TASK = TaskId("c", 0)


@pytest.fixture
def name() -> str:
    """A group and a prefix of topics for this test alone."""
    return f"group-{uuid.uuid4().hex[:12]}"


def settings(broker: RunningBroker, name: str, **more: str) -> ClusterSettings:
    given = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "offset.storage.topic": f"{name}-offsets",
        "status.storage.topic": f"{name}-status",
        "status.storage.partitions": "2",
        "exactly.once.source.support": "enabled",
    }
    return ClusterSettings.read(given | {key.replace("_", "."): value for key, value in more.items()})


class Changes:
    """A listener that notes everything."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def changed(self, name: str) -> None:
        self.seen.append(name)

    def restart_requested(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        self.seen.append((name, only_failed, include_tasks))

    def logger_changed(self, logger: str, level: str) -> None:
        self.seen.append((logger, level))


@contextlib.asynccontextmanager
async def store(given: ClusterSettings, *, leads: bool = False) -> AsyncIterator[KafkaStore]:
    opened = KafkaStore(given.store, lambda: time.time_ns() // 1_000_000)
    try:
        await opened.start()
        if leads:
            await opened.writer.claim()
        yield opened
    finally:
        await opened.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(WITHIN_S):
            await scenario

    asyncio.run(limited())


def test_topics_are_created_compacted(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        async with store(settings(broker, name, config_storage_retention_ms="1234567")):
            pass

    run(scenario())
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        partitions = {kind: len(admin.describe_topic(f"{name}-{kind}").partitions) for kind in ("configs", "status")}
        assert partitions == {"configs": 1, "status": 2}


@pytest.mark.parametrize(
    ("partitions", "policy", "message"),
    [
        (1, "delete", "is required to have 'cleanup.policy=compact'"),
        (1, "compact,delete", "is required to have 'cleanup.policy=compact'"),
        (2, "compact", "is required to have a single partition"),
    ],
)
def test_a_topic_that_would_lose_configurations_is_refused(
    broker: RunningBroker, name: str, partitions: int, policy: str, message: str
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(
            f"{name}-configs", partitions=partitions, replication_factor=1, config={"cleanup.policy": policy}
        )

    async def scenario() -> None:
        async with store(settings(broker, name)):
            pass

    with pytest.raises(Failure, match=message):
        run(scenario())


def test_other_workers_see_writes_and_a_worker_that_starts_later(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        given = settings(broker, name)
        async with store(given, leads=True) as leader, store(given) as follower:
            follower.listener = changes = Changes()
            await leader.put_config("c", {"a": "1"}, TargetState.PAUSED)
            await leader.put_task_configs("c", [{"t": "0"}, {"t": "1"}])
            await leader.put_task_count("c", 2)
            await leader.put_restart("c", only_failed=True, include_tasks=True)
            await follower.put_target("c", TargetState.STOPPED)
            await follower.put_logger("ottla", "DEBUG")
            await follower.refresh()
            await leader.refresh()
            assert changes.seen == ["c", "c", "c", ("c", True, True), "c", ("ottla", "DEBUG")]
            async with store(given) as later:
                for each in (leader, follower, later):
                    assert each.connectors() == ["c"]
                    assert each.config("c") == each.applied_config("c") == {"a": "1"}
                    assert each.task_configs("c") == ({"t": "0"}, {"t": "1"})
                    assert each.target("c") is TargetState.STOPPED
                    assert each.task_count("c") == 2
                    assert not each.needs_fencing("c")
                    assert each.offset == leader.offset

    run(scenario())


def test_a_new_leader_fences_the_old_one(broker: RunningBroker, name: str) -> None:
    """A leader that was paused believes that it leads, and writes the tasks of an old configuration."""

    async def scenario() -> None:
        given = settings(broker, name)
        async with store(given, leads=True) as old, store(given, leads=True) as new:
            lost = []
            old.writer.lost = lambda: lost.append(True)
            await new.put_config("c", {"from": "new"})
            with pytest.raises(LeaderFencedError):
                await old.put_config("c", {"from": "old"})
            assert lost == [True]
            assert not old.writer.may_lead
            with pytest.raises(NotLeaderError):
                await old.put_config("c", {"from": "old"})
            await new.refresh()
            assert new.config("c") == {"from": "new"}

    run(scenario())


def test_a_follower_does_not_write_for_the_leader(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        async with store(settings(broker, name)) as follower:
            with pytest.raises(NotLeaderError):
                await follower.put_config("c", {})
            assert follower.connectors() == []

    run(scenario())


def test_records_of_an_open_transaction_are_not_read(broker: RunningBroker, name: str) -> None:
    """The old leader was killed within a write: the next one aborts it before it decides anything."""

    async def scenario() -> None:
        given = settings(broker, name)
        async with store(given, leads=True) as old:
            await old.put_config("c", {"a": "1"})
        dead: AsyncProducer[bytes, bytes] = AsyncProducer(
            {**given.clients, "transactional.id": f"connect-cluster-{name}"}
        )
        await dead.init_transactions()
        await dead.begin_transaction()
        await (await dead.send(f"{name}-configs", b'{"properties":{"a":"2"}}', b"connector-c", partition=0))
        async with store(given) as new:
            assert new.config("c") == {"a": "1"}
            await new.writer.claim()
            await new.refresh()
            await new.put_config("d", {})
            assert new.config("c") == {"a": "1"}
        await dead.close(0.0)

    run(scenario())


def test_without_exactly_once_every_worker_can_write(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        given = settings(broker, name, exactly_once_source_support="disabled")
        async with store(given) as one, store(given) as other:
            await one.writer.claim()
            await one.put_config("c", {"a": "1"})
            await other.put_task_configs("c", [{}])
            await one.refresh()
            assert one.task_configs("c") == ({},)

    run(scenario())


def test_statuses_are_written_in_order_and_not_over_a_later_generation(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        given = settings(broker, name)
        async with store(given) as one, store(given) as other:
            for state in (State.RUNNING, State.PAUSED, State.RUNNING):
                one.put_task_status(TASK, Status(state, "one", 5, version="1"))
            one.put_status("c", Status(State.FAILED, "one", 5, "why"))
            await one.flush()
            await other.refresh_statuses()
            assert other.task_status(TASK) == Status(State.RUNNING, "one", 5, version="1")
            assert other.status("c") == Status(State.FAILED, "one", 5, "why")
            other.put_task_status(TASK, Status(State.FAILED, "other", 4))
            await other.flush()
            await one.refresh_statuses()
            assert one.task_status(TASK) == Status(State.RUNNING, "one", 5, version="1")

    run(scenario())


def test_leftover_statuses_are_deleted(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        given = settings(broker, name)
        async with store(given, leads=True) as leader:
            await leader.put_config("c", {})
            await leader.put_task_configs("c", [{}])
            for number in range(3):
                leader.put_task_status(TaskId("c", number), Status(State.RUNNING, "w", 1))
            leader.put_status("deleted", Status(State.RUNNING, "w", 1))
            leader.put_topic("deleted", "t")
            await leader.flush()
            await leader.refresh_statuses()
            assert leader.topics("deleted") == ["t"]
            leader.delete_leftovers()
            await leader.flush()
            await leader.refresh_statuses()
            assert [leader.task_status(TaskId("c", number)) is None for number in range(3)] == [False, True, True]
            assert leader.status("deleted") is None
            assert leader.topics("deleted") == []

    run(scenario())


def test_a_deleted_connector_is_deleted_everywhere(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        given = settings(broker, name)
        async with store(given, leads=True) as leader:
            await leader.put_config("c", {}, TargetState.PAUSED)
            leader.put_status("c", Status(State.PAUSED, "w", 1))
            leader.put_topic("c", "t")
            await leader.flush()
            await leader.refresh_statuses()
            await leader.delete("c")
            await leader.flush()
            await leader.refresh_statuses()
            assert (leader.connectors(), leader.status("c"), leader.topics("c")) == ([], None, [])
            await leader.put_config("c", {})
            assert leader.target("c") is TargetState.STARTED

    run(scenario())


def test_used_topics_are_reset(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        async with store(settings(broker, name)) as worker:
            worker.put_topic("c", "a")
            worker.put_topic("c", "b")
            await worker.flush()
            await worker.refresh_statuses()
            assert worker.topics("c") == ["a", "b"]
            await worker.reset_topics("c")
            assert worker.topics("c") == []

    run(scenario())


def test_values_of_the_topic_are_json_objects(broker: RunningBroker, name: str) -> None:
    async def scenario() -> None:
        async with store(settings(broker, name), leads=True) as leader:
            await leader.put_config("c", {"a": "ü"})

    run(scenario())
    assert committed(broker.bootstrap, f"{name}-configs") == [{"properties": {"a": "ü"}}]
