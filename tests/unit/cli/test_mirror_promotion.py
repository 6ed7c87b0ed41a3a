"""A planned promotion waits for the last records and offsets, whatever time the reports of brokers take."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli import mirror_parts, mirror_promote
from ottla.clients.errors import BrokerUnavailable
from ottla.common.failure import Failure
from ottla.tools.admin.mirrors import MirrorReport

STALL_S = 5.0
ROW: dict[str, Any] = {
    "topic": "orders",
    "partition": 0,
    "lag": 0,
    "committed": 7,
    "end": 7,
    "problem": "",
    "producers": 0,
}


class SlowBroker:
    """A broker whose reports are on the way for `STALL_S`, and then name the age that they had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.asked = 0
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=lambda _: None)
        monkeypatch.setattr(mirror_promote, "time", clock)
        monkeypatch.setattr(mirror_parts, "time", clock)
        monkeypatch.setattr(mirror_promote, "partitions_of", lambda *_: [("orders", 0)])
        monkeypatch.setattr(mirror_promote, "rows_of", lambda *_: self.report().partitions)
        monkeypatch.setattr(mirror_promote, "report_of", lambda *_: self.report())

    def report(self) -> MirrorReport:
        """A report of a copy that the source has answered one second ago, when the report was requested."""
        self.asked += 1
        self.now_s += STALL_S
        state = "STOPPING"
        return MirrorReport([{**ROW, "state": state, "age_ms": 1000}], {}, {}, {}, {}, groups_age_ms=1000)

    def describe_config(self, _: object) -> dict[str, SimpleNamespace]:
        """The settings of the mirror."""
        return {"groups": SimpleNamespace(value=".*")}


def test_report_that_was_on_the_way_for_long_does_not_count_as_newer_than_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source has answered before the command began, and may have got the last records since then."""
    broker = SlowBroker(monkeypatch)
    admin, output = cast("Any", broker), cast("Any", SimpleNamespace(note=lambda _: None))
    mirror_promote._wait_for_last_records(output, admin, "dr", ["orders"], math.inf)
    assert broker.asked == 2
    mirror_promote._wait_for_ends(output, admin, "dr", ["orders"], deadline_s=math.inf, groups_since_s=broker.now_s)
    assert broker.asked == 4


def test_offsets_that_are_copied_before_the_answer_to_the_end_of_the_copy_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy of the records is complete then, and the next offsets come an interval later."""
    broker = SlowBroker(monkeypatch)

    def move(*_: object) -> None:
        broker.now_s += 2

    monkeypatch.setattr(mirror_promote, "_copying", lambda *_: ["orders"])
    monkeypatch.setattr(mirror_promote, "move", move)
    monkeypatch.setattr(mirror_promote, "_wait_for_last_records", lambda *_: None)
    monkeypatch.setattr(mirror_promote, "_wait_until_open", lambda *_: None)
    admin, output = cast("Any", broker), cast("Any", SimpleNamespace(note=lambda _: None))
    mirror_promote._open(output, admin, "dr", ["orders"], deadline_s=math.inf)
    assert broker.asked == 3, "one report before the end, one of it, and one behind it"


def test_planned_promotion_warns_of_groups_whose_last_offsets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting would not help, and the group reads records again."""
    broker = SlowBroker(monkeypatch)
    warnings: list[str] = []
    refused = {"billing": "the source answers GROUP_AUTHORIZATION_FAILED; give the mirror's user DESCRIBE on the group"}
    monkeypatch.setattr(mirror_promote, "report_of", lambda *_: broker.report()._replace(groups=refused))
    monkeypatch.setattr(mirror_promote, "_copying", lambda *_: ["orders"])
    monkeypatch.setattr(mirror_promote, "move", lambda *_: None)
    monkeypatch.setattr(mirror_promote, "_wait_until_open", lambda *_: None)
    admin, output = cast("Any", broker), cast("Any", SimpleNamespace(note=lambda _: None, warn=warnings.append))
    unplanned: list[dict[str, Any]] = []
    for reported in (None, unplanned):
        mirror_promote._open(output, admin, "dr", ["orders"], deadline_s=math.inf, reported=reported)
    assert warnings == [f"group billing: its last offsets were not copied: {refused['billing']}"]


def test_promotion_ends_when_the_leaders_accept_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller has decided earlier; clients do not retry what a leader refuses until it has learned it."""
    moved: list[str] = []
    late = [[{**ROW, "state": "STOPPING", "partition": index}] for index in (1, 0)]
    monkeypatch.setattr(mirror_parts, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None))
    monkeypatch.setattr(mirror_promote, "_copying", lambda *_: ["orders"])
    monkeypatch.setattr(mirror_promote, "_wait_for_ends", lambda *_, **__: {})
    monkeypatch.setattr(mirror_promote, "move", lambda _, __, ___, state: moved.append(state))
    monkeypatch.setattr(mirror_promote, "rows_of", lambda *_: late.pop() if moved[-1:] == ["STOPPED"] and late else [])
    output, admin = cast("Any", SimpleNamespace(note=lambda _: None)), cast("Any", None)
    mirror_promote._open(output, admin, "dr", ["orders"], deadline_s=1.0, reported=[])
    assert (moved, late) == (["STOPPING", "STOPPED"], [])


def test_unplanned_promotion_knows_the_losses_that_it_has_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader may be lost while the command asks, and the next one has no answer of the lost source."""
    shown = {**ROW, "source_end": 9, "age_ms": 5, "leader_epoch": 1}
    new = {**ROW, "source_end": -1, "age_ms": -1, "leader_epoch": 2, "copy_end": 7}
    monkeypatch.setattr(mirror_promote, "_copying", lambda *_: ["orders"])
    monkeypatch.setattr(mirror_promote, "_wait_for_ends", lambda *_, **__: {})
    monkeypatch.setattr(mirror_promote, "_wait_until_open", lambda *_: None)
    monkeypatch.setattr(mirror_promote, "move", lambda *_: None)
    monkeypatch.setattr(mirror_promote, "rows_of", lambda *_: [new])
    output, admin = cast("Any", None), cast("Any", None)
    [lost] = mirror_promote._open(output, admin, "dr", ["orders"], deadline_s=math.inf, reported=[shown])
    assert (lost.records, lost.offset) == (2, 7)


def test_promotion_is_not_an_error_if_a_broker_does_not_answer_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []

    def fail(*_: object) -> list[dict[str, Any]]:
        raise BrokerUnavailable("broker 2")

    monkeypatch.setattr(mirror_promote, "rows_of", fail)
    output = cast("Any", SimpleNamespace(warn=warnings.append))
    mirror_promote._wait_until_open(output, cast("Any", None), "dr", ["orders"], math.inf)
    assert ["broker 2" in each for each in warnings] == [True]


def test_wait_prints_at_intervals_what_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def sleep(duration_s: float) -> None:
        nonlocal now_s
        now_s += duration_s

    monkeypatch.setattr(mirror_parts, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    notes: list[str] = []
    output = cast("Any", SimpleNamespace(note=notes.append))
    with pytest.raises(Failure, match=r"^orders-0 \(7 records behind\): the copy is not complete$"):
        mirror_parts.wait_for_all(output, lambda: ["orders-0 (7 records behind)"], 16, "the copy is not complete")
    assert notes == ["Waiting for orders-0 (7 records behind)."] * 3
