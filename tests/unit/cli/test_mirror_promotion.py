"""A planned promotion waits for the last records and offsets, whatever time the reports of brokers take."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli import mirror_parts, mirror_promote
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
    mirror_promote._wait_for_ends(output, admin, "dr", ["orders"], deadline_s=math.inf, with_groups=True)
    assert broker.asked == 4


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
