"""The decisions of a promotion by the reports of brokers: when a planned one goes on, and the warnings of others."""

from __future__ import annotations

from ottla.tools.admin.mirrors import UNKNOWN, Missing, awaited, behind, losses, missing


def test_partitions_with_missing_records_are_named_and_others_have_the_age_of_the_oldest_answer() -> None:
    rows = [
        {"topic": "orders", "partition": 0, "lag": 7, "age_ms": 1500},
        {"topic": "orders", "partition": 1, "lag": 0, "age_ms": 2500},
        {"topic": "orders", "partition": 2, "lag": 0, "age_ms": 40_000},
        {"topic": "orders", "partition": 3, "lag": -1},
        {"topic": "orders", "partition": 4, "lag": 0, "age_ms": -1},
    ]
    missing, unknown, unanswered, complete = losses(rows)
    assert missing == ("orders-0", "7 records are missing, and all of the last 1.5 s")
    assert (unknown[0], "unknown" in unknown[1]) == ("orders-3", True)
    assert unanswered == ("orders-4", unknown[1])
    assert complete == ("2 other partitions", "no records were missing 40.0 s ago; later ones are missing")


def test_records_are_missing_from_the_end_of_the_copy_on_though_its_leader_was_replaced() -> None:
    before = [
        {"topic": "orders", "partition": 0, "lag": 0, "source_end": 100, "age_ms": 5},
        {"topic": "orders", "partition": 1, "lag": 10, "source_end": 100, "age_ms": 5},
        {"topic": "orders", "partition": 2, "lag": 0, "source_end": 100, "age_ms": 5},
        {"topic": "orders", "partition": 3, "lag": 0, "source_end": 100, "age_ms": -1},
    ]
    ends = enumerate((100, 80, 101, 100, 7))
    after = [{"topic": "orders", "partition": index, "copy_end": end, "leader_epoch": 7} for index, end in ends]
    after.append({"topic": "orders", "partition": 0, "copy_end": 50, "leader_epoch": 6})
    # The leaders report in any order; the losses are sorted.
    found = missing(before, reversed(after))
    # The last leader of partition 1 had 90, and the next one 80. Partition 4 was not reported before.
    assert found == [Missing("orders", 1, 20, 80), Missing("orders", 3, UNKNOWN, 100), Missing("orders", 4, UNKNOWN, 7)]
    assert found[0].text == "20 records are missing, from offset 80 of the source on, and all later ones"
    assert "from offset 100 on are missing; their number is unknown" in found[1].text


def test_new_leader_that_the_source_has_not_answered_does_not_hide_an_earlier_report() -> None:
    first = {"topic": "orders", "partition": 0, "leader_epoch": 6, "lag": 10, "source_end": 100, "age_ms": 5}
    new = {**first, "leader_epoch": 7, "lag": UNKNOWN, "source_end": UNKNOWN, "age_ms": UNKNOWN}
    after = [{**new, "copy_end": 80, "leader_epoch": 8}]
    assert missing([first, new], after) == [Missing("orders", 0, 20, 80)]
    assert missing([first, {**new, "source_end": 90, "age_ms": 1}], after) == [Missing("orders", 0, 10, 80)]
    assert missing([new], after) == [Missing("orders", 0, UNKNOWN, 80)]


def test_planned_promotion_waits_until_the_last_records_are_committed() -> None:
    complete = {"lag": 0, "end": 9, "committed": 9, "age_ms": 5, "problem": ""}
    uncommitted = {**complete, "committed": 7}
    others = [{**complete, **changed} for changed in ({"lag": 1}, {"age_ms": 50}, {"age_ms": -1}, {"problem": "x"})]
    assert behind([complete, uncommitted, *others], 10) == [uncommitted, *others]


def test_planned_promotion_names_what_it_waits_for() -> None:
    rows = [
        {"topic": "orders", "partition": 0, "lag": 7, "problem": ""},
        {"topic": "orders", "partition": 1, "lag": 0, "problem": ""},
        {"topic": "orders", "partition": 2, "lag": -1, "problem": "The source does not have the topic; its topic"},
    ]
    assert awaited(rows) == ["orders-0 (7 records behind)", "orders-1", "orders-2 (The source does not have the topic)"]
