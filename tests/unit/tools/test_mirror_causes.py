"""The causes that `ottla mirror why` finds in the reports of the brokers."""

from __future__ import annotations

from typing import Any

from ottla.metadata.mirrors import UNHANDLED
from ottla.tools.admin.mirrors import (
    FailbackTopic,
    Finding,
    MirrorReport,
    explain,
    failback_problem,
    without_topics,
)

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


def test_paused_mirror_is_a_cause() -> None:
    [finding] = found({"state": "PAUSED", "lag": 7}, {"state": "PAUSED", "lag": -1})
    assert ("2 partitions" in finding.text, finding.next_step) == (True, "`ottla mirror resume dr`")


def test_next_step_is_behind_the_semicolon_of_a_problem() -> None:
    [broker, topic, partition] = found(
        {"problem": "a; b"}, problem="refused", topics={"t": "It exists here; delete it"}
    )
    assert broker[:2] == ("broker 1", "refused")
    assert "bootstrap.servers" in broker.next_step
    assert topic == ("topic t", "It exists here", "Delete it")
    assert partition == ("orders-0", "MIRRORING: a", "B")


def test_unhandled_error_is_to_be_reported() -> None:
    [finding] = found(problem=f"{UNHANDLED}, and is retried: KeyError('a; b')")
    assert ("a; b" in finding.text, finding.next_step.startswith("Report it")) == (True, True)


def test_partition_without_a_leader_is_failed_unless_a_node_reports_it() -> None:
    led = {"topic": "orders", "partition": 0, "state": "MIRRORING", "lag": 0, "problem": ""}
    statuses = {
        1: {"topics": {}, "partitions": [led], "leaderless": [["orders", 1]]},
        2: {"topics": {}, "partitions": [], "leaderless": [["orders", 0], ["orders", 1]]},
    }
    report = MirrorReport.of(statuses)
    assert [(row["partition"], row["state"]) for row in report.partitions] == [(0, "MIRRORING"), (1, "FAILED")]
    [finding] = explain(report, "dr")
    assert (finding.subject, "no leader in this cluster" in finding.text) == ("orders-1", True)


def test_pattern_that_matches_no_group_is_named() -> None:
    [finding] = found({}, groups_found=0)
    assert (finding.subject, "--groups matches" in finding.text) == ("groups", True)
    assert found({}, groups_found=1) == found({}) == []


def test_group_that_the_source_refuses_has_another_next_step_than_one_with_members() -> None:
    errors = {"a": "the source answers GROUP_AUTHORIZATION_FAILED; give the mirror's user DESCRIBE on the group"}
    [forbidden, active] = found({}, group_errors={**errors, "b": "UNKNOWN_MEMBER_ID"})
    assert forbidden.text == "its offsets are not copied: the source answers GROUP_AUTHORIZATION_FAILED"
    assert forbidden.next_step == "Give the mirror's user DESCRIBE on the group"
    assert (active.subject, "with members here" in active.next_step) == ("group b", True)


def test_mirror_without_topics_says_why() -> None:
    [promoted] = without_topics("dr", "orders", ["orders"])
    assert "1 were promoted" in promoted.text
    # A mirror that is created again does not copy topics that were promoted before, until the failback.
    assert all(f"mirror {verb} dr" in promoted.next_step for verb in ("stop", "failback"))
    [unmatched] = without_topics("dr", "order", [])
    assert "matches order," in unmatched.text
    [empty] = without_topics("dr", "", [])
    assert "failback" in empty.next_step


def test_topic_that_waits_for_its_failback_is_named_once_with_the_way_out() -> None:
    [finding] = found({"state": "FAILBACK", "lag": -1}, {"state": "FAILBACK", "lag": -1})
    assert finding.subject == "topic orders"
    assert "`ottla mirror failback dr orders --cancel`" in finding.next_step


def test_failback_is_refused_unless_the_source_has_the_same_topic_open_for_writes() -> None:
    ours = FailbackTopic("id", 2, "")

    def problem(source: FailbackTopic | None) -> str:
        return " ".join(failback_problem("us.orders", ours, source) or ())

    assert problem(FailbackTopic("id", 2, "STOPPED")) == problem(FailbackTopic("id", 3, "")) == ""
    assert "has no topic 'us.orders'" in problem(None)
    assert "another id" in problem(FailbackTopic("other", 2, ""))
    assert "Promote it at the source" in problem(FailbackTopic("id", 2, "MIRRORING"))
    assert "FAILBACK, and so read-only" in problem(FailbackTopic("id", 2, "FAILBACK"))
    assert "fewer than 2 here" in problem(FailbackTopic("id", 1, ""))
