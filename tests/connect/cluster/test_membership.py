"""Members of a group in one process: what they stop and when, and who may write."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.connect.cluster.membership import GroupMembership
from ottla.connect.cluster.settings import ClusterSettings
from ottla.connect.cluster.store import KafkaStore
from ottla.connect.errors import NotLeaderError, RetriableError, SignatureError
from ottla.connect.runtime import Assignment, State, Status, TaskId
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.connect.cluster.workers import BROKER
from tests.ottla_process import ForkedOttla, OttlaProcess

pytestmark = pytest.mark.xdist_group("connect-cluster")
WITHIN_S = 90
SESSION_MS = 1500


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path_factory.mktemp("broker"), BROKER) as broker:
        yield broker


class Worker:
    """A member whose work is a set: it notes what it runs, and when it stops."""

    def __init__(self, store: KafkaStore, membership: GroupMembership) -> None:
        self.store, self.membership = store, membership
        self.running: set[object] = set()
        self.events: list[str] = []

    def changed(self, name: str) -> None:
        self.membership.rejoin(f"{name} changed")

    def restart_requested(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        self.events.append(f"restart {name}")

    def logger_changed(self, logger: str, level: str) -> None:
        self.events.append(f"logger {logger}")

    async def assigned(self, assignment: Assignment) -> None:
        self.running = {*assignment.connectors, *assignment.tasks}
        self.events.append("assigned")

    async def revoked(self, connectors: frozenset[str], tasks: frozenset[TaskId]) -> None:
        await asyncio.sleep(0.05)
        self.running -= {*connectors, *tasks}
        self.events.append("revoked")
        for task in tasks:
            self.store.put_task_status(task, Status(State.UNASSIGNED, self.membership.worker_id, 1))


def settings(bootstrap: str, group: str, **more: str) -> ClusterSettings:
    given = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "status.storage.topic": f"{group}-status",
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": str(SESSION_MS),
        "heartbeat.interval.ms": "200",
        "scheduled.rebalance.max.delay.ms": "0",
    }
    return ClusterSettings.read(given | {key.replace("_", "."): value for key, value in more.items()})


@contextlib.asynccontextmanager
async def member(given: ClusterSettings, port: int) -> AsyncIterator[Worker]:
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    store = KafkaStore(given.store, now_ms)
    membership = GroupMembership(given, store, f"http://127.0.0.1:{port}", now_ms)
    worker = Worker(store, membership)
    try:
        await store.start()
        store.listener = worker
        membership.start(worker)
        await membership.joined()
        yield worker
    finally:
        await membership.close()
        await store.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(WITHIN_S):
            await scenario

    asyncio.run(limited())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def add(leader: Worker, name: str, tasks: int) -> None:
    await until(lambda: leader.store.writer.may_lead)
    await leader.store.put_config(name, {"a": "b"})
    await leader.store.put_task_configs(name, [{}] * tasks)


def test_work_is_divided_and_stopped_before_it_moves(own_broker: OttlaProcess) -> None:
    async def scenario() -> None:
        given = settings(own_broker.bootstrap, f"g-{uuid.uuid4().hex[:8]}")
        async with member(given, 1) as first:
            await add(first, "c", 4)
            await until(lambda: len(first.running) == 5)
            async with member(given, 2) as second:
                await until(lambda: len(second.running) == 2)
                assert not first.running & second.running
                assert len(first.running) == 3
                assert first.events.count("revoked") == 1
                await second.store.refresh_statuses()
                (task,) = {each for each in second.running if each == TaskId("c", 3)}
                assert isinstance(task, TaskId)
                status = second.store.task_status(task)
                assert status is not None
                assert status.state is State.UNASSIGNED, "the state of stopped work is written before it moves"
            await until(lambda: len(first.running) == 5)

    run(scenario())


def test_only_the_leader_writes_and_others_name_it(own_broker: OttlaProcess) -> None:
    async def scenario() -> None:
        given = settings(own_broker.bootstrap, f"g-{uuid.uuid4().hex[:8]}")
        async with member(given, 1) as first, member(given, 2) as second:
            await add(first, "c", 2)
            first.membership.check_leader()
            with pytest.raises(NotLeaderError) as caught:
                second.membership.check_leader()
            assert caught.value.leader_url == "http://127.0.0.1:1"
            await until(lambda: len(first.running) + len(second.running) == 3)
            urls = {first.membership.owner_url(each) for each in ("c", TaskId("c", 0), TaskId("c", 1))}
            assert urls == {"http://127.0.0.1:1", "http://127.0.0.1:2"}
            assert first.membership.owner_url("unknown") is None
            await second.store.refresh()
            with pytest.raises(SignatureError):
                first.membership.check_signature(b"", {})
            with pytest.raises(RetriableError, match="does not answer"):  # there is no REST API in this test
                await second.membership.ask_leader("PUT", "/connectors/c/fence")

    run(scenario())


def test_a_member_that_the_group_has_removed_stops_all_work(own_broker: OttlaProcess) -> None:
    async def scenario() -> None:
        group = f"g-{uuid.uuid4().hex[:8]}"
        given = settings(own_broker.bootstrap, group)
        async with member(given, 1) as worker:
            await add(worker, "c", 2)
            await until(lambda: len(worker.running) == 3)
            worker.events.clear()
            group_member = worker.membership._member
            identity = MemberIdentity(member_id=group_member._group.member_id)
            request = LeaveGroupRequest(group_id=group, member_id=identity.member_id, members=[identity])
            await group_member._group.send(request, 10.0)
            await until(lambda: worker.events)
            await until(lambda: len(worker.running) == 3)
            assert worker.events[0] == "revoked"

    run(scenario())


def test_work_stops_when_the_group_is_not_reached_for_a_session_timeout(tmp_path: Path) -> None:
    """Other workers may have it by then: the broker may answer them."""

    async def scenario(broker: OttlaProcess) -> None:
        given = settings(broker.bootstrap, "g")
        async with member(given, 1) as worker:
            await add(worker, "c", 2)
            await until(lambda: len(worker.running) == 3)
            worker.events.clear()
            broker.kill()
            await until(lambda: not worker.running)
            assert worker.events[0] == "revoked"
            assert worker.membership.assignment is None
            with pytest.raises(NotLeaderError):
                worker.membership.check_leader()
            broker.start()
            await until(lambda: len(worker.running) == 3)

    with ForkedOttla(tmp_path / "broker", BROKER) as broker:
        run(scenario(broker))


def test_a_short_restart_of_the_broker_stops_no_work(tmp_path: Path) -> None:
    async def scenario(broker: OttlaProcess) -> None:
        given = settings(broker.bootstrap, "g", session_timeout_ms="20000")
        async with member(given, 1) as worker:
            await add(worker, "c", 2)
            await until(lambda: len(worker.running) == 3)
            worker.events.clear()
            broker.kill()
            await asyncio.to_thread(broker.start)
            await worker.store.put_target("c", worker.store.target("c"))
            await asyncio.sleep(1.0)
            assert "revoked" not in worker.events

    with ForkedOttla(tmp_path / "broker", BROKER) as broker:
        run(scenario(broker))


def test_a_leader_that_was_fenced_by_mistake_writes_again(own_broker: OttlaProcess) -> None:
    """It claims only after another rebalance has confirmed that it leads."""

    async def scenario() -> None:
        given = settings(own_broker.bootstrap, f"g-{uuid.uuid4().hex[:8]}")
        async with member(given, 1) as leader:
            await add(leader, "c", 1)
            thief = KafkaStore(given.store, lambda: 0)
            await thief.start()
            await thief.writer.claim()
            with pytest.raises(RetriableError):
                await leader.store.put_config("c", {"a": "lost"})
            assert not leader.store.writer.may_lead
            await until(lambda: leader.store.writer.may_lead)
            leader.membership.check_leader()
            await leader.store.put_config("c", {"a": "again"})
            with pytest.raises(RetriableError):
                await thief.put_config("c", {"a": "thief"})
            assert leader.store.config("c") == {"a": "again"}
            await thief.close()

    run(scenario())
