"""The sentences of `ottla connect why`."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.cli.connectors_why import last_error, sentences

NOW_MS = 1_000_000
JAVA = (
    "org.apache.kafka.ConnectException: outer\n\tat a.b(C.java:1)\nCaused by: java.io.IOException: disk full\n\tat d\n"
)
PYTHON = (
    "Traceback (most recent call last):\n  File x\nottla.connect.errors.DataError: topic t, offset 7: not a number\n"
)


def explained(connector: dict[str, Any], *tasks: dict[str, Any], **reports: Any) -> str:
    status = {
        "name": "c",
        "connector": {"state": "RUNNING", "worker_id": "w:1", **connector},
        "tasks": [{"id": number, "worker_id": "w:1", **task} for number, task in enumerate(tasks)],
    }
    found = sentences(status, {int(name[1:]): each for name, each in reports.items()}, {"tasks.max": "4"}, NOW_MS)
    return " ".join(each.text for each in found)


@pytest.mark.parametrize(
    ("trace", "error"),
    [
        (JAVA, "java.io.IOException: disk full"),
        ("java.lang.X: a\n\tat b\n", "java.lang.X: a"),
        (PYTHON, "ottla.connect.errors.DataError: topic t, offset 7: not a number"),
        ("", ""),
    ],
)
def test_the_error_of_a_trace_is_its_cause(trace: str, error: str) -> None:
    assert last_error(trace) == error


def test_running_tasks_are_counted() -> None:
    assert explained({}, {"state": "RUNNING"}, {"state": "RUNNING"}).startswith("c runs: 2 tasks on w:1.")


def test_a_failed_task_names_its_record_and_the_command_to_run() -> None:
    text = explained({}, {"state": "FAILED", "trace": PYTHON})
    assert "Task 0 failed on worker w:1: ottla.connect.errors.DataError: topic t, offset 7: not a number" in text
    assert "`ottla connect restart c --tasks --only-failed`" in text


def test_a_retried_task_says_when_it_is_tried_again() -> None:
    text = explained({}, {"state": "RUNNING", "trace": "x.RetriableError: refused"},
                     t0={"tried": 3, "next_try_ms": NOW_MS + 2000})  # fmt: skip
    assert "Task 0 could not go on: x.RetriableError: refused. It was tried 3 times. The next try is in 2" in text


def test_a_task_that_runs_again_still_names_its_last_failure() -> None:
    text = explained({}, {"state": "RUNNING"}, t0={"tried": 2, "error": "No schema registry answered. Check that."})
    assert text == "Task 0 could not go on: No schema registry answered. Check that. It was tried 2 times."


def test_waits_and_facts_are_sentences() -> None:
    text = explained({}, {"state": "RUNNING"}, t0={"waits_for": "The task starts Spark.", "facts": {"lag": 1234}})
    assert "Task 0: The task starts Spark." in text
    assert "lag: 1,234" in text


@pytest.mark.parametrize(
    ("state", "words"),
    [("PAUSED", "is paused"), ("STOPPED", "is stopped"), ("UNASSIGNED", "No worker runs c"), ("RESTARTING", "restarts"),
     ("FAILED", "failed on worker w:1: java.io.IOException: disk full"), ("RUNNING", "without tasks")],
)  # fmt: skip
def test_each_state_of_a_connector_has_a_sentence(state: str, words: str) -> None:
    assert words in explained({"state": state, "trace": JAVA})


@pytest.mark.parametrize("state", ["RESTARTING", "PAUSED"])
def test_a_task_in_another_state_has_a_sentence(state: str) -> None:
    assert f"Task 0 is {state.lower()} on worker w:1." in explained({}, {"state": state})
