"""Backoff of each broker after failures, and reports of outages of all brokers."""

from __future__ import annotations

from ottla.clients.cluster import Backoff
from ottla.clients.reachability import REPORT_AFTER_S, Reachability

MIDDLE = 0.5
"""The random number that leaves a backoff unchanged."""


def brokers() -> Reachability[int]:
    return Reachability(Backoff(initial_ms=50, max_ms=150))


def test_backoff_of_a_broker_doubles_up_to_its_limit_and_ends_with_a_connection() -> None:
    reachability = brokers()
    delays = []
    for _ in range(4):
        reachability.failed(1, 10.0, "connection refused", MIDDLE)
        delays.append(round(reachability.delay_s(1, 10.0), 3))
    assert delays == [0.05, 0.1, 0.15, 0.15]
    assert reachability.delay_s(1, 10.1) < 0.06
    assert reachability.delay_s(1, 11.0) == 0
    assert reachability.delay_s(2, 10.0) == 0
    reachability.succeeded(1)
    assert reachability.delay_s(1, 10.0) == 0


def test_each_unreachable_broker_has_one_problem() -> None:
    reachability = brokers()
    for broker in (1, 2):
        reachability.failed(broker, 10.0, "connection refused", MIDDLE)
    reachability.failed(3, 10.0, "no answer", MIDDLE)
    assert reachability.problems() == "connection refused; no answer"
    reachability.succeeded(3)
    assert reachability.problems() == "connection refused"
    assert (reachability.problem(1), reachability.problem(3)) == ("connection refused", "")


def test_outage_is_reported_once_until_the_next_connection() -> None:
    reachability = brokers()
    assert reachability.unreachable(100.0) is None
    assert reachability.unreachable(100.0 + REPORT_AFTER_S - 0.1) is None
    assert reachability.unreachable(100.0 + REPORT_AFTER_S) == REPORT_AFTER_S
    assert reachability.unreachable(200.0) is None
    reachability.succeeded(1)
    assert reachability.unreachable(300.0) is None
    assert reachability.unreachable(300.0 + REPORT_AFTER_S) == REPORT_AFTER_S
