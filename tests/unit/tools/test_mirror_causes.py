"""The causes that `ottla mirror why` finds in the reports of the brokers."""

from __future__ import annotations

from typing import Any

from ottla.tools.admin.mirrors import Finding, MirrorReport, explain

MIB = 1 << 20


def found(*rows: dict[str, Any], **status: Any) -> list[Finding]:
    complete = [
        {"topic": "orders", "partition": index, "state": "MIRRORING", "lag": 0, "problem": "", **row}
        for index, row in enumerate(rows)
    ]
    return explain(MirrorReport.of({1: {"topics": {}, "partitions": complete, **status}}), "dr")


def throttling(*, is_delaying: bool) -> dict[str, Any]:
    return {"limit": 20 * MIB, "rate": 19 * MIB, "is_delaying": is_delaying}


def test_limit_is_a_cause_while_it_delays_a_copy_that_is_behind() -> None:
    [finding] = found({"lag": 7}, {"lag": -1}, throttling=throttling(is_delaying=True))
    assert finding.subject == "broker 1"
    assert finding.text.startswith("7 records behind, throttled")
    assert "19.0 MiB/s of at most 20.0 MiB/s" in finding.text
    assert "`ottla mirror alter dr --throttle RATE`" in finding.next_step


def test_limit_is_not_the_cause_for_a_complete_copy_or_one_that_it_does_not_delay() -> None:
    assert found({"lag": 0}, throttling=throttling(is_delaying=True)) == []
    assert found({"lag": 7}, throttling=throttling(is_delaying=False)) == []
    assert found({"lag": 7}, throttling=None) == []
    assert found({"lag": 7}) == []
