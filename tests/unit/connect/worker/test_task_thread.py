"""The states of a task between two of its lives."""

from __future__ import annotations

import threading
import traceback

import pytest

from ottla.connect.errors import ConnectError, NotLeaderError, RetriableError
from ottla.connect.runtime import State, TaskId
from ottla.connect.worker.control import PAUSED, TaskControl
from ottla.connect.worker.failures import raise_without_secrets, trace_of
from ottla.connect.worker.providers import Secrets
from ottla.connect.worker.task_thread import TaskThread
from ottla.testing.waiting import wait_until


def test_task_that_is_resumed_between_two_tries_restarts() -> None:
    """The second life takes long to start: the state must not be PAUSED meanwhile."""
    states: list[State] = []
    control, lives, end = TaskControl(), 0, threading.Event()

    def live() -> None:
        nonlocal lives
        lives += 1
        if lives == 1:
            raise RetriableError("the destination does not answer")
        end.wait(30)

    thread = TaskThread(TaskId("c", 0), control, live, lambda state, _: states.append(state), Secrets())
    thread.start()
    try:
        wait_until(lambda: states == [State.RESTARTING])
        control.pause(paused=True)
        wait_until(lambda: states == [State.RESTARTING, State.PAUSED])
        assert (thread.report().waits_for, lives) == (PAUSED, 1)
        control.pause(paused=False)
        wait_until(lambda: lives == 2)
        assert states == [State.RESTARTING, State.PAUSED, State.RESTARTING]
        assert "starts again, after a failure of connector: the destination" in thread.report().waits_for
    finally:
        control.stop()
        end.set()
    assert thread.join(10)


def test_report_of_a_task_shows_no_secret() -> None:
    control = TaskControl()
    thread = TaskThread(TaskId("c", 0), control, lambda: None, lambda *_: None, Secrets(["hunter2"]))
    control.retries(1, None, "refused hunter2")
    control.waits_for("The task puts 3 records again: refused hunter2")
    control.report_facts({"last error": "refused hunter2", "records": 3})
    assert "hunter2" not in str(thread.report())
    assert thread.report().facts["records"] == 3


def test_trace_fits_into_a_record() -> None:
    text = trace_of(ConnectError("x" * 5_000_000), Secrets())
    assert len(text) < 101_000
    assert text.startswith("ottla.connect.errors.ConnectError: xxx")
    assert "more characters" in text


def test_error_for_a_user_shows_no_secret_of_its_causes() -> None:
    secrets = Secrets(["hunter2"])
    errors: list[tuple[Exception, type[Exception]]] = [
        (ValueError("x hunter2"), ConnectError),
        (NotLeaderError("y", "http://a"), NotLeaderError),
    ]
    for raised, kind in errors:
        raised.__cause__ = OSError("password hunter2 is wrong")
        with pytest.raises(kind) as caught:
            raise_without_secrets(raised, secrets)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert isinstance(caught.value, NotLeaderError)
    assert (str(caught.value), caught.value.leader_url) == ("y", "http://a")
