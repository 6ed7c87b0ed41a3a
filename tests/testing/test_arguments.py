"""Wrong arguments of the helpers: the error says what was meant, where the test calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.common.errors import KafkaError
from ottla.testing import NotInTime, Ottla

from .test_plugin import Run

WRONG: list[tuple[Callable[[Ottla], object], str]] = [
    (lambda ottla: ottla.topic(partition=3), "topic(): there is no argument 'partition': did you mean 'partitions'?"),
    (
        lambda ottla: ottla.topic(retention_msec=3),
        "topic(): there is no argument or topic config 'retention_msec': did you mean 'retention_ms'?",
    ),
    (
        lambda ottla: ottla.topic(**{"cleanup.polcy": "compact"}),
        "topic(): there is no argument or topic config 'cleanup.polcy': did you mean 'cleanup.policy'?",
    ),
    (
        lambda ottla: ottla.topic(log_retention_ms=3),
        "topic(): there is no argument or topic config 'log_retention_ms': the topic config is 'retention_ms'",
    ),
    (lambda ottla: ottla.topic(xyzzy=3), "topic(): there is no argument or topic config 'xyzzy'"),
    (
        lambda ottla: ottla.produce("t", "x", partitions=1),
        "produce(): there is no argument 'partitions': did you mean 'partition'?",
    ),
    (
        lambda ottla: ottla.records("t", partion=1),
        "records(): there is no argument 'partion': did you mean 'partition'?",
    ),
    (
        lambda ottla: ottla.consume("t", timeout=1),
        "consume(): there is no argument 'timeout': did you mean 'timeout_s'?",
    ),
    (
        lambda ottla: ottla.wait_until(bool, timeout=1),
        "wait_until(): there is no argument 'timeout': did you mean 'timeout_s'?",
    ),
    (
        lambda ottla: ottla.wait_for_lag("g", topics="t"),
        "wait_for_lag(): there is no argument 'topics': did you mean 'topic'?",
    ),
    (
        lambda ottla: ottla.faults.fail("Fetch", "NONE", time=2),
        "fail(): there is no argument 'time': did you mean 'times'?",
    ),
    (lambda ottla: ottla.clock.advance(minute=2), "advance(): there is no argument 'minute': did you mean 'minutes'?"),
    (
        lambda ottla: ottla.requests.count("Fetch", client="x"),
        "count(): there is no argument 'client': did you mean 'client_id'?",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message.partition("(")[0] for _, message in WRONG])
def test_unknown_argument_names_the_intended_argument(
    ottla: Ottla, call: Callable[[Ottla], object], message: str
) -> None:
    with pytest.raises(TypeError) as raised:
        call(ottla)
    assert str(raised.value) == message


def test_arguments_of_kafkas_names_are_accepted(ottla: Ottla) -> None:
    ottla.topic(partitions=2, cleanup_policy="compact", **{"retention.ms": 5})
    with pytest.raises(KafkaError, match=r"retention\.ms"):
        ottla.topic(retention_ms="soon")


def test_error_of_a_helper_has_no_frames_of_the_plugin(run: Run) -> None:
    code, out = run(
        """
        def test_argument(ottla):
            ottla.topic(partition=3)

        def test_config(ottla):
            ottla.topic(retention_ms="soon")

        def test_produce(ottla):
            ottla.produce("nowhere", "x")

        def test_consume(ottla):
            ottla.consume(ottla.topic(), timeout_s=0.01)

        def test_fault(ottla):
            ottla.faults.fail("Fech", "NONE")

        def test_predicate(ottla):
            def broken():
                raise ValueError("of the predicate")

            ottla.wait_until(broken)

        def test_in_time(ottla):
            ottla.wait_until(lambda: False, timeout_s=0.01)
        """,
        "--tb=short",
    )
    assert (code, "7 failed" in out) == (1, True), out
    failures = out.partition("= FAILURES =")[2].partition("short test summary")[0]
    places = [line for line in failures.splitlines() if ".py:" in line]
    assert {place.partition(":")[0] for place in places} == {"test_it.py"}, out
    assert len(places) == 8, out  # one each, and the predicate's own
    assert 'raise ValueError("of the predicate")' in failures
    assert "there is no argument 'partition': did you mean 'partitions'?" in failures


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_errors_stay_what_they_are(ottla: Ottla) -> None:
    with pytest.raises(NotInTime, match="1 records in"):
        ottla.consume(ottla.topic(), timeout_s=0.01)
    with pytest.raises(ValueError, match="Kafka has no API 'Fech'; similar: Fetch"):
        ottla.faults.fail("Fech", "NONE")
