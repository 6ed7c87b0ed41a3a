"""The topic of statuses: records of a stock worker, and the rules which status wins."""

from __future__ import annotations

import pytest

from ottla.connect.cluster import keys, values
from ottla.connect.cluster.status_state import StatusState, may_replace
from ottla.connect.cluster.values import TopicUse
from ottla.connect.runtime import State, Status, TaskId

RUNNING = b'{"state":"RUNNING","trace":null,"worker_id":"127.0.0.1:39419","generation":4,"version":"4.3.0"}'
TOPIC = b'{"topic":{"name":"t","connector":"src-x","task":0,"discoverTimestamp":1795888646980}}'
TASK = TaskId("snk-1", 0)


def test_records_are_written_byte_for_byte_as_by_a_stock_worker() -> None:
    running = Status(State.RUNNING, "127.0.0.1:39419", 4, version="4.3.0")
    assert values.status(running) == RUNNING
    assert values.status(Status(State.FAILED, "w:1", 1, "trace")) == (
        b'{"state":"FAILED","trace":"trace","worker_id":"w:1","generation":1,"version":null}'
    )
    assert values.status(Status(State.DESTROYED, "w:1", 1)) is None
    assert values.topic_use(TopicUse("t", "src-x", 0, 1795888646980)) == TOPIC
    assert keys.topic_status("t", "src-x") == "status-topic-t:connector-src-x"


def test_records_of_a_stock_worker_are_read() -> None:
    state = StatusState()
    assert state.apply(b"status-connector-src-x", RUNNING)
    assert state.apply(b"status-task-snk-1-0", RUNNING)
    assert state.apply(b"status-topic-t:connector-src-x", TOPIC)
    running = Status(State.RUNNING, "127.0.0.1:39419", 4, version="4.3.0")
    assert state.status("src-x") == state.task_status(TASK) == running
    assert state.topics("src-x") == {"t": TopicUse("t", "src-x", 0, 1795888646980)}
    assert state.tasks("snk-1") == [TASK]
    assert state.connectors() == {"src-x", "snk-1"}


def test_statuses_without_a_version_are_read() -> None:
    state = StatusState()
    state.apply(b"status-connector-c", b'{"state":"PAUSED","trace":null,"worker_id":"w","generation":2}')
    assert state.status("c") == Status(State.PAUSED, "w", 2)


def test_tombstones_delete() -> None:
    state = StatusState()
    for key in (b"status-connector-c", b"status-task-c-0", b"status-task-c-1"):
        state.apply(key, RUNNING)
    state.apply(b"status-topic-t:connector-c", TOPIC)
    assert state.apply(b"status-task-c-1", None)
    assert state.tasks("c") == [TaskId("c", 0)]
    assert state.apply(b"status-connector-c", None)
    assert (state.status("c"), state.tasks("c")) == (None, [])
    assert state.apply(b"status-topic-t:connector-c", None)
    assert state.topics("c") == {}


@pytest.mark.parametrize(("generation", "state"), [(6, State.UNASSIGNED), (5, State.RUNNING), (4, State.RUNNING)])
def test_a_late_unassigned_does_not_hide_that_the_task_runs_elsewhere(generation: int, state: State) -> None:
    read = StatusState()
    read.apply(b"status-task-snk-1-0", values.status(Status(State.RUNNING, "new", 5)))
    read.apply(b"status-task-snk-1-0", values.status(Status(State.UNASSIGNED, "old", generation)))
    status = read.task_status(TASK)
    assert status is not None
    assert status.state is state


@pytest.mark.parametrize(
    ("known", "status", "expected"),
    [
        (None, Status(State.FAILED, "a", 1), True),
        (Status(State.RUNNING, "a", 5), Status(State.FAILED, "a", 3), True),
        (Status(State.RUNNING, "b", 5), Status(State.FAILED, "a", 5), True),
        (Status(State.RUNNING, "b", 5), Status(State.FAILED, "a", 4), False),
        (Status(State.RUNNING, "b", 5), Status(State.UNASSIGNED, "a", 4), False),
        (Status(State.RUNNING, "b", 5), Status(State.RUNNING, "a", 4), True),
    ],
)
def test_a_worker_does_not_replace_the_state_of_a_later_generation(
    known: Status | None, status: Status, expected: bool
) -> None:
    assert may_replace(known, status) is expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"status-connector-", RUNNING),
        (b"status-connector-c", b"{}"),
        (b"status-connector-c", b"x"),
        (b"status-connector-c", b'{"state":"DREAMING","worker_id":"w","generation":1}'),
        (b"status-task-c", RUNNING),
        (b"status-task-c-0", b'{"state":"RUNNING","worker_id":"w","generation":"1"}'),
        (b"status-topic-t", TOPIC),
        (b"status-topic-t:connector-", TOPIC),
        (b"status-topic-t:connector-c", b'{"topic":1}'),
        (b"other", RUNNING),
        (b"\xff", RUNNING),
        (None, RUNNING),
    ],
)
def test_records_that_cannot_be_read_have_no_effect(key: bytes | None, value: bytes) -> None:
    state = StatusState()
    assert not state.apply(key, value)
    assert state.connectors() == set()
